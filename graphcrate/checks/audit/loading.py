"""Which libraries a process has when it loads one more, as glibc's loader, Python and torch do it.

Whoever links torch imports torch first (its Python part does, or nothing works): then libtorch_global_deps.so is seen
by everybody, and torch's own libraries are found by their names wherever they lie, but seen by those alone that name
them, or name one that does (dlopen without RTLD_GLOBAL). Sources: ld.so(8), dlopen(3), torch/__init__.py.
"""

import functools
import posixpath
import re
from collections import deque
from collections.abc import Iterator, Mapping

from graphcrate.artifacts.formats.elf import is_driver
from graphcrate.checks.audit.packages import BASE, InstalledPackage, Packages, short
from graphcrate.checks.contracts.paths import resolve_path
from graphcrate.compat import packages as package_facts
from graphcrate.model.audit import Binary, Contents, NeededSymbol
from graphcrate.model.platform import Platform
from graphcrate.model.tree import Entry

_EXTENSION = re.compile(r"/_C(\.[^/]*)?\.so$")
_SHOWN = "libtorch_global_deps.so"
_INTERPRETER = re.compile(r"/(usr/(local/)?bin|opt/[^/]+(/[^/]+)*/bin)/python3\.\d+")
#: what a base that is not known will have: the libraries that manylinux lets wheels rely on (PEP 600)
_MANYLINUX = re.compile(
    r"(libgcc_s\.so\.1|libstdc\+\+\.so\.6|libm\.so\.6|libmvec\.so\.1|libdl\.so\.2|librt\.so\.1|libc\.so\.6|libnsl\.so\.1"
    r"|libutil\.so\.1|libpthread\.so\.0|libresolv\.so\.2|libX11\.so\.6|libXext\.so\.6|libXrender\.so\.1|libICE\.so\.6"
    r"|libSM\.so\.6|libGL\.so\.1|libgobject-2\.0\.so\.0|libgthread-2\.0\.so\.0|libglib-2\.0\.so\.0|libz\.so\.1"
    r"|libexpat\.so\.1|libatomic\.so\.1)"
)
_OTHERS_SYMBOL = re.compile(r"_Z|cu[A-Z_]|cudnn|cublas|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvtx|nvml|nvJit|MKL")
#: of C++ itself: namespace std, its run time, new and delete, as the Itanium ABI mangles them
_STANDARD_SYMBOL = re.compile(
    r"_Z((T[ISTV])?N?K?(St|S[absiod]|10__cxxabiv1|9__gnu_cxx)|[nd][wal]"
    r"|T[IS](PK?)?([abcdefghijlmnostvwxyz]|D[defhinsu])$)"  # typeinfo of bool, int …, and of pointers to them
)
_SYSTEM_SYMBOL = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC|ZLIB)_")


def loadable(binary: Binary, platform: Platform) -> bool:
    """Whether the loader of a process there takes this file at all; else it looks further for another of that name."""
    return not binary.fault and (binary.machine == platform.elf or bool(binary.opaque))


class Loader:
    """Finds libraries in the contents of an image. A path is that of the file itself, links followed."""

    def __init__(self, contents: Contents, packages: Packages) -> None:
        self._contents, self._packages = contents, packages
        self._links = {path: Entry("symlink", 0o777, link=link) for path, link in contents.links.items()}
        self._interpreters = [path for path in contents.binaries if _INTERPRETER.fullmatch(path)]
        self._loaded: dict[InstalledPackage, Mapping[str, str]] = {}
        self._brought, self.closure = functools.cache(self._named), functools.cache(self._closure)

    def find(self, name: str, seeker: str, above: tuple[str, ...] = ()) -> str:
        """The path of the library of this name that `seeker` gets; empty for none.

        `above`: who loads the seeker, from the first on; their DT_RPATH counts.
        """
        if "/" in name:
            return self.at(name) if name.startswith("/") else ""
        package = self._packages.owner(seeker)
        if known := self._known(package).get(name):
            return known
        inherited = [path for path in reversed(above) if self._contents.binaries[path].inherited]
        run_path = (folder for path in (seeker, *inherited) for folder in self._run_path(path))
        for folder in (*run_path, *self._contents.preferred, *self._contents.folders):
            if library := self.at(f"{folder}/{name}"):
                return library
        beside = f"{self._packages.environment(package)}/lib/{name}"
        if package_facts.opens_of_environment(package.name, short(seeker)) and (library := self.at(beside)):
            return library
        # what the seeker's package, or one that it requires, has somewhere and opens by itself first
        others = (other for other in (package, *self._packages.required(package)) if other != BASE)
        return next(filter(None, (self._brought(self._packages.binaries(other)).get(name) for other in others)), "")

    def is_there(self, name: str) -> bool:
        """Whether whoever opens a library of this name gets one of the system's."""
        folders = (*self._contents.preferred, *self._contents.folders)
        return self.is_assumed(name) or any(self.at(f"{folder}/{name}") for folder in folders)

    def shown(self, package: InstalledPackage) -> tuple[str, ...]:
        """What everybody sees in a process of this package's: the interpreter, what it links, and torch's part."""
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
            if loadable(self._contents.binaries[path], self._contents.platform):
                for name in {posixpath.basename(path), self._contents.binaries[path].soname} - {""}:
                    names.setdefault(name, path)
        return names

    def is_assumed(self, name: str) -> bool:
        """Whether the host or a base that is not known will have this library."""
        if is_driver(name):
            return True
        if self._contents.base:
            return False
        loader = self._contents.platform.loader_name
        return _MANYLINUX.fullmatch(name) is not None or name == loader or name.startswith("libpython3.")

    def at(self, path: str) -> str:
        """The path of the program or library that lies there, links followed; empty for none."""
        real = resolve_path(self._links, posixpath.normpath(path))
        binary = self._contents.binaries.get(real)
        return real if binary and loadable(binary, self._contents.platform) else ""

    def is_assumed_symbol(self, symbol: NeededSymbol) -> bool:
        """Whether the interpreter or the C and C++ libraries of a base that is not known will have it."""
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

    def _closure(self, path: str) -> tuple[tuple[str, ...], frozenset[str]]:
        """(paths of the library and all that it needs, as the loader looks symbols up; names that are not found)."""
        queue: deque[tuple[str, tuple[str, ...]]] = deque([(path, ())])
        libraries, names, missing = dict.fromkeys([path]), set[str](), set[str]()
        while queue:
            current, above = queue.popleft()
            for name in self._contents.binaries[current].needed:
                if name in names:
                    continue
                names.add(name)
                library = self.find(name, current, above)
                if library and library not in libraries:
                    libraries[library] = None
                    queue.append((library, (*above, current)))
                elif not library:
                    missing.add(name)
        return tuple(libraries), frozenset(missing)

    def _run_path(self, path: str) -> Iterator[str]:
        folder = posixpath.dirname(path)
        for entry in self._contents.binaries[path].runpath:
            plain = entry.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", folder)
            if plain.startswith("/"):
                yield plain
