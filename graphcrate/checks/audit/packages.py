"""Whose each file is, and which package needs which: from RECORD and METADATA, and from what libraries refer to."""

import functools
import itertools
import operator
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.checks.audit.environments import Worlds
from graphcrate.compat.packages import requirements
from graphcrate.model.audit import Check, Contents, Distribution, Finding, Severity


class Package(NamedTuple):
    """A package where it is installed: two environments may have two of one name. `name` is normalised."""

    world: str  #: see `checks.audit.environments`
    name: str


BASE = Package("", "base")  #: stands for what no Python package brought
TORCH = "torch"
_FOLDER = re.compile(r"/.*?/(?:site|dist)-packages(?=/|$)")
_SITE = re.compile(r"(/.*?/(?:site|dist)-packages)/([^/]+)")
_TORCH_LIBRARY = re.compile(r"lib(c10|torch)[a-z_]*\.so")
_TORCH_SYMBOL = re.compile(r"_ZNK?(2at|3c10|5torch)")


class Packages:
    """The Python packages of an image; `BASE` is everything else."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._worlds = Worlds(contents, [found.folder for found in contents.distributions])
        self._distributions = {self.of(found): found for found in contents.distributions}
        self._owners = {path: self.of(found) for found in contents.distributions for path in found.files}
        by_owner = sorted((self.owner(path), path) for path in contents.binaries)
        groups = itertools.groupby(by_owner, key=operator.itemgetter(0))
        self._binaries = {package: tuple(path for _, path in pairs) for package, pairs in groups}
        self.interpreters = self._worlds.interpreters
        self.installed, self.required = functools.cache(self._installed), functools.cache(self._required)
        self.uses_torch, self._torch = functools.cache(self._uses_torch), functools.cache(self._torch_of)
        self._pythons = functools.cache(self._worlds.pythons)

    def of(self, distribution: Distribution) -> Package:
        """The package that a distribution is."""
        return Package(self._worlds.of(distribution.folder), distribution.name)

    def version(self, package: Package) -> str:
        """Empty where nothing tells it."""
        found = self._distributions.get(package)
        return found.version if found else ""

    def owner(self, path: str) -> Package:
        """Which package brought this file; of one that no RECORD has, the top folder's name stands for it."""
        if path in self._owners:
            return self._owners[path]
        place = _SITE.match(path)
        if place is None:
            return BASE
        name = canonicalize_name(place[2].partition(".")[0])
        return Package(self._worlds.of(place[1]), name) if name else BASE

    def _installed(self, world: str) -> Mapping[str, Distribution]:
        """Name → what a process of this world gets."""
        return {
            package.name: one
            for each in reversed(self._worlds.seen(world))
            for package, one in self._distributions.items()
            if package.world == each
        }

    def torch(self, package: Package) -> Package:
        """The torch that a process of this package's has."""
        return self._torch(package.world)

    def _torch_of(self, world: str) -> Package:
        candidates = [Package(one, TORCH) for one in self._worlds.seen(world)]
        there = (one for one in candidates if one in self._distributions or one in self._binaries)
        return next(there, Package(world, TORCH))

    def binaries(self, package: Package) -> tuple[str, ...]:
        """Paths of its programs and libraries."""
        return self._binaries.get(package, ())

    def with_binaries(self) -> list[Package]:
        """Python packages that have any."""
        return sorted({*self._binaries} - {BASE}, key=lambda package: package[::-1])

    def _required(self, package: Package) -> frozenset[Package]:
        """Installed packages that it requires, and those that they do."""
        installed = self.installed(package.world)
        found, waiting = set[Package](), [package]
        while waiting:
            current = self._distributions.get(waiting.pop())
            wanted = self.requirements(current) if current else ()
            names = {canonicalize_name(one.name) for one in wanted}
            new = {self.of(installed[name]) for name in names if name in installed} - found
            found |= new
            waiting += new
        return frozenset(found - {package})

    def requirements(self, distribution: Distribution) -> Iterator[Requirement]:
        """What it requires where it is installed."""
        return requirements(distribution.requires, next(iter(self.pythons(distribution.folder)), ""))

    def pythons(self, path: str) -> tuple[str, ...]:
        """The Pythons ("3.11") that a file or folder of packages is for; empty where nothing tells."""
        found = _FOLDER.match(path)
        return self._pythons(found[0] if found else "")

    def _uses_torch(self, package: Package) -> bool:
        """Whether its libraries are loaded after torch's: it is torch, says that it wants it, or refers to it."""
        if package == BASE:
            return False
        return package.name == TORCH or self.torch(package) in self.required(package) or self.links_torch(package)

    def links_torch(self, package: Package) -> bool:
        """Whether any of its libraries refers to torch's."""
        return any(self.refers_to_torch(path) for path in self.binaries(package))

    def refers_to_torch(self, path: str) -> bool:
        """Whether a library refers to torch's."""
        binary = self._contents.binaries[path]
        if any(map(is_torch_library, binary.needed)):
            return True
        return any(_TORCH_SYMBOL.match(symbol.name) for symbol in binary.wanted)

    def finding(
        self, check: Check, severity: Severity, path: str, what: str, breaks: str, fix: str = "", size: int = 0
    ) -> Finding:
        """A finding on a program or library."""
        return Finding(check, severity, self.owner(path).name, short(path), what, breaks, fix, size)


def is_torch_library(name: str) -> bool:
    """Whether a library of this name is one of torch's."""
    return _TORCH_LIBRARY.match(name) is not None


def short(path: str) -> str:
    """A path below site-packages, or as it is."""
    place = _SITE.match(path)
    return path[len(place[1]) + 1 :] if place else path
