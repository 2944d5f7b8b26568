"""GPUs, architectures and drivers: what people call them, and what runs on which."""

import pytest

from graphcrate.compat.facts import driver_table, facts, gpu_table
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import ARM64, DEFAULT, PLATFORMS
from tests.made import RECIPES, refused

PYG = RECIPES["pyg"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("v10", ("unknown GPU 'v10'; the nearest are V100", "choose one of: V100, V100S, M10, P100, ", "sm_80")),
        ("v100,mi300", ("'mi300' is a GPU of AMD's: these images are for CUDA", "PyTorch for ROCm")),
        ("mps", ("a processor of Apple's", "runs on the CPU of any x86-64 machine")),
        ("ampere", ("Ampere is several architectures: sm_80 (A100, ", "sm_80,sm_86")),
        (" , ", ("names no GPU", "v100,a100")),
        ("Tesla V100 " * 20, ("is not a list of GPUs", "at most 64 names of 100 characters", "v100,a100")),
    ],
)
def test_gpu_that_is_none_is_a_usage_error_with_what_to_type(typed, words):
    with refused(UsageError, *words):
        gpu_table.gpu_models(typed)


def test_architectures_of_every_torch_are_known_by_gpunames():
    """So `sm_XY` of any of them can be typed."""
    builds = [*facts.torch_builds(), *(build for ported in facts.ported_builds().values() for build in ported)]
    capabilities = {capability.rstrip("af") for build in builds for capability in build.sm}
    assert [gpu_table.gpu_model(each) for each in sorted(capabilities)] == [
        f"sm_{each.replace('.', '')}" for each in sorted(capabilities)
    ]


def test_gpu_list_gives_its_architectures_in_order():
    assert gpu_table.architectures_for("a100,V100") == ("7.0", "8.0")
    assert gpu_table.architectures_for("b200, h100,h200,rtx-5090") == ("9.0", "10.0", "12.0")


def test_ptx_of_a_family_compiles_for_that_family_only():
    cases = ("9.0", "10.0", "8.9"), ("9.0a", "9.0", "10.0"), ("10.0f", "10.3", "12.0"), ("10.3f", "10.3", "10.0")
    for ptx, served, not_served in cases:
        assert (facts.compiles_for(ptx, served), facts.compiles_for(ptx, not_served)) == (True, False)


def runs_on(candidate, capability):
    return facts.torch_runs_on(candidate.torch, candidate.torch_cuda, capability)


def test_machine_code_runs_on_the_same_major_and_newer_minor():
    first, compatible = PYG.variant("11.8").candidates[:2]
    assert runs_on(first, "9.0")
    assert not runs_on(compatible, "9.0")  # it lacks sm_90 …
    assert runs_on(compatible, "8.9")  # … but sm_86 code runs on 8.9
    assert runs_on(PYG.variant("cpu").candidates[0], "8.0") is False
    for variant in PYG.variants:
        assert None not in [runs_on(candidate, "8.0") for candidate in variant.candidates]


def test_default_architectures_cover_all_gpus_of_torch():
    """A GPU that torch has code for must not meet extensions without any."""
    for variant in [one for recipe in RECIPES.values() for one in recipe.variants if one.architectures]:
        sass = [entry.removesuffix("+PTX") for entry in variant.architectures]
        ptx = [entry.removesuffix("+PTX") for entry in variant.architectures if entry.endswith("+PTX")]
        for gpu, capability in gpu_table.gpus().items():
            served = any(runs_on(candidate, capability) for candidate in variant.candidates)
            if served and facts.numbers(capability) >= (7,):
                compiled = facts.has_code(sass, capability) or any(facts.compiles_for(one, capability) for one in ptx)
                assert compiled, (variant.cuda, gpu)


def test_sass_runs_on_its_major_family_or_exact_architecture():
    for row in ("8.0 8.6 7.0", "8.6 8.6 8.0", "9.0a 9.0 9.1", "10.0f 10.3 12.0", "10.0a 10.0 10.3"):
        sass, runs, not_on = row.split()
        assert [facts.has_code([sass], runs), facts.has_code([sass], not_on)] == [True, False], row


def test_versions_are_ordered_numerically():
    assert facts.ordered(["GLIBC_2.10", "GLIBC_2.9", "GLIBC_2.2.5"]) == ("GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.10")
    assert facts.ordered(["10.0f", "10.0", "9.0"]) == ("9.0", "10.0", "10.0f")
    assert [facts.numbers(version) for version in ("3.10.0-1160.el7", "el7")] == [(3, 10), ()]


def test_oldest_driver_of_a_cuda_and_newest_cuda_of_a_driver():
    assert [driver_table.oldest_driver(cuda) for cuda in ("11.8", "10.2", "99.1")] == ["450.80.02", "440.33", ""]
    assert [driver_table.newest_cuda(driver) for driver in ("535.104.05", "300.1")] == ["12.2", ""]


def test_drivers_are_worded_for_a_machine_with_all_gpus_and_for_machines_with_one_each():
    assert driver_table.drivers_from("450.80.02", ["V100", "A100"]) == "450.80.02 to R580"
    each = driver_table.drivers_of_each
    assert each("450.80.02", ["6.0", "7.0", "8.0"]) == "450.80.02 or newer, to R580 for P100 and V100"
    assert each("450.80.02", ["3.7", "7.0"]) == "450.80.02 or newer, to R470 for 3.7, to R580 for V100"
    assert [each("1.2", kinds) for kinds in ([], ["8.0"], ["7.0"])] == ["1.2 or newer", "1.2 or newer", "1.2 to R580"]
    assert driver_table.drivers_of("2.15.0", "13.2") == "580.65.06 or newer"
    assert [driver_table.drivers_of("2.15.0", cuda) for cuda in ("cpu", "99.1")] == ["", ""]


def test_torch_builds_of_other_platforms_are_measured_and_their_gpus_named():
    for platform in PLATFORMS[1:]:
        for build in facts.builds_for(platform):
            assert (build.known, bool(build.sm)) == ("measured", True)
            assert build.source.endswith(f"_{platform.machine}.whl")
            assert facts.torch_build(build.torch, build.cuda, platform) is build
    assert facts.torch_build("2.7.1", "12.6", ARM64) is None
    assert facts.builds_for(DEFAULT) == facts.torch_builds()


def test_machines_with_grace_are_arm64_and_a_bare_architecture_may_be_either():
    assert [gpu_table.host_platform(gpu) for gpu in ("GH200", "GB200", "H100", "sm_90")] == [
        ARM64,
        ARM64,
        DEFAULT,
        None,
    ]
