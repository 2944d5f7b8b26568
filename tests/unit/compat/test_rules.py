"""Rules on what runs on a target: each by itself, and properties of all together."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunames import models
from graphcrate.compat.facts import driver_table, facts, gpu_table, suites
from graphcrate.compat.variants import rules
from graphcrate.compat.variants.rules import STATUSES, Software
from graphcrate.compat.variants.targets import Target

STACK = Software(torch="2.3.1", torch_cuda="12.1", python="3.11", suite="bookworm")
GLT_PACKAGES = ("torch", "torch-scatter", "torch-sparse", "graphlearn-torch")
CPU = {"torch": "2.12.1+cpu", "torch_cuda": "cpu"}
CUDA_13 = {"torch": "2.12.1", "torch_cuda": "13.0"}
EXTENSIONS = {"extensions": ("torch_scatter", "torch_sparse"), "architectures": ("7.0", "8.0"), "nvcc": "12.4.131"}
GLT = {"glt": "0.2.4", "packages": GLT_PACKAGES}
PTX = EXTENSIONS | {"architectures": ("7.0", "8.0+PTX")}
IMPOSSIBLE = EXTENSIONS | {"impossible": "nvcc 13.0 dropped 7.0"}
NO_WHEELS = EXTENSIONS | {"torch_cuda": "12.4", "extensions": ("pyg_lib", "torch_scatter")}
TORCH_1 = {"torch": "1.13.1", "torch_cuda": "11.7", "python": "3.9"}
PYG = {"python": "3.9", "torch_geometric": "2.7.0"}
OLD, NEW, P100 = {"driver": "450.80.02"}, {"driver": "580.95.05"}, {"gpus": ("P100",)}
TORCH, COMPILED, BASE = "GPU code of torch", "GPU code of extensions", "C library and kernel"
#: fixes; "$" is where one ends
ANY = "driver >= 525.60.13, up to R580; for this GPU NVIDIA's package cuda-compat-12-1 may do instead$"
DATA_CENTER = ANY.replace("this GPU", "data center GPUs of sm_80 and sm_75")
RECOMPILE = "recompile torch_scatter and torch_sparse with TORCH_CUDA_ARCH_LIST=6.0: make image … GPU=p100$"


def verdict(stack=STACK, gpus=("V100",), driver="550.54.15", **target):
    if isinstance(stack, dict):
        stack = msgspec.structs.replace(STACK, **stack)
    return rules.judge(stack, Target(gpus=gpus, drivers=(driver,) if driver else (), **target))


@pytest.mark.parametrize(
    ("stack", "target", "rule", "what", "fix"),
    [
        ({}, {"driver": "450.80.02"}, "driver", "CUDA 12 needs driver 525.60.13 or newer, and this is 450.80.02", ANY),
        (
            {},
            {"driver": "595.45.04"},
            "driver",
            "R580 is the last driver branch for V100 (sm_70), and this",
            "a driver of",
        ),
        ({}, {"driver": "470"}, "driver", "525.60.13 or newer, and this is 470", ANY),
        ({}, {"gpus": ("sm_80", "RTX3090"), **OLD}, "driver", "", "driver >= 525.60.13$"),
        ({}, {"gpus": ("V100", "sm_80", "sm_75"), **OLD}, "driver", "", DATA_CENTER),
        (CUDA_13, {"gpus": ("sm_120",), "driver": "570.26"}, "driver", "", "driver >= 580.65.06$"),  # RTX alone
        (CUDA_13, OLD, "driver", "", "no driver is enough: torch 2.12.1 for CUDA 13.0 has no code for V100 (sm_70);"),
        (CUDA_13, NEW, TORCH, "torch 2.12.1 for CUDA 13.0 has no code for V100", "the CUDA 12.6 build of torch 2"),
        (
            {},
            {"gpus": ("RTX5090",), "driver": "570.26"},
            TORCH,
            "RTX5090 (sm_120)",
            "the newest torch known to have sm_120 is 2.",
        ),
        (CPU, {}, "device", "torch for the CPU leaves V100 idle", "a variant for CUDA"),
        (CPU, {"gpus": None, **OLD}, "device", "leaves the GPU, which was not named, idle", "a variant for CUDA"),
        (EXTENSIONS, P100, COMPILED, "and torch_sparse are compiled for 7.0, 8.0, and not for P100 (sm_60)", RECOMPILE),
        (PTX, P100, COMPILED, "are compiled for 7.0, 8.0+PTX, and not for P100", RECOMPILE),  # for newer GPUs alone
        (PTX, {"gpus": ("H100",), "driver": "545.23.06"}, COMPILED, "drivers from 550.54.14 on", "driver >= 550.54"),
        (IMPOSSIBLE, {}, COMPILED, "nvcc 13.0 dropped 7.0", "TOOLKIT=image"),
        (GLT, {"gpus": ("A100",), "driver": "525.85.12"}, "graphlearn-torch", "drivers from 530.30.02 on", "driver >="),
        (GLT | TORCH_1, {}, "graphlearn-torch", "torch 1.13.1", "ask for graphlearn-torch==0.2.2"),
        (GLT | {"packages": ("torch",)}, {}, "graphlearn-torch", "imports torch_sparse", "add torch-sparse to"),
        (GLT | {"python": "3.13"}, {}, "graphlearn-torch", "no wheel for Python 3.13", "graphlearn-torch 0.2.4 needs"),
        ({"python": "3.7"}, {}, "Python", "torch 2.3.1 needs Python >=3.8", "a base with Python >=3.8"),
        (PYG, {}, "Python", "PyG 2.7.0 needs Python >=3.10; the image has 3.9", "a base with Python >=3.10"),
        ({}, {"kernel": "2.6.32-754.el6"}, BASE, "glibc 2.36 of Debian bookworm needs Linux 3.2", "Linux 3.2"),
        ({}, {"runtimes": {"apptainer": "2.6"}}, "runtime", "SIF needs Singularity 3.0, and this is 2.6", "a folder: "),
    ],
)
def test_rejected_stack_has_rule_source_and_fix(stack, target, rule, what, fix):
    found = verdict(stack, **target)
    (reason,) = found.reasons
    assert (found.status, reason.rule, bool(reason.source), what in reason.what) == ("rejected", rule, True, True)
    assert f"{reason.fix}$".startswith(fix)


@pytest.mark.parametrize(
    ("stack", "target", "status", "words"),
    [
        ({}, {}, "native", ""),
        # Minor-version compatibility: 12.8 came with 570.26.
        ({"torch": "2.10.0", "torch_cuda": "12.8"}, {"driver": "525.60.13"}, "native", ""),
        ({}, {"driver": ""}, "native", "driver 525.60.13 to R580"),
        ({}, {"gpus": ("A100",), "driver": ""}, "native", "driver 525.60.13 or newer"),
        ({}, {"gpus": ("H100", "V100"), "driver": ""}, "native", "driver 525.60.13 to R580"),
        ({}, {"driver": "580"}, "native", ""),
        ({}, {"driver": "525"}, "native", "driver 525.60.13 or newer, of the branch 525"),
        ({}, {"driver": "535"}, "native", ""),
        ({}, {"gpus": None}, "native", "a GPU that torch 2.3.1 for CUDA 12.1 has code for: P100, "),
        (EXTENSIONS, {"gpus": (), "driver": ""}, "native", "there is no GPU: it computes on the CPU"),
        (IMPOSSIBLE, {"gpus": ()}, "native", "there is no GPU"),
        (CPU, {"gpus": (), "driver": ""}, "native", ""),
        (CPU, {"gpus": None, "driver": ""}, "native", ""),
        (EXTENSIONS, {}, "native", ""),
        (PTX, {"gpus": ("H100",), "driver": "550.54.14"}, "jit", "PTX alone"),
        (NO_WHEELS, {}, "unknown", "extensions are compiled, and pyg_lib is left out"),
        (GLT, {}, "native", ""),
        (GLT, {"gpus": ("A100",)}, "jit", "graphlearn-torch 0.2.4 has PTX alone for A100 (sm_80): the driver compiles"),
        (GLT | {"glt": "0.9.9"}, {}, "unknown", "nobody has checked graphlearn-torch 0.9.9"),
        ({"torch_cuda": "99.0"}, {}, "unknown", "which driver CUDA 99.0 needs is not known"),
        ({}, {"kernel": "3.10.0-1160.el7"}, "native", ""),
        ({"suite": ""}, {"kernel": "3.10"}, "native", "the base's C library is not known"),
        ({"suite": "bullseye"}, {"glibc": "2.35", "runtimes": {"apptainer": ""}}, "native", "2.31 is older than"),
        ({"suite": "bullseye"}, {"glibc": "2.35", "runtimes": {"docker": ""}}, "native", ""),
        ({}, {"runtimes": {"apptainer": "3.5"}, "kernel": "3.10"}, "native", "no SIF of zstd"),
        ({}, {"runtimes": {"apptainer": "3.5"}, "kernel": "4.18"}, "native", ""),
        ({}, {"runtimes": {"apptainer": "1.0.0"}}, "native", ""),  # which came of Singularity 3.8
        ({}, {"runtimes": {"apptainer": "1.4.5"}}, "native", ""),
        ({}, {"runtimes": {"apptainer": "1.5.0"}}, "native", "keeps a SIF that mksquashfs left unfinished; 1.5.1"),
        ({}, {"runtimes": {"apptainer": "1.5.1"}}, "native", ""),
        ({}, {"runtimes": {"pyxis": ""}, "kernel": "3.10"}, "native", ""),
        ({}, {"runtimes": {"pyxis": "3.3.0"}}, "native", "no OCI manifest"),
    ],
)
def test_accepted_stack_has_status_and_notes(stack, target, status, words):
    found = verdict(stack, **target)
    told = " ".join([*(reason.what for reason in found.reasons), *found.assumes, *found.notes])
    assert (found.status, bool(told)) == (status, bool(words))
    assert words in told


def test_torch_ptx_on_a_newer_gpu_is_jit_or_rejected_by_driver(monkeypatch):
    build = next(build for build in facts.torch_builds() if build.ptx and build.cuda == "13.2")
    stack = {"torch": build.torch, "torch_cuda": build.cuda}
    assert verdict(stack, gpus=("B300",), driver="595.45.04").status == "native"  # sm_103 runs what is for 10.0
    known = gpu_table.gpus() | {"X900": "13.0"}
    monkeypatch.setattr(gpu_table, "all_gpus", lambda: known)
    monkeypatch.setattr(models, "known", lambda: known)
    monkeypatch.setattr(models, "model", models.model.__wrapped__)
    found = verdict(stack, gpus=("X900",), driver="595.45.04")
    assert (found.status, [one.rule for one in found.reasons]) == ("jit", ["GPU code of torch"])
    (rejected,) = verdict(stack, gpus=("X900",), driver="580.65.06").reasons
    assert rejected.what.endswith("which drivers from 595.45.04 on compile, and this is 580.65.06")
    assert verdict(stack, gpus=("X900",), driver="").assumes[-1] == "driver 595.45.04 or newer"


def test_base_with_older_glibc_than_torch_needs_is_rejected(monkeypatch):
    older = {"old": msgspec.structs.replace(suites.bases()["bullseye"], glibc="2.24")}
    monkeypatch.setattr(suites, "bases", lambda: older)
    (reason,) = verdict({"torch": "2.7.1", "torch_cuda": "12.6", "suite": "old"}).reasons
    assert reason.what == "torch 2.7.1 needs glibc 2.28; Debian old has 2.24"


def test_verdict_on_several_drivers_names_the_oldest_of_the_best():
    target = Target(gpus=("A100",), drivers=("550.54.15", "470", "525.85.12", "535.54.03"))
    found = rules.judge(msgspec.structs.replace(STACK, **GLT), target)
    assert (found.status, found.driver) == ("jit", "535.54.03")
    assert rules.judge(STACK, target).driver == "525.85.12"


def test_capability_name_has_the_architecture_once():
    assert (gpu_table.capability_name("v100"), gpu_table.capability_name("sm_70")) == ("V100 (sm_70)", "sm_70")
    assert gpu_table.capability_name("sm_70", "7.0", "V100", "TITAN_V") == "V100, TITAN_V (sm_70)"
    assert driver_table._forward()["gpus"] < set(gpu_table.all_gpus())


STACKS = st.builds(
    lambda build, architectures, glt: Software(
        torch=build.torch,
        torch_cuda=build.cuda,
        python="3.11",
        suite="bookworm",
        extensions=("torch_scatter",) if architectures else (),
        architectures=tuple(architectures),
        nvcc=f"{build.cuda}.99",
        glt=glt,
        packages=GLT_PACKAGES,
    ),
    st.sampled_from([build for build in facts.torch_builds() if build.cuda != "cpu"]),
    st.lists(st.sampled_from(["6.0", "7.0", "8.0", "8.0+PTX", "9.0", "9.0+PTX"]), unique=True, max_size=3),
    st.sampled_from(["", "0.2.4", "0.2.2", "9.9"]),
)
DRIVERS = sorted(
    {"418.39", "450.80.02", "470.82.01", "525.85.12", "535.54.03", *driver_table.toolkit_drivers().values(), "600.1"},
    key=facts.numbers,
)
GPUS = st.lists(st.sampled_from(list(gpu_table.gpus())), unique=True, min_size=1, max_size=3).map(tuple)
KERNELS = st.sampled_from(["", "2.6.32", "3.10", "5.14"])


def rank(found):
    return STATUSES.index(found.status)


@given(STACKS, GPUS, KERNELS, st.integers(0, len(DRIVERS) - 2), st.data())
def test_newer_driver_never_worsens_a_verdict_up_to_the_last_branch_for_the_gpus(stack, gpus, kernel, place, data):
    newer = data.draw(st.integers(place + 1, len(DRIVERS) - 1))
    before, after = (verdict(stack, gpus, DRIVERS[at], kernel=kernel) for at in (place, newer))
    if driver_table.last_branch(gpus) and facts.numbers(DRIVERS[newer])[0] > int(driver_table.last_branch(gpus)):
        assert after.reasons[0].rule == "driver"
    else:
        assert rank(after) <= rank(before)


#: GPU, driver, and why NVIDIA's matrix of toolkits, drivers and architectures has no such pair; nothing where it has
PAIRS = """
K80 450.80.02     | K80 470.256.02     | K80 510.39.01 last | K80 535.54.03 last | K80 595.45.04 last
M40 450.80.02     | M40 580.95.05      | M40 590.44.01 last | M60 610.43.02 last | M60 525.60.13
P100 418.39       | P100 580.65.06     | P100 590.44.01 last | P40 595.45.04 last | P4 580
V100 384.81       | V100 450.80.02     | V100 580.142      | V100 590.44.01 last | V100 595.45.04 last
V100 383.1 from   | TITAN_V 590 last   | V100S 580         | V100S 595 last    | GTX1080 595.45.04 last
T4 410.48         | T4 390.1 from      | T4 450.80.02      | T4 595.45.04      | T4 610.43.02
RTX2080 595.45.04 | RTX2080 396.26 from | QUADRO_RTX_8000 580.65.06 | GTX1660 610 | TITAN_RTX 410.48
A100 450.51.05    | A100 440.33 from   | A100 595.45.04    | A100 470          | A800 418.39 from
A10 450.80.02     | A40 440.33 from    | RTX3090 455.23    | RTX3090 610.43.02 | A30 580.65.06
L4 520.61.05      | L4 515.43.04 from  | L40S 450.80.02 from | L40S 525.60.13  | RTX4090 510.39.01 from
H100 520.61.05    | H100 470.42.01 from | H200 470.42.01 from | H200 550.54.14 | GH200 535.54.03
B200 570.26       | B200 525.60.13 from | B200 565.1 from  | GB200 580.65.06   | B300 595.45.04
RTX5090 570.26    | RTX5090 550.54.14 from | RTX_PRO_6000 560.28.03 from | GB300 550 from | RTX5090 595.45.04
"""


@pytest.mark.parametrize("pair", [pair.strip() for pair in re.split(r"[|\n]", PAIRS) if pair.strip()])
def test_driver_is_held_to_the_branches_that_know_the_gpu(pair):
    gpu, driver, why = (*pair.split(), "")[:3]
    found = [finding.what for finding in rules.of_these_gpus(driver, [gpu])]
    assert ["last driver branch" in what for what in found] == {"": [], "last": [True], "from": [False]}[why]


@given(STACKS, GPUS, st.sampled_from(DRIVERS), KERNELS, st.sampled_from(list(gpu_table.gpus())))
def test_further_gpu_never_improves_a_verdict_and_rejections_have_one_reason(stack, gpus, driver, kernel, more):
    found = verdict(stack, gpus, driver, kernel=kernel)
    assert rank(verdict(stack, (*gpus, more), driver, kernel=kernel)) >= rank(found)
    assert bool(found.reasons) == (found.status != "native")
    if found.status == "rejected":
        assert [(bool(one.source), bool(one.fix)) for one in found.reasons] == [(True, True)]


def test_an_extension_of_another_channel_is_not_missed_on_pygs_pages():
    def notes(*extensions):
        stack = {**NO_WHEELS, "extensions": extensions}
        return [note for note in verdict(stack).notes if "PyG's pages" in note]

    assert len(notes("torch_scatter")) == 1
    assert notes("dgl") == []
