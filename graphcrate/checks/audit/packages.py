"""Whose each file is, and which package needs which: from RECORD and METADATA, and from what libraries refer to."""

import functools
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.checks.audit.environments import Worlds
from graphcrate.model.audit import Contents, Distribution
from graphcrate.model.requirements import requirements


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
        self._required: dict[Package, frozenset[Package]] = {}
        self._uses_torch: dict[Package, bool] = {}
        self._pythons: dict[str, tuple[str, ...]] = {}
        self._torches: dict[str, Package] = {}
        self._installed: dict[str, Mapping[str, Distribution]] = {}

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

    def installed(self, world: str) -> Mapping[str, Distribution]:
        """Name → what a process of this world gets."""
        if world not in self._installed:
            self._installed[world] = {
                package.name: one
                for each in reversed(self._worlds.seen(world))
                for package, one in self._distributions.items()
                if package.world == each
            }
        return self._installed[world]

    def torch(self, package: Package) -> Package:
        """The torch that a process of this package's has."""
        if package.world not in self._torches:
            candidates = [Package(world, TORCH) for world in self._worlds.seen(package.world)]
            there = (one for one in candidates if one in self._distributions or one in self._binaries)
            self._torches[package.world] = next(there, Package(package.world, TORCH))
        return self._torches[package.world]

    def binaries(self, package: Package) -> tuple[str, ...]:
        """Paths of its programs and libraries."""
        return self._binaries.get(package, ())

    @functools.cached_property
    def _binaries(self) -> Mapping[Package, tuple[str, ...]]:
        found: dict[Package, list[str]] = {}
        for path in sorted(self._contents.binaries):
            found.setdefault(self.owner(path), []).append(path)
        return {package: tuple(paths) for package, paths in found.items()}

    @property
    def with_binaries(self) -> Iterator[Package]:
        """Python packages that have any."""
        yield from (package for package in sorted(self._binaries, key=_by_name) if package != BASE)

    def required(self, package: Package) -> frozenset[Package]:
        """Installed packages that it requires, and those that they do."""
        if package not in self._required:
            installed = self.installed(package.world)
            found, waiting = set[Package](), [package]
            while waiting:
                current = self._distributions.get(waiting.pop())
                wanted = self.requirements(current) if current else ()
                names = {canonicalize_name(one.name) for one in wanted}
                new = {self.of(installed[name]) for name in names if name in installed} - found
                found |= new
                waiting += new
            self._required[package] = frozenset(found - {package})
        return self._required[package]

    def requirements(self, distribution: Distribution) -> Iterator[Requirement]:
        """What it requires where it is installed."""
        return requirements(distribution.requires, next(iter(self.pythons(distribution.folder)), ""))

    def pythons(self, path: str) -> tuple[str, ...]:
        """The Pythons ("3.11") that a file or folder of packages is for; empty where nothing tells."""
        found = _FOLDER.match(path)
        folder = found[0] if found else ""
        if folder not in self._pythons:
            self._pythons[folder] = self._worlds.pythons(folder)
        return self._pythons[folder]

    def interpreters(self, world: str) -> tuple[str, ...]:
        """Paths of a world's own."""
        return self._worlds.interpreters(world)

    def uses_torch(self, package: Package) -> bool:
        """Whether its libraries are loaded after torch's: it is torch, says that it wants it, or refers to it."""
        if package == BASE:
            return False
        if package not in self._uses_torch:
            wants = package.name == TORCH or self.torch(package) in self.required(package)
            self._uses_torch[package] = wants or self.links_torch(package)
        return self._uses_torch[package]

    def links_torch(self, package: Package) -> bool:
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


def _by_name(package: Package) -> tuple[str, str]:
    return package.name, package.world


def name(path: str) -> str:
    """The last part of a path."""
    return posixpath.basename(path)
