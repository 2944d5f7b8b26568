"""docs/runtimes.md, typed as it is written, with the small image in the place of pyg and on a machine without GPUs.

A registry of our own, without TLS, stands in for those that the page names.
"""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, program
from tests.engines.typist import blocks, in_project, untyped
from tests.engines.workplace import call
from tests.pyxis import make_site

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "runtimes.md"
#: what users have in their working directory
PROGRAM = "import torch\nprint('trained', torch.ones(2).sum().item())\n"


def typist(workplace, built_image, environment, anew=()):
    """Types in the project's folder, with programs that users would have there."""
    for name in ("dna.py", "train.py"):
        (workplace.folder / name).write_text(PROGRAM)
    return in_project(workplace, built_image, environment, [("pyg", "torch"), ("dna,ops", "torch")], anew)


@pytest.mark.engine("docker daemon")
def test_docker(workplace, built_image, docker):
    user = typist(workplace, built_image, {"DOCKER_HOST": docker, "PATH": f"/usr/bin:{os.environ['PATH']}"})
    (convert, load, run), (job, start) = blocks(PAGE, "Docker")
    user.type(convert)
    user.type(load)
    assert user.type(run, ("--gpus all ", "")) == "trained 2.0\n"
    user.type(job, ("--gpus 2", "--gpus 0"))
    assert user.type(start) == "trained 2.0\n"
    told = user.type("./build.py test pyg:<tag> --runner docker")
    assert re.match(r"torch: passed on cpu in \d+ s \(docker \d", told)


def at(registry, place):
    """What is typed otherwise so that an image goes to our registry, and from a machine without a GPU."""
    return ((f"--to {place}", f"--to {registry}/team --allow-cpu-only"),)


def lies_in(registry, name, image):
    """Whether the registry has these very layers under a name."""
    found = call("skopeo", "inspect", "--tls-verify=false", f"docker://{registry}/{name}")
    return json.loads(found)["Layers"] == [layer["digest"] for layer in image.report["layers"]]


@pytest.mark.engine("slurm", "apptainer build", "docker-registry", "skopeo")
def test_pyxis(workplace, built_image, slurm, apptainer, registry, scratch):
    site = make_site(scratch / "site", program("srun"), program("apptainer"))
    surroundings = {"PATH": site.path, "APPTAINER_NOHTTPS": "true"}
    user = typist(workplace, built_image, {**apptainer, **slurm.environment, **surroundings}, ["dist/torch/*/torch.s*"])
    (convert, run), (push, pull), (job, submit) = blocks(PAGE, "Slurm with pyxis")
    user.type(convert)
    assert user.type(run) == "trained 2.0\n"
    user.type(push, *at(registry, "registry.example.com/team"))
    assert lies_in(registry, f"team/torch:{built_image.report['tag']}", built_image)
    assert user.type(pull, ("registry.example.com", registry)) == "trained 2.0\n"
    user.type(job)
    user.type(submit, ("sbatch ", "sbatch --test-only "))


@pytest.mark.engine("slurm", "apptainer build")
def test_dgx2_with_singularity(workplace, built_image, slurm):
    user = typist(workplace, built_image, slurm.environment, ["dist/torch/*/torch.s*"])
    (convert, run), (job, submit), (nodes_job, nodes_submit) = blocks(
        PAGE, "DGX-2 and other Slurm clusters with Singularity"
    )
    user.type(convert)
    assert "trained 2.0" in user.type(run)
    for make, send, processes in ((job, submit, 1), (nodes_job, nodes_submit, 4)):
        user.type(make)
        out, err = user.submit(send)
        assert out == "trained 2.0\n" * processes, err


@pytest.mark.engine("docker-registry", "skopeo")
def test_alibaba_pai(workplace, built_image, registry):
    user = typist(workplace, built_image, {})
    ((push, address),) = blocks(PAGE, "Alibaba PAI: DSW")
    user.type(push, *at(registry, "acr:cn-shanghai/team"))
    assert lies_in(registry, f"team/torch:{built_image.report['tag']}", built_image)
    assert user.type(address) == f"registry-vpc.cn-shanghai.aliyuncs.com/team/torch:{built_image.report['tag']}\n"
    ((request,),) = blocks(PAGE, "Alibaba PAI: DLC")
    user.type(request)
    assert '"PodCount": 2' in (user.folder / "dlc.json").read_text()


@pytest.mark.engine("slurm", "apptainer build")
def test_testing(workplace, built_image, slurm):
    user = typist(workplace, built_image, slurm.environment)
    for line in blocks(PAGE, "Testing an image where it will run")[0]:
        assert user.type(line).startswith("torch: passed on cpu")
    (job,), (matrix,) = blocks(PAGE, "In Slurm")
    # a person's nodes are others than where they type; here they are this machine, where it has just passed
    shutil.rmtree(built_image.layout.parent / "passes")
    assert "partition a100" in user.type(job)
    # there is one image here; what is named twice is one cell
    other = ("glt:<tag>", "dist/pyg/<tag>/pyg.sif")
    assert user.type(matrix, other).startswith("2 passed")
    assert user.type(matrix, other).startswith("2 passed")


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("runtimes", "test_runtimes_page"),
        ("tutorials/dna", "test_tutorials"),
        ("tutorials/dgx2", "test_tutorials"),
        ("tutorials/multi-node", "test_multi_node"),
        ("tutorials/glt", "glt_pages"),
    ],
)
def test_every_block_of_a_page_is_typed(page, module):
    left = untyped(ROOT / "docs" / f"{page}.md", Path(__file__).with_name(f"{module}.py"))
    assert left == (["Get the image"] if module == "glt_pages" else [])  # test_stacks builds it by itself
