"""README.md, typed as it is written, with the small image in the place of others and on a machine without GPUs.

Of the images that are not small only the plan is made. A registry of our own stands in for those that the page names.
"""

import re
import shlex
import sys

import pytest

from tests.conftest import ROOT, program
from tests.engines.test_runtimes_page import in_registry
from tests.engines.typist import MAKE, TRAINED, TRAINING, Typist, blocks, in_new_clone, in_project, settings
from tests.engines.workplace import small_stack
from tests.pyxis import make_site

pytestmark = pytest.mark.slow

#: commands in sentences, which tests below type as well, and what they print
PLANNED = {"./build.py explain --target dgx2": "11.8"}
CATALOG = "./build.py catalog"
README, CUSTOMIZE = ROOT / "README.md", ROOT / "docs" / "customize.md"


@pytest.fixture
def user(workplace, built_image, dist_alone):
    """Types in the project's folder, where a person's program is."""

    def types(environment=(), removed=()):
        (workplace.folder / "train.py").write_text(TRAINING)
        names = [("pyg:<tag>", "torch:<tag>"), ("pyg:cu118", "torch:<tag>"), ("dist/pyg", "dist/torch")]
        return in_project(workplace, built_image, environment, names, removed)

    return types


@pytest.fixture
def planner(workplace, built_image, scratch, dist_alone):
    """Types in the project's folder, where `make image` ends after its plan."""
    plan = scratch / "plan"
    plan.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -E -s -m graphcrate.cli.main "$@" --plan\n')
    plan.chmod(0o755)
    recipe = re.search(r"^```toml\n(extends.*?)^files", CUSTOMIZE.read_text(), re.MULTILINE | re.DOTALL)[1]
    (workplace.folder / "mine.toml").write_text(recipe.replace(', "./mypkg"', ""))
    (workplace.folder / "environment.yml").write_text("dependencies: [python=3.11, pytorch, pip: [einops]]\n")
    make = ("make image", f"graphcrate={plan} make -e -o .venv/ready-run image")
    yield in_project(workplace, built_image, {}, [make])
    for name in ("mine.toml", "environment.yml"):
        (workplace.folder / name).unlink()


def in_table(heading):
    """The commands of the table below a heading, one after the other."""
    section = README.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = "".join(re.findall(r"^\| [^|]* \|( `.*) \|$", section, re.MULTILINE))
    return re.findall(r"`((?:\./build|docker|singularity|srun|make)[^`]+)`", rows)


@pytest.mark.engine("git")
def test_quick_start_commands_build_an_image_and_a_sif(user, scratch):
    (clone, make), _ = blocks(README, "Quick start")
    Typist(scratch, {"HOME": str(scratch)}, [("ADDRESS", str(ROOT))]).type(f"{clone} && git log -1 && ls Makefile")
    person = user()
    assert person.type(make, ("make image", f"{MAKE} image"), ("CUDA=11.8", settings(small_stack()))).startswith(
        "torch:"
    )
    person = user(removed=("dist/torch/*/torch.sif", "torch.sif"))
    sif = f"{MAKE} sif {settings(small_stack())}"
    assert person.type(sif).endswith("/torch.sif\n")


@pytest.mark.engine("slurm", "apptainer build")
def test_quick_start_runs_what_the_build_trained(workplace, pyg_image, slurm, apptainer, scratch, dist_alone):
    _, (copy, sif, run, convert, srun) = blocks(README, "Quick start")
    site = make_site(scratch / "site", program("srun"), program("apptainer"))
    environment = {**apptainer, **slurm.environment, "PATH": site.path}
    changes = [("pyg:cu118", "pyg:<tag>"), ("python dna.py", "python dna.py --epochs 2 --every 1")]
    person = in_new_clone(workplace, pyg_image, scratch, environment, changes)
    person.type(copy)
    # `make sif` is typed above; of this image it is
    person.type(
        sif, ("make sif CUDA=11.8", "./build.py convert pyg:<tag> --to sif --compression zstd --output pyg.sif")
    )
    assert "\nEpoch: 002, Loss: " in person.type(run, (" --nv", ""))
    person.type(convert)
    assert "\nEpoch: 002, Loss: " in person.type(srun)


