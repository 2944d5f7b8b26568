"""Whose each file is, which package needs which, and which packages a Python process sees together.

Two interpreters in one image do not serve each other. A world is the packages of one interpreter or virtual
environment, by the name of one of their folders. A folder without an interpreter of its own (a virtual environment,
`pip install --target`, packages laid over an image) is one too: its packages come first there, and it may see all
others. Source: the module `site`; Debian's and Fedora's Pythons look below /usr and /usr/local alike.
"""

import functools
import itertools
import operator
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts.facts import numbers
from graphcrate.compat.facts.packages import requirements
from graphcrate.model.allowance import Check
from graphcrate.model.audit import AuditFinding, Contents, InstalledDistribution, Severity


class InstalledPackage(NamedTuple):
    """A package where it is installed: two environments may have two of one name. `name` is normalised."""

    world: str
    name: str


BASE = InstalledPackage("", "base")  #: stands for what no Python package brought
TORCH = "torch"
_SITE = re.compile(r"(?P<folder>/.*?/(?:site|dist)-packages)(?:/(?P<rest>.*))?", re.DOTALL)
_FOLDER = re.compile(r"(?P<prefix>.*)/lib(?:64)?/python(?P<version>[\d.]*)/(?P<kind>site|dist)-packages")
_INTERPRETER = re.compile(r"(?P<prefix>.*)/bin/python(?P<version>[\d.]*)")
_SYSTEM = ("", "/usr", "/usr/local")
_DEBIANS = "/usr/bin/"  #: whose interpreters see python3/dist-packages
_TORCH_LIBRARY = re.compile(r"lib(c10|torch)[a-z_]*\.so")
_TORCH_SYMBOL = re.compile(r"_ZNK?(2at|3c10|5torch)")


