"""What the doctor says of GPUs, their driver, and whether torch sees them: each cause apart from the others."""

import json

import pytest

from doctor.driver import Gpu, Nvidia, judge_driver, look_at_driver
from doctor.host import Done
from doctor.stack import import_finding, judge_imports, judge_torch_gpu, judge_versions
from tests.unit.made_up_host import GIB, MadeUp, by_id

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Sep 19 19:17:35 UTC 2023\nGCC version: 12\n"
DEVICES = {"/dev/nvidia0": "", "/dev/nvidiactl": "", "/dev/nvidia-uvm": ""}
V100 = ["Tesla V100-SXM3-32GB", 32 * GIB, 7, 0, 0, 1]


def files(driver="535.54.03", devices=DEVICES):
    return {"/proc/driver/nvidia/version": VERSION.format(driver), **devices}


def libcuda(code=0, cuda=12020, gpus=(V100,), library="/usr/lib/libcuda.so.535.54.03", **more):
    told = {"loaded": True, "error": "", "library": library, "code": code, "cuda": cuda, "gpus": gpus, "seconds": 0.1}
    return {"libcuda": json.dumps({**told, **more})}


NO_LIBCUDA = {"libcuda": json.dumps({"loaded": False, "error": "libcuda.so.1: cannot open shared object file"})}


def judged(host, container=""):
    return by_id(judge_driver(host, look_at_driver(host), container))


def test_a_machine_without_a_gpu_and_a_dgx2(tmp_path):
    found = judged(MadeUp(tmp_path / "none", python=NO_LIBCUDA))
    assert {name: each.status for name, each in found.items()} == {"gpu": "note"}
    found = judged(MadeUp(tmp_path, files("450.80.02"), python=libcuda(0, 11000, [V100] * 16, "libcuda.so.450.80.02")))
    assert {each.status for each in found.values()} == {"ok", "note"}
    assert found["driver"].seen == "450.80.02; the newest CUDA it knows is 11.0"
    assert found["variants"].seen == "CUDA 11.6, 11.7, 11.8 run"
    assert "12.1, 12.6, 12.8 needs driver 525.60.13 or newer" in found["variants-out"].seen
    assert found["gpus"].seen == "16 x Tesla V100-SXM3-32GB (sm_70, 32 GiB)"


def test_a_gpu_rules_variants_out_whatever_the_driver(tmp_path):
    found = judged(MadeUp(tmp_path, files("595.45.04"), python=libcuda(library="libcuda.so.595.45.04")))
    assert found["variants"].seen.startswith("CUDA 11.6, 11.7, 11.8, 12.1, 12.6, 12.8 run")
    assert "13.0 torch 2.12.1 has no code for sm_70" in found["variants-out"].seen
    old = judged(MadeUp(tmp_path / "old", files("418.39"), python=libcuda(library="libcuda.so.418.39")))["variants"]
    assert (old.status, "450.80.02" in old.fix) == ("fail", True)
    other = judged(MadeUp(tmp_path / "other", files(), python=libcuda(library="/usr/lib/libcuda.so.550.54.14")))
    assert (other["libcuda"].status, "reboot" in other["libcuda"].fix) == ("fail", True)


def test_without_libcuda_the_name_tells_the_capability(tmp_path):
    card = {"/proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ: 1\n"}
    nvidia = look_at_driver(MadeUp(tmp_path, {**files(), **card}, python=NO_LIBCUDA))
    assert nvidia.capabilities == ("8.0",)
    assert not nvidia.works


def test_a_gpu_on_the_bus_without_a_driver(tmp_path):
    bus = {
        "/sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n",
        "/sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n",
    }
    found = judged(MadeUp(tmp_path, bus, python=NO_LIBCUDA))
    assert found["driver"].status == "fail"
    assert "modprobe nvidia" in found["driver"].fix


@pytest.mark.parametrize(
    ("code", "name", "fix"),
    [
        (34, "STUB_LIBRARY", "stubs"),
        (46, "DEVICE_UNAVAILABLE", "COMPUTE"),
        (100, "NO_DEVICE", "CUDA_VISIBLE_DEVICES"),
        (802, "SYSTEM_NOT_READY", "fabricmanager"),
        (803, "SYSTEM_DRIVER_MISMATCH", "reboot"),
        (804, "COMPAT_NOT_SUPPORTED", "compat"),
        (999, "UNKNOWN", "nvidia_uvm"),
        (4711, "error 4711", "cuda.h"),
    ],
)
def test_what_cuinit_answers_is_explained(tmp_path, code, name, fix):
    found = judged(MadeUp(tmp_path, files(), python=libcuda(code, gpus=[])))
    assert found["libcuda"].status == "fail"
    assert name in found["libcuda"].seen
    assert fix in found["libcuda"].fix


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (Done(None, "", ""), "no answer within 30 s"),
        (Done(-11, "", ""), "ended by signal 11"),
        (Done(1, "", "Traceback\nMemoryError\n"), "ended by MemoryError"),
        (Done(0, "[]\n", ""), "ended by no answer"),
    ],
)
def test_a_libcuda_that_crashes_or_hangs_is_a_finding(tmp_path, answer, seen):
    found = judged(MadeUp(tmp_path, files(), python={"libcuda": answer}))
    assert found["libcuda"].status == "fail"
    assert seen in found["libcuda"].seen


