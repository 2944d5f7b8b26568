"""Plans: layers, environment, labels, tags; compiled extensions, other GPUs, devel images."""

import msgspec
import pytest

from graphcrate.compat import licences, planning
from graphcrate.model.plan import CompileStep, ConfigStep, FilesStep, ToolkitStep, WheelsStep
from tests.made import wheel
from tests.unit.compiled_plans import COMPILER_BASE, PLANS, RECIPE, TOOLKITS, VARIANT, lock, plain_lock

TAG = "2.3.1-torch2.0.1-cu117-py311"
DEBIAN = TOOLKITS["debian"]
ASKED = VARIANT.architectures


def plan_of(value, *, examples=None, devel=False, **candidate):
    chosen = msgspec.structs.replace(VARIANT.candidates[0], **candidate)
    return planning.make_plan(RECIPE, value, chosen, examples=examples or {}, devel=devel)


def steps(plan, kind):
    return [step for step in plan.steps if isinstance(step, kind)]


def test_large_wheels_are_layers_of_their_own_and_small_ones_are_grouped_by_how_often_they_change():
    small = map(wheel, ("nvidia-nvtx-cu11", "numpy", "pip"))
    value = plain_lock(wheel("nvidia-cudnn-cu11", size=550_000_000), *small)
    titles = ["nvidia-cudnn-cu11 1.0", "CUDA libraries", "torch 2.0.1", "torch and libraries", "tools", "PyG family"]
    assert [step.title for step in steps(plan_of(value), WheelsStep)] == titles


def test_every_package_is_in_exactly_one_layer():
    value = plain_lock(*(wheel(f"library-{number}", size=40_000_000) for number in range(80)))
    plan = plan_of(value)
    members = [member.name for step in steps(plan, WheelsStep) for member in step.packages]
    assert sorted(members) == [member.name for member in value.packages]
    assert len(plan.steps) <= planning.MOST_LAYERS
    assert isinstance(plan.steps[-1], ConfigStep)


def test_labels_name_the_lock_the_versions_and_what_was_compiled_for_what():
    value = lock(DEBIAN)
    assert plan_of(value).config.labels.items() >= {
        ("graphcrate.lock.sha256", value.sha256),
        ("graphcrate.torch", "2.0.1"),
        ("graphcrate.torch_geometric", "2.3.1"),
        ("org.opencontainers.image.version", f"{TAG}-sm70-sm80ptx"),
        ("org.opencontainers.image.licenses", licences.of_lock(value)),
        ("graphcrate.compiled", "torch-scatter,torch-sparse"),
        ("graphcrate.architectures", "7.0,8.0+PTX"),
        ("graphcrate.nvcc", "11.8.89"),
    }
    assert "graphcrate.compiled" not in plan_of(plain_lock()).config.labels


def test_programs_that_ship_can_be_run_and_texts_cannot():
    plan = plan_of(plain_lock(), examples={"examples/dna.py": "#!/usr/bin/env python\n", "suites/README.md": "text\n"})
    modes = {file.path: file.mode for step in steps(plan, FilesStep) for file in step.files}
    assert [modes[f"/opt/graphcrate/{name}"] for name in ("examples/dna.py", "suites/README.md")] == [0o755, 0o644]


def test_what_is_compiled_is_a_layer_after_the_wheels_made_against_torch_and_what_torch_needs():
    *wheels, compiled = steps(PLANS["debian"], WheelsStep | CompileStep)
    assert isinstance(compiled, CompileStep)
    assert [member.name for member in compiled.packages] == ["torch-scatter", "torch-sparse"]
    assert [member.name for member in compiled.against] == ["numpy", "nvidia-cublas-cu11", "torch"]
    assert not any(member.compiled for step in wheels for member in step.packages)


@pytest.mark.parametrize(
    ("value", "options", "suffix"),
    [
        (plain_lock(), {}, ""),
        (plain_lock(), {"suffix": "-compat"}, "-compat"),
        (lock(DEBIAN, architectures=ASKED), {}, ""),
        (lock(DEBIAN, architectures=("6.0", "8.0+PTX")), {}, "-sm60-sm80ptx"),
        (lock(DEBIAN, plain_lock().packages), {}, ""),  # nothing is compiled
        (lock(DEBIAN, architectures=ASKED), {"devel": True, "suffix": "-compat"}, "-compat-devel"),
        (lock(DEBIAN, plain_lock().packages, ("7.0",)), {"devel": True}, "-sm70-devel"),
    ],
)
def test_other_gpus_than_the_recipes_are_in_the_tag(value, options, suffix):
    plan = plan_of(value, **options)
    assert plan.tag == f"{TAG}{suffix}"
    assert plan.aliases == (f"0.1.0-debian12-py3.11-torch2.0-cuda11.7{suffix}",)


def test_a_devel_image_has_compiler_tools_and_toolkit_and_tells_torch_how_to_compile():
    plan = PLANS["debian-devel"]
    assert plan.base.base == COMPILER_BASE
    assert "g++-11" in plan.base.image.packages
    assert steps(plan, ToolkitStep)
    (tools,) = (step for step in steps(plan, WheelsStep) if step.title == "build tools")
    assert [member.name for member in tools.packages] == ["setuptools", "wheel", "ninja"], "pip is in the image anyway"
    assert plan.config.environment.items() >= {
        ("CUDA_HOME", "/usr/local/cuda"),
        ("CC", "gcc-11"),
        ("CXX", "g++-11"),
        ("NVCC_PREPEND_FLAGS", "-ccbin g++-11"),
        ("TORCH_CUDA_ARCH_LIST", "7.0;8.0+PTX"),
    }
    assert plan.config.environment["PATH"].startswith("/opt/venv/bin:/usr/local/cuda/bin:")


def test_a_devel_image_for_the_cpu_has_a_compiler_alone_and_a_runtime_image_none():
    cpu, runtime = PLANS["cpu-devel"], PLANS["debian"]
    assert not steps(cpu, ToolkitStep)
    assert {"CXX", "CUDA_HOME"} & cpu.config.environment.keys() == {"CXX"}
    assert not {"CXX", "CUDA_HOME"} & runtime.config.environment.keys()
    assert runtime.base.base != COMPILER_BASE
    assert not any("g++" in name for name in runtime.base.image.packages)
    assert "ninja" not in {member.name for step in steps(runtime, WheelsStep) for member in step.packages}
