"""Rendered texts: the committed ones are fresh, nothing of a plan is dropped, each form has what its engine knows."""

import re
import shlex

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat import planning, recipes
from graphcrate.compat.addresses import cuda_label
from graphcrate.compat.base_images import chosen_image
from graphcrate.engines import render
from graphcrate.engines.render import files
from graphcrate.engines.render.commands import quoted, write_lines
from graphcrate.engines.render.ideas import UV
from graphcrate.engines.render.layout import double
from graphcrate.host.context import Context
from graphcrate.model.errors import BuildError, ResolutionError, UsageError
from graphcrate.model.lock import RegistryBase, decode_lock
from graphcrate.model.plan import FilesStep, PlannedFile, RequirementsStep, WheelsStep
from graphcrate.model.recipe import Channel
from tests import ROOT
from tests.unit.rendered import lacking

PLACE = Context(root=ROOT, environment={})
VARIANTS = [
    (recipes.load(path), variant)
    for path in sorted((ROOT / "recipes").glob("*.toml"))
    for variant in recipes.load(path).variants
    if variant.unavailable is None
]
PYG = recipes.load(ROOT / "recipes" / "pyg.toml")
COMMITTED = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
#: without what is compiled, which test_render_compiled is about
LOCK = msgspec.structs.replace(
    COMMITTED, packages=tuple(one for one in COMMITTED.packages if not one.compiled), compilation=None
)
CANDIDATE = PYG.variant("11.8").candidates[1]
EXAMPLES = {"examples/dna.py": "#!/usr/bin/env python\nprint(1)\n", "suites/README.md": "# it's\n"}
ALL = (render.dockerfile, render.definition)
#: written by `render` and not committed
ON_DEMAND = {"requirements.txt", "sources.txt"}


def label(value):
    return value[0].name + "-" + value[1].cuda if isinstance(value, tuple) else value.__name__


def plan_of(lock=LOCK, image=None):
    return planning.make_plan(PYG, lock, CANDIDATE, examples=EXAMPLES, image=image)


def open_plan(cuda="11.6"):
    variant = PYG.variant(cuda)
    return planning.make_open_plan(PYG, variant, variant.candidates[0], examples=EXAMPLES)


def with_channel(channel, *names):
    members = (
        msgspec.structs.replace(package, channel=channel) if package.name in names else package
        for package in LOCK.packages
    )
    return msgspec.structs.replace(LOCK, packages=tuple(members))


def test_the_committed_texts_of_every_variant_are_fresh():
    stale = []
    for recipe, variant in VARIANTS:
        folder = ROOT / "images" / recipe.name / cuda_label(variant.cuda)
        written = files.texts(PLACE, recipe, variant, files.shown(PLACE, recipe, variant))
        committed = {name: text for name, text in written.items() if name not in ON_DEMAND}
        stale += [folder / name for name, text in committed.items() if (folder / name).read_bytes() != text.encode()]
        others = {path.name for path in folder.iterdir()} - set(committed) - ON_DEMAND
        assert all(name.endswith(".lock.json") for name in others), others
    assert stale == [], "make render"


def test_no_folder_of_a_variant_that_is_gone_stays():
    known = {(recipe.name, cuda_label(variant.cuda)) for recipe, variant in VARIANTS}
    assert {(path.parent.name, path.name) for path in (ROOT / "images").glob("*/*")} == known


@pytest.mark.parametrize("write", ALL, ids=label)
def test_every_package_is_pinned_to_one_file(write):
    text = write(plan_of())
    for package in LOCK.packages:
        assert f"'{package.name}=={package.version} --hash=sha256:{package.file.sha256}'" in text
    installs = re.findall(r"uv pip install (.*)", text)
    hashed = [line for line in installs if "--require-hashes" in line]
    # the other one takes the wheel that was just made of a source whose hash was checked
    assert [line.split("--find-links ")[1].split()[0] for line in installs if line not in hashed] == ["/root/wheels"]
    assert hashed
    assert all("--no-deps" in line for line in installs)


@pytest.mark.parametrize("write", ALL, ids=label)
def test_what_a_source_is_built_with_is_pinned_too(write):
    source = next(package for package in LOCK.packages if package.is_sdist)
    text = write(plan_of())
    assert source.build
    for package in source.build:
        assert f"{package.name}=={package.version} --hash=sha256:{package.file.sha256}" in text
    assert "--no-build-isolation" in text


