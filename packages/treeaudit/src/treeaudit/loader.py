"""Find the libraries of a process when it loads one more, as glibc's loader does. Sources: ld.so(8), dlopen(3)."""

import functools
import posixpath
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from treeaudit.links import resolve
from treeaudit.values import Binary

#: what a system that is not known will have: the libraries that manylinux lets wheels rely on (PEP 600)
MANYLINUX = re.compile(
    r"(libgcc_s\.so\.1|libstdc\+\+\.so\.6|libm\.so\.6|libmvec\.so\.1|libdl\.so\.2|librt\.so\.1|libc\.so\.6|libnsl\.so\.1"
    r"|libutil\.so\.1|libpthread\.so\.0|libresolv\.so\.2|libX11\.so\.6|libXext\.so\.6|libXrender\.so\.1|libICE\.so\.6"
    r"|libSM\.so\.6|libGL\.so\.1|libgobject-2\.0\.so\.0|libgthread-2\.0\.so\.0|libglib-2\.0\.so\.0|libz\.so\.1"
    r"|libexpat\.so\.1|libatomic\.so\.1)"
)
_DRIVER = re.compile(r"lib(cuda|nvidia-[a-z-]+|nvcuvid|nvoptix|cudadebugger)\.so(\.\d+)*")


def system_folders(triplet: str) -> tuple[str, ...]:
    """Folders in which glibc's loader looks last, on Debian and RHEL (ld.so(8)); `triplet`: of Debian."""
    return (
        *(f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
        *("/usr/local/lib", f"/usr/local/lib/{triplet}"),
    )


def is_driver(name: str) -> bool:
    """Return whether this library comes from the host, with NVIDIA's driver."""
    return _DRIVER.fullmatch(name) is not None


def loadable(binary: Binary, machine: str) -> bool:
    """Return whether the loader takes this file at all on a machine such as EM_X86_64; else it looks for another."""
    return not binary.fault and (binary.machine == machine or bool(binary.opaque))


class Loader:
    """Finds libraries in a tree. A path is that of the file itself, links followed.

    A caller that knows more of how a program finds its libraries has `known` and `otherwise` to say so.
    """

    def __init__(
        self,
        binaries: Mapping[str, Binary],
        links: Mapping[str, str],
        machine: str,
        folders: Sequence[str],
        preferred: Sequence[str] = (),
    ) -> None:
        """`folders`: where the loader looks, in its order; `preferred`: those of LD_LIBRARY_PATH."""
        self._binaries, self._links, self._machine = binaries, links, machine
        self._folders = (*preferred, *folders)
        self.closure = functools.cache(self._closure)

    def known(self, name: str, seeker: str) -> str:
        """Return the library of this name that is loaded already when `seeker` looks for it; empty for none."""
        return ""

    def otherwise(self, name: str, seeker: str) -> str:
        """Return the library of this name that the seeker opens where the loader finds none; empty for none."""
        return ""

    def find(self, name: str, seeker: str, above: tuple[str, ...] = ()) -> str:
        """Return the path of the library of this name that `seeker` gets; empty for none.

        `above`: who loads the seeker, from the first on; their DT_RPATH counts.
        """
        if "/" in name:
            return self.at(name) if name.startswith("/") else ""
        if known := self.known(name, seeker):
            return known
        inherited = [path for path in reversed(above) if self._binaries[path].inherited]
        run_path = (folder for path in (seeker, *inherited) for folder in self._run_path(path))
        for folder in (*run_path, *self._folders):
            if library := self.at(f"{folder}/{name}"):
                return library
        return self.otherwise(name, seeker)

    def of_system(self, name: str) -> str:
        """Return the path of the library of this name in the folders of the system; empty for none."""
        return next(filter(None, (self.at(f"{folder}/{name}") for folder in self._folders)), "")

    def at(self, path: str) -> str:
        """Return the path of the program or library that is there, links followed; empty for none."""
        real = resolve(self._links.get, posixpath.normpath(path))
        binary = self._binaries.get(real)
        return real if binary and loadable(binary, self._machine) else ""

    def _closure(self, path: str) -> tuple[tuple[str, ...], frozenset[str]]:
        """(paths of the library and all that it needs, as the loader looks symbols up; names that are not found)."""
        queue: deque[tuple[str, tuple[str, ...]]] = deque([(path, ())])
        libraries, names, missing = dict.fromkeys([path]), set[str](), set[str]()
        while queue:
            current, above = queue.popleft()
            for name in self._binaries[current].needed:
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
        for entry in self._binaries[path].runpath:
            plain = entry.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", folder)
            if plain.startswith("/"):
                yield plain
