"""Plans: layers, environment, labels, tags; compiled extensions, other GPUs, devel images."""

import msgspec
import pytest

from graphcrate.compat.facts import licences
from graphcrate.compat.plan import layering, planning
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


def test_large_wheels_get_own_layers_and_small_ones_are_grouped():
    small = map(wheel, ("nvidia-nvtx-cu11", "numpy", "pip"))
    value = plain_lock(wheel("nvidia-cudnn-cu11", size=550_000_000), *small)
    titles = ["nvidia-cudnn-cu11 1.0", "CUDA libraries", "torch 2.0.1", "torch and libraries", "tools", "PyG family"]
    assert [step.title for step in steps(plan_of(value), WheelsStep)] == titles


def test_plan_has_each_package_in_exactly_one_layer():
    value = plain_lock(*(wheel(f"library-{number}", size=40_000_000) for number in range(80)))
    plan = plan_of(value)
    members = [member.name for step in steps(plan, WheelsStep) for member in step.packages]
    assert sorted(members) == [member.name for member in value.packages]
    assert len(plan.steps) <= layering.MOST_LAYERS
    assert isinstance(plan.steps[-1], ConfigStep)


def test_plan_labels_have_lock_versions_and_architectures():
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


def test_shipped_programs_are_executable_and_texts_are_not():
    plan = plan_of(plain_lock(), examples={"examples/dna.py": "#!/usr/bin/env python\n", "suites/README.md": "text\n"})
    modes = {file.path: file.mode for step in steps(plan, FilesStep) for file in step.files}
    assert [modes[f"/opt/graphcrate/{name}"] for name in ("examples/dna.py", "suites/README.md")] == [0o755, 0o644]


def test_compiled_extensions_are_the_last_layer_built_against_torch():
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
def test_tag_has_gpus_that_differ_from_the_recipe(value, options, suffix):
    plan = plan_of(value, **options)
    assert plan.tag == f"{TAG}{suffix}"
    assert plan.aliases == (f"0.1.0-debian12-py3.11-torch2.0-cuda11.7{suffix}",)


def test_devel_plan_has_compiler_tools_toolkit_and_variables():
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


def test_cpu_devel_plan_has_a_compiler_only_and_a_runtime_plan_none():
    cpu, runtime = PLANS["cpu-devel"], PLANS["debian"]
    assert not steps(cpu, ToolkitStep)
    assert {"CXX", "CUDA_HOME"} & cpu.config.environment.keys() == {"CXX"}
    assert not {"CXX", "CUDA_HOME"} & runtime.config.environment.keys()
    assert runtime.base.base != COMPILER_BASE
    assert not any("g++" in name for name in runtime.base.image.packages)
    assert "ninja" not in {member.name for step in steps(runtime, WheelsStep) for member in step.packages}
