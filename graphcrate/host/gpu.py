"""The host's NVIDIA devices and driver libraries, for one run inside an image.

An image has CUDA's libraries but never the driver's: those must be the ones of the running kernel module. Docker and
enroot bring them in with libnvidia-container, Apptainer with `--nv`; this does the same for our own sandbox.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from graphcrate.host import process
from graphcrate.model.errors import GraphcrateError

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
#: where drivers lie that ldconfig does not know: Kubernetes nodes, WSL, old Red Hat packages
FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/nvidia",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)


class HostGpu(msgspec.Struct, frozen=True):
    """What there is: device paths, libraries by soname, programs by name; all empty on a machine without a GPU."""

    devices: tuple[str, ...] = ()
    libraries: dict[str, str] = {}
    programs: dict[str, str] = {}


def detect() -> HostGpu:
    """Look at this machine."""
    if not is_here():
        return HostGpu()
    names = _names(Path("/dev"))
    listing = ""
    if process.find("ldconfig"):
        try:
            listing = process.output(["ldconfig", "-p"], timeout=60)
        except GraphcrateError:
            listing = ""  # the usual folders remain
    folders = {folder: _names(Path(folder)) for folder in FOLDERS}
    programs = {name: path for name in PROGRAMS if (path := process.find(name))}
    return choose(names, listing, folders, programs)


def is_here() -> bool:
    """Whether this machine has a GPU of NVIDIA's, whatever else it has of it."""
    return any(re.fullmatch(r"nvidia\d+|nvidiactl|dxg", name) for name in _names(Path("/dev")))


def choose(
    dev_names: Iterable[str], ldconfig: str, folders: Mapping[str, Iterable[str]], programs: Mapping[str, str]
) -> HostGpu:
    """What to bring along, from the names in /dev, the output of `ldconfig -p`, and folders with their names.

    ldconfig's answer goes first, for the linker on the host would take that library too.
    """
    devices = tuple(f"/dev/{name}" for name in sorted(dev_names) if DEVICES.fullmatch(name) or name == "dxg")
    if not devices:
        return HostGpu()
    known = dict(reversed(re.findall(r"^\s*(\S+) \([^)]*x86-64[^)]*\) => (\S+)$", ldconfig, re.MULTILINE)))
    libraries = {}
    for pattern in SONAMES:
        # the library without a stable soname carries the driver's version
        wanted = re.compile(re.escape(pattern) + (r"(\.\d+)+" if pattern.endswith(".so") else ""))
        found = {soname: path for soname, path in known.items() if wanted.fullmatch(soname)}
        for folder, names in folders.items():
            for name in sorted(names):
                if wanted.fullmatch(name):
                    found.setdefault(name, f"{folder}/{name}")
        libraries.update(found)
    return HostGpu(devices, libraries, dict(programs))


def extend(environment: Mapping[str, str], host: HostGpu) -> dict[str, str]:
    """The environment with the driver's libraries at the end of LD_LIBRARY_PATH; as it is without a GPU."""
    if not host.libraries:
        return dict(environment)
    path = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return {**environment, "LD_LIBRARY_PATH": ":".join([*path, LIBRARIES])}


def gpu_names() -> tuple[str, ...]:
    """Names of the GPUs as nvidia-smi gives them ("Tesla V100-SXM2-16GB"); empty without GPU or driver."""
    if not detect().devices or not process.find("nvidia-smi"):
        return ()
    try:
        listing = process.output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout=60)
    except GraphcrateError:
        return ()
    return tuple(line.strip() for line in listing.splitlines() if line.strip())


def driver_version() -> str:
    """Version of the running NVIDIA driver ("535.54.03"); empty where there is none."""
    try:
        told = DRIVER.read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = ""
    if version := read_driver_version(told):
        return version
    # WSL has no such file
    if not detect().devices or not process.find("nvidia-smi"):
        return ""
    try:
        listing = process.output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], timeout=60)
    except GraphcrateError:
        return ""
    return next((line.strip() for line in listing.splitlines() if line.strip()), "")


def read_driver_version(text: str) -> str:
    """Of the first line of /proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX … Module  535.54.03  …"."""
    found = re.search(r"^NVRM version:.*?\bModule(?: for \S+)?\s+(\d+(?:\.\d+)+)", text, re.MULTILINE)
    return found[1] if found else ""


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
