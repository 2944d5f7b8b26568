"""GPU models and the machine code in torch builds: data in `data/*.toml`, judged by pure functions."""

import difflib
import functools
import re
from collections.abc import Iterable

import msgspec
from packaging.version import InvalidVersion, Version

from graphcrate.compat import tables
from graphcrate.compat.drivers import numbers
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Candidate

_ARCHITECTURE = re.compile(r"(?:sm_(?=\d+$)|(?=\d+\.))(?P<major>\d+)\.?(?P<minor>\d)", re.IGNORECASE)  #: sm_80, 8.0


class TorchBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A torch wheel: `cuda` is what it was built with, `sm` the compute capabilities with machine code inside.

    What is None or empty is not known. `known`: measured or documented; `source`: the wheel, or who says so.
    """

    torch: str
    cuda: str
    sm: tuple[str, ...]
    ptx: tuple[str, ...] | None = None  #: PTX that the driver can compile for newer GPUs
    some: tuple[str, ...] = ()  #: machine code that few of its kernels have
    cxx11_abi: bool | None = None  #: std::string in its new form
    glibc: str = ""  #: oldest that its libraries load with
    glibcxx: str = ""
    python: str = ""
    pins: tuple[str, ...] = ()  #: of cuDNN and NCCL
    size: int = 0
    known: str
    by: str = ""  #: how the architectures were found
    source: str = ""


class _Builds(msgspec.Struct, frozen=True):
    build: tuple[TorchBuild, ...]


class _Gpus(msgspec.Struct, frozen=True):
    common: dict[str, str]
    more: dict[str, str]


@functools.cache
def _gpus() -> _Gpus:
    return tables.read("gpus", _Gpus)


def gpus() -> dict[str, str]:
    """GPU model → compute capability ("7.0"), of those that lists name."""
    return _gpus().common


@functools.cache
def all_gpus() -> dict[str, str]:
    """The same of all that are known."""
    return _gpus().common | _gpus().more


@functools.cache
def torch_builds() -> tuple[TorchBuild, ...]:
    """Every known torch build."""
    return tables.read("torch", _Builds).build


def gpu_model(gpu: str) -> str:
    """The model that is named, as people (`v100`) or nvidia-smi write it (`Tesla V100-SXM2-32GB`), or `sm_70` of `7.0`.

    Raises UsageError with the nearest models for what names none, or two.
    """
    if (found := _ARCHITECTURE.fullmatch(gpu.strip())) and f"{found['major']}.{found['minor']}" in _architectures():
        return f"sm_{found['major']}{found['minor']}"
    words = re.findall(r"[A-Z0-9]+", gpu.upper())
    joined = {"".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)}
    fitting = {name.replace("_", ""): name for name in all_gpus() if name.replace("_", "") in joined}
    longest = max(fitting, key=len, default="")
    if longest and all(name in longest for name in fitting):
        return fitting[longest]
    near = difflib.get_close_matches("".join(words), all_gpus(), n=3, cutoff=0.3)
    raise UsageError(
        f"unknown GPU {gpu!r}" + (f"; the nearest are {', '.join(near)}" if near else ""),
        next_step=f"choose one of: {', '.join(gpus())}    (or an architecture: sm_80)",
    )


def compute_capability(gpu: str) -> str:
    """Compute capability of a GPU, named as `gpu_model` takes it. Raises UsageError with the nearest models."""
    model = gpu_model(gpu)
    return all_gpus().get(model) or f"{model[3:-1]}.{model[-1]}"


@functools.cache
def _architectures() -> frozenset[str]:
    """Those of any GPU that is known, or that any torch has code for."""
    return frozenset(all_gpus().values()).union(*(build.sm for build in torch_builds()))


def gpu_models(gpus: str) -> tuple[str, ...]:
    """The models of a list as people write it: `v100,a100`. Raises UsageError when it names none, or an unknown one."""
    models = tuple(dict.fromkeys(map(gpu_model, filter(None, (model.strip() for model in gpus.split(","))))))
    if not models:
        raise UsageError(f"GPU={gpus!r} names no GPU", next_step="GPU=v100    (or several: GPU=v100,a100)")
    return models


def architectures_for(gpus: str) -> tuple[str, ...]:
    """The compute capabilities to compile for so that it runs natively on each of these GPUs, lowest first.

    `v100,a100` → ("7.0", "8.0"). Raises UsageError with the nearest models for one that is unknown.
    """
    found = {compute_capability(model) for model in gpu_models(gpus)}
    return tuple(sorted(found, key=lambda capability: tuple(map(int, capability.split(".")))))


def runs_on(candidate: Candidate, capability: str) -> bool | None:
    """Whether the candidate's torch has machine code for this compute capability; None where nobody knows."""
    return torch_runs_on(candidate.torch, candidate.torch_cuda, capability)


def torch_runs_on(torch: str, cuda: str, capability: str) -> bool | None:
    """As `runs_on`, of a torch by its version ("2.0.1+cu118") and what it was built with ("11.8", "cpu")."""
    build = torch_build(torch, cuda)
    if build is None:
        return False if cuda == "cpu" else None
    return has_code(build.sm, capability)


def torch_build(torch: str, cuda: str) -> TorchBuild | None:
    """What is known of a torch by its version ("2.0.1+cu118") and what it was built with ("11.8")."""
    return _by_version().get((torch.partition("+")[0], cuda))


@functools.cache
def _by_version() -> dict[tuple[str, str], TorchBuild]:
    return {(build.torch, build.cuda): build for build in torch_builds()}


def has_code(sm: Iterable[str], capability: str) -> bool:
    """Whether machine code for any of these compute capabilities runs on this one.

    SASS for X.Y runs on X.Z with Z ≥ Y (CUDA programming guide, binary compatibility).
    """
    return any(_runs(code, capability) for code in sm)


def compiles_for(ptx: str, capability: str) -> bool:
    """Whether a driver makes code for a GPU of this PTX: for any newer one; of 9.0a for 9.0, of 10.0f for its family.

    Source: CUDA programming guide, architecture-specific and family-specific features.
    """
    if ptx.endswith("a"):
        return ptx[:-1] == capability
    if ptx.endswith("f"):
        return _runs(ptx[:-1], capability)
    return numbers(ptx) <= numbers(capability)


def gpu_names(candidate: Candidate) -> tuple[str, ...]:
    """GPU models that the candidate's torch runs on natively."""
    return tuple(name for name, capability in gpus().items() if runs_on(candidate, capability))


def _runs(code: str, capability: str) -> bool:
    major, minor = (int(part) for part in code.split("."))
    wanted_major, wanted_minor = (int(part) for part in capability.split("."))
    return major == wanted_major and minor <= wanted_minor


def ordered(capabilities: Iterable[str]) -> tuple[str, ...]:
    """Compute capabilities, lowest first."""
    return tuple(sorted(capabilities, key=lambda name: (*map(int, name.rstrip("af").split(".")), name)))


def by_number(name: str) -> tuple[str, Version]:
    """Orders GLIBC_2.9 before GLIBC_2.10, and compute capabilities."""
    prefix, _, number = name.rpartition("_")
    try:
        return prefix, Version(number)
    except InvalidVersion:  # GLIBC_PRIVATE, 9.0f
        return name, Version("0")
