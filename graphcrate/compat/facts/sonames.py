"""Tell the CUDA that a wheel's library was linked for, by the libraries that it needs: `data/sonames.toml`.

A wheel may bring a library of its own under a unique name (`libcudart-1ab2c3d4.so.12`): that is not
one of CUDA's names.
"""

import functools
import re
from collections.abc import Collection, Mapping

import msgspec

from graphcrate.compat.facts.facts import table, table_reader
from graphcrate.compat.facts.packages import Optional, is_for, matches, optional

_SONAME = re.compile(r"(?P<library>lib\w+)\.so\.(?P<number>\d+)(?:\.\d+)*")
#: a project whose name says that it is for torch: torchaudio, torch-scatter, graphlearn-torch, …-for-pytorch
_TIED = re.compile(r"(?:.*-)?(?:py)?torch.*")


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """A library `file` of a wheel that needs `soname`, which comes with these versions of CUDA ("13") alone."""

    file: str
    soname: str
    cuda: tuple[str, ...]


class _Numbered(msgspec.Struct, frozen=True, kw_only=True):
    """Libraries that have numbers of their own; empty `cuda`: those of CUDA."""

    libraries: tuple[str, ...]
    cuda: Mapping[str, tuple[str, ...]] = {}


class _Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A project of the index that brings libraries, for these versions of CUDA; its name is bare for `plain` ones."""

    project: str
    libraries: tuple[str, ...]
    cuda: tuple[str, ...]
    plain: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    def of(self, major: str) -> str:
        """Its name for a major version of CUDA; empty where it is not for that one."""
        if major not in self.cuda:
            return ""
        return self.project if major in self.plain else f"{self.project}-cu{major}"


_wheels = table_reader("sonames", tuple[_Wheel, ...], "wheel")


@functools.cache
def _libraries() -> Mapping[str, _Numbered]:
    rows = (row for part in ("own", "numbered") for row in table("sonames", tuple[_Numbered, ...], part))
    return {library: row for row in rows for library in row.libraries}


def is_tied(name: str, file: str) -> bool:
    """Return whether a package (normalised name) comes as a wheel that is compiled for a torch, by its names alone."""
    compiled = file.endswith(".whl") and not file.endswith("-any.whl")
    return compiled and name != "torch" and _TIED.fullmatch(name) is not None


def cuda_of(soname: str) -> tuple[str, ...]:
    """The major versions of CUDA that a library of this name comes with; empty for one that is not known as CUDA's."""
    match = _SONAME.fullmatch(soname)
    row = _libraries().get(match["library"]) if match else None
    if match is None or row is None:
        return ()
    return row.cuda.get(match["number"], ()) if row.cuda else (match["number"],)


def wheel_of(soname: str, cuda: str = "") -> str:
    """The project of the index that brings a library of CUDA ("nvidia-cusolver-cu11"); empty for other libraries.

    `cuda`: the version that it was linked for; without one, the name says that where it can.
    """
    match = _SONAME.fullmatch(soname)
    library = match["library"].partition("_")[0] if match else ""  # libcudnn_ops_infer is libcudnn's
    row = next((row for row in _wheels() if library in row.libraries), None)
    major = cuda.partition(".")[0] or next(iter(cuda_of(soname)), "")
    return row.of(major) if row is not None else ""


def is_project(project: str) -> bool:
    """Return whether it is known as a project that brings libraries of CUDA ("nvidia-cusparse")."""
    return any(row.project == project for row in _wheels())


def project_for(project: str, cuda: str) -> str:
    """Return such a project's name for a CUDA ("nvidia-cusparse-cu11" for 11.7); empty where it has none for it."""
    return next((row.of(cuda.partition(".")[0]) for row in _wheels() if row.project == project), "")


def of_other_cuda(package: str) -> tuple[str, ...]:
    """The same project for other versions of CUDA, whose files are in the same folder as those of this package.

    "nvidia-nccl-cu12" and "-cu13" for "nvidia-nccl-cu11"; nothing for other packages, and for those with bare names,
    which have a folder of their own (nvidia/cu13).
    """
    row = next((row for row in _wheels() if package in map(row.of, row.cuda) and package != row.project), None)
    names = () if row is None else (row.of(major) for major in row.cuda if major not in row.plain)
    return tuple(name for name in names if name != package)


def wheel_with(header: str, cuda: str) -> str:
    """The project with a header of CUDA ("nvtx3/nvToolsExt.h") that toolkits here lack; empty for other headers."""
    row = next((row for row in _wheels() if row.headers and header.startswith(row.headers)), None)
    return row.of(cuda.partition(".")[0]) if row is not None else ""


def misfits(package: str, needed: Mapping[str, Collection[str]], torch: str, torch_cuda: str) -> tuple[Misfit, ...]:
    """The libraries of a package that do not load beside a torch built with this CUDA, or "cpu".

    `needed`: path → the libraries that it needs. What the package does without (`compat.facts.packages.optional`) does
    not count, but for that of which it takes one, where none loads.
    """
    misfits_by_path = _found(needed, torch_cuda.partition(".")[0])

    def counts(path: str) -> bool:
        entries = (entry for entry in optional() if matches(entry, package, path))
        about = [entry for entry in entries if not (entry.by_torch and is_for(path, torch))]
        return all(optional.one_of and _none_loads(optional, package, needed, misfits_by_path) for optional in about)

    return tuple(dict.fromkeys(misfit for path, misfit in sorted(misfits_by_path.items()) if counts(path)))


def _found(needed: Mapping[str, Collection[str]], major: str) -> dict[str, Misfit]:
    """Path of each library that does not load with this major version of CUDA → which is to blame, it or another."""
    there: dict[str, list[str]] = {}
    for path in needed:
        there.setdefault(path.rpartition("/")[2], []).append(path)
    misfits_by_path: dict[str, Misfit] = {}
    for path, names in needed.items():
        if wrong := [name for name in names if name not in there and (cuda := cuda_of(name)) and major not in cuda]:
            clearest = min(wrong, key=lambda name: (len(cuda_of(name)), name))
            misfits_by_path[path] = Misfit(file=path, soname=clearest, cuda=cuda_of(clearest))
    before = -1
    while len(misfits_by_path) > before:  # what needs one of these does not load either
        before = len(misfits_by_path)
        broken = {
            name: misfits_by_path[paths[0]]
            for name, paths in there.items()
            if all(path in misfits_by_path for path in paths)
        }
        for path, names in needed.items():
            if blamed := next(filter(None, map(broken.get, names)), None):
                misfits_by_path.setdefault(path, blamed)
    return misfits_by_path


def _none_loads(optional_: Optional, package: str, needed: Collection[str], misfitting: Collection[str]) -> bool:
    return all(path in misfitting for path in needed if matches(optional_, package, path))
