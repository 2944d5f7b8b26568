"""Find the Debian package with a library, by the name that programs ask for, or with a file that a build lacks: in
Debian's own index of all files, or in dpkg's lists where the package is installed.

What is kept of the index is which packages have which library where the loader looks (ld.so(8)). How a package for a
library is named is Debian's policy, 8.1.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from debroot.errors import BrokenFileError

_LONGEST = 1 << 16  #: bytes of a line of the index
_LINE = r"^(?:usr/)?lib(?:64)?/(?:{triplet}/)?(?:([^/\s]+)/)?([^/\s]+\.so(?:\.[^/\s]+)?)[ \t]+(\S+)$"  #: of the index
#: packages for compiling or debugging: nothing that runs should depend on one
_NOT_TO_RUN = re.compile(r"(?:[^,]*/)?(?:debug|libdevel)/|.*-(?:dev|dbg|dbgsym|cross)$")
#: what a build lacks → its files in the index, by which programs find it; `{name}` in any case of letters
_OF_BUILDS = {
    "header": r"usr/include/(?:\S*/)?{name}",
    "library": r"usr/(?:lib|share)/(?:\S*/)?(?:pkgconfig/(?:lib)?{name}\.pc|lib{name}\.so|{name}-?config\.cmake)",
    "program": r"usr/s?bin/{name}",
}
_DEVELOPMENT = re.compile(r"(?:[^,]*/)?libdevel/|.*-dev$")


class Listed(NamedTuple):
    """A file of the index. `location`: section and package, "libdevel/libcairo2-dev"."""

    path: str
    location: str


def package_of(library: str) -> str:
    """Debian's package for a library alone: libX11.so.6 → libx11-6, libXext.so.6 → libxext6 (Policy 8.1)."""
    name = re.sub(r"\.so(\.|$)", "", re.sub(r"([0-9])\.so\.", r"\1-", library))
    return name.replace("_", "-").lower()


def matching(kind: str, name: str, pieces: Iterable[bytes]) -> list[Listed]:
    """The files of an index with this header, library or program (`kind`). Raises BrokenFileError."""
    pattern = _OF_BUILDS[kind].format(name=re.escape(name.removeprefix("lib") if kind == "library" else name))
    line = re.compile(rf"^({pattern})[ \t]+(\S+)$".encode(), re.MULTILINE | re.IGNORECASE)
    matches = (match for block in _whole_lines(pieces) for match in line.findall(block))
    files = [(path.decode("utf-8", "replace"), names.decode("utf-8", "replace")) for path, names in matches]
    return [Listed(path, location) for path, names in files for location in names.split(",")]


def bringing(kind: str, files: Iterable[Listed]) -> tuple[str, ...]:
    """Packages with one of these files, any of which will do; several where each is another thing.

    Those with the file nearest to where compilers look, and to compile with rather than to run.
    """
    places = list(files)
    develops = [file for file in places if _DEVELOPMENT.match(file.location)]
    chosen = places if kind == "program" else develops or places
    nearest = min((file.path.count("/") for file in chosen), default=0)
    packages = {file.location.rpartition("/")[2] for file in chosen if file.path.count("/") == nearest}
    return _one_of(sorted(packages, key=lambda package: (len(package), package)))


def choice(name: str, packages: Iterable[str]) -> tuple[str, ...]:
    """Of packages that have a library of this name the one to install; several where each is another thing.

    The one that is named after the library, as Debian's policy has it; else the one whose name all others go on from
    (libqt5gui5, and libqt5gui5-gles).
    """
    names, usual = sorted(packages, key=len), package_of(name)
    named = [package for package in names if package in (usual, f"{usual}t64")]
    return tuple(named[:1]) if named else _one_of(names)


def _one_of(packages: list[str]) -> tuple[str, ...]:
    """The first where the others go on from its name; else all, sorted. `packages`: the shortest first."""
    is_first = all(package.startswith(packages[0].removesuffix("-dev")) for package in packages)
    return tuple(packages[:1] if is_first else sorted(packages))


def installed(library: str, rootfs: Path) -> tuple[str, ...]:
    """The packages to name for a library ("libsnappy.so.1") that dpkg has installed there, as `choice` has them.

    Empty where none has it.
    """
    there, owners = set[str](), set[str]()
    for path in (rootfs / "var/lib/dpkg/info").glob("*.list"):
        package = path.name.removesuffix(".list").partition(":")[0]
        if not _NOT_TO_RUN.match(package):
            there.add(package)
            if f"/{library}\n" in path.read_text(encoding="utf-8", errors="replace"):
                owners.add(package)
    usual = package_of(library)  # it may be empty, and depend on any of those that have the library
    return choice(library, owners | ({usual} & there)) if owners else ()


def libraries(pieces: Iterable[bytes], triplet: str) -> dict[str, tuple[str, ...]]:
    """Read an index, which comes in pieces: library → packages, sorted. `triplet`: "x86_64-linux-gnu".

    Raises BrokenFileError for a damaged one."""
    usual: dict[str, set[str]] = {}
    inner: dict[str, set[str]] = {}
    line = re.compile(_LINE.format(triplet=re.escape(triplet)).encode(), re.MULTILINE)
    for block in _whole_lines(pieces):
        for folder, name, names in line.findall(block):
            library = name.decode("utf-8", "replace")
            for location in names.decode("utf-8", "replace").split(","):
                package = location.rpartition("/")[2]
                if _NOT_TO_RUN.match(location):
                    continue
                if not folder:
                    usual.setdefault(library, set()).add(package)
                elif (package + "-").startswith(package_of(library) + "-"):
                    # What `update-alternatives` puts before the loader: libblas3's is in a folder of its own.
                    inner.setdefault(library, set()).add(package)
    return {name: tuple(sorted(packages)) for name, packages in sorted({**inner, **usual}.items())}


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        lines, newline, last = piece.rpartition(b"\n")
        if newline:
            yield rest + lines
            rest = last
        else:
            rest += last
        if len(rest) > _LONGEST:
            raise BrokenFileError(f"an index of Debian's files has a line of more than {_LONGEST >> 10} kB")
    yield rest
