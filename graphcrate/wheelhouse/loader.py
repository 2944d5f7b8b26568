"""Which libraries a Python process has loaded when it imports an extension, as glibc's loader and torch do it.

`import torch` comes first. It opens libtorch_global_deps.so for everybody to see; torch's own libraries are seen by
those alone that name them, or name one that does. A library that is loaded already is found by its name, wherever
it lies.
"""

import functools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from graphcrate.errors import IntegrityError
from graphcrate.formats import elf
from graphcrate.formats.elf import Elf, Symbol

#: of a Debian, in the order of its /etc/ld.so.conf
_SYSTEM_FOLDERS = (
    *("usr/local/lib", "usr/local/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"),
    *("lib64", "usr/lib64", "lib", "usr/lib"),
)
_INTERPRETERS = ("usr/bin/python{}", "usr/local/bin/python{}", "opt/python/cpython-{}-linux-x86_64-gnu/bin/python{}")
_LINK_LIMIT = 40  #: as Linux has it


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """A library in its place. `exports`: name of a symbol → its versions ("" for none)."""

    folder: Path
    soname: str
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    exports: Mapping[str, tuple[str, ...]]
    versions: frozenset[str]

    def has(self, symbol: Symbol) -> bool:
        """Whether the loader takes this library's definition for an undefined symbol."""
        versions = self.exports.get(symbol.name)
        if versions is None:
            return False
        # A library without versions serves any; a symbol that asks for none takes any.
        return not symbol.version or not self.versions or symbol.version in versions


def library(found: Elf, folder: Path) -> Library:
    """What a library in this folder gives to others."""
    exports: dict[str, tuple[str, ...]] = {}
    for symbol in found.defined:
        exports[symbol.name] = (*exports.get(symbol.name, ()), symbol.version)
    return Library(
        folder=folder,
        soname=found.soname,
        needed=found.needed,
        runpath=found.runpath,
        exports=exports,
        versions=found.versions,
    )


class Process:
    """A Python of version `python` in the base `rootfs` that has imported the torch of `site_packages`."""

    def __init__(self, site_packages: Path, rootfs: Path, python: str) -> None:
        self._site, self._rootfs, self._python = site_packages, rootfs, python
        self._loaded = (site_packages / "torch" / "lib", *sorted(site_packages.glob("nvidia/*/lib")))

    def find(self, name: str, seeker: Library, bundled: Mapping[str, Library]) -> Library | None:
        """The library of this name that `seeker` gets: of its own wheel, of torch, by its run path, of the base."""
        if name in bundled:
            return bundled[name]
        loaded = _first(self._loaded, name) or self._renamed.get(name)
        return loaded or _first(_run_path(seeker), name) or self._system(name)

    @functools.cached_property
    def _renamed(self) -> Mapping[str, Library]:
        """torch's wheels bring libgomp-a34b3233.so.1; loaded, it still serves who needs libgomp.so.1, its soname."""
        found = (_read(path) for path in sorted(self._loaded[0].glob("*.so*")))
        return {one.soname: one for one in found if one.soname}

    def _system(self, name: str) -> Library | None:
        """A library of the base."""
        places = (inside(self._rootfs, f"{folder}/{name}") for folder in _SYSTEM_FOLDERS)
        return next((_read(place) for place in places if place is not None and place.is_file()), None)

    @functools.cached_property
    def for_everybody(self) -> tuple[Library, ...]:
        """The interpreter and what it links, and what torch shows to all."""
        interpreters = (inside(self._rootfs, name.format(*[self._python] * 2)) for name in _INTERPRETERS)
        first = next((place for place in interpreters if place is not None and place.is_file()), None)
        if first is None:
            raise IntegrityError(
                f"there is no Python {self._python} in the base at {self._rootfs}",
                cause="The base was not prepared for this image, or is damaged.",
            )
        roots = [_read(first)]
        shown = self._site / "torch" / "lib" / "libtorch_global_deps.so"
        roots += [_read(shown)] if shown.is_file() else []
        return tuple(self.closure(roots, {}))

    def closure(self, roots: Iterable[Library], bundled: Mapping[str, Library]) -> Iterator[Library]:
        """These and all that they need, breadth first, as the loader looks symbols up. Absent ones are left out."""
        queue, seen = deque(roots), set[str]()
        while queue:
            current = queue.popleft()
            yield current
            for name in current.needed:
                if name not in seen:
                    seen.add(name)
                    found = self.find(name, current, bundled)
                    if found is not None:
                        queue.append(found)


def inside(root: Path, path: str) -> Path | None:
    """Where a path of the base lies on the host. Links stay inside of it; None for a loop."""
    parts, place, links = deque(PurePosixPath(path).parts), PurePosixPath(), 0
    while parts:
        part = parts.popleft()
        if part in ("/", ".."):
            place = PurePosixPath() if part == "/" else place.parent
            continue
        on_host = root / place / part
        if not on_host.is_symlink():
            place /= part
            continue
        links += 1
        if links > _LINK_LIMIT:
            return None
        parts.extendleft(reversed(PurePosixPath(on_host.readlink()).parts))
    return root / place


def _first(folders: Iterable[Path], name: str) -> Library | None:
    return next((_read(folder / name) for folder in folders if (folder / name).is_file()), None)


def _run_path(seeker: Library) -> Iterator[Path]:
    """Folders that are told by the library's own place; others are of the machine that it was made on."""
    for entry in seeker.runpath:
        plain = entry.replace("${ORIGIN}", "$ORIGIN")
        if plain.startswith("$ORIGIN"):
            yield Path(plain.replace("$ORIGIN", str(seeker.folder)))


def _read(path: Path) -> Library:
    about = path.stat()
    return _read_once(path, about.st_ino, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=64)
def _read_once(path: Path, _inode: int, _time: int, _size: int) -> Library:
    # torch's tables take a second to read: all extensions of an image share them.
    return library(elf.read(path), path.parent)