class Packages:
    """The Python packages of an image; `BASE` is everything else."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._distributions = {self.of(distribution): distribution for distribution in contents.distributions}
        self._worlds = list(dict.fromkeys(package.world for package in self._distributions))
        self._owners = {
            path: self.of(distribution) for distribution in contents.distributions for path in distribution.files
        }
        by_owner = sorted((self.owner(path), path) for path in contents.binaries)
        groups = itertools.groupby(by_owner, key=operator.itemgetter(0))
        self._binaries = {package: tuple(path for _, path in pairs) for package, pairs in groups}
        self._interpreters: dict[str, list[str]] = {}
        for path in sorted(contents.binaries):
            if match := _INTERPRETER.fullmatch(path):
                prefix = "/usr" if match["prefix"] in _SYSTEM else match["prefix"]
                self._interpreters.setdefault(prefix, []).append(path)
        self.installed, self.required = functools.cache(self._installed), functools.cache(self._required)
        self.pythons = functools.cache(self._pythons)
        self.uses_torch, self._torch = functools.cache(self._uses_torch), functools.cache(self._torch_of)

    def of(self, distribution: InstalledDistribution) -> InstalledPackage:
        """The package that a distribution is."""
        return InstalledPackage(_world(distribution.folder), distribution.name)

    def version(self, package: InstalledPackage) -> str:
        """Empty where nothing tells it."""
        distribution = self._distributions.get(package)
        return distribution.version if distribution else ""

    def owner(self, path: str) -> InstalledPackage:
        """The package that brought this file; of one that no RECORD has, the top folder's name."""
        if path in self._owners:
            return self._owners[path]
        site = _SITE.fullmatch(path)
        name = canonicalize_name(site["rest"].partition("/")[0].partition(".")[0]) if site and site["rest"] else ""
        return InstalledPackage(_world(site["folder"]), name) if site and name else BASE

    def is_owned(self, path: str) -> bool:
        """Return whether a RECORD has this file."""
        return path in self._owners

    def _installed(self, world: str) -> Mapping[str, InstalledDistribution]:
        """Map each package name to the copy that is imported."""
        return {
            package.name: distribution
            for each in reversed(self._seen(world))
            for package, distribution in self._distributions.items()
            if package.world == each
        }

    def _seen(self, world: str) -> tuple[str, ...]:
        """The worlds that a process of this one sees, in the order in which it looks: its own, then others."""
        others = [] if self.interpreters(world) else self._worlds
        return tuple(dict.fromkeys((world, *others)))

    def interpreters(self, world: str) -> tuple[str, ...]:
        """Paths of a world's own; a virtual environment borrows one, and other folders have none."""
        match = _FOLDER.fullmatch(world)
        return tuple(self._interpreters.get(match["prefix"], ())) if match else ()

    def environment(self, package: InstalledPackage) -> str:
        """The folder of its virtual environment or interpreter ("/opt/venv"); empty where nothing tells."""
        match = _FOLDER.fullmatch(package.world)
        return match["prefix"] if match else ""

    def _pythons(self, path: str) -> tuple[str, ...]:
        """The Pythons ("3.11") that a file or folder of packages is for; empty where nothing tells.

        Its folder's name says so; Debian's python3/dist-packages are for each Python in /usr/bin.
        """
        site = _SITE.fullmatch(path)
        folder = site["folder"] if site else ""
        match = _FOLDER.fullmatch(folder)
        version = match["version"] if match else ""
        if "." in version:
            return (version,)
        if version:
            paths = [path for path in self.interpreters(_world(folder)) if path.startswith(_DEBIANS)]
            versions = {path.rpartition("/python")[2] for path in paths}
            if debians := sorted((python for python in versions if "." in python), key=numbers):
                return tuple(debians)
        return (self._contents.python,) if self._contents.python else ()

    def torch(self, package: InstalledPackage) -> InstalledPackage:
        """The torch that a process of this package's has."""
        return self._torch(package.world)

    def _torch_of(self, world: str) -> InstalledPackage:
        candidates = [InstalledPackage(package, TORCH) for package in self._seen(world)]
        there = (package for package in candidates if package in self._distributions or package in self._binaries)
        return next(there, InstalledPackage(world, TORCH))

    def binaries(self, package: InstalledPackage) -> tuple[str, ...]:
        """Paths of its programs and libraries."""
        return self._binaries.get(package, ())

    def with_binaries(self) -> list[InstalledPackage]:
        """Python packages that have any."""
        return sorted({*self._binaries} - {BASE}, key=lambda package: package[::-1])

    def _required(self, package: InstalledPackage) -> frozenset[InstalledPackage]:
        """Installed packages that it requires, and those that they do."""
        installed = self.installed(package.world)
        packages, waiting = set[InstalledPackage](), [package]
        while waiting:
            current = self._distributions.get(waiting.pop())
            requirements = self.requirements(current) if current else ()
            names = {canonicalize_name(requirement.name) for requirement in requirements}
            new = {self.of(installed[name]) for name in names if name in installed} - packages
            packages |= new
            waiting += new
        return frozenset(packages - {package})

    def requirements(self, distribution: InstalledDistribution) -> Iterator[Requirement]:
        """Yield its requirements in the environment where it is installed."""
        return requirements(distribution.requires, next(iter(self.pythons(distribution.folder)), ""))

    def _uses_torch(self, package: InstalledPackage) -> bool:
        """Return whether its libraries are loaded after torch's: it is torch, requires it, or refers to it."""
        if package == BASE:
            return False
        return package.name == TORCH or self.torch(package) in self.required(package) or self.links_torch(package)

    def links_torch(self, package: InstalledPackage) -> bool:
        """Return whether any of its libraries refers to torch's."""
        return any(self.refers_to_torch(path) for path in self.binaries(package))

    def refers_to_torch(self, path: str) -> bool:
        """Return whether a library refers to torch's."""
        binary = self._contents.binaries[path]
        if any(map(is_torch_library, binary.needed)):
            return True
        return any(_TORCH_SYMBOL.match(symbol.name) for symbol in binary.wanted)

    def finding(
        self, check: Check, severity: Severity, path: str, what: str, breaks: str, fix: str = "", size: int = 0
    ) -> AuditFinding:
        """A finding on a program or library."""
        return AuditFinding(check, severity, self.owner(path).name, short(path), what, breaks, fix, size)


def _world(folder: str) -> str:
    """The world of a site-packages or dist-packages folder."""
    match = _FOLDER.fullmatch(folder)
    if match is None:
        return folder
    prefix, version, kind = match["prefix"], match["version"], match["kind"]
    if prefix not in _SYSTEM:
        return f"{prefix}/lib/python{version}/{kind}-packages"
    return "/usr/lib/python3/dist-packages" if kind == "dist" else f"/usr/lib/python{version}/site-packages"


def is_torch_library(name: str) -> bool:
    """Return whether a library of this name is one of torch's."""
    return _TORCH_LIBRARY.match(name) is not None


def short(path: str) -> str:
    """A path below site-packages, or as it is."""
    site = _SITE.fullmatch(path)
    return site["rest"] or path if site else path
