"""Texts of what is compiled: every kind of toolkit in every form; nothing is dropped, and no compiler left behind."""

import re
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.compat import compilers
from graphcrate.compat.base_images import chosen_image
from graphcrate.compat.toolkits import assembly
from graphcrate.engines import render
from graphcrate.inputs.extensions import compile as house
from graphcrate.model.errors import BuildError
from graphcrate.model.plan import CompileStep, ToolkitStep
from graphcrate.model.recipe import Channel
from tests.unit.compiled_plans import DEBS, PACKAGES, PLANS, RECIPE, TOOLKITS, plan, sdist
from tests.unit.rendered import lacking

ALL = {"Dockerfile": render.dockerfile, "definition": render.definition}
every_form = pytest.mark.parametrize("write", ALL.values(), ids=ALL)
every_plan = pytest.mark.parametrize("known", PLANS.values(), ids=PLANS)
TEXTS = {name: render.dockerfile(known) for name, known in PLANS.items()}


def stage(text, name):
    """What stands between a stage's FROM and the next one."""
    return re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=\n^FROM )", text, re.MULTILINE | re.DOTALL)[1]


def compile_step(known):
    return next(step for step in known.steps if isinstance(step, CompileStep))


@every_form
@every_plan
def test_every_source_and_every_tool_is_pinned_to_one_file(write, known):
    text, step = write(known), compile_step(known)
    for package in (*step.packages, *step.compilation.tools):
        assert f"'{package.name}=={package.version} --hash=sha256:{package.file.sha256}'" in text
    for line in re.findall(r"(pip (?:download|install) .*(?:\n .*)?)", text):
        assert "--require-hashes" in line or "--no-index" in line


@every_form
def test_a_toolkit_of_debians_is_checked_against_the_lock(write):
    text = write(PLANS["debian"])
    assert "'nvidia-cuda-toolkit=11.8.89~11.8.0-5~deb12u1'" in text
    # apt writes an epoch into the name of the file
    assert f"{DEBS[1].file.sha256}  /opt/toolkit/debs/libthrust-dev_1%3a2.0.1-1_amd64.deb" in text
    assert "sha256sum --check --quiet /opt/toolkit/debs.sha256" in text
    assert "sed -i 's/\\bmain\\b/main contrib non-free/' {} +" in text


@every_form
def test_a_toolkit_may_come_from_another_suite_than_the_base(write):
    toolkit = msgspec.structs.replace(TOOLKITS["debian"], suite="trixie")
    assert "'s/\\bbookworm\\b/trixie/; s/\\bmain\\b/main contrib non-free/'" in write(plan(toolkit))


@every_form
def test_a_toolkit_of_wheels_needs_no_debian_package(write):
    text = write(PLANS["pypi"])
    assert "'nvidia-cuda-nvcc==13.0.88 --hash=sha256:" in text
    assert "apt-get download" not in text
    assert "non-free" not in text


def test_a_toolkit_of_an_images_is_a_stage():
    wanted = "nvidia/cuda@sha256:" + "d" * 64
    assert f"\nFROM {wanted} AS toolkit\n" in TEXTS["image"]
    assert "COPY --from=toolkit /usr/local/cuda /usr/local/cuda\n" in stage(TEXTS["image"], "compile")
    text = render.definition(PLANS["image"])
    assert f"Bootstrap: docker\nFrom: {wanted}\nStage: toolkit\n" in text
    assert "%files from toolkit\n    /opt/toolkit /usr/local/cuda\n" in text


@every_form
def test_two_toolkits_are_refused(write):
    known = PLANS["debian-devel"]
    other = ToolkitStep(title="another", toolkit=TOOLKITS["pypi"])
    with pytest.raises(BuildError, match="two CUDA toolkits"):
        write(msgspec.structs.replace(known, steps=(*known.steps, other)))


@every_form
def test_debians_toolkit_is_not_for_other_distributions(write):
    image = chosen_image("nvidia", RECIPE.variant("11.7"))
    with pytest.raises(BuildError, match=r"nvidia/cuda:11\.7\.1-base-ubuntu22\.04 is no Debian"):
        write(plan(TOOLKITS["debian"], image=image))
    write(plan(TOOLKITS["image"], image=image))


@every_form
def test_gpus_are_asked_for_in_the_text_since_none_is_there(write):
    text = write(PLANS["debian"])
    assert 'FORCE_CUDA="1"' in text
    assert 'TORCH_CUDA_ARCH_LIST="7.0;8.0+PTX"' in text
    text = write(PLANS["cpu"])
    assert 'FORCE_ONLY_CPU="1"' in text
    assert "FORCE_CUDA" not in text
    assert "/usr/local/cuda" not in text


@every_plan
def test_compilers_stay_in_stages_that_are_left_behind(known):
    text = render.dockerfile(known)
    final = text.rpartition("\nFROM base\n")[2]
    copied = re.findall(r"^COPY --from=(\S+) (\S+) ", final, re.MULTILINE)
    devel = known.tag.endswith("-devel")
    venv = [name for name, path in copied if path == "/opt/venv"]
    assert venv == [*(["cuda"] if "cuda" in venv else []), "torch", "tools", "pyg", "extensions"]
    stays = devel and "toolkit" in text
    assert [name for name, path in copied if path == "/usr/local/cuda"] == (["toolkit"] if stays else [])
    assert ("g++-11" in stage(text, "base")) == devel
    assert ("apt-get" in stage(text, "compile")) != devel


