"""README.md, typed as it is written, with the small image in the place of others and on a machine without GPUs.

Of the images that are not small only the plan is made. A registry of our own stands in for those that the page names.
"""

import re
import shlex
import sys

import pytest

from tests.conftest import ROOT, program
from tests.engines.test_runtimes_page import lies_in
from tests.engines.typist import MAKE_SIF, blocks, in_project, untyped
from tests.engines.workplace import small_stack
from tests.pyxis import make_site

pytestmark = pytest.mark.slow

README, CUSTOMIZE = ROOT / "README.md", ROOT / "docs" / "customize.md"
PROGRAM = "import torch\nprint('trained', torch.ones(2).sum().item())\n"


def settings():
    """What make is asked for to get the small image."""
    name, *options = small_stack()
    pairs = zip(options[::2], options[1::2], strict=True)
    return " ".join([f"STACK={name}", *(f"{key.removeprefix('--').upper()}='{value}'" for key, value in pairs)])


@pytest.fixture
def user(workplace, built_image):
    """Types in the project's folder, where a person's program is."""

    def types(environment=(), anew=()):
        (workplace.folder / "train.py").write_text(PROGRAM)
        names = [("pyg:<tag>", "torch:<tag>"), ("pyg:cu118", "torch:<tag>"), ("dist/pyg", "dist/torch")]
        return in_project(workplace, built_image, dict(environment), names, anew)

    return types


@pytest.fixture
def planner(workplace, built_image, scratch):
    """Types in the project's folder, where `make image` ends after its plan."""
    plan = scratch / "plan"
    plan.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -E -s -m graphcrate.cli.main "$@" --plan\n')
    plan.chmod(0o755)
    make = ("make image", f"graphcrate={plan} make -e -o .venv/ready-run image")
    recipe = re.search(r"^```toml\n(extends.*?)^```$", CUSTOMIZE.read_text(), re.MULTILINE | re.DOTALL)[1]
    (workplace.folder / "mine.toml").write_text(re.sub(r"^files = .*\n|^\[files\]\n(.+\n)*", "", recipe, flags=re.M))
    yield in_project(workplace, built_image, {}, [make])
    (workplace.folder / "mine.toml").unlink()


def in_table(heading):
    """What is typed in the table below a heading, one after the other."""
    section = README.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]* \| (`.*) \|$", section, re.MULTILINE)
    return [
        command for row in rows for command in re.findall(r"`((?:\./build|docker|singularity|srun|make)[^`]+)`", row)
    ]


@pytest.mark.engine("apptainer build")
def test_quick_start(user):
    ((make, run),) = blocks(README, "Quick start")
    person = user(anew=("dist/torch/*/torch.s*", "torch.sif", "pyg.sif"))
    made = person.type(make, ("make sif CUDA=11.8", f"{MAKE_SIF} {settings()}"))
    assert made.endswith("/torch.sif\n")
    assert person.type(run, ("--nv pyg.sif", "torch.sif")) == "trained 2.0\n"


@pytest.mark.network
def test_images_are_planned(planner):
    ((*which, explain),) = blocks(README, "Which image do I need?")
    (own,) = blocks(README, "Your own packages")
    for line in (*which, *own):
        assert "plan for " in planner.type(line), line
    assert "11.8" in planner.type(explain)


@pytest.mark.engine("slurm", "apptainer build", "docker daemon")
def test_run_it(user, slurm, apptainer, docker, scratch):
    site = make_site(scratch / "site", program("srun"), program("apptainer"))
    surroundings = {"PATH": site.path, "DOCKER_HOST": docker}
    person = user({**apptainer, **slurm.environment, **surroundings}, ["dist/torch/*/torch.[ds]*", "pyg.s*"])
    singularity, job, srun, load, run, _, bare = in_table("Run it")
    person.type("./build.py convert pyg:<tag> --to sif --compression zstd --output pyg.sif")
    assert person.type(singularity, (" --nv", "")) == "trained 2.0\n"
    person.type(job)
    person.type("sbatch --test-only --partition a100 --gpus-per-node 0 pyg.sbatch")
    person.type("./build.py convert pyg:<tag> --to sqsh --output pyg.sqsh")
    assert person.type(srun) == "trained 2.0\n"
    person.type(load)
    assert person.type(run, ("--gpus all ", "")) == "trained 2.0\n"
    assert person.type(bare) == "trained 2.0\n"


def test_will_it_run_there(user, registry, workplace, built_image):
    place = f"{registry}/asked/torch"
    workplace.run("publish", built_image.layout, "--to", f"{registry}/asked", "--allow-cpu-only")
    ((explain, check, doctor, message),) = blocks(README, "Will it run there, and why does it not?")
    person = user({})
    assert "11.8" in person.type(explain)
    examined = ("registry.example.com/team/image:1.0", f"{place}:{built_image.report['tag']}")
    told = person.typed(check, examined, code=9)
    assert "runtimes" in told.stdout
    assert "GPU" in person.typed(doctor, code=None).stdout
    assert "sm_" in person.type(message)


@pytest.mark.engine("docker-registry", "skopeo")
def test_publish(user, registry, built_image):
    person = user({"COSIGN_PASSWORD": "canary-c0ffee"}, ["cosign.*"])
    person.type("./build.py keys")
    make = ("make publish", f"{MAKE_SIF.removesuffix('sif')}publish")
    asked = [(text, settings() + " ALLOW_CPU_ONLY=yes") for text in ("STACK=glt CUDA=12.1", "CUDA=11.8")]
    ((publish, verify),) = blocks(README, "Publish")
    ours = [("registry.example/team", f"{registry}/readme"), ("acr:cn-shanghai/team", f"{registry}/acr")]
    for command, name in ((publish, "readme"), (in_table("Run it")[-2], "acr")):
        person.type(command, make, *asked, *ours)
        assert lies_in(registry, f"{name}/torch:{built_image.report['tag']}", built_image)
    assert "the same bytes" in person.type(verify, ("/pyg:", "/torch:"), *ours)
    person.type("./build.py catalog")


def test_every_block_is_typed():
    assert untyped(README, ROOT / "tests/engines/test_readme.py") == []