@pytest.mark.parametrize("write", ALL, ids=label)
def test_texts_hold_the_contract(write):
    plan = plan_of()
    text = write(plan)
    assert "LD_LIBRARY_PATH" not in text
    for name, value in plan.config.environment.items():
        assert f'{name}="{value}"' in text
    for name, value in plan.config.labels.items():
        assert f'{name}="{value}"' in text or f"    {name} {value}\n" in text
    assert f"uv=={UV.version} --hash=sha256:{UV.sha256}" in text


@pytest.mark.parametrize("write", ALL, ids=label)
def test_a_step_of_an_unknown_kind_is_refused_by_name(write):
    class SecretStep(msgspec.Struct, frozen=True):
        pass

    plan = plan_of()
    with pytest.raises(BuildError, match="SecretStep"):
        write(msgspec.structs.replace(plan, steps=(*plan.steps, SecretStep())))


def test_the_texts_of_every_variant_say_all_that_the_plan_says():
    for recipe, variant in VARIANTS:
        plan = files.plan_of(PLACE, recipe, variant, files.shown(PLACE, recipe, variant))
        assert lacking(plan, render.dockerfile(plan)) == []
        # the run script stands for the command
        assert lacking(plan, render.definition(plan), elsewise=plan.config.command) == []
        assert lacking(plan, render.requirements(plan), (WheelsStep, RequirementsStep)) == []
    assert lacking(PLAN, TEXT.replace(LOCK.packages[0].file.sha256, "")) == [LOCK.packages[0].file.sha256]


PLAN = plan_of()
TEXT = render.dockerfile(PLAN)


def test_uv_is_the_one_that_the_project_itself_runs():
    entry = re.search(
        r"^uv==(\S+) \\\n((?: +--hash=\S+(?: \\)?\n)+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE
    )
    assert entry[1] == UV.version
    assert UV.sha256 in entry[2]


@pytest.mark.parametrize("write", ALL, ids=label)
def test_no_package_that_starts_with_python_keeps_bytecode_of_its_own(write):
    """`site` imports what `.pth` files name (setuptools has one), and compileall leaves alone what is compiled."""
    assert "/opt/venv/bin/python -B -S -m compileall -f " in write(PLAN)


@pytest.mark.parametrize("write", ALL, ids=label)
def test_debians_packages_ask_nothing(write):
    """tzdata on Ubuntu, which NVIDIA's images are, waits for an answer."""
    text = write(plan_of(image=chosen_image("nvidia", PYG.variant("11.8"))))
    installs = re.findall(r"\S+ apt-get (?:-o \S+ )?install", text)
    assert installs
    assert all(line.startswith("DEBIAN_FRONTEND=noninteractive ") for line in installs)


def test_groups_are_stages_that_do_not_wait_for_each_other():
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", TEXT, re.MULTILINE)
    assert stages[:3] == [("${BASE}", "base"), ("base", "beside"), ("base", "build")]
    assert stages[3:-1] == [("build", name) for name in ("cuda", "torch", "tools", "pyg")]
    assert stages[-1] == ("base", "")
    copied = re.findall(r"^COPY --from=(\S+) /opt/venv /opt/venv$", TEXT, re.MULTILINE)
    assert copied == ["cuda", "torch", "tools", "pyg"]


def test_cache_mounts_are_for_buildkit_alone():
    assert "--mount" not in TEXT
    mounted = render.dockerfile(PLAN, cache_mounts=True)
    assert mounted.count("RUN --mount=type=cache,target=/root/.cache/uv") == TEXT.count(
        "uv pip install --no-deps --no-build"
    )
    assert "UV_NO_CACHE" not in mounted


def test_channels_of_pytorch_and_pyg_can_be_mirrored():
    lock = with_channel(Channel.PYTORCH, "torch")
    text = render.dockerfile(plan_of(lock))
    assert "ARG PYTORCH_INDEX=https://download.pytorch.org/whl/cu117\n" in text
    assert 'uv pip install --default-index "${PYTORCH_INDEX}" --no-deps' in text
    assert "ARG PYTORCH_INDEX" not in TEXT
    lock = with_channel(Channel.PYG, "ogb")
    assert "ARG PYG_LINKS=https://data.pyg.org/whl/torch-2.0.0+cu117.html\n" in render.dockerfile(plan_of(lock))
    definition = render.definition(plan_of(lock))
    assert 'PYG_LINKS="${PYG_LINKS:-https://data.pyg.org/whl/torch-2.0.0+cu117.html}"' in definition