@pytest.mark.network
def test_readme_image_commands_print_a_plan(planner):
    planner.types(README, "Which image do I need?", *["plan for "] * 6, "11.8")
    planner.types(README, "Your own packages", *["plan for "] * 4)
    assert all(text in planner.type(command) for command, text in PLANNED.items())


@pytest.mark.engine("slurm", "apptainer build", "docker daemon")
def test_run_it_table_commands_run_in_each_runtime(user, slurm, apptainer, docker, scratch):
    site = make_site(scratch / "site", program("srun"), program("apptainer"))
    environment = {**apptainer, **slurm.environment, "PATH": site.path, "DOCKER_HOST": docker}
    person = user(environment, ["dist/torch/*/torch.[ds]*", "pyg.s*"])
    singularity, job, srun, load, run, _, bare = in_table("Run it")
    person.type("./build.py convert pyg:<tag> --to sif --compression zstd --output pyg.sif")
    assert person.type(singularity, (" --nv", "")) == TRAINED
    person.type(job)
    person.type("sbatch --test-only --partition a100 --gpus-per-node 0 pyg.sbatch")
    person.type("./build.py convert pyg:<tag> --to sqsh --output pyg.sqsh")
    assert person.type(srun) == TRAINED
    person.type(load)
    assert person.type(run, ("--gpus all ", "")) == TRAINED
    assert person.type(bare) == TRAINED


@pytest.mark.engine("docker-registry")
def test_will_it_run_there(user, registry, workplace, built_image):
    workplace.run("publish", built_image.layout, "--to", f"{registry}/asked", "--allow-cpu-only")
    ((explain, check, doctor, message),) = blocks(README, "Will it run there, and why does it not?")
    person = user()
    assert "11.8" in person.type(explain)
    somebodys = ("registry.example.com/team/image:1.0", f"{registry}/asked/torch:{built_image.report['tag']}")
    assert "torch 2" in person.type(check, somebodys, code=14)  # it is for the CPU
    assert "GPU" in person.type(doctor, code=None)
    assert "\ncause: torch, or an extension, has no machine code" in person.type(message)


@pytest.mark.engine("docker-registry", "skopeo")
def test_publish_section_commands_reach_a_registry(user, registry, built_image):
    person = user({"COSIGN_PASSWORD": "canary-c0ffee"}, ["cosign.*"])
    ours = [
        ("make publish", f"{MAKE} publish"),
        ("STACK=glt CUDA=12.1 FLAVOUR=jupyter ALLOW_CPU_ONLY=yes", "CUDA=11.8"),
        ("CUDA=11.8", f"{settings(small_stack())} ALLOW_CPU_ONLY=yes"),
        ("registry.example/team/pyg", f"{registry}/readme/torch"),
        ("registry.example/team", f"{registry}/readme"),
        ("acr:cn-shanghai/team", f"{registry}/acr"),
    ]
    ((pair, publish, verify),) = blocks(README, "Publish")
    person.type(pair)
    for command, namespace in ((publish, "readme"), (in_table("Run it")[-2], "acr")):
        person.type(command, *ours)
        assert in_registry(registry, f"{namespace}/torch", built_image)
    assert "the same bytes" in person.type(verify, *ours)
    person.type(CATALOG)


def test_each_command_in_a_sentence_is_typed():
    named = set(re.findall(r"`((?:\./build\.py|make) [^`]+)`", README.read_text()))
    # make test is what runs this; the help is held by test_cli
    assert named - set(in_table("Run it")) == {*PLANNED, CATALOG, "make test", "./build.py --help"}
