"""pyg_lib, which no package index has: which release goes with which PyG, and what of which repositories it is made.

The data are `data/pyg_lib.toml`; pure. `graphcrate.inputs.repository` packs what they name.
"""

import fnmatch
from collections.abc import Iterable, Mapping

import msgspec
from packaging.specifiers import SpecifierSet

from graphcrate.compat.facts.facts import table_reader

NAME = "pyg-lib"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of pyg_lib: one repository at one commit, and its place below the whole."""

    repository: str  #: "pyg-team/pyg-lib"
    commit: str
    licence: str  #: an expression of SPDX
    take: tuple[str, ...]  #: files and folders, each name with `*` where it is a pattern
    path: str = ""  #: of a submodule; empty: the repository itself
    cuda: bool = False  #: for GPUs alone
    sha256: str = ""  #: of `listing`; empty: the files were not at hand, and the commit alone says what they are

    def takes(self, name: str) -> bool:
        """Return whether a file is taken, by its path below the part."""
        return any(name.startswith(f"{entry}/") or _matches(name, entry) for entry in self.take)


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """A release of pyg_lib. `pyg`, `wheels`: specifiers (PEP 440)."""

    version: str
    pyg: str  #: releases of PyG that it goes with
    wheels: str  #: releases of pyg_lib whose wheels go with those
    parts: tuple[Part, ...] = msgspec.field(name="part")  #: the first is the repository itself

    @property
    def commit(self) -> str:
        """The one that its tag names."""
        return self.parts[0].commit

    def of(self, torch_cuda: str) -> tuple[Part, ...]:
        """List the parts that compiling it takes beside a torch for this CUDA, or "cpu"."""
        return tuple(part for part in self.parts if not (part.cuda and torch_cuda == "cpu"))


#: all releases
releases = table_reader("pyg_lib", tuple[Release, ...], "release")


def release_for(pyg: str) -> Release | None:
    """The release that goes with a PyG ("2.3.1"); None if unknown."""
    return next((release for release in releases() if SpecifierSet(release.pyg).contains(pyg, prereleases=True)), None)


def release_at(commit: str) -> Release | None:
    """The release of a commit that a lock names; None where these data have none."""
    return next((release for release in releases() if release.commit == commit), None)


def wheels_for(pyg: str) -> SpecifierSet:
    """Releases whose wheels go with a PyG; all if unknown."""
    release = release_for(pyg)
    return SpecifierSet(release.wheels if release else "")


def listing(files: Mapping[str, str]) -> str:
    """One line for each file (path → sha256), sorted by path, as sha256sum writes them. Its hash is a part's."""
    return "".join(f"{sha256}  {path}\n" for path, sha256 in sorted(files.items()))


def commands(parts: Iterable[Part], version: str) -> str:
    """Commands that get the sources, for a shell."""
    first = next(iter(parts))
    return (
        f"git clone --recursive --shallow-submodules --branch {version} https://github.com/{first.repository} pyg-lib"
    )


def _matches(name: str, entry: str) -> bool:
    return name.count("/") == entry.count("/") and fnmatch.fnmatchcase(name, entry)
