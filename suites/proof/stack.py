"""Looks at the stack below a training: versions, GPU and driver, the compiled extensions, what PyG switched off."""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import re
import warnings
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from proof.verdict import Fault, Layer, blame, explained

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import torch as torch_types

    from proof.verdict import Proof

EXTENSIONS = ("pyg_lib", "torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv")
SWITCHED_OFF = re.compile(r"importing '([^']+)'.*?Disabling its usage\.?(?:\s*Stacktrace:\s*(.*))?", re.DOTALL)
DRIVER_HINT = (
    "the container sees no driver library: use `singularity --nv`, `docker --gpus all`, or set "
    "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=compute,utility under enroot"
)


def load_torch(proof: Proof) -> ModuleType:
    """Import torch and note its versions."""
    keep_memory()
    proof.enter("importing torch", Layer.TORCH)
    import torch

    proof.versions.update(
        python=platform.python_version(),
        torch=torch.__version__,
        torch_cuda=torch.version.cuda,
        driver_cuda=driver_cuda(),
    )
    return torch


def load_pyg(proof: Proof) -> list[str]:
    """Import each extension that is installed, then PyG. Returns a list that PyG's later complaints are added to.

    Raises Fault for one that cannot be.
    """
    complaints = listen()
    load_extensions(proof)
    proof.enter("importing torch_geometric", Layer.PYG)
    torch_geometric = importlib.import_module("torch_geometric")
    importlib.import_module("torch_geometric.nn")
    proof.versions["pyg"] = torch_geometric.__version__
    raise_complaints(complaints)
    return complaints


def load_extensions(proof: Proof) -> None:
    """Import each extension that is installed. Raises Fault for one that cannot be.

    PyG swallows an extension's import error, some with a warning and some without, so each is imported by itself.
    """
    for name in EXTENSIONS:
        version = installed(name)
        if version is None:
            continue
        proof.enter(f"importing {name} {version}", Layer.EXTENSION)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise Fault(
                blame(error, Layer.EXTENSION), f"{name} {version} cannot be imported: {explained(error)}"
            ) from error
        proof.versions[name] = version


def installed(name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def listen() -> list[str]:
    """Gather PyG's "Disabling its usage" warnings from now on; all others go where they went."""
    complaints: list[str] = []
    show = warnings.showwarning

    def gather(message: Warning | str, *where: object, **more: object) -> None:
        if "Disabling its usage" in str(message):
            complaints.append(str(message))
        show(message, *where, **more)

    warnings.showwarning = gather
    # Before any filter of the user's (PYTHONWARNINGS=ignore), which would hide the very thing looked for.
    warnings.filterwarnings("always", message=".*Disabling its usage", append=False)
    return complaints


def raise_complaints(complaints: Sequence[str]) -> None:
    """Raise Fault when PyG switched an extension off."""
    if complaints:
        raise Fault(Layer.EXTENSION, "; ".join(explain(complaint) for complaint in complaints))


def explain(complaint: str) -> str:
    """PyG's warning as "PyG switched pyg-lib off: reason"."""
    found = SWITCHED_OFF.search(complaint)
    if not found:
        return " ".join(complaint.split())
    reason = " ".join((found.group(2) or "no reason given").split())
    return f"PyG switched {found.group(1)} off: {reason}"


def driver_cuda() -> str | None:
    """The newest CUDA that the driver supports ("12.4"), or None without a driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int()
        if library.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
            return f"{version.value // 1000}.{version.value % 1000 // 10}"
    except (OSError, AttributeError):
        pass
    return None


def gpu_expected() -> bool:
    """Return whether the machine shows this process a GPU, seen by torch or not."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1", "NoDevFiles"):
        return False
    return any(re.fullmatch(r"nvidia\d+|dxg", path.name) for path in Path("/dev").iterdir())


def choose_device(torch: ModuleType, wanted: str, proof: Proof) -> torch_types.device:
    """The device to prove on. `auto` takes the CPU only where no GPU is to be seen. Raises Fault."""
    proof.enter("looking for a GPU", Layer.DRIVER)
    if wanted == "cpu" or (wanted == "auto" and not gpu_expected() and not torch.cuda.is_available()):
        proof.device = "cpu"
        return torch.device("cpu")
    if torch.version.cuda is None:
        if wanted == "cuda":
            raise Fault(Layer.TORCH, f"torch {torch.__version__} is a CPU build and cannot use a GPU")
        proof.device = "cpu"
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Fault(Layer.DRIVER, _no_gpu(torch))
    capability = torch.cuda.get_device_capability(0)
    proof.device = torch.cuda.get_device_name(0)
    proof.extra["sm"] = f"sm_{capability[0]}{capability[1]}"
    if complaint := missing_kernels(capability, torch.cuda.get_arch_list()):
        raise Fault(Layer.TORCH, f"torch {torch.__version__} on {proof.device}: {complaint}")
    return torch.device("cuda", 0)


def _no_gpu(torch: ModuleType) -> str:
    known = driver_cuda()
    if known is None:
        return DRIVER_HINT
    try:
        torch.cuda.init()
        reason = "torch counts no GPU"
    except Exception as error:
        reason = " ".join(str(error).split())
    return f"the driver supports CUDA {known}, torch was built for CUDA {torch.version.cuda}: {reason}"


def missing_kernels(capability: tuple[int, int], built: Sequence[str]) -> str:
    """Explain why code for `built` (["sm_70", "compute_90", "sm_90a"]) cannot run on this GPU; empty if it can.

    Machine code runs on its own major version from its minor upwards, PTX (`compute_…`) on anything newer; a trailing
    `a` or `f` binds it more narrowly (CUDA C++ Programming Guide, "Application Compatibility").
    """
    major, minor = capability
    for name in built:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if not found:
            continue
        kind, code, suffix = found.group(1), (int(found.group(2)), int(found.group(3))), found.group(4)
        if code == (major, minor):
            return ""
        if kind == "sm" and suffix != "a" and code[0] == major and code[1] <= minor:
            return ""
        if kind == "compute" and not suffix and code <= (major, minor):
            return ""
    have = ", ".join(built) or "no GPU at all"
    wanted = f"sm_{major}{minor}"
    return f"no kernel image for {wanted}: it was built for {have}; take a variant whose torch has {wanted}"


def keep_memory() -> None:
    """Have glibc keep freed memory instead of giving it back.

    A CPU training step frees and asks again for gigabytes in blocks of 30 MB; returning them to the kernel
    costs a page fault per 4 KB each time, a third of the time of a step. No effect with another C library.
    """
    mmap_max, trim_threshold, top_pad = -4, -1, -2  # <malloc.h>
    try:
        library = ctypes.CDLL(None)
        library.mallopt(mmap_max, 0)
        library.mallopt(trim_threshold, 2**31 - 1)
        library.mallopt(top_pad, 256 << 20)
    except (OSError, AttributeError):
        pass
