"""Plans with compiled extensions: their step, what it is compiled against, tags for other GPUs, devel images."""

import msgspec
import pytest

from graphcrate.compat import planning
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation, DebianBase, LockedFile, LockedPackage, WheelToolkit
from graphcrate.model.plan import CompileStep, ToolkitStep, WheelsStep
from graphcrate.model.recipe import Channel
from tests.unit.test_planning import RECIPE, lock, package, plan_of

COMPILER_BASE = DebianBase(suite="bookworm", packages=())
ASKED = RECIPE.variant("11.8").architectures


def sdist(name, version="2.1.2"):
    file = LockedFile(name=f"{name.replace('-', '_')}-{version}.tar.gz", size=1000, sha256="5" * 64)
    return LockedPackage(name=name, version=version, channel=Channel.PYPI, file=file, compiled=True)


def compilation(architectures=ASKED, toolkit="11.8.89"):
    return Compilation(
        architectures=architectures,
        compiler="g++-11",
        base=COMPILER_BASE,
        tools=(package("ninja", "1.13.0"), package("setuptools", "69.5.1")),
        toolkit=WheelToolkit(version=toolkit, wheels=()) if toolkit else None,
    )


def compiled_lock(*more, **changes):
    members = [sdist("torch-scatter"), package("nvidia-cublas-cu11"), package("numpy"), package("tqdm"), *more]
    return msgspec.structs.replace(lock(*members), compilation=compilation(**changes))


def test_what_is_compiled_is_a_layer_of_its_own_after_the_wheels():
    steps = [step for step in plan_of(compiled_lock()).steps if isinstance(step, WheelsStep | CompileStep)]
    assert isinstance(steps[-1], CompileStep)
    assert [member.name for member in steps[-1].packages] == ["torch-scatter"]
    assert all(not member.compiled for step in steps[:-1] for member in step.packages)


def test_it_is_compiled_against_torch_and_what_torch_needs_and_nothing_else():
    step = next(step for step in plan_of(compiled_lock()).steps if isinstance(step, CompileStep))
    assert [member.name for member in step.against] == ["numpy", "nvidia-cublas-cu11", "torch"]


def test_labels_tell_what_was_compiled_and_for_what():
    labels = plan_of(compiled_lock()).config.labels
    assert labels["graphcrate.compiled"] == "torch-scatter"
    assert labels["graphcrate.architectures"] == ",".join(ASKED)
    assert labels["graphcrate.nvcc"] == "11.8.89"
    assert "graphcrate.compiled" not in plan_of(lock()).config.labels


def test_a_lock_that_names_no_compiler_cannot_compile():
    with pytest.raises(ResolutionError, match="names no compiler"):
        plan_of(lock(sdist("torch-scatter")))


def test_other_gpus_than_the_recipes_are_in_the_tag():
    assert plan_of(compiled_lock()).tag == "2.3.1-torch2.0.1-cu118-py311-compat"
    plan = plan_of(compiled_lock(architectures=("6.0", "8.0+PTX")))
    assert plan.tag == "2.3.1-torch2.0.1-cu118-py311-compat-sm60-sm80ptx"


def test_gpus_are_not_in_the_tag_of_an_image_that_has_nothing_compiled():
    value = msgspec.structs.replace(lock(), compilation=compilation(architectures=("6.0",)))
    assert plan_of(value).tag == "2.3.1-torch2.0.1-cu118-py311-compat"


def test_the_published_scheme_is_a_further_tag():
    assert plan_of(lock()).aliases == ("0.1.0-debian12-py3.11-torch2.0-cuda11.8-compat",)


def devel_of(value):
    candidate = RECIPE.variant("11.8").candidates[1]
    return planning.make_plan(RECIPE, value, candidate, examples={}, devel=True)


def test_a_devel_image_has_compiler_tools_and_toolkit():
    plan = devel_of(compiled_lock(package("setuptools", "69.5.1")))
    assert plan.tag.endswith("-compat-devel")
    assert plan.base.base == COMPILER_BASE
    assert "g++-11" in plan.base.image.packages
    assert any(isinstance(step, ToolkitStep) for step in plan.steps)
    tools = next(step for step in plan.steps if isinstance(step, WheelsStep) and step.title == "build tools")
    assert [member.name for member in tools.packages] == ["ninja"], "setuptools is in the image anyway"


def test_a_devel_image_tells_torch_how_to_compile():
    environment = devel_of(compiled_lock()).config.environment
    assert environment["CUDA_HOME"] == "/usr/local/cuda"
    assert environment["CXX"] == "g++-11"
    assert environment["NVCC_PREPEND_FLAGS"] == "-ccbin g++-11"
    assert environment["TORCH_CUDA_ARCH_LIST"] == ";".join(ASKED)
    assert environment["PATH"].startswith("/opt/venv/bin:/usr/local/cuda/bin:")


def test_devel_images_that_compile_for_other_gpus_have_tags_of_their_own():
    def tag(*architectures):
        return devel_of(msgspec.structs.replace(lock(), compilation=compilation(architectures=architectures))).tag

    assert tag(*ASKED).endswith("-compat-devel")
    assert tag("7.0").endswith("-compat-sm70-devel")
    assert tag("8.0").endswith("-compat-sm80-devel")


def test_a_devel_image_for_the_cpu_has_a_compiler_alone():
    plan = devel_of(compiled_lock(toolkit=""))
    assert not any(isinstance(step, ToolkitStep) for step in plan.steps)
    assert "CUDA_HOME" not in plan.config.environment


def test_a_runtime_image_has_none_of_it():
    plan = plan_of(compiled_lock())
    assert "CXX" not in plan.config.environment
    assert plan.base.base != COMPILER_BASE or not any("g++" in name for name in plan.base.image.packages)
    names = {member.name for step in plan.steps if isinstance(step, WheelsStep) for member in step.packages}
    assert "ninja" not in names
