"""GPUs and their driver, as the kernel and libcuda show them; nvidia-smi is not needed."""

import json
import re
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

from doctor.cuda import (
    CODES,
    capability_of,
    cuda_of,
    drivers_from,
    fitting_variants,
    has_code,
    in_words,
    newest_cuda,
    oldest_driver,
)
from doctor.facts import LAST_BRANCHES, VARIANTS
from doctor.finding import Finding, fail, listed, note, numbers, ok, size, warn
from doctor.host import Host

CUDA_LIMIT = 30.0  #: seconds for cuInit: 16 GPUs without persistence mode take that long
SLOW_START = 4.0
#: asked in a process of its own: libcuda may crash, hang, or be somebody else's
ASK_LIBCUDA = r"""
import ctypes, json, time
told = {"loaded": False, "error": "", "library": "", "code": None, "cuda": 0, "gpus": []}
def tell():
    print(json.dumps(told), flush=True)
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    told["error"] = str(error)
    tell()
    raise SystemExit
told["loaded"] = True
with open("/proc/self/maps") as maps:
    told["library"] = next((line.split(None, 5)[5].strip() for line in maps if "libcuda.so" in line), "")
start = time.time()
number = ctypes.c_int(0)
if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
    told["cuda"] = number.value
told["code"] = cuda.cuInit(0)
if told["code"] == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    for index in range(number.value):
        device, name, memory = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.c_size_t(0)
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, 256, device)
        getattr(cuda, "cuDeviceTotalMem_v2", cuda.cuDeviceTotalMem)(ctypes.byref(memory), device)
        answers = []
        for attribute in (75, 76, 20, 32):  # capability, its minor, compute mode, ECC
            value = ctypes.c_int(0)
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            answers.append(value.value)
        told["gpus"].append([name.value.decode("utf-8", "replace"), memory.value] + answers)
told["seconds"] = round(time.time() - start, 2)
tell()
"""


class Gpu(NamedTuple):
    """A GPU as libcuda has it, or by its name alone. `mode` 3: one process only; 2: none."""

    name: str
    capability: str
    memory: int = 0
    mode: int = 0
    ecc: bool = False


class Nvidia(NamedTuple):
    """NVIDIA's driver here. `code` is cuInit's answer; None: libcuda is not there, or did not get so far."""

    driver: str = ""
    devices: Tuple[str, ...] = ()
    models: Tuple[str, ...] = ()
    on_bus: int = 0
    loaded: bool = False
    library: str = ""
    error: str = ""
    code: Optional[int] = None
    cuda: str = ""
    gpus: Tuple[Gpu, ...] = ()
    seconds: float = 0.0

    @property
    def capabilities(self) -> Tuple[str, ...]:
        known = [gpu.capability for gpu in self.gpus] or [capability_of(model) for model in self.models]
        return tuple(sorted({capability for capability in known if capability}))

    @property
    def works(self) -> bool:
        return self.code == 0 and bool(self.gpus)


def look_at_driver(host: Host) -> Nvidia:
    """Gather; nothing is judged."""
    told = host.read("/proc/driver/nvidia/version") or ""
    module = re.search(r"^NVRM version:.*?\bModule(?: for \S+)?\s+(\d+(?:\.\d+)+)", told, re.MULTILINE)
    folder = "/proc/driver/nvidia/gpus"
    cards = [host.read(f"{folder}/{name}/information") or "" for name in host.names(folder)]
    models = tuple(
        found.group(1).strip() for found in (re.search(r"^Model:\s*(.+)$", card, re.M) for card in cards) if found
    )
    devices = tuple("/dev/" + name for name in host.names("/dev") if re.match(r"nvidia\d+$|dxg$", name))
    asked = _ask_libcuda(host)
    gpus = tuple(
        Gpu(name, f"{major}.{minor}", memory, mode, bool(ecc))
        for name, memory, major, minor, mode, ecc in asked.get("gpus", ())
    )
    return Nvidia(
        driver=module.group(1) if module else "",
        devices=devices,
        models=models,
        on_bus=_on_bus(host),
        loaded=bool(asked.get("loaded")),
        library=asked.get("library", ""),
        error=asked.get("error", ""),
        code=asked.get("code"),
        cuda=cuda_of(asked["cuda"]) if asked.get("cuda") else "",
        gpus=gpus,
        seconds=asked.get("seconds", 0.0),
    )


