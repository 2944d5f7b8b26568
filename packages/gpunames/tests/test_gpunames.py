"""GPUs as people, nvidia-smi and clouds call them, and names that lead to none."""

from pathlib import Path

import pytest

from gpunames import models
from gpunames.errors import GpuNameError, NameFault


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
    assert models.model(gpu) == models.model(model.lower()) == model
    assert models.capability(gpu) == models.capability(model) == capability


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
            with pytest.raises(GpuNameError, match=words):
                models.models(gpu)


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
    assert models.model(name) == model


NAMES = Path(__file__).parent / "gpu_names.txt"


def test_names_of_people_smi_and_clouds_have_their_compute_capability():
    rows = [line.partition(": ") for line in NAMES.read_text().splitlines() if line[0] != "#"]
    names = [(name.strip(), capability) for capability, _, row in rows for name in row.split("|") if name.strip()]
    wrong = []
    for name, capability in names:
        try:
            found = {models.capability(model) for model in models.models(name)}
        except GpuNameError as error:
            found = error.what
        if found != {capability}:
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
        with pytest.raises(GpuNameError, match=maker):
            models.models(name)


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_gpu_list_is_read_as_typed_or_as_nvidia_smi_prints_it(text, expected):
    assert models.models(text) == expected


@pytest.mark.parametrize(
    "text", ["Tesla V100 " * 20, "Driver Version: " * 1200, ",".join(f"v100-{n}" for n in range(65))]
)
def test_text_too_long_for_a_list_of_gpus_is_not_looked_up(text, monkeypatch):
    monkeypatch.setattr(models, "model", None)
    with pytest.raises(GpuNameError, match="is not a list of GPUs"):
        models.models(text)


def test_each_known_model_is_named_by_itself():
    assert [models.model(name) for name in models.known()] == list(models.known())
    assert models.common().items() <= models.known().items()


@pytest.mark.parametrize(
    ("name", "fault", "facts"),
    [
        ("v100,MI300X", NameFault.FOREIGN, {"name": "MI300X", "maker": "a GPU of AMD's"}),
        ("v10", NameFault.UNKNOWN, {"name": "v10"}),
        ("volta,turing,ampere", NameFault.SEVERAL, {"architectures": ("sm_80", "sm_86")}),
        (";", NameFault.NONE, {}),
        ("x" * 101, NameFault.LONG, {}),
    ],
)
def test_fault_of_a_name_is_a_value_with_its_facts(name, fault, facts):
    with pytest.raises(GpuNameError) as caught:
        models.models(name)
    assert caught.value.fault is fault
    assert {field: getattr(caught.value, field) for field in facts} == facts


def test_machines_of_a_gpu_have_a_platform_where_it_is_not_x86_64():
    assert [models.host(name) for name in ("GH200", "THOR", "V100", "sm_90")] == ["linux/arm64", "linux/arm64", "", ""]
    assert models.server_gpus("linux/arm64") == ("GH200", "GB200", "GB300")
