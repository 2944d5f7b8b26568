"""docs/run.md, doctor.md, images.md, dockerfile.md, checks.md, publish.md, typed as written in a new clone, home empty.

The small image stands in for pyg, and this machine, without GPUs, for the nodes. Of what other pages build the plan is
made.
"""

import html
import os
import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.commands import commands, parts
from tests.conftest import ROOT
from tests.engines.typist import MAKE, TRAINED, TRAINING, Typist, blocks, in_new_clone
from tests.engines.workplace import PARTS, call
from tests.unit.house.test_commands import PAGES

pytestmark = pytest.mark.slow

RUN, DOCTOR, IMAGES, DOCKERFILE, CHECKS, PUBLISH, REQUIREMENTS = (
    ROOT / "docs" / f"{name}.md"
    for name in ("run", "doctor", "images", "dockerfile", "checks", "publish", "requirements")
)
#: an error that the doctor knows
UNKNOWN_GPU = "no kernel image is available for execution on the device"
MAKE_FILE = ("make ", f"python='{sys.executable}' make -e -o .venv/ready-run ")


@pytest.fixture
def person(workplace, built_image, scratch, dist_alone):
    """Types in a new clone: the small image is pyg there, for any CUDA version."""

    def types(environment=()):
        (scratch / "train.py").write_text(TRAINING)
        names = [("pyg:cu118", "torch:<tag>"), ("pyg:cu128", "torch:<tag>"), ("pyg", "torch"), ("--gres=gpu:1 ", "")]
        return in_new_clone(workplace, built_image, scratch, environment, names)

    return types


@pytest.mark.engine("user namespaces")
def test_running_page_commands_train_without_an_engine_and_make_a_sif(person):
    user = person()
    ((torch, shell, piped),) = blocks(RUN, "Without an engine")
    assert user.type(torch) == "False\n"
    user.type(shell)  # nobody types there: it ends at once
    assert user.type(piped) == (user.folder / "log").read_text() == TRAINED
    ((convert,),) = blocks(RUN, "Forms")
    assert user.type(convert) == "torch-centos7.sif\n"
    ((convert, job, of_registry),) = blocks(RUN, "A job for Slurm")
    user.type(convert, ("--to sif", "--to sif --force"))  # another test may have made it
    for command, runtime in ((job, "singularity"), (of_registry, "container-image")):
        user.type(command)
        assert runtime in (user.folder / "torch.sbatch").read_text()


@pytest.mark.engine("slurm", "apptainer build")
def test_doctor_page_commands_run_here_over_ssh_and_inside(person, slurm, workplace, small_sif):
    user = person(slurm.environment)
    (user.folder / "doctor.py").symlink_to(workplace.folder / "doctor.py")  # where the Makefile is, file for file
    os.link(small_sif, user.folder / "torch.sif")
    ((here, file, over_ssh, on_node, inside, _),) = blocks(
        DOCTOR, "The doctor: what works on this node, and what an error means"
    )
    assert "GPU" in user.type(here, code=None)
    user.type(file, MAKE_FILE)
    for command in (over_ssh, on_node, inside):
        assert "GPU" in user.type(command, ("ssh node ", ""), (" --nv", ""), code=None)
    ((text, log),) = blocks(DOCTOR, "An error")
    assert "\ncause: " in user.type(text, ("ImportError: …", UNKNOWN_GPU))
    (user.folder / "train.py").write_text(f"raise RuntimeError({UNKNOWN_GPU!r})\n")
    assert "\ncause: " in user.type(log, ("python train", "python3 train"))


@pytest.mark.engine("slurm", "apptainer build")
def test_checking_page_commands_judge_our_image_and_others(person, slurm, small_sif):
    user = person(slurm.environment)
    os.link(small_sif, user.folder / "torch.sif")
    (user.folder / "somebodys.sif").symlink_to("torch.sif")
    ((ours, _, theirs),) = blocks(CHECKS, "Will this image run?")
    assert "torch 2" in user.type(ours, code=14)  # it is for the CPU
    assert "runtimes" in user.type(theirs, code=None)
    ((doctor, on_node),) = blocks(CHECKS, "Why does it not run here?")
    for command in (doctor, on_node):
        assert "GPU" in user.type(command, (" --nv", ""), code=None)


@pytest.mark.engine("docker daemon")
def test_images_page_commands_write_reports_and_compare(person, docker, small_sif):
    user = person({"DOCKER_HOST": docker})
    os.link(small_sif, user.folder / "torch.sif")
    (user.folder / "somebodys.sif").symlink_to("torch.sif")
    ((report, comparison, inspect, catalog),) = blocks(IMAGES, "Look at it")
    for command in (report, comparison, catalog):
        assert (user.folder / user.type(command).strip()).stat().st_size > 1000
    assert "torch " in user.type(inspect)
    page = (user.folder / user.type("./build.py report pyg:<tag>").strip()).read_text(encoding="utf-8")
    for tab in ("docker", "here"):  # what its copy button gives
        button = re.search(rf'id="run-{tab}"><div class="copy"><pre>(.*?)</pre>', page, re.DOTALL)[1]
        assert user.type(html.unescape(button)).endswith(TRAINED), button
    ((of_docker, of_file),) = blocks(IMAGES, "With an engine of your own")
    assert "\nidentical\n" in user.type(of_docker)
    assert "compared: paths" in user.type(of_file)  # what may differ, and why, is not the end of it