def test_devices_that_are_closed_or_missing(tmp_path):
    host = MadeUp(tmp_path / "closed", files(), python=libcuda())
    host.closed.add("/dev/nvidia0")
    assert judged(host)["devices"].seen == "/dev/nvidia0 closed to you"
    host = MadeUp(tmp_path / "uvm", files(devices={"/dev/nvidia0": ""}), python=libcuda(999, gpus=[]))
    assert "nvidia-uvm is missing" in judged(host)["devices"].seen
    assert "srun --gres" in judged(MadeUp(tmp_path / "none", files(devices={}), python=NO_LIBCUDA))["devices"].fix


@pytest.mark.parametrize(
    ("container", "variables", "why", "fix"),
    [
        ("enroot", {}, "NVIDIA_VISIBLE_DEVICES is not set", "NVIDIA_VISIBLE_DEVICES=all"),
        ("enroot", {"NVIDIA_VISIBLE_DEVICES": "all"}, "the job asked for none", "NVIDIA_VISIBLE_DEVICES=all"),
        ("docker", {"NVIDIA_VISIBLE_DEVICES": "void"}, "NVIDIA_VISIBLE_DEVICES=void", "--gpus all"),
        ("docker", {}, "NVIDIA_VISIBLE_DEVICES is not set", "--gpus all"),
        ("docker", {"NVIDIA_VISIBLE_DEVICES": "all"}, "was started without GPUs", "--gpus all"),
        ("apptainer", {}, "was started without GPUs", "--nv"),
        ("podman", {}, "was started without GPUs", "cdi"),
    ],
)
def test_a_container_that_got_no_gpu_says_which_way_it_is_asked_for(tmp_path, container, variables, why, fix):
    host = MadeUp(tmp_path, files(devices={}), python=NO_LIBCUDA, environment=variables)
    found = judged(host, container)["devices"]
    assert (found.status, why in found.why, fix in found.fix) == ("fail", True, True)


@pytest.mark.parametrize(("capabilities", "why"), [("utility", "is utility"), ("", "utility` alone")])
def test_capabilities_without_compute_are_told(tmp_path, capabilities, why):
    variables = {"NVIDIA_DRIVER_CAPABILITIES": capabilities}
    found = judged(MadeUp(tmp_path, files(), python=NO_LIBCUDA, environment=variables), "enroot")["libcuda"]
    assert (found.status, why in found.why) == ("fail", True)
    assert found.fix == "NVIDIA_DRIVER_CAPABILITIES=compute,utility"


def test_a_slow_start_and_compute_modes(tmp_path):
    slow = judged(MadeUp(tmp_path / "slow", files(), python=libcuda(seconds=9.0)))
    assert "persistence" in slow["persistence"].why
    shut = judged(MadeUp(tmp_path / "shut", files(), python=libcuda(gpus=[[*V100[:4], 2, 0]])))
    assert shut["mode"].status == "fail"
    alone = judged(MadeUp(tmp_path / "alone", files(), python=libcuda(gpus=[[*V100[:4], 3, 0]])))
    assert alone["mode"].status == "note"


# torch

THERE = Nvidia(
    driver="535.54.03",
    devices=("/dev/nvidia0",),
    loaded=True,
    code=0,
    cuda="12.2",
    gpus=(Gpu("V100", "7.0", 32 * GIB),),
)
BLIND = {"name": "cuda", "available": False, "error": "RuntimeError: no", "count": 0, "archs": ["sm_70"], "gpus": []}
FOR_CUDA = {"version": "2.3.1", "cuda": "12.1"}


def of_torch(tmp_path, cuda=BLIND, torch=FOR_CUDA, nvidia=THERE, container="", **variables):
    host = MadeUp(tmp_path, environment=variables)
    (found,) = judge_torch_gpu(host, cuda, torch, nvidia, container)
    return found


