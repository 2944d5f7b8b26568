"""GPU models and the machine code in torch builds: data in `data/*.toml`, judged by pure functions."""

import difflib
import functools
import importlib.resources
import tomllib

import msgspec

from graphcrate.errors import UsageError
from graphcrate.model.recipe import Candidate


class TorchBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A torch wheel: `cuda` is what it was built with, `sm` the compute capabilities with machine code inside."""

    torch: str
    cuda: str
    sm: tuple[str, ...]
    known: str


class _Builds(msgspec.Struct, frozen=True):
    build: tuple[TorchBuild, ...]


def _data(name: str) -> bytes:
    # Part of the package, as constant as code: reading it is no I/O of the kind that the pure floor forbids.
    return (importlib.resources.files("graphcrate.compat") / "data" / name).read_bytes()


@functools.cache
def gpus() -> dict[str, str]:
    """GPU model → compute capability ("7.0")."""
    return {str(name): str(value) for name, value in tomllib.loads(_data("gpus.toml").decode()).items()}


@functools.cache
def torch_builds() -> tuple[TorchBuild, ...]:
    """Every known torch build."""
    return msgspec.toml.decode(_data("torch.toml"), type=_Builds).build


def compute_capability(gpu: str) -> str:
    """Compute capability of a GPU model, written in any case (`v100`). Raises UsageError with the nearest models."""
    wanted = gpu.upper().replace("-", "_").replace(" ", "")
    models = {name.replace("_", ""): capability for name, capability in gpus().items()}
    found = models.get(wanted.replace("_", ""))
    if found is None:
        near = difflib.get_close_matches(wanted, gpus(), n=3, cutoff=0.3)
        raise UsageError(
            f"unknown GPU {gpu!r}" + (f"; the nearest are {', '.join(near)}" if near else ""),
            next_step=f"choose one of: {', '.join(gpus())}",
        )
    return found


def gpu_models(gpus: str) -> tuple[str, ...]:
    """The models of a list as people write it: `v100,a100`. Raises UsageError when it names none."""
    models = tuple(dict.fromkeys(filter(None, (model.strip() for model in gpus.split(",")))))
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
    """Whether the candidate's torch has machine code for this compute capability; None where nobody knows.

    SASS for X.Y runs on X.Z with Z ≥ Y (CUDA programming guide, binary compatibility).
    """
    version = candidate.torch.partition("+")[0]
    for build in torch_builds():
        if (build.torch, build.cuda) == (version, candidate.torch_cuda):
            return any(_runs(code, capability) for code in build.sm)
    return False if candidate.torch_cuda == "cpu" else None


def gpu_names(candidate: Candidate) -> tuple[str, ...]:
    """GPU models that the candidate's torch runs on natively."""
    return tuple(name for name, capability in gpus().items() if runs_on(candidate, capability))


def _runs(code: str, capability: str) -> bool:
    major, minor = (int(part) for part in code.split("."))
    wanted_major, wanted_minor = (int(part) for part in capability.split("."))
    return major == wanted_major and minor <= wanted_minor
