"""Plans: layers, environment, labels, tags; compiled extensions, other GPUs, devel images."""

import pytest

from graphcrate.compat import planning, recipes
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation, DebianBase, Lock, LockedFile, LockedPackage, WheelToolkit
from graphcrate.model.plan import CompileStep, ConfigStep, FilesStep, ToolkitStep, WheelsStep, content_id
from graphcrate.model.recipe import Channel
from tests import ROOT

RECIPE = recipes.load(ROOT / "recipes" / "pyg.toml")
ASKED = RECIPE.variant("11.8").architectures
COMPILER_BASE = DebianBase(suite="trixie", packages=())
TAG = "2.3.1-torch2.0.1-cu118-py311"


def package(name, version="1.0", size=1000, *, sdist=False):
    file = f"{name.replace('-', '_')}-{version}" + (".tar.gz" if sdist else "-py3-none-any.whl")
    locked = LockedFile(name=file, size=size, sha256=f"{abs(hash(name)):064x}"[:64])
    return LockedPackage(name=name, version=version, channel=Channel.PYPI, file=locked, compiled=sdist)


def lock(*packages, cuda="11.8", torch="2.0.1", compilation=None):
    members = [package("torch", torch, 619_000_000), package("torch-geometric", "2.3.1", 600_000), *packages]
    return Lock(
        recipe="pyg",
        cuda=cuda,
        candidate="compatible",
        torch_cuda="11.7",
        python="3.11",
        created=1_700_000_000,
        request_sha256="0" * 64,
        base=DebianBase(suite="bookworm", packages=()),
        packages=tuple(sorted(members, key=lambda member: member.name)),
        compilation=compilation,
    )


def compilation(architectures=ASKED, toolkit="11.8.89"):
    return Compilation(
        architectures=architectures,
        compiler="g++-11",
        base=COMPILER_BASE,
        tools=(package("ninja", "1.13.0"), package("setuptools", "69.5.1")),
        toolkit=WheelToolkit(version=toolkit, wheels=()) if toolkit else None,
    )


def compiled_lock(*more, **changes):
    names = ("nvidia-cublas-cu11", "numpy", "tqdm")
    members = [package("torch-scatter", "2.1.2", sdist=True), *map(package, names), *more]
    return lock(*members, compilation=compilation(**changes))


def plan_of(value, cuda="11.8", candidate=1, examples=None, devel=False):
    chosen = RECIPE.variant(cuda).candidates[candidate]
    return planning.make_plan(RECIPE, value, chosen, examples=examples or {}, devel=devel)


def steps(plan, kind):
    return [step for step in plan.steps if isinstance(step, kind)]


def test_large_wheels_are_layers_of_their_own_and_small_ones_are_grouped_by_how_often_they_change():
    value = lock(
        package("nvidia-cudnn-cu11", size=550_000_000), package("nvidia-nvtx-cu11"), package("numpy"), package("pip")
    )
    assert [step.title for step in steps(plan_of(value), WheelsStep)] == [
        "nvidia-cudnn-cu11 1.0", "CUDA libraries", "torch 2.0.1", "torch and libraries", "tools", "PyG family",
    ]  # fmt: skip


def test_every_package_is_in_exactly_one_layer():
    value = lock(*(package(f"library-{number}", size=40_000_000) for number in range(80)))
    plan = plan_of(value)
    members = [member.name for step in steps(plan, WheelsStep) for member in step.packages]
    assert sorted(members) == [member.name for member in value.packages]
    assert len(plan.steps) <= planning.MOST_LAYERS
    assert isinstance(plan.steps[-1], ConfigStep)


def test_environment_of_the_contracts():
    environment = plan_of(lock()).config.environment
    assert environment["PATH"].startswith("/opt/venv/bin:")
    assert environment | {"PATH": ""} == {
        "PATH": "",
        "LANG": "C.UTF-8",
        "PYTHONNOUSERSITE": "1",
        "PYTORCH_VERSION": "2.0.1",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_CUDA": "cuda>=11.0",
    }


def test_a_cpu_image_asks_for_no_gpu():
    environment = plan_of(lock(cuda="cpu"), cuda="cpu", candidate=0).config.environment
    assert not [name for name in environment if name.startswith("NVIDIA")]


def test_labels_name_the_lock_the_versions_and_what_was_compiled_for_what():
    value = compiled_lock()
    labels = plan_of(value).config.labels
    assert labels["graphcrate.lock.sha256"] == value.sha256
    assert labels["graphcrate.torch"] == "2.0.1"
    assert labels["graphcrate.torch_geometric"] == "2.3.1"
    assert labels["org.opencontainers.image.version"] == f"{TAG}-compat"
    assert labels["graphcrate.compiled"] == "torch-scatter"
    assert labels["graphcrate.architectures"] == ",".join(ASKED)
    assert labels["graphcrate.nvcc"] == "11.8.89"
    assert "graphcrate.compiled" not in plan_of(lock()).config.labels