def _ask_libcuda(host: Host) -> Dict[str, Any]:
    done = host.run([host.python, "-I", "-S", "-c", ASK_LIBCUDA], limit=CUDA_LIMIT)
    if done is None:
        return {"error": "python could not be started to ask"}
    try:
        told = json.loads(done.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        told = {}
    if isinstance(told, dict) and told:
        return told
    if done.code is None:
        return {"loaded": True, "error": f"no answer within {CUDA_LIMIT:.0f} s"}
    how = f"signal {-done.code}" if done.code < 0 else (done.err.strip().splitlines() or ["no answer"])[-1]
    return {"loaded": True, "error": f"asking libcuda ended by {how}"}


def _on_bus(host: Host) -> int:
    """NVIDIA's GPUs on the PCI bus, with a driver or without."""
    folder = "/sys/bus/pci/devices"
    count = 0
    for name in host.names(folder):
        vendor = (host.read(f"{folder}/{name}/vendor") or "").strip()
        kind = (host.read(f"{folder}/{name}/class") or "").strip()
        count += vendor == "0x10de" and kind.startswith("0x03")
    return count


def judge_driver(host: Host, nvidia: Nvidia, container: str) -> Iterator[Finding]:
    """Yield what there is, and what speaks against using it. `container`: the kind that we are in, or nothing."""
    if not (nvidia.driver or nvidia.devices or nvidia.on_bus):
        why = "nothing runs on a GPU here; a login node seldom has one"
        yield note("gpu", "no NVIDIA GPU and no driver", why, "srun --gres=gpu:1 python3 doctor.py    asks a GPU node")
        return
    if nvidia.on_bus and not nvidia.driver and not container:
        yield fail(
            "driver",
            f"{nvidia.on_bus} NVIDIA GPU(s) on the bus, and no driver loaded",
            "/proc/driver/nvidia/version is not there: the kernel's module is not installed, not built for this "
            "kernel, or nouveau has the GPU",
            "as root: modprobe nvidia; dmesg | grep -i nvidia",
        )
        return
    if nvidia.driver:
        known = nvidia.cuda or newest_cuda(nvidia.driver)
        yield ok("driver", "{}; the newest CUDA it knows is {}".format(nvidia.driver, known or "older than 9.0"))
        for finding in _variants(nvidia):
            yield finding
    for finding in _devices(host, nvidia, container):
        yield finding
    for finding in _library(host, nvidia, container):
        yield finding
    for finding in _gpus(nvidia):
        yield finding


def _variants(nvidia: Nvidia) -> Iterator[Finding]:
    running, out = in_words(fitting_variants(nvidia.driver, nvidia.capabilities))
    where = "" if nvidia.capabilities else " (the GPU's kind is not known)"
    if running:
        yield ok("variants", f"CUDA {running} run{where}")
        if out:
            yield note("variants-out", "do not run: CUDA " + out)
        return
    with_code = [each.cuda for each in fitting_variants("", nvidia.capabilities) if each.runs]
    if not with_code:
        yield _no_code(nvidia.capabilities)
        return
    oldest = min(map(oldest_driver, with_code), key=numbers)
    yield fail(
        "variants",
        "no variant of graphcrate runs here: CUDA " + out,
        f"driver {nvidia.driver} is older than all of them need",
        f"update the driver to {drivers_from(oldest, nvidia.capabilities)}",
    )


def _no_code(capabilities: Tuple[str, ...]) -> Finding:
    """No variant has code for all of these GPUs, for any driver."""
    built = sorted({code for _, _, codes in VARIANTS for code in codes}, key=numbers)
    kinds = sorted(capabilities, key=numbers)
    without = [kind for kind in kinds if not has_code(built, kind)]
    seen = "no variant of graphcrate has code for " + listed(map(_sm, without or kinds))
    if not without:
        why = "each has code for some of these GPUs, none for all of them"
        return fail("gpu-code", seen, why, "CUDA_VISIBLE_DEVICES=0    shows a program one GPU alone")
    why = "no torch of theirs was built for it, and no driver changes that"
    fix = f"take a GPU from {_sm(built[0])} to {_sm(built[-1])}: srun --gres=gpu:MODEL:1 …"
    if numbers(without[-1]) > numbers(built[0]):
        fix = f"./build.py lock mine.toml    locks a newer torch by a recipe of your own; or {fix}"
    return fail("gpu-code", seen, why, fix)


def _sm(capability: str) -> str:
    return "sm_" + capability.replace(".", "")


def _devices(host: Host, nvidia: Nvidia, container: str) -> Iterator[Finding]:
    if nvidia.devices:
        closed = [device for device in (*nvidia.devices, "/dev/nvidiactl", "/dev/nvidia-uvm") if host.exists(device)]
        closed = [device for device in closed if not host.may_write(device)]
        if closed:
            why = "their owner or mode shuts you out: CUDA says that there is no device"
            yield fail(
                "devices",
                f"{listed(closed)} closed to you",
                why,
                "ls -l /dev/nvidia*; id    then ask the administrator",
            )
        elif not host.exists("/dev/nvidia-uvm") and not host.exists("/dev/dxg"):
            why = "CUDA needs it from its first call on (cuInit answers 999)"
            fix = "on the host as root: nvidia-modprobe -u -c=0" + (
                "; then start the container again" if container else ""
            )
            yield fail("devices", "/dev/nvidia-uvm is missing", why, fix)
        else:
            yield ok("devices", listed(nvidia.devices))
        return
    seen = f"the kernel has driver {nvidia.driver}, and there is no /dev/nvidia0"
    if container:
        yield fail("devices", seen, _why_no_device(host, container), fix_for_gpu(container))
    else:
        why = "the device nodes were not made, or this job may not see a GPU (cgroup of Slurm)"
        gone = [kind for kind, last in LAST_BRANCHES.items() if numbers(last) < numbers(nvidia.driver)[:1]]
        if gone and nvidia.on_bus:
            newest = max(gone, key=numbers)
            why += (
                f"; or the GPU is {_sm(newest)} (V100) or older: R{LAST_BRANCHES[newest]} is their last driver branch"
            )
        yield fail("devices", seen, why, "nvidia-modprobe -c=0    as root; in Slurm: srun --gres=gpu:1 …")


def _why_no_device(host: Host, container: str) -> str:
    visible = host.environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible is None and container in ("enroot", "docker", "kubernetes"):
        return "NVIDIA_VISIBLE_DEVICES is not set: the NVIDIA runtime and enroot's hook give such a container no GPU"
    if container == "enroot":
        return "the job asked for none; NVIDIA_VISIBLE_DEVICES inside is the image's, whatever value the job gave it"
    if visible in ("", "void", "none"):
        return f"NVIDIA_VISIBLE_DEVICES={visible}: no GPU was asked for"
    return "this container was started without GPUs"


def fix_for_gpu(container: str) -> str:
    """The way to ask each runtime for GPUs."""
    return {
        "apptainer": "singularity exec --nv IMAGE …",
        "docker": "docker run --gpus all IMAGE …",
        "podman": "podman run --device nvidia.com/gpu=all IMAGE …    (after: nvidia-ctk cdi generate)",
        "enroot": "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility srun --gres=gpu:1 "
        "--container-image=…",
        "kubernetes": "ask for nvidia.com/gpu in the pod's limits; in PAI take a GPU instance",
    }.get(container, "start the container with the host's GPUs: --nv, --gpus all, or NVIDIA_VISIBLE_DEVICES=all")


def _library(host: Host, nvidia: Nvidia, container: str) -> Iterator[Finding]:
    """Yield whether libcuda is there, is the module's own, and starts."""
    if not nvidia.devices:
        return
    if not nvidia.loaded:
        capabilities = host.environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
        if (
            container
            and nvidia.devices
            and not re.search(r"\b(compute|all)\b", capabilities)
            and container != "apptainer"
        ):
            told = "is " + capabilities if capabilities else "is not set, and enroot then takes `utility` alone"
            why = f"NVIDIA_DRIVER_CAPABILITIES {told}: libcuda comes with `compute`"
            yield fail("libcuda", "the GPU is there, libcuda is not", why, "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
        elif container:
            why = "the container has the device, and not the driver's library: " + nvidia.error
            yield fail("libcuda", "the GPU is there, libcuda is not", why, fix_for_gpu(container))
        else:
            why = "the driver's user-space part is missing or not in the linker's path: " + nvidia.error
            yield fail(
                "libcuda", "libcuda.so.1 is not to be found", why, "as root: ldconfig; or install the driver whole"
            )
        return
    version = re.search(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)*)", nvidia.library)
    if (
        nvidia.driver
        and version
        and numbers(version.group(1)) != numbers(nvidia.driver)
        and "compat" not in nvidia.library
    ):
        seen = f"{nvidia.library} beside module {nvidia.driver}"
        yield fail("libcuda", seen, *_fix_of(803))
        return
    if nvidia.code == 0:
        yield ok("libcuda", "{} starts".format(nvidia.library or "libcuda.so.1"))
    elif nvidia.code is None:
        yield fail("libcuda", nvidia.error, "libcuda does not start", "nvidia-smi; dmesg | grep -i -e nvrm -e xid")
    else:
        name = CODES.get(nvidia.code, (f"error {nvidia.code}", "", ""))[0]
        yield fail("libcuda", f"cuInit answers {nvidia.code} ({name})", *_fix_of(nvidia.code))
    if nvidia.seconds > SLOW_START:
        seen = f"CUDA took {nvidia.seconds:.0f} s to start"
        why = "the driver is loaded again for every program unless persistence mode is on"
        yield warn("persistence", seen, why, "as root: nvidia-smi -pm 1")


def _fix_of(code: int) -> Tuple[str, str]:
    known = CODES.get(code)
    if known is None:
        return "not in the doctor's list", "look it up in cuda.h (CUresult); dmesg | grep -i nvrm"
    return known[1], known[2] or "nvidia-smi"


def _gpus(nvidia: Nvidia) -> Iterator[Finding]:
    if not nvidia.gpus:
        if nvidia.models and nvidia.devices:
            yield note("gpus", listed(nvidia.models))
        return
    kinds: Dict[str, int] = {}
    for gpu in nvidia.gpus:
        text = "{} (sm_{}, {})".format(gpu.name, gpu.capability.replace(".", ""), size(gpu.memory))
        kinds[text] = kinds.get(text, 0) + 1
    yield ok("gpus", listed(f"{count} x {text}" for text, count in kinds.items()))
    if any(gpu.mode == 2 for gpu in nvidia.gpus):
        yield fail("mode", "a GPU is in compute mode PROHIBITED", "no process may use it", "as root: nvidia-smi -c 0")
    elif any(gpu.mode == 3 for gpu in nvidia.gpus):
        yield note("mode", "a GPU is for one process at a time (EXCLUSIVE_PROCESS)")