@pytest.mark.parametrize(
    ("changed", "why", "fix"),
    [
        ({"torch": {"version": "2.13.0+cpu", "cuda": None}}, "a build for the CPU", "make image CUDA="),
        ({"nvidia": THERE._replace(devices=())}, "no /dev/nvidia0", "--nv"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides", "unset CUDA_VISIBLE_DEVICES"),
        ({"nvidia": THERE._replace(loaded=False, code=None)}, "libcuda is not there", "--nv"),
        (
            {"nvidia": THERE._replace(driver="470.82.01")},
            "470.82.01 is too old for CUDA 12.1, which needs 525.6",
            "11.8",
        ),
        ({"nvidia": THERE._replace(code=802)}, "cuInit answers 802", "nvidia-smi"),
        (
            {"cuda": {**BLIND, "archs": ["sm_75", "sm_80"]}},
            "for sm_75, sm_80, and not for sm_70",
            "make image CUDA=12.8",
        ),
        ({"cuda": {**BLIND, "archs": ["sm_70"], "error": "RuntimeError: odd"}}, "RuntimeError: odd", "--explain"),
    ],
)
def test_each_cause_of_a_blind_torch_is_told_apart(tmp_path, changed, why, fix):
    found = of_torch(tmp_path, container="apptainer", **changed)
    assert found.status == "fail"
    assert why in found.why
    assert fix in found.fix


def test_a_torch_without_a_fault(tmp_path):
    works = {**BLIND, "available": True, "error": "", "count": 1, "gpus": [["V100", [7, 0]]]}
    assert of_torch(tmp_path, works).seen == "torch 2.3.1 works on 1 GPU(s): V100"
    ptx = of_torch(tmp_path, {**BLIND, "archs": ["sm_50", "compute_60"]})  # serves a newer GPU
    assert "not for" not in ptx.why
    assert of_torch(tmp_path, nvidia=Nvidia()).status == "note"
    assert of_torch(tmp_path, torch={"version": "2.13.0+cpu", "cuda": None}, nvidia=Nvidia()).status == "ok"


# Packages


@pytest.mark.parametrize(
    ("installed", "name", "status"),
    [
        ({"torch": "2.0.1+cu118", "torch_scatter": "2.1.2+pt20cu118"}, "extension-version", None),
        ({"torch": "2.0.1+cu118", "torch_scatter": "2.1.2+pt21cu118"}, "extension-version", "fail"),
        ({"torch": "2.0.1+cu118", "torch_scatter": "2.1.2+pt20cu117"}, "extension-version", "fail"),
        ({"torch": "2.10.0", "torch_scatter": "2.1.2+pt210cu128"}, "extension-version", None),
        ({"torch": "2.10.0", "torch_scatter": "2.1.2+pt21cu128"}, "extension-version", "fail"),
        ({"torch": "2.1.0", "torch_scatter": "2.1.2+pt210cu128"}, "extension-version", "fail"),
        ({"torch": "2.3.1", "graphlearn_torch": "0.2.4", "torch_sparse": "0.6.18"}, "glt", "ok"),
        ({"torch": "1.13.1", "graphlearn_torch": "0.2.4", "torch_sparse": "0.6.18"}, "glt", "fail"),
        ({"torch": "2.3.1", "graphlearn_torch": "0.2.4"}, "glt", "fail"),
        ({"torch": "2.3.1", "graphlearn_torch": "9.9"}, "glt", None),
    ],
)
def test_versions_are_held_against_each_other(tmp_path, installed, name, status):
    found = by_id(judge_versions(MadeUp(tmp_path), installed))
    assert (found[name].status if name in found else None) == status
    assert installed["torch"] != "1.13.1" or found["glt"].fix == "pip install graphlearn-torch==0.2.2"


def test_another_torch_than_the_images_is_noticed(tmp_path):
    host = MadeUp(tmp_path, environment={"PYTORCH_VERSION": "2.0.1+cu118"})
    assert by_id(judge_versions(host, {"torch": "2.3.1"}))["pytorch-version"].status == "warn"
    assert "pytorch-version" not in by_id(judge_versions(host, {"torch": "2.0.1"}))


@pytest.mark.parametrize(
    ("answer", "seen", "why"),
    [
        ({"signal": "SIGSEGV"}, "torch_scatter crashes (SIGSEGV)", "does not fit"),
        (
            {"error": "OSError: /x/_version.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSs"},
            "torch::jit::parseSchemaOrName(std::string const&)",
            "another version or C++ ABI than torch 2.3.1",
        ),
        ({"error": "OSError: x.so: undefined symbol: cudaLaunchKernelExC"}, "cudaLaunch", "the CUDA runtime"),
        ({"error": "OSError: libcudart.so.11.0: cannot open shared object file"}, "libcudart", "another CUDA"),
        (
            {"error": "OSError: /lib/libm.so.6: version `GLIBC_2.29' not found (required by /x/a.so)"},
            "GLIBC",
            "newer system",
        ),
        (
            {"error": "", "heard": ["An issue occurred while importing 'pyg-lib'. Disabling its usage."]},
            "pyg-lib",
            "goes on",
        ),
        ({"error": "ImportError: No module named 'x'"}, "No module", "not installed"),
        ({"error": "ValueError: odd"}, "odd", "--explain"),
    ],
)
def test_what_became_of_an_import(answer, seen, why):
    found = import_finding("torch_scatter", {"name": "torch_scatter", **answer}, FOR_CUDA)
    assert found.status == "fail"
    assert seen in found.seen
    assert why in found.why
    assert found.fix


def test_imports_that_end_early_are_told(tmp_path):
    said = '@doctor {"name": "torch", "error": "", "version": "2.3.1", "cuda": null}\n'
    host = MadeUp(tmp_path, python={"@doctor": Done(-9, said, "")})
    found = by_id(judge_imports(host, {"torch": "2.3.1"}, Nvidia(), ""))
    assert found["import"].seen == "importing ended by signal 9"
    assert found["import"].why == "after torch"
    for done, seen in ((Done(None, "", ""), "time limit"), (None, "cannot be started")):
        host = MadeUp(tmp_path, python={"@doctor": done})
        assert seen in by_id(judge_imports(host, {}, Nvidia(), ""))["import"].seen
