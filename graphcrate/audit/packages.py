"""Whose each file is, and which package needs which: from RECORD and METADATA, and from what libraries refer to."""

import functools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping

from packaging.utils import canonicalize_name

from graphcrate.model.audit import Contents
from graphcrate.model.requirements import requirements
from graphcrate.model.words import listed

BASE = "base"  #: what no Python package brought
TORCH = "torch"
_SITE = re.compile(r"(/.*?/(?:site|dist)-packages)/([^/]+)")
_TORCH_LIBRARY = re.compile(r"lib(c10|torch)[a-z_]*\.so")
_TORCH_SYMBOL = re.compile(r"_ZNK?(2at|3c10|5torch)")


class Packages:
    """The Python packages of an image. Names are normalised; `BASE` stands for everything else."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._by_name = {found.name: found for found in contents.distributions}
        self._owners = {path: found.name for found in contents.distributions for path in found.files}
        self._required: dict[str, frozenset[str]] = {}
        self._uses_torch: dict[str, bool] = {}

    def version(self, package: str) -> str:
        """Empty where nothing tells it."""
        found = self._by_name.get(package)
        return found.version if found else ""

    def owner(self, path: str) -> str:
        """Which package brought this file; of one that no RECORD has, the top folder's name stands for it."""
        if path in self._owners:
            return self._owners[path]
        place = _SITE.match(path)
        if place is None:
            return BASE
        return canonicalize_name(place[2].partition(".")[0]) or BASE

    def binaries(self, package: str) -> tuple[str, ...]:
        """Paths of its programs and libraries."""
        return self._binaries.get(package, ())

    @functools.cached_property
    def _binaries(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for path in sorted(self._contents.binaries):
            found.setdefault(self.owner(path), []).append(path)
        return {package: tuple(paths) for package, paths in found.items()}

    @property
    def with_binaries(self) -> Iterator[str]:
        """Python packages that have any."""
        yield from (package for package in sorted(self._binaries) if package != BASE)

    def required(self, package: str) -> frozenset[str]:
        """Installed packages that it requires, and those that they do."""
        if package not in self._required:
            found, waiting = set[str](), [package]
            while waiting:
                current = self._by_name.get(waiting.pop())
                names = (
                    {one.name for one in requirements(current.requires, self._contents.python)}
                    if current
                    else set[str]()
                )
                new = {canonicalize_name(name) for name in names} & set(self._by_name) - found
                found |= new
                waiting += new
            self._required[package] = frozenset(found - {package})
        return self._required[package]

    def uses_torch(self, package: str) -> bool:
        """Whether its libraries are loaded after torch's: it is torch, says that it wants it, or refers to it."""
        if package == BASE:
            return False
        if package not in self._uses_torch:
            self._uses_torch[package] = package == TORCH or TORCH in self.required(package) or self.links_torch(package)
        return self._uses_torch[package]

    def links_torch(self, package: str) -> bool:
        """Whether any of its libraries refers to torch's."""
        return any(self.refers_to_torch(path) for path in self.binaries(package))

    def refers_to_torch(self, path: str) -> bool:
        """Whether a library refers to torch's."""
        binary = self._contents.binaries[path]
        if any(map(_TORCH_LIBRARY.match, binary.needed)):
            return True
        return any(_TORCH_SYMBOL.match(symbol.name) for symbol in binary.wanted)

    def is_torch_library(self, name: str) -> bool:
        """By its name."""
        return _TORCH_LIBRARY.match(name) is not None


def short(path: str) -> str:
    """A path below site-packages, or as it is."""
    place = _SITE.match(path)
    return path[len(place[1]) + 1 :] if place else path


def name(path: str) -> str:
    """The last part of a path."""
    return posixpath.basename(path)


def joined(names: Iterable[str], most: int = 4) -> str:
    """`a, b, c, d and 3 more`."""
    names = list(names)
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return listed(names)
