"""NVIDIA's drivers: which of them a CUDA and a GPU need, and the last ones for old GPUs."""

from collections.abc import Iterable

from graphcrate.compat.facts import gpu_table
from graphcrate.compat.facts.facts import numbers, table_reader, torch_runs_on
from graphcrate.model.words import listed

#: CUDA version → the driver that came with it
toolkit_drivers = table_reader("drivers", dict[str, str], "toolkit")
#: major version of CUDA → the oldest driver for its programs
_minimum_drivers = table_reader("drivers", dict[str, str], "minimum")
_first_cuda = table_reader("drivers", dict[str, str], "first")
_last_branches = table_reader("drivers", dict[str, str], "last")
_forward = table_reader("drivers", dict[str, frozenset[str]], "forward")


def oldest_driver(cuda: str) -> str:
    """The oldest driver for programs of a CUDA, from 11 on of its major version; empty if unknown."""
    return _minimum_drivers().get(cuda.partition(".")[0], "") or own_driver(cuda)


def first_driver(gpu: str) -> str:
    """The oldest driver that knows the architecture of a GPU, named as in `gpu_model`; empty if unknown."""
    return own_driver(_first_cuda().get(gpu_table.compute_capability(gpu), ""))


def last_branch(gpus: Iterable[str]) -> str:
    """The last driver branch for all of these GPUs, named as in `gpu_model` ("580": V100); empty where none is."""
    ends = (_last_branches().get(gpu_table.compute_capability(gpu), "") for gpu in gpus)
    return min(filter(None, ends), key=numbers, default="")


def drivers_from(oldest: str, gpus: Iterable[str]) -> str:
    """Word the drivers from `oldest` on for all of these GPUs: "525.60.13 or newer", "525.60.13 to R580"."""
    last = last_branch(gpus)
    return f"{oldest} to R{last}" if last else f"{oldest} or newer"


def drivers_of_each(oldest: str, capabilities: Iterable[str]) -> str:
    """Word the drivers for machines with GPUs of one of these capabilities: "525.60.13 or newer, to R580 for V100".

    One model stands for each capability.
    """
    ends = {capability: last_branch([capability]) for capability in capabilities}
    if len({*ends.values()}) < 2:
        return drivers_from(oldest, ends)
    words = [f"{oldest} or newer"]
    for branch in dict.fromkeys(filter(None, ends.values())):
        models = [
            gpu_table.models_by_capability().get(each, (each,))[0] for each, last in ends.items() if last == branch
        ]
        words.append(f"to R{branch} for {listed(models)}")
    return ", ".join(words)


def drivers_of(torch: str, cuda: str) -> str:
    """Word the drivers that a torch runs with, named as in `torch_build`; empty for the CPU and where it is not known.

    On GPUs that lists name and that it has machine code for.
    """
    oldest = oldest_driver(cuda)
    runs = [capability for capability in gpu_table.models_by_capability() if torch_runs_on(torch, cuda, capability)]
    return drivers_of_each(oldest, runs) if oldest else ""


def own_driver(cuda: str) -> str:
    """The driver that came with this CUDA version; older ones cannot compile its PTX. Empty if unknown."""
    return toolkit_drivers().get(cuda, "")


def newest_cuda(driver: str) -> str:
    """The newest CUDA version that this driver knows all of, as `nvidia-smi` shows it; empty for older ones."""
    known = [cuda for cuda, first in toolkit_drivers().items() if numbers(first) <= numbers(driver)]
    return max(known, key=numbers, default="")


def driver_showing(cuda: str) -> str:
    """Return the oldest known driver that shows this CUDA version, or the next older one of its kind; else empty."""
    asked = numbers(cuda)
    known = [version for version in toolkit_drivers() if numbers(version)[0] == asked[0] and numbers(version) <= asked]
    return own_driver(max(known, key=numbers, default=""))


def forward_compatible(gpu: str) -> bool:
    """Return whether NVIDIA's cuda-compat packages are for this GPU model; they name the base drivers they need."""
    return gpu.upper() in _forward()["gpus"]
