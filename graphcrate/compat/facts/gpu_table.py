"""GPUs as `gpunames` reads them, what to type where it reads none, and the machines that have them."""

from collections.abc import Iterable

from gpunames import models
from gpunames.errors import GpuNameError, NameFault
from gpunames.models import by_capability as models_by_capability
from gpunames.models import common as gpus
from gpunames.models import known as all_gpus
from graphcrate.compat.facts.facts import ordered, torch_runs_on
from graphcrate.model.command import ETC, command, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.recipe import Candidate

__all__ = ["all_gpus", "gpus", "models_by_capability"]


def gpu_model(gpu: str) -> str:
    """Return the model named as by people (`v100`), nvidia-smi or a cloud's machine, or `sm_70` of `7.0`.

    Raises UsageError: another maker's, a generation of several capabilities, or an unknown one, with the nearest.
    """
    try:
        return models.model(gpu)
    except GpuNameError as error:
        raise _refused(error) from error


def compute_capability(gpu: str) -> str:
    """Return the compute capability of a GPU, named as `gpu_model` takes it. Raises UsageError as that does."""
    try:
        return models.capability(gpu)
    except GpuNameError as error:
        raise _refused(error) from error


def capability_name(model: str, *more: str) -> str:
    """Name a model with its architecture: "V100 (sm_70)", or "sm_70" of that alone. `more`: models of the same one."""
    code = f"sm_{compute_capability(model).replace('.', '')}"
    names = [name for name in map(gpu_model, (model, *more)) if name != code]
    return f"{', '.join(names)} ({code})" if names else code


def models_named(models: Iterable[str]) -> str:
    """Name these models, those of one architecture together: "H100, H200 (sm_90), B300 (sm_103)"."""
    alike: dict[str, list[str]] = {}
    for model in models:
        alike.setdefault(compute_capability(model), []).append(model)
    return ", ".join(capability_name(*names) for names in alike.values())


def gpu_models(gpus: str) -> tuple[str, ...]:
    """Read a list as people write it (`v100,a100`, `8xA100`, `V100/A100`), or what nvidia-smi prints.

    Raises UsageError when it names none, or an unknown one.
    """
    try:
        return models.models(gpus)
    except GpuNameError as error:
        raise _refused(error) from error


def _refused(error: GpuNameError) -> UsageError:
    """Say what to type instead."""
    several = "{}    (or several: {})".format
    match error.fault:
        case NameFault.FOREIGN:
            on_cpu = f"{setting(cuda='cpu')}    runs on the CPU of any {DEFAULT.title} machine"
            what = f"{error.name!r} is {error.maker}: these images are for CUDA, which NVIDIA's GPUs run"
            return UsageError(what, next_step=error.instead or on_cpu)
        case NameFault.SEVERAL:
            first, every = error.architectures[0], ",".join(error.architectures)
            return UsageError(error.what, next_step=several(command(ETC, gpu=first), setting(gpu=every)))
        case NameFault.NONE:
            return UsageError(error.what, next_step=several(command(ETC, gpu="v100"), setting(gpu="v100,a100")))
        case NameFault.SLICE:
            return UsageError(
                error.what, next_step="nvidia-smi -L    has the GPU in the line above the slice's: name that"
            )
        case NameFault.LONG:
            return UsageError(
                error.what,
                cause=f"A list has at most {models.MOST_NAMES} names of {models.LONGEST_NAME} characters.",
                next_step=command(ETC, gpu="v100,a100"),
            )
        case _:
            choice = f"choose one of: {', '.join(dict.fromkeys((*error.near, *gpus())))}    (or an architecture: sm_80)"
            return UsageError(error.what, next_step=choice)


def host_platform(model: str) -> Platform | None:
    """The platform of machines with a GPU, a model of `gpu_model`; None of a bare architecture, which both may have."""
    if model not in all_gpus():
        return None
    return platform_named(models.host(model) or DEFAULT.name)


def hosted_gpus(platform: Platform) -> tuple[str, ...]:
    """The GPUs that are in servers of a platform alone, of another one than the default."""
    return models.server_gpus(platform.name)


def machine_platform(models: Iterable[str]) -> Platform | None:
    """The platform of machines with these GPUs, as far as one of them tells; None where they are in different ones."""
    known = {platform for platform in map(host_platform, models) if platform}
    return known.pop() if len(known) == 1 else None if known else DEFAULT


def architectures_for(gpus: str) -> tuple[str, ...]:
    """Compute capabilities of a list of GPUs, lowest first: `v100,a100` → ("7.0", "8.0"). Raises UsageError."""
    return ordered({compute_capability(model) for model in gpu_models(gpus)})


def gpu_names(candidate: Candidate) -> tuple[str, ...]:
    """GPU models that the candidate's torch runs on natively."""
    torch, cuda = candidate.torch, candidate.torch_cuda
    return tuple(name for name, capability in gpus().items() if torch_runs_on(torch, cuda, capability))