def test_a_folder_of_wheels_comes_from_beside_the_text():
    lock = with_channel(Channel.LOCAL, "torch")
    text = render.dockerfile(plan_of(lock))
    assert "COPY --from=beside /context/wheels /context/wheels" in text
    assert "uv pip install --no-index --find-links /context/wheels --no-deps" in text
    assert "/context/wheels" not in TEXT
    assert 'cp -rL wheels "${SINGULARITY_ROOTFS}/context/wheels"' in render.definition(plan_of(lock))


def test_a_definition_is_of_the_form_that_old_engines_read():
    text = render.definition(PLAN)
    assert "{{" not in text
    assert "%arguments" not in text
    assert text.count("Bootstrap: docker\nFrom: debian:bookworm-slim\n") == 2
    assert render.definition(PLAN, bootstrap="oci", base="base").count("Bootstrap: oci\nFrom: base\n") == 2
    for section in ("setup", "post", "environment", "labels", "runscript", "test", "help"):
        assert f"\n%{section}\n" in text


def test_an_open_plan_says_so_and_keeps_its_channels():
    plan = open_plan()
    assert [step.channel for step in plan.steps if isinstance(step, RequirementsStep)] == ["pytorch", "pyg", "pypi"]
    assert not [step for step in plan.steps if isinstance(step, WheelsStep)]
    for text in (render.dockerfile(plan), render.definition(plan), render.requirements(plan)):
        assert "./build.py lock pyg --cuda 11.6" in text.replace("\n# ", " ").replace("\n", " ")
        assert "torch==1.13.1+cu116" in text
        assert "https://download.pytorch.org/whl/cu116" in text
    assert plan.tag == "2.3.1-torch1.13.1-cu116-py39"


def test_other_bases():
    variant = PYG.variant("11.8")
    python = render.dockerfile(plan_of(image=chosen_image("python", variant)))
    assert "ARG BASE=python:3.11-slim-bookworm\n" in python
    assert "ln -s /usr/local/bin/python3.11 /opt/venv/bin/python" in python
    assert "python3-venv" not in python
    nvidia = render.dockerfile(plan_of(image=chosen_image("nvidia", variant)))
    assert "ARG BASE=nvidia/cuda:11.8.0-base-ubuntu22.04\n" in nvidia
    assert "uv python install --no-bin --install-dir /opt/python 3.11" in nvidia
    assert "COPY --from=build /opt/python /opt/python" in nvidia
    definition = render.definition(plan_of(image=chosen_image("nvidia", variant)))
    assert "%files from build\n    /opt/venv\n    /opt/python\n" in definition
    # NVIDIA's images set it, and an image that sets it mixes libraries
    assert 'LD_LIBRARY_PATH=""' in nvidia
    assert "%environment\n    unset LD_LIBRARY_PATH\n" in definition
    with pytest.raises(UsageError, match="debian, python, nvidia"):
        chosen_image("alpine", variant)
    with pytest.raises(UsageError, match="no base image for CUDA 'cpu'"):
        chosen_image("nvidia", PYG.variant("cpu"))


@pytest.mark.parametrize("cuda", ["11.8", "12.1", "13.0"])
def test_what_is_compiled_on_nvidias_base_is_compiled_by_nvidias_toolkit(cuda):
    variant = PYG.variant(cuda)
    written = files.texts(PLACE, PYG, variant, files.shown(PLACE, PYG, variant), "nvidia")
    for text in (written["Dockerfile"], written["pyg.def"]):
        assert ("docker.io/nvidia/cuda:" in text) == (cuda != "13.0"), "wheels serve every distribution"
        assert "non-free" not in text


def test_a_registry_base_is_named_by_its_digest():
    pulled = RegistryBase(
        reference="docker.io/library/python", digest="sha256:" + "a" * 64, interpreter="/usr/local/bin/python3.11"
    )
    text = render.dockerfile(plan_of(msgspec.structs.replace(LOCK, base=pulled)))
    assert f"ARG BASE=docker.io/library/python@sha256:{'a' * 64}\n" in text
    assert "apt-get" not in text