def test_a_definition_takes_the_toolkit_along_for_a_devel_image_alone():
    devel, usual = render.definition(PLANS["debian-devel"]), render.definition(PLANS["debian"])
    assert "%files from build\n    /opt/venv\n    /usr/local/cuda\n" in devel
    assert "%files from build\n    /opt/venv\n\n" in usual
    assert devel.rpartition("Stage: final")[2].count("g++-11") > 0
    assert "g++-11" not in re.sub(r"%help.*", "", usual.rpartition("Stage: final")[2], flags=re.DOTALL)


def test_nothing_else_waits_for_a_compiler():
    text = TEXTS["debian"]
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE)
    packages = ["torch-scatter", "torch-sparse"]
    expected = ["cuda", "torch", "tools", "pyg", "toolkit", "compile", *packages, "extensions"]
    assert stages[3:-1] == [("compile" if name in packages else "build", name) for name in expected]
    needs = {name: set(re.findall(r"COPY --from=(\S+)", stage(text, name))) for name in expected}
    assert needs == {name: set() for name in expected} | {
        "compile": {"toolkit", "cuda", "torch"},
        "extensions": {"torch-scatter", "torch-sparse"},
    }
    compiling = stage(text, "compile")
    # what changes least comes first
    assert compiling.index("apt-get") < compiling.index("build-tools.txt") < compiling.index("COPY --from=torch")


def test_sources_are_built_one_by_one_in_folders_of_fixed_names():
    for name, version in (("torch-scatter", "2.1.2"), ("torch-sparse", "0.6.18")):
        compiling = stage(TEXTS["debian"], name)
        assert f"--directory=/build/{name}-{version} " in compiling
        assert "-m pip wheel --no-cache-dir --no-deps --no-build-isolation" in compiling


@every_plan
def test_sources_are_built_in_the_environment_and_place_of_the_embedded_build(known):
    step = compile_step(known)
    embedded = house.environment(SimpleNamespace(step=step), 1)
    # of the machine, or of no weight for what is compiled
    ours = set(embedded) - {"PATH", "TMPDIR", "MAX_JOBS", "PYTHONDONTWRITEBYTECODE"}
    text = render.dockerfile(known)
    for name in ours:
        assert f'{name}="{embedded[name]}"' in stage(text, "compile")
    assert f"mkdir -p {house.BUILD}/torch-scatter-2.1.2 " in stage(text, "torch-scatter")


@every_form
def test_headers_that_stand_in_are_those_of_the_embedded_build(write):
    text = write(PLANS["debian"])
    for path, lines in compilers.STAND_INS.items():
        written = " ".join(f"'{line}'" for line in lines)
        assert f"printf '%s\\n' > /root/headers/{path} {written}" in " ".join(text.replace("\\\n", " ").split())
    for folder in ("torch-scatter-2.1.2", "torch-sparse-0.6.18"):
        assert f"cp -R /root/headers/. /build/{folder}/csrc" in text


@every_form
def test_a_toolkit_is_put_together_by_the_lines_of_the_embedded_build(write):
    for kind in ("debian", "pypi"):
        flat = re.sub(r" \\\n +(&& )?", " ", write(PLANS[kind]))
        for line in assembly(TOOLKITS[kind]):
            assert line in flat


@every_form
def test_sources_of_a_folder_come_from_beside_the_text(write):
    packages = tuple(
        sdist(package.name, package.version, Channel.LOCAL) if package.compiled else package for package in PACKAGES
    )
    text = write(plan(TOOLKITS["debian"], packages=packages))
    assert "pip download --no-index --find-links /context/wheels --no-cache-dir" in text
    assert "/context/wheels" in text.partition("%post")[0] or "COPY --from=beside /context/wheels" in text


def test_caches_are_mounted_for_the_tools_too():
    mounted = render.dockerfile(PLANS["debian"], cache_mounts=True)
    assert re.search(r"RUN --mount=type=cache\S+ printf '%s\\n' > /root/build-tools.txt", mounted)


@every_form
@every_plan
def test_nothing_of_compiler_and_toolkit_is_dropped(write, known):
    assert lacking(known, write(known), elsewise=known.config.command) == []


def test_people_are_told_what_was_compiled_and_for_which_gpus():
    page = render.readme(PLANS["debian"])
    assert (
        "Compiled from source by g++-11 and CUDA 11.8.89: torch-scatter 2.1.2, torch-sparse 0.6.18; for GPUs 7.0 (V100,"
        " TITAN V), 8.0+PTX (A100, A30; newer ones compile it when they first run it).\n"
    ) in page
    assert "make image STACK=small CUDA=11.7 FLAVOUR=devel " in page
    assert "CUDA=11.7 GPU=v100,a100 " in page
    assert "`sources.txt`" in page
    page = render.readme(PLANS["cpu"])
    assert "Compiled from source by g++-11, for CPUs alone: torch-scatter 2.1.2, torch-sparse 0.6.18.\n" in page
    assert "GPU=" not in page
    assert "its compiler and CUDA 11.8.89 in /usr/local/cuda stay" in render.readme(PLANS["debian-devel"])


def test_requirements_and_sources_are_all_of_it():
    known = PLANS["debian"]
    wheels, sources = render.requirements(known), render.sources(known)
    listed = re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:(\w+)$", wheels + sources, re.MULTILINE)
    assert sorted(listed) == sorted((one.name, one.version, one.file.sha256) for one in PACKAGES)
    assert "torch-scatter==" not in wheels
    assert '\n#     export TORCH_CUDA_ARCH_LIST="7.0;8.0+PTX"\n' in sources
    assert "Wanted: g++-11, Python's headers, CUDA 11.8.89 in /usr/local/cuda" in sources
    assert render.sources(plan(None, packages=PACKAGES[:5])) == ""