@pytest.mark.network
@pytest.mark.engine("docker daemon")
def test_dockerfile_page_builds_on_our_image_and_torch_stays(person, docker, built_image):
    user = person({"DOCKER_HOST": docker})
    page = DOCKERFILE.read_text(encoding="utf-8")
    text = re.search(r"^```\n(FROM .*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    registry, *lines = text.splitlines(keepends=True)
    assert registry.startswith("FROM registry.example/team/pyg:<tag>@sha256:")
    image = f"{built_image.report['name']}:{built_image.report['tag']}"
    # the index's certificate may be of an authority that this machine alone knows
    call(sys.executable, "-m", "pip", "download", "--no-deps", "--dest", user.folder / "wheels", "einops")
    ours = (f"FROM {image}\n", "COPY wheels /wheels\n", "ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels\n")
    (user.folder / "Dockerfile").write_text("".join((*ours, *lines)))
    (user.folder / ".dockerignore").write_text("*\n!train.py\n!wheels\n")
    ((load, build, check),) = blocks(DOCKERFILE, "An image of ours in your Dockerfile")
    for command in (load, build):
        user.type(command)
    assert user.type("docker run --rm mine") == TRAINED
    versions = "docker run --rm mine python -c 'import einops, torch; print(torch.__version__)'"
    assert user.type(versions).strip() == built_image.report["torch"]
    said = user.type(check, (" --target dgx2", ""), code=None)
    assert "nothing is wrong" in said, said
    assert "stack.txt" not in said, "no file where runtimes mount over it"


@pytest.mark.engine("user namespaces")
def test_publish_page_bundle_runs_the_image_without_a_network(person, scratch):
    user = person()
    ((publish,), (check, unpack, run)) = blocks(PUBLISH, "To a site without a network")
    (stick := user.folder / "stick").mkdir()
    user.type(publish, ("/media/stick --as bundle", f"{stick} --as bundle --compression zstd --allow-cpu-only"))
    typed = "\n".join((check, unpack, "cp ../../train.py .", run)).replace("pyg", "torch").replace(*user.changes[-1])
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(scratch / "home")}
    told = call("unshare", "-rn", "bash", "-euc", typed, environment=environment, folder=stick)
    assert told.splitlines()[1:] == TRAINED.splitlines()


def built_by(pages):
    """The arguments of `make image` and `make sif` on these pages, each once, and where.

    Not what a page's own files are for (`mine`, a folder of wheels), a site's caches and servers, nor what stands for
    something else. A mirror does not count: README's is typed. Nor does where it is built, what of it is said and
    into which file it is written: a plan is made here.
    """
    elsewhere = ("MIRROR=", "ON=", "PARTITION=", "TIME=", "CPUS=", "ACCOUNT=")
    elsewhere += ("PLAN=", "QUIET=", "COMPRESSION=", "OVER=")
    found = {}
    for command in (command for page in pages for command in commands(page)):
        for program, *words in parts(command.text):
            if (
                program == "make"
                and words[0] in ("image", "sif")
                and not {"mine", "ETC"} & set("=".join(words).split("="))
            ):
                asked = tuple(sorted(word for word in words[1:] if not word.startswith(elsewhere)))
                found.setdefault(asked, str(command))
    theirs = ("RECIPE=", "FROM=", "WHEELS=", "REQUIREMENTS=", "PYG_LIB=", "WITH=./", "WITH=git+ssh:", "WITH=mypkg")
    theirs += ("CACHE=", "AT=")
    return {words: where for words, where in found.items() if not any(word.startswith(theirs) for word in words)}


def covering(asked):
    """Some of these requests: with each word of one in one of them, the longest first."""
    seen, chosen = set(), {}
    for words in sorted(asked, key=lambda words: (-len(words), words)):
        if not seen.issuperset(words):
            seen.update(words)
            chosen[words] = asked[words]
    return chosen


@pytest.mark.network
@pytest.mark.parametrize("chosen", [covering, pytest.param(dict, marks=pytest.mark.weekly)])
def test_image_commands_of_all_pages_print_a_plan_in_a_new_clone(workplace, scratch, chosen):
    """In a new clone with an empty cache, as readers of the page have it."""
    user = Typist(workplace.folder, {"GRAPHCRATE_CACHE": str(scratch / "cache"), "HOME": str(scratch)})
    typed = built_by(["README.md"])  # by test_readme
    asked = chosen({words: where for words, where in built_by(PAGES).items() if words not in typed})
    assert len(asked) > 10

    def plan(words):
        return user.type(f"{MAKE} image {shlex.join(words)} PLAN=yes")

    with ThreadPoolExecutor(2) as pool:  # each waits for the index
        for where, text in zip(asked.values(), pool.map(plan, asked), strict=True):
            assert "plan for " in text, where


@pytest.mark.network
def test_requirements_page_commands_take_a_users_files(workplace, scratch):
    """In a folder that has a person's files in the place of ours."""
    for name in (name for name in PARTS if name != "pyproject.toml"):
        (scratch / name).symlink_to(workplace.folder / name)
    (scratch / "environment.yml").write_text("dependencies: [python=3.11, pytorch, tabulate, pip: [einops]]\n")
    project = '[project]\nname = "mine"\nversion = "1"\n[project.optional-dependencies]\ntrain = ["einops"]\n'
    (scratch / "pyproject.toml").write_text(project)
    user = Typist(scratch, {"GRAPHCRATE_CACHE": str(scratch / "cache"), "HOME": str(scratch)})
    ((make, image),) = blocks(REQUIREMENTS, "Requirements files")
    assert "einops" in user.type(f"{make} PLAN=yes", ("make", MAKE))
    assert "einops" in user.type(image, ("graphcrate", "./build.py"))
