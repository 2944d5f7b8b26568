"""Drivers and CUDA versions: which of the two runs with which. Pure."""

from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

from doctor.facts import GPU_CAPABILITIES, LAST_BRANCHES, MINIMUM_DRIVERS, TOOLKIT_DRIVERS, VARIANTS
from doctor.finding import numbers

#: what cuInit and its like answer. Source: cuda.h of CUDA 13 (CUresult), NVIDIA's driver API reference
CODES = {
    1: ("CUDA_ERROR_INVALID_VALUE", "the driver's library and the kernel's module do not fit", ""),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "the GPU or the machine has no memory left", "nvidia-smi    shows who has it"),
    3: (
        "CUDA_ERROR_NOT_INITIALIZED",
        "the driver could not start, as in a process that was forked after CUDA had started",
        'multiprocessing.set_start_method("spawn")',
    ),
    34: (
        "CUDA_ERROR_STUB_LIBRARY",
        "the libcuda that was loaded is a toolkit's stub, made for linking alone",
        "take the folder `stubs` out of LD_LIBRARY_PATH",
    ),
    46: (
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "another process has the GPU for itself (compute mode EXCLUSIVE_PROCESS), or none is allowed",
        "nvidia-smi -q -d COMPUTE    then ask the administrator, or take another GPU",
    ),
    100: (
        "CUDA_ERROR_NO_DEVICE",
        "the driver shows this process no GPU",
        "look at CUDA_VISIBLE_DEVICES; in Slurm ask for one: --gres=gpu:1",
    ),
    101: (
        "CUDA_ERROR_INVALID_DEVICE",
        "CUDA_VISIBLE_DEVICES names a GPU that is not there",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    304: ("CUDA_ERROR_OPERATING_SYSTEM", "the kernel refused a call of the driver", "dmesg    as root, on the host"),
    802: (
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "the NVSwitches are not set up: NVIDIA's fabric manager is not running, or is of another version",
        "the administrator: systemctl status nvidia-fabricmanager    (its version has to be the driver's)",
    ),
    803: (
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda is of another version than the kernel's module: the driver was updated and not loaded again, or "
        "the container has a libcuda of its own",
        "on the host: reboot the node; in a container: remove its own libcuda*, let the runtime bring the host's",
    ),
    804: (
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "the image's forward-compatibility libcuda was loaded on a GPU that may not use it (GeForce), or beside a "
        "newer driver that does not need it",
        "take /usr/local/cuda/compat out of LD_LIBRARY_PATH and /etc/ld.so.conf.d",
    ),
    805: ("CUDA_ERROR_MPS_CONNECTION_FAILED", "CUDA's MPS daemon does not answer", "unset CUDA_MPS_PIPE_DIRECTORY"),
    999: (
        "CUDA_ERROR_UNKNOWN",
        "most often the module nvidia_uvm is not loaded, /dev/nvidia-uvm is missing, or the machine was suspended",
        "on the host as root: modprobe nvidia_uvm && nvidia-modprobe -u -c=0",
    ),
}  # name, meaning, fix


class Variant(NamedTuple):
    """A CUDA of ours, and whether it runs. `reason` is why not, or with which reserve."""

    cuda: str
    torch: str
    runs: bool
    reason: str


def oldest_driver(cuda: str) -> str:
    """As in graphcrate.compat.drivers: by minor-version compatibility from CUDA 11 on; empty if unknown."""
    return MINIMUM_DRIVERS.get(cuda.split(".")[0], "") or TOOLKIT_DRIVERS.get(cuda, "")


def drivers_from(oldest: str, capabilities: Iterable[str]) -> str:
    """Word the drivers from `oldest` on for all of these GPUs: "525.60.13 or newer", "525.60.13 to R580"."""
    ends = [LAST_BRANCHES[capability] for capability in capabilities if capability in LAST_BRANCHES]
    return f"{oldest} to R{min(ends, key=numbers)}" if ends else f"{oldest} or newer"


def newest_cuda(driver: str) -> str:
    """The newest CUDA version that this driver knows all of; empty for one before CUDA 9."""
    known = [cuda for cuda, first in TOOLKIT_DRIVERS.items() if numbers(first) <= numbers(driver)]
    return max(known, key=numbers) if known else ""


def cuda_of(number: int) -> str:
    """Return the people's name of a driver's CUDA: 11.4 for 11040."""
    return f"{number // 1000}.{number % 1000 // 10}"


def model_of(name: str) -> str:
    """The model in a name as the driver has it ("Tesla V100-SXM3-32GB"); empty for none. The longest wins."""
    words = "".join(letter if letter.isalnum() else " " for letter in name.upper()).split()
    joined = ["".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)]
    return max((each for each in GPU_CAPABILITIES if each.replace("_", "").upper() in joined), key=len, default="")


def capability_of(model: str) -> str:
    """Of a name as the driver has it; empty where it is not known."""
    return GPU_CAPABILITIES.get(model_of(model), "")


def has_code(built: Sequence[str], capability: str) -> bool:
    """Machine code for X.Y runs on X.Z with Z ≥ Y (CUDA programming guide, binary compatibility)."""
    major, minor = capability.split(".")
    return any(code.split(".")[0] == major and int(code.split(".")[1]) <= int(minor) for code in built)


def fitting_variants(driver: str, capabilities: Sequence[str]) -> List[Variant]:
    """The variants of ours that run with this driver (or an empty one) on all of these GPUs."""
    found = []
    for cuda, torch, built in VARIANTS:
        least = oldest_driver(cuda)
        lacking = [code for code in capabilities if built and not has_code(built, code)]
        if driver and numbers(driver) < numbers(least):
            needs = f"needs driver {drivers_from(least, capabilities)}"
            found.append(Variant(cuda, torch, False, needs))
        elif lacking:
            reason = "torch {} has no code for sm_{}".format(torch, lacking[0].replace(".", ""))
            found.append(Variant(cuda, torch, False, reason))
        else:
            own = TOOLKIT_DRIVERS.get(cuda, "")
            minor = driver and own and numbers(driver) < numbers(own)
            found.append(Variant(cuda, torch, True, "by minor-version compatibility" if minor else ""))
    return found


def in_words(variants: Sequence[Variant]) -> Tuple[str, str]:
    """Those that run, and those that do not with the reason."""
    running = dict.fromkeys(each.cuda for each in variants if each.runs)
    reasons: Dict[str, Dict[str, None]] = {}
    for each in variants:
        if not each.runs and each.cuda not in running:
            reasons.setdefault(each.reason, dict.fromkeys([each.cuda])).update({each.cuda: None})
    out = "; ".join("{} {}".format(", ".join(cudas), reason) for reason, cudas in reasons.items())
    return ", ".join(running), out


def newest_fitting(driver: str, capabilities: Sequence[str]) -> str:
    """The newest CUDA of ours that runs there; empty for none."""
    running = [each.cuda for each in fitting_variants(driver, capabilities) if each.runs]
    return max(running, key=numbers) if running else ""