def test_profile_puts_the_path_back_and_examples_ship():
    plan = plan_of(lock(), examples={"examples/dna.py": "#!/usr/bin/env python\n", "suites/README.md": "text\n"})
    files = {file.path: file for step in steps(plan, FilesStep) for file in step.files}
    assert "/opt/venv/bin" in files["/etc/profile.d/graphcrate.sh"].content
    assert files["/opt/venv/bin/python"].link == "/usr/bin/python3.11"
    assert files["/opt/graphcrate/examples/dna.py"].mode == 0o755
    assert files["/opt/graphcrate/suites/README.md"].mode == 0o644


def test_content_id_follows_the_content():
    assert content_id(plan_of(lock())) == content_id(plan_of(lock()))
    assert content_id(plan_of(lock())) != content_id(plan_of(lock(package("numpy"))))


def test_what_is_compiled_is_a_layer_after_the_wheels_made_against_torch_and_what_torch_needs():
    *wheels, compiled = steps(plan_of(compiled_lock()), WheelsStep | CompileStep)
    assert isinstance(compiled, CompileStep)
    assert [member.name for member in compiled.packages] == ["torch-scatter"]
    assert [member.name for member in compiled.against] == ["numpy", "nvidia-cublas-cu11", "torch"]
    assert not any(member.compiled for step in wheels for member in step.packages)


def test_a_lock_that_names_no_compiler_cannot_compile():
    with pytest.raises(ResolutionError, match="names no compiler"):
        plan_of(lock(package("torch-scatter", sdist=True)))
    with pytest.raises(ResolutionError, match="names no compiler"):
        plan_of(lock(), devel=True)


@pytest.mark.parametrize(
    ("value", "devel", "suffix"),
    [
        (lock(), False, ""),
        (compiled_lock(), False, ""),
        (compiled_lock(architectures=("6.0", "8.0+PTX")), False, "-sm60-sm80ptx"),
        (lock(compilation=compilation(("6.0",))), False, ""),  # nothing is compiled
        (compiled_lock(), True, "-devel"),
        (lock(compilation=compilation(("7.0",))), True, "-sm70-devel"),
    ],
)
def test_other_gpus_than_the_recipes_are_in_the_tag(value, devel, suffix):
    plan = plan_of(value, devel=devel)
    assert plan.tag == f"{TAG}-compat{suffix}"
    assert plan.aliases == (f"0.1.0-debian12-py3.11-torch2.0-cuda11.8-compat{suffix}",)


def test_the_tag_of_an_image_that_is_not_the_compatible_one():
    assert plan_of(lock(torch="2.0.1+cu118"), candidate=0).tag == TAG


def test_a_devel_image_has_compiler_tools_and_toolkit_and_tells_torch_how_to_compile():
    plan = plan_of(compiled_lock(package("setuptools", "69.5.1")), devel=True)
    assert plan.base.base == COMPILER_BASE
    assert "g++-11" in plan.base.image.packages
    assert steps(plan, ToolkitStep)
    (tools,) = (step for step in steps(plan, WheelsStep) if step.title == "build tools")
    assert [member.name for member in tools.packages] == ["ninja"], "setuptools is in the image anyway"
    environment = plan.config.environment
    assert environment["CUDA_HOME"] == "/usr/local/cuda"
    assert (environment["CC"], environment["CXX"]) == ("gcc-11", "g++-11")
    assert environment["NVCC_PREPEND_FLAGS"] == "-ccbin g++-11"
    assert environment["TORCH_CUDA_ARCH_LIST"] == ";".join(ASKED)
    assert environment["PATH"].startswith("/opt/venv/bin:/usr/local/cuda/bin:")


def test_a_devel_image_for_the_cpu_has_a_compiler_alone():
    plan = plan_of(compiled_lock(toolkit=""), devel=True)
    assert not steps(plan, ToolkitStep)
    assert "CXX" in plan.config.environment
    assert "CUDA_HOME" not in plan.config.environment


def test_a_runtime_image_has_none_of_it():
    plan = plan_of(compiled_lock())
    assert "CXX" not in plan.config.environment
    assert plan.base.base != COMPILER_BASE
    assert not any("g++" in name for name in plan.base.image.packages)
    assert "ninja" not in {member.name for step in steps(plan, WheelsStep) for member in step.packages}