@given(st.text(alphabet=st.characters(exclude_characters="\0\n", exclude_categories=["Cs"])))
def test_quoting_survives_a_shell(text):
    assert shlex.split(quoted(text)) == [text]
    assert shlex.split("echo " + double(text).replace("\\$", "$").replace("\\`", "`"))[1:] == [text]
    assert shlex.split(" ".join(write_lines("/x", [text])))[-1] == text


def test_modes_of_planned_files_are_kept():
    step = FilesStep(
        title="more",
        files=(
            PlannedFile(path="/opt/x", folder=True, mode=0o700),
            PlannedFile(path="/opt/x/run", content="#!/bin/sh\n", mode=0o755),
        ),
    )
    plan = msgspec.structs.replace(PLAN, steps=(PLAN.steps[0], step, *PLAN.steps[1:]))
    text = render.dockerfile(plan)
    assert "chmod 700 /opt/x \\" in text
    assert "chmod 755 /opt/x/run" in text


def test_render_writes_what_changed_and_says_where(tmp_path):
    first = list(files.render_all(PLACE, "pyg", "11.8", files.Choice(), tmp_path))
    assert first == [tmp_path / "pyg" / "cu118"]
    assert list(files.render_all(PLACE, "pyg", "11.8", files.Choice(), tmp_path)) == []
    (first[0] / "Dockerfile").write_text("")
    assert list(files.render_all(PLACE, "pyg", "11.8", files.Choice(), tmp_path)) == first
    assert len(list(files.render_all(PLACE, None, None, files.Choice(), tmp_path))) == len(VARIANTS) - 1
    with pytest.raises(UsageError, match="images/ holds the usual texts"):
        list(files.render_all(PLACE, "pyg", None, files.Choice(base="python"), None))
    with pytest.raises(UsageError, match=r"'11\.9'"):
        list(files.render_all(PLACE, None, "11.9", files.Choice(), tmp_path))


class Place:
    """The project, with what was noted."""

    def __init__(self):
        self.root, self.environment, self.progress, self.noted = PLACE.root, PLACE.environment, self, []

    def note(self, message):
        self.noted.append(message)


def test_variants_without_a_text_of_the_choice_are_noted_and_left_out(tmp_path):
    place = Place()
    made = list(files.render_all(place, "torch", None, files.Choice(base="nvidia"), tmp_path))
    assert tmp_path / "torch" / "cu118" in made
    assert tmp_path / "torch" / "cpu" not in made
    assert len(place.noted) == 1
    assert place.noted[0].startswith("torch CUDA cpu is left out: NVIDIA has no base image")
    made = list(files.render_all(place, "pyg", None, files.Choice(channel="pytorch"), tmp_path))
    assert tmp_path / "pyg" / "cu116" in made
    assert place.noted[-1].endswith("takes torch from pytorch")


def test_one_variant_without_a_text_of_the_choice_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="NVIDIA has no base image") as caught:
        list(files.render_all(PLACE, "torch", "cpu", files.Choice(base="nvidia"), tmp_path))
    assert caught.value.next_step.endswith("--cuda cpu --base debian")
    with pytest.raises(UsageError, match="from channel 'pytorch'; they take it from pypi") as refused:
        list(files.render_all(PLACE, "pyg", "13.0", files.Choice(channel="pytorch"), tmp_path))
    assert refused.value.next_step.startswith("./build.py list")


def test_a_lock_is_advised_where_it_helps(tmp_path):
    ctx = Context(root=tmp_path, environment={})
    with pytest.raises(ResolutionError, match="that a text could be about") as caught:
        files.shown(ctx, PYG, PYG.variant("cpu"), "local")
    assert caught.value.next_step == "./build.py lock pyg --cuda cpu --channel local --wheels FOLDER"
    with pytest.raises(ResolutionError, match=r"at CUDA 13\.0 takes torch from pytorch") as caught:
        files.shown(ctx, PYG, PYG.variant("13.0"), "pytorch")
    assert " lock " not in caught.value.next_step


@pytest.mark.parametrize(
    ("choice", "said"),
    [(files.Choice(channel="nope"), "'nope'; they take it from"), (files.Choice(base="alpine"), "no base 'alpine'")],
)
def test_a_choice_that_there_is_not_is_said_before_anything_is_written(tmp_path, choice, said):
    with pytest.raises(UsageError, match=said):
        list(files.render_all(PLACE, None, None, choice, tmp_path))
    assert not list(tmp_path.iterdir())
