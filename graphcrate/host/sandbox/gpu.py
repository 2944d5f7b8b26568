"""The host's GPUs and processor: devices and driver libraries for a run inside an image, and their names in words.

An image has CUDA's libraries but never the driver's: those must be the ones of the running kernel module. Docker and
enroot bring them in with libnvidia-container, Apptainer with `--nv`; this does the same for our own sandbox.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.host import arguments, process
from graphcrate.host.memory import kernel_text
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.platform import DEFAULT, Platform, of_machine

FOLDER = "/.graphcrate/nvidia"  #: inside the image, made for the run alone
LIBRARIES = f"{FOLDER}/lib"
#: device nodes of compute work; nvidia-caps holds the access to MIG slices
DEVICES = re.compile(r"nvidia\d+|nvidiactl|nvidia-uvm|nvidia-uvm-tools|nvidia-caps|nvidia-modeset")
#: sonames that libnvidia-container counts to the capabilities "compute" and "utility"
SONAMES = (
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-cfg.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-opencl.so.1",
    "libnvidia-gpucomp.so",
    "libnvidia-allocator.so.1",
)
PROGRAMS = ("nvidia-smi",)
DRIVER = Path("/proc/driver/nvidia/version")
GPUS = Path("/proc/driver/nvidia/gpus")  #: has a folder for each GPU, written by the driver
CPUS = Path("/proc/cpuinfo")
#: folders of drivers that ldconfig does not know: Kubernetes nodes, WSL, old Red Hat packages
_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib64",
    "/usr/lib/{triplet}",
    "/usr/lib/{triplet}/nvidia/current",
    "/usr/lib/nvidia",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)


class HostGpu(msgspec.Struct, frozen=True):
    """A host's GPUs: device paths, libraries by soname, programs by name; all empty on a machine without a GPU."""

    devices: tuple[str, ...] = ()
    libraries: dict[str, str] = {}
    programs: dict[str, str] = {}


def detect() -> HostGpu:
    """Look at this machine."""
    if not is_here():
        return HostGpu()
    platform = of_machine(os.uname().machine) or DEFAULT
    folders = {folder: _names(Path(folder)) for folder in folders_of(platform)}
    programs = {name: path for name in PROGRAMS if (path := process.find(name))}
    return choose(_names(Path("/dev")), _output("ldconfig", "-p"), folders, programs, platform)


def is_here() -> bool:
    """Return whether this machine has a GPU of NVIDIA's, with or without its tools."""
    return any(re.fullmatch(r"nvidia\d+|nvidiactl|dxg", name) for name in _names(Path("/dev")))


def folders_of(platform: Platform) -> tuple[str, ...]:
    """Folders of drivers that ldconfig does not know."""
    return tuple(folder.format(triplet=platform.triplet) for folder in _FOLDERS)


def choose(
    dev_names: Iterable[str],
    ldconfig: str,
    folders: Mapping[str, Iterable[str]],
    programs: Mapping[str, str],
    platform: Platform = DEFAULT,
) -> HostGpu:
    """Choose what to bring along, by the names in /dev, the output of `ldconfig -p`, and folders with their names.

    ldconfig's answer goes first, for the linker on the host would take that library too.
    """
    devices = tuple(f"/dev/{name}" for name in sorted(dev_names) if DEVICES.fullmatch(name) or name == "dxg")
    if not devices:
        return HostGpu()
    ours = rf"^\s*(\S+) \([^)]*{re.escape(platform.ldconfig)}[^)]*\) => (\S+)$"
    cached = dict(reversed(re.findall(ours, ldconfig, re.MULTILINE)))
    libraries = {}
    for pattern in SONAMES:
        # the library without a stable soname carries the driver's version
        soname_form = re.compile(re.escape(pattern) + (r"(\.\d+)+" if pattern.endswith(".so") else ""))
        matching = {soname: path for soname, path in cached.items() if soname_form.fullmatch(soname)}
        for folder, names in folders.items():
            for name in sorted(names):
                if soname_form.fullmatch(name):
                    matching.setdefault(name, f"{folder}/{name}")
        libraries.update(matching)
    return HostGpu(devices, libraries, dict(programs))


def extend(environment: Mapping[str, str], host: HostGpu) -> dict[str, str]:
    """The environment with the driver's libraries at the end of LD_LIBRARY_PATH; as it is without a GPU."""
    if not host.libraries:
        return dict(environment)
    path = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return {**environment, "LD_LIBRARY_PATH": ":".join([*path, LIBRARIES])}


def driver_version() -> str:
    """Version of the running NVIDIA driver ("535.54.03"); empty where there is none."""
    return read_driver_version(kernel_text(DRIVER)) or next(iter(_query("driver_version")), "")  # WSL has no such file


def read_driver_version(text: str) -> str:
    """Of the first line of /proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX … Module  535.54.03  …"."""
    return _first(r"^NVRM version:.*?\bModule(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)


def device(environment: Mapping[str, str], *, on_gpu: bool) -> str:
    """Name the device that a suite computes on here: "2 x Tesla V100-SXM3-32GB", or "cpu AMD EPYC 7742"."""
    if not on_gpu:
        return f"cpu {cpu_model()}".strip()
    return in_words(visible(gpu_models(), environment.get("CUDA_VISIBLE_DEVICES")))


def in_words(names: Sequence[str]) -> str:
    """Models with how many there are of each; "gpu" where no names are known."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items())) or "gpu"


def visible(names: Sequence[str], chosen: str | None) -> list[str]:
    """The GPUs that CUDA_VISIBLE_DEVICES (None: not set) leaves, as Slurm sets it for a job: by number; of those
    named by UUID as many as are named.
    """
    if chosen is None:
        return list(names)
    words = [word.strip() for word in chosen.split(",") if word.strip()]
    numbers = [int(word) for word in words if word.isdecimal()]
    if len(numbers) == len(words) and all(number < len(names) for number in numbers):
        return [names[number] for number in numbers]
    return list(names[: len(words)])


def gpu_models() -> tuple[str, ...]:
    """Names of the GPUs as the driver gives them, in its order; nvidia-smi is asked where there are no files (WSL)."""
    texts = [kernel_text(path) for path in sorted(GPUS.glob("*/information"))]
    return tuple(_first(r"^Model:\s*(\S.*?)\s*$", text) or "gpu" for text in texts) or _query("name")


def cpu_model() -> str:
    """The first core's model name; empty where the kernel does not say it."""
    return _first(r"^model name\s*:\s*(\S.*?)\s*$", kernel_text(CPUS))


def _query(field: str) -> tuple[str, ...]:
    """Ask nvidia-smi about each GPU; empty without GPU or driver."""
    listing = _output("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader") if is_here() else ""
    return tuple(line.strip() for line in listing.splitlines() if line.strip())


def _output(program: str, *words: str) -> str:
    """Return a program's output; empty where it is missing or fails."""
    try:
        return process.output(arguments.line(program, *words), timeout=60)
    except GraphcrateError:
        return ""


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""
