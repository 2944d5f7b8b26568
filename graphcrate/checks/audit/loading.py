"""Model the libraries that a process has when it loads one more, as glibc's loader, Python and torch do it.

A library that links torch imports torch first (its Python part does, or nothing works): then libtorch_global_deps.so is
seen by all, and torch's own libraries are found by their names wherever they are, but seen by those alone that name
them, or name one that does (dlopen without RTLD_GLOBAL). Sources: ld.so(8), dlopen(3), torch/__init__.py.
"""

import functools
import posixpath
import re
from collections.abc import Mapping

from graphcrate.checks.audit.packages import BASE, InstalledPackage, Packages, short
from graphcrate.compat.facts import packages as package_facts
from graphcrate.model.audit import Contents
from treeaudit import loader
from treeaudit.loader import MANYLINUX, is_driver, loadable
from treeaudit.values import NeededSymbol

_EXTENSION = re.compile(r"/_C(\.[^/]*)?\.so$")
_SHOWN = "libtorch_global_deps.so"
_INTERPRETER = re.compile(r"/(usr/(local/)?bin|opt/[^/]+(/[^/]+)*/bin)/python3\.\d+")
_OTHERS_SYMBOL = re.compile(r"_Z|cu[A-Z_]|cudnn|cublas|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvtx|nvml|nvJit|MKL")
#: of C++ itself: namespace std, its run time, new and delete, as the Itanium ABI mangles them
_STANDARD_SYMBOL = re.compile(
    r"_Z((T[ISTV])?N?K?(St|S[absiod]|10__cxxabiv1|9__gnu_cxx)|[nd][wal]"
    r"|T[IS](PK?)?([abcdefghijlmnostvwxyz]|D[defhinsu])$)"  # typeinfo of bool, int …, and of pointers to them
)
_SYSTEM_SYMBOL = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC|ZLIB)_")


class Loader(loader.Loader):
    """Finds libraries in the contents of an image. A path is that of the file itself, links followed."""

    def __init__(self, contents: Contents, packages: Packages) -> None:
        machine = contents.platform.elf
        super().__init__(contents.binaries, contents.links, machine, contents.folders, contents.preferred)
        self._contents, self._packages = contents, packages
        self._interpreters = [path for path in contents.binaries if _INTERPRETER.fullmatch(path)]
        self._loaded: dict[InstalledPackage, Mapping[str, str]] = {}
        self._brought = functools.cache(self._named)

    def known(self, name: str, seeker: str) -> str:
        """Return what is loaded already: of torch."""
        return self._known(self._packages.owner(seeker)).get(name, "")

    def otherwise(self, name: str, seeker: str) -> str:
        """Return what a package opens by itself: of its environment, its own or a required package's."""
        package = self._packages.owner(seeker)
        beside = f"{self._packages.environment(package)}/lib/{name}"
        if package_facts.opens_of_environment(package.name, short(seeker)) and (library := self.at(beside)):
            return library
        # what the seeker's package, or one that it requires, has somewhere and opens by itself first
        others = (other for other in (package, *self._packages.required(package)) if other != BASE)
        return next(filter(None, (self._brought(self._packages.binaries(other)).get(name) for other in others)), "")

    def is_there(self, name: str) -> bool:
        """Return whether opening a library of this name gives one of the system's."""
        return self.is_assumed(name) or bool(self.of_system(name))

    def shown(self, package: InstalledPackage) -> tuple[str, ...]:
        """List the libraries that every process of this package sees: the interpreter, its libraries, torch's part."""
        torch = self._torch_shown(self._packages.torch(package)) if self._packages.uses_torch(package) else ()
        roots = [*self._interpreter(package), *torch]
        return tuple(dict.fromkeys(library for root in roots for library in self.closure(root)[0]))

    def _known(self, package: InstalledPackage) -> Mapping[str, str]:
        """Name → path of what is loaded already when this package's first library is: torch's."""
        if not self._packages.uses_torch(package):
            return {}
        torch = self._packages.torch(package)
        if torch not in self._loaded:
            self._loaded[torch] = {}  # while torch itself is looked at
            extensions = [path for path in self._packages.binaries(torch) if _EXTENSION.search(path)]
            roots = [*self._torch_shown(torch), *extensions]
            names = self._named(tuple(dict.fromkeys(library for root in roots for library in self.closure(root)[0])))
            self.closure.cache_clear()
            self._loaded[torch] = names
        return self._loaded[torch]

    def _named(self, paths: tuple[str, ...]) -> Mapping[str, str]:
        """Name → path, by the file's name and by its own."""
        names: dict[str, str] = {}
        for path in paths:
            if loadable(self._contents.binaries[path], self._contents.platform.elf):
                for name in {posixpath.basename(path), self._contents.binaries[path].soname} - {""}:
                    names.setdefault(name, path)
        return names

    def is_assumed(self, name: str) -> bool:
        """Return whether the host or a base that is not known will have this library."""
        if is_driver(name):
            return True
        if self._contents.base:
            return False
        loader = self._contents.platform.loader_name
        return MANYLINUX.fullmatch(name) is not None or name == loader or name.startswith("libpython3.")

    def is_assumed_symbol(self, symbol: NeededSymbol) -> bool:
        """Return whether the interpreter or the C and C++ libraries of a base that is not known will have it."""
        if self._contents.base:
            return False
        if _SYSTEM_SYMBOL.match(symbol.version):
            return True
        if symbol.version:
            return False
        # C++'s own library; or C functions, of glibc or of libraries like CUDA's that wheels bring.
        return _STANDARD_SYMBOL.match(symbol.name) is not None or not _OTHERS_SYMBOL.match(symbol.name)

    def _interpreter(self, package: InstalledPackage) -> list[str]:
        """The one that it runs in, if there is any: of its world and its version, else of its version, else another."""
        own = self._packages.interpreters(package.world)
        versions = tuple(f"python{version}" for version in self._packages.pythons(package.world))
        every = {*own, *self._interpreters}
        return sorted(every, key=lambda path: (path not in own, not path.endswith(versions), path))[:1]

    def _torch_shown(self, torch: InstalledPackage) -> list[str]:
        return [path for path in self._packages.binaries(torch) if path.endswith(f"/lib/{_SHOWN}")]
