"""Match graphlearn-torch (GraphLearn-for-PyTorch) with torch: `data/glt.toml`, judged by pure functions.

Its wheels declare next to nothing: no version of torch, no CUDA, not even torch_sparse, which they import first.
"""

from collections.abc import Collection, Iterator

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.facts.packages import hidden
from graphcrate.model.words import listed

NAME = "graphlearn-torch"
_CPU = "cpu"


class GltRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A published version. `torch`: the series ("1.13") that have all it refers to, built with CUDA `cuda` ("11")."""

    version: str
    python: tuple[str, ...]
    torch: tuple[str, ...]
    cuda: str
    driver: str  #: oldest NVIDIA driver that compiles its PTX
    sass: tuple[str, ...]  #: compute capabilities with machine code
    ptx: tuple[str, ...]


class _Check(msgspec.Struct, frozen=True, kw_only=True):
    """The number of symbols that these releases need and this torch lacks; `example` is one of them."""

    releases: tuple[str, ...]
    torch: str
    torch_cuda: str
    undefined: int
    example: str = ""


class GltAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons against a release, the newest release that would work, packages to add, notes on one that works."""

    reasons: tuple[str, ...]
    fitting: str | None
    absent: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def next_step(self) -> str:
        """Say what to change, or that nothing is to change."""
        steps = [f"add {name} to the recipe" for name in self.absent]
        if self.fitting is not None and len(self.reasons) > len(self.absent):
            steps.insert(0, f"ask for {NAME}=={self.fitting}, which fits")
        return "; ".join(steps)


#: every release whose wheels were read, oldest first
releases = table_reader("glt", tuple[GltRelease, ...], "release")
_checks = table_reader("glt", tuple[_Check, ...], "check")


def known(version: str) -> GltRelease | None:
    """The release of this version, if its wheels were read."""
    return next((release for release in releases() if release.version == version), None)


def judge(version: str, torch: str, torch_cuda: str, python: str, packages: Collection[str]) -> GltAdvice:
    """Judge a release with a torch ("1.13.1+cu116", built with CUDA "11.6" or "cpu"), a Python and `packages`.

    A release that was not measured is judged for the CPU alone.
    """
    release, name = known(version), f"{NAME} {version}"
    reasons: list[str] = []
    if torch_cuda == _CPU:
        counts = [check for check in _checks() if check.torch_cuda == _CPU]
        counted = next((check for check in counts if version in check.releases), counts[-1])
        reasons.append(
            f"{name} cannot be imported with a torch for the CPU: its only wheels are for CUDA and refer to "
            f"{counted.example} and the CUDA runtime, which such a torch does not have ({counted.undefined} undefined "
            "symbols). A CUDA build of torch serves machines without a GPU too: GLT samples and trains there with "
            "device=torch.device('cpu')."
        )
    elif release is not None:
        reasons += _torch_reasons(release, torch, torch_cuda)
    note = f"nobody has checked {name}"
    if release is not None:
        if python not in release.python:
            reasons.append(f"{name} has no wheel for Python {python}; it has for {listed(release.python)}.")
        note = (
            f"{name} has machine code for compute capabilities {listed(release.sass)}; on newer GPUs (A100, H100) the "
            f"driver compiles it from PTX {release.ptx[-1]} at the first use, for which it must be at least "
            f"{release.driver}"
        )
    missing = hidden(NAME, version, {canonicalize_name(package) for package in packages})
    reasons += [f"{NAME} {lacked.why}; its metadata does not say so." for lacked in missing]
    fitting = [
        release.version
        for release in releases()
        if python in release.python and not any(_torch_reasons(release, torch, torch_cuda))
    ]
    return GltAdvice(
        reasons=tuple(reasons),
        fitting=max(fitting, key=Version, default=None),
        absent=tuple(lacked.one_of[0] for lacked in missing),
        notes=(note,),
    )


def _torch_reasons(release: GltRelease, torch: str, torch_cuda: str) -> Iterator[str]:
    """Reasons why its library cannot be loaded with this torch, as counted with it or another of its series."""
    version, name = torch.partition("+")[0], f"{NAME} {release.version}"
    if _series(version) in release.torch:
        if torch_cuda.partition(".")[0] != release.cuda:
            yield f"{name} calls the runtime of CUDA {release.cuda}; torch {torch} brings that of {torch_cuda}."
        return
    evidence = ""
    for check in _checks():
        if release.version in check.releases and check.torch_cuda != _CPU and _series(check.torch) == _series(version):
            where = "" if check.torch == version else f" of {check.torch}"
            evidence = f": {check.undefined} undefined symbols{where}, such as {check.example}"
    compiled = f"{name} was compiled for torch {listed(release.torch)}"
    yield f"{compiled} and cannot be imported with torch {version}{evidence}."


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])
