"""What kind of node this machine is, in words, without starting a program where that can be avoided."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcrate.host import gpu

#: a folder for each GPU, written by the driver
GPUS = Path("/proc/driver/nvidia/gpus")
CPUS = Path("/proc/cpuinfo")
_FIRST_CPU = 4096  #: bytes of /proc/cpuinfo that hold the first core's lines


def device(environment: Mapping[str, str], *, on_gpu: bool) -> str:
    """What a suite computes on here: "2 x Tesla V100-SXM3-32GB", or "cpu AMD EPYC 7742"."""
    if not on_gpu:
        return f"cpu {cpu_model()}".strip()
    return in_words(visible(gpu_models(), environment.get("CUDA_VISIBLE_DEVICES")))


def in_words(names: Sequence[str]) -> str:
    """Models with how many there are of each; "gpu" where nobody told their names."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items())) or "gpu"


def visible(names: Sequence[str], chosen: str | None) -> list[str]:
    """The GPUs that CUDA_VISIBLE_DEVICES (None: not set) leaves, as Slurm sets it for a job: by number; of those
    named by UUID as many as are named.
    """
    if chosen is None:
        return list(names)
    wanted = [word.strip() for word in chosen.split(",") if word.strip()]
    numbers = [int(word) for word in wanted if word.isdecimal()]
    if len(numbers) == len(wanted) and all(number < len(names) for number in numbers):
        return [names[number] for number in numbers]
    return list(names[: len(wanted)])


def gpu_models() -> tuple[str, ...]:
    """Names of the GPUs as the driver gives them, in its order; nvidia-smi is asked where there are no files (WSL)."""
    found = []
    for path in sorted(GPUS.glob("*/information")):
        try:
            name = read_model(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            name = ""
        found.append(name or "gpu")
    return tuple(found) or gpu.gpu_names()


def read_model(information: str) -> str:
    """Of /proc/driver/nvidia/gpus/…/information: "Model: \t\t Tesla V100-SXM3-32GB"."""
    found = re.search(r"^Model:\s*(\S.*?)\s*$", information, re.MULTILINE)
    return found[1] if found else ""


def cpu_model() -> str:
    """The first core's model name; empty where the kernel does not tell."""
    try:
        with CPUS.open("rb") as stream:
            told = stream.read(_FIRST_CPU).decode(errors="replace")
    except OSError:
        return ""
    found = re.search(r"^model name\s*:\s*(\S.*?)\s*$", told, re.MULTILINE)
    return found[1] if found else ""
