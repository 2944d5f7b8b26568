"""docs/runtimes.md and docs/test.md, typed as they are written, with the small image in the place of pyg, without GPUs.

A registry of our own, without TLS, stands in for those that the pages name.
"""

import json
import os
import re
import shutil

import pytest

from tests.conftest import ROOT, program
from tests.engines.typist import TRAINED, TRAINING, blocks, in_project
from tests.engines.workplace import call
from tests.pyxis import make_site

pytestmark = pytest.mark.slow

RUNTIMES, TEST = ROOT / "docs" / "runtimes.md", ROOT / "docs" / "test.md"


@pytest.fixture
def typist(workplace, built_image, dist_alone):
    """Types in the project's folder, with programs that users would have there and no file that a test has made."""

    def types(environment=()):
        for name in ("dna.py", "train.py"):
            (workplace.folder / name).write_text(TRAINING)
        made = ["dist/torch/*/torch.[ds]*"]
        return in_project(workplace, built_image, environment, [("pyg", "torch"), ("dna,ops", "torch")], made)

    return types


@pytest.mark.engine("docker daemon")
def test_docker_section_commands_train_in_docker(typist, docker):
    user = typist({"DOCKER_HOST": docker, "PATH": f"/usr/bin:{os.environ['PATH']}"})
    changes = [("--gpus all ", ""), ("--gpus 2", "--gpus 0")]
    user.types(RUNTIMES, "Docker", "", "", TRAINED, "", TRAINED, changes=changes)
    tested = user.type("./build.py test pyg:<tag> --runner docker")
    assert re.match(r"torch: passed on cpu in \d+ s \(docker \d", tested)


def at(registry, address):
    """The command as changed so that an image goes to our registry, and from a machine without a GPU."""
    return f"--to {address}", f"--to {registry}/team --allow-cpu-only"


def in_registry(registry, name, image):
    """Return whether the registry has these very layers under a name."""
    found = call("skopeo", "inspect", "--tls-verify=false", f"docker://{registry}/{name}:{image.report['tag']}")
    return json.loads(found)["Layers"] == [layer["digest"] for layer in image.report["layers"]]


@pytest.mark.engine("slurm", "apptainer build", "docker-registry", "skopeo")
def test_pyxis_section_commands_train_through_srun(typist, built_image, slurm, apptainer, registry, scratch):
    site = make_site(scratch / "site", program("srun"), program("apptainer"))
    user = typist(apptainer | slurm.environment | {"PATH": site.path, "APPTAINER_NOHTTPS": "true"})
    changes = [at(registry, "registry.example.com/team"), ("registry.example.com#", f"{registry}#")]
    changes += [("sbatch ", "sbatch --test-only ")]
    user.types(RUNTIMES, "Slurm with pyxis", "", TRAINED, "", TRAINED, "", "", changes=changes)
    assert in_registry(registry, "team/torch", built_image)


@pytest.mark.engine("slurm", "apptainer build")
def test_dgx2_section_jobs_train_on_one_and_four_processes(typist, slurm):
    user = typist(slurm.environment)
    (convert, run), one, many = blocks(RUNTIMES, "DGX-2 and other Slurm clusters with Singularity")
    user.type(convert)
    assert TRAINED in user.type(run)
    for (job, submit), processes in ((one, 1), (many, 4)):
        user.type(job)
        out, err = user.submit(submit)
        assert out == TRAINED * processes, err


@pytest.mark.engine("docker-registry", "skopeo")
def test_pai_sections_publish_the_image_and_write_the_job(typist, built_image, registry):
    user = typist()
    address = f"registry-vpc.cn-shanghai.aliyuncs.com/team/torch:{built_image.report['tag']}\n"
    user.types(RUNTIMES, "Alibaba PAI: DSW", "", address, changes=[at(registry, "acr:cn-shanghai/team")])
    assert in_registry(registry, "team/torch", built_image)
    user.types(RUNTIMES, "Alibaba PAI: DLC", "")
    assert '"PodCount": 2' in (user.folder / "dlc.json").read_text()


@pytest.mark.engine("slurm", "apptainer build")
def test_testing_page_commands_pass_here_and_in_slurm(typist, built_image, slurm):
    user = typist(slurm.environment)
    user.type("./build.py convert pyg:<tag> --to sif")
    user.types(TEST, "Testing an image where it will run", *["torch: passed on cpu"] * 3)
    # a person's nodes are others than where they type; here they are this machine, where it has just passed
    shutil.rmtree(built_image.layout.parent / "passes")
    user.types(TEST, "In Slurm", "partition a100")
    # there is one image here; what is named twice is one cell
    for _ in range(2):
        other = ("glt:<tag>", "dist/pyg/<tag>/pyg.sif")
        user.types(TEST, "Many images, many partitions", "2 passed", changes=[other])
