"""NVIDIA drivers and the CUDA versions that they run: data in `data/drivers.toml`, judged by pure functions."""

import functools
import re

import msgspec

from graphcrate.compat import tables

_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)


class _Forward(msgspec.Struct, frozen=True):
    gpus: frozenset[str]


class _Drivers(msgspec.Struct, frozen=True):
    forward: _Forward
    minimum: dict[str, str]
    toolkit: dict[str, str]


@functools.cache
def _drivers() -> _Drivers:
    return tables.read("drivers", _Drivers)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: `3.10.0-1160.el7` → (3, 10, 0); empty where it has none.

    Trailing zeros are dropped, so that equal versions are equal.
    """
    found = _VERSION.match(version.strip().removeprefix("v"))
    parts = [int(part) for part in found[0].split(".")] if found else []
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def oldest_driver(cuda: str) -> str:
    """The oldest driver for programs of this CUDA version ("11.8"); empty where nobody knows.

    From CUDA 11 on minor-version compatibility counts: any driver of the major version will do.
    """
    return _drivers().minimum.get(cuda.partition(".")[0], "") or _drivers().toolkit.get(cuda, "")


def forward_compatible(gpu: str) -> bool:
    """Whether NVIDIA's cuda-compat packages are for this GPU model; which base drivers they want, they say."""
    return gpu.upper() in _drivers().forward.gpus


def own_driver(cuda: str) -> str:
    """The driver that came with this CUDA version; older ones cannot compile its PTX. Empty where nobody knows."""
    return _drivers().toolkit.get(cuda, "")


def newest_cuda(driver: str) -> str:
    """The newest CUDA version that this driver knows all of, as `nvidia-smi` shows it; empty for older ones."""
    known = [cuda for cuda, first in _drivers().toolkit.items() if numbers(first) <= numbers(driver)]
    return max(known, key=numbers, default="")
