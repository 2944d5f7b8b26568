"""Which graphlearn-torch (GraphLearn-for-PyTorch) works with which torch: `data/glt.toml`, judged by pure functions.

Its wheels declare next to nothing: no version of torch, no CUDA, not even torch_sparse, which they import first.
"""

import functools
from collections.abc import Collection, Iterator

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat import tables
from graphcrate.model.words import listed

NAME = "graphlearn-torch"
_CPU = "cpu"


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """A published version. `torch`: the series ("1.13") that have all it refers to, built with CUDA `cuda` ("11")."""

    version: str
    python: tuple[str, ...]
    torch: tuple[str, ...]
    cuda: str
    compiler: str  #: nvcc's version
    driver: str  #: oldest NVIDIA driver that compiles its PTX
    sass: tuple[str, ...]  #: compute capabilities with machine code
    ptx: tuple[str, ...]
    cxx11_abi: bool  #: std::string in its new form, which torch has from 2.7 on
    glibc: str  #: oldest that its library loads with
    glibcxx: str
    known: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """How many symbols these releases refer to that this torch does not have."""

    releases: tuple[str, ...]
    torch: str
    torch_cuda: str
    undefined: int
    known: str
    example: str = ""  #: one of them


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution that it cannot be imported without, and says nowhere."""

    name: str  #: normalised
    why: str
    known: str


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    release: tuple[Release, ...]
    check: tuple[Check, ...]
    requirement: tuple[Requirement, ...]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`reasons` it cannot work, as sentences, none if it can; `fitting`: the newest release for this torch and Python.

    `absent`: distributions to add; `notes`: what to know of one that works.
    """

    reasons: tuple[str, ...] = ()
    fitting: str | None = None
    absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.reasons

    @property
    def next_step(self) -> str:
        """What to change, or nothing to change."""
        steps = [f"add {name} to the recipe" for name in self.absent]
        if self.fitting is not None and len(self.reasons) > len(self.absent):
            steps.insert(0, f"ask for {NAME}=={self.fitting}, which fits")
        return "; ".join(steps)


@functools.cache
def _facts() -> _Facts:
    return tables.read("glt", _Facts)


def releases() -> tuple[Release, ...]:
    """Every release whose wheels were read, oldest first."""
    return _facts().release


def judge(glt_version: str, torch: str, torch_cuda: str, python: str, packages: Collection[str]) -> Verdict:
    """Whether a release works with a torch ("1.13.1+cu116", built with CUDA "11.6" or "cpu"), a Python and `packages`.

    `packages`: names of all distributions of the image. A release that nobody has read is not judged but for the CPU.
    """
    release = next((one for one in releases() if one.version == glt_version), None)
    reasons: list[str] = []
    if torch_cuda == _CPU:
        reasons.append(_why_no_cpu(glt_version))
    elif release is not None:
        reasons += _torch_reasons(release, torch, torch_cuda)
    if release is not None and python not in release.python:
        reasons.append(f"{NAME} {glt_version} has no wheel for Python {python}; it has for {listed(release.python)}.")
    missing = absent(packages)
    reasons += [f"{NAME} {wanted.why}; its metadata does not say so." for wanted in missing]
    return Verdict(
        reasons=tuple(reasons),
        fitting=fitting(torch, torch_cuda, python),
        absent=tuple(wanted.name for wanted in missing),
        notes=(_about_gpus(release),) if release is not None else (f"nobody has checked {NAME} {glt_version}",),
    )


def absent(packages: Collection[str]) -> tuple[Requirement, ...]:
    """What it needs and says nowhere, of what is not among these distributions."""
    names = {canonicalize_name(name) for name in packages}
    return tuple(wanted for wanted in _facts().requirement if wanted.name not in names)


def fitting(torch: str, torch_cuda: str, python: str) -> str | None:
    """The newest release that works with this torch and Python, or None."""
    found = [
        release.version
        for release in releases()
        if python in release.python and not any(_torch_reasons(release, torch, torch_cuda))
    ]
    return max(found, key=Version, default=None)


def _torch_reasons(release: Release, torch: str, torch_cuda: str) -> Iterator[str]:
    """Why its library cannot be loaded with this torch."""
    version = torch.partition("+")[0]
    name = f"{NAME} {release.version}"
    if _series(version) not in release.torch:
        yield (
            f"{name} was compiled for torch {listed(release.torch)} and cannot be imported with torch {version}"
            + _evidence(release, version)
            + "."
        )
    elif torch_cuda.partition(".")[0] != release.cuda:
        yield f"{name} calls the runtime of CUDA {release.cuda}; torch {torch} brings that of {torch_cuda}."


def _evidence(release: Release, torch: str) -> str:
    """What was counted with this torch, or with another of its series."""
    counts = [check for check in _facts().check if release.version in check.releases and check.torch_cuda != _CPU]
    exact = [check for check in counts if check.torch == torch]
    near = exact or [check for check in counts if _series(check.torch) == _series(torch)]
    if not near:
        return ""
    counted = near[0]
    where = "" if exact else f" of {counted.torch}"
    return f": {counted.undefined} undefined symbols{where}, such as {counted.example}"


def _why_no_cpu(version: str) -> str:
    counts = [check for check in _facts().check if check.torch_cuda == _CPU]
    counted = next((check for check in counts if version in check.releases), counts[-1])
    return (
        f"{NAME} {version} cannot be imported with a torch for the CPU: its only wheels are for CUDA and refer to "
        f"{counted.example} and the CUDA runtime, which such a torch does not have ({counted.undefined} undefined "
        "symbols). A CUDA build of torch serves machines without a GPU too: GLT samples and trains there with "
        "device=torch.device('cpu')."
    )


def _about_gpus(release: Release) -> str:
    return (
        f"{NAME} {release.version} has machine code for compute capabilities {listed(release.sass)}; on newer GPUs "
        f"(A100, H100) the driver compiles it from PTX {release.ptx[-1]} at the first use, for which it must be at "
        f"least {release.driver}"
    )


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])
