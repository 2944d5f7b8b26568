"""GPUs, architectures and drivers: what people call them, and what runs on which."""

from pathlib import Path

import pytest

from graphcrate.compat.facts import driver_table, facts, gpu_table
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import ARM64, DEFAULT, PLATFORMS
from tests.made import RECIPES, refused

PYG = RECIPES["pyg"]


@pytest.mark.parametrize(
    ("gpu", "model", "capability"),
    [
        ("v100", "V100", "7.0"),
        ("Tesla V100-SXM2-32GB", "V100", "7.0"),
        ("NVIDIA A100-SXM4-80GB", "A100", "8.0"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX3090", "8.6"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX_6000_ADA", "8.9"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX_PRO_6000", "12.0"),
        ("sm_80", "sm_80", "8.0"),
        ("12.0", "sm_120", "12.0"),
        ("3090", "RTX3090", "8.6"),
        ("2080ti", "RTX2080", "7.5"),
        ("gtx1080", "GTX1080", "6.1"),
        ("sm89", "sm_89", "8.9"),
        ("89", "sm_89", "8.9"),
    ],
)
def test_gpu_model_reads_names_of_users_and_nvidia_smi(gpu, model, capability):
    assert gpu_table.gpu_model(gpu) == gpu_table.gpu_model(model.lower()) == model
    assert gpu_table.compute_capability(gpu) == gpu_table.compute_capability(model) == capability


def test_unknown_or_ambiguous_gpu_is_refused():
    for words, gpus in (
        ("unknown GPU", ["sm_99", "99", "4000", "1.2.3", "RTX 6000", "v100,a1100"]),
        ("names no GPU", ["", " , "]),
        ("a GPU of AMD's", ["mi300", "MI250X", "gfx90a", "Radeon RX 7900"]),
        ("a processor of Huawei's", ["ascend910", "910b", "Ascend 910B3", "昇腾910", "310P"]),
        ("a processor of Cambricon's", ["MLU370"]),
        ("a processor of Intel's", ["gaudi2", "Max 1550"]),
        ("a processor of Google's", ["tpu-v4"]),
        ("a processor of Apple's", ["M3 Max", "mps"]),
        ("the nearest are V100", ["v10"]),
    ):
        for gpu in gpus:
            with pytest.raises(UsageError, match=words):
                gpu_table.architectures_for(gpu)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *(
            ("p4d.24xlarge", "A100"),
            ("g5.xlarge", "A10G"),
            ("ecs.gn6v-c8g1.2xlarge", "V100"),
            ("a3-highgpu-8g", "H100"),
        ),
        *(("titanx", "TITAN_X"), ("GTX Titan X", "GTX_TITAN_X"), ("NVIDIA TITAN Xp", "TITAN_XP")),
    ],
)
def test_gpu_model_reads_cloud_instances_and_titans(name, model):
    assert gpu_table.gpu_model(name) == model


NAMES = Path(__file__).parent / "gpu_names.txt"


def test_names_of_people_smi_and_clouds_have_their_compute_capability():
    rows = [line.partition(": ") for line in NAMES.read_text().splitlines() if line[0] != "#"]
    names = [(name.strip(), capability) for capability, _, row in rows for name in row.split("|") if name.strip()]
    wrong = []
    for name, capability in names:
        try:
            found = gpu_table.architectures_for(name)
        except UsageError as error:
            found = error.what
        if found != (capability,):
            wrong.append((name, capability, found))
    assert wrong == []
    assert len(names) > 240


MAKERS = {
    "Iluvatar": "BI-V100 | 天数智芯 BI-V100 | Iluvatar BI-V100 | MR-V100 | BI-V150 | 天垓 BI-V100",
    "Moore Threads": "MTT S4000 | 摩尔线程 S4000 | Moore Threads MTT S80",
    "MetaX": "MetaX C500 | 沐曦 C500 | 曦云 C500",
    "another maker": "燧原 | 云燧 T20 | 壁仞 | BR104 | 昆仑芯 P800 | Kunlun R200 | PPU | 平头哥 PPU | PPU-ZW810E",
    "Amazon": "trn1.32xlarge | inf2.xlarge | Trainium",
    "Jetson": "Jetson AGX Orin | Jetson Orin Nano | Orin NX | Xavier | NVIDIA Jetson Xavier NX | AGX Orin",
    "Huawei": "Ascend 910B | 昇腾 910B | 910b3 | Atlas 800",
    "several architectures": "ampere | Pascal | Blackwell | maxwell",
}


@pytest.mark.parametrize(("maker", "names"), MAKERS.items(), ids=MAKERS)
def test_devices_of_other_makers_and_generations_of_several_are_refused_by_name(maker, names):
    for name in names.split(" | "):
        with refused(UsageError, maker):
            gpu_table.gpu_models(name)


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("v100/a100", ("V100", "A100")),
        ("V100 A100", ("V100", "A100")),
        ("V100 and RTX 3090", ("V100", "RTX3090")),
        ("8xA100, 2x V100", ("A100", "V100")),
        ("GPU 0: Tesla V100-SXM3-32GB (UUID: GPU-1)\nGPU 1: NVIDIA L4 (UUID: GPU-2)\n", ("V100", "L4")),
        ("Tesla V100-SXM2-16GB\nTesla V100-SXM2-16GB\n", ("V100",)),
        (
            "| NVIDIA-SMI 450.80.02    Driver Version: 450.80.02    CUDA Version: 11.0     |\n"
            "|   0  Tesla V100-SXM3...  On   | 00000000:34:00.0 Off |                    0 |\n"
            "| N/A   33C    P0    51W / 350W |      0MiB / 32510MiB |      0%      Default |\n"
            "|   1  Tesla V100-SXM3...  On   | 00000000:36:00.0 Off |                    0 |\n",
            ("V100",),
        ),
    ],
)
def test_gpu_list_is_read_as_typed_or_as_nvidia_smi_prints_it(text, models):
    assert gpu_table.gpu_models(text) == models


@pytest.mark.parametrize(
    "text", ["Tesla V100 " * 20, "Driver Version: " * 1200, ",".join(f"v100-{n}" for n in range(65))]
)
def test_text_too_long_for_a_list_of_gpus_is_not_looked_up(text, monkeypatch):
    monkeypatch.setattr(gpu_table, "gpu_model", None)
    with refused(UsageError, "is not a list of GPUs"):
        gpu_table.gpu_models(text)


def test_gpu_list_gives_its_architectures_in_order():
    assert [gpu_table.gpu_model(model) for model in gpu_table.all_gpus()] == list(gpu_table.all_gpus())
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
