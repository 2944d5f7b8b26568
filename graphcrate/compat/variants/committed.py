"""Files that the committed locks name: the author of another lock chose none of these bytes."""

import contextlib
import functools
from pathlib import Path

import msgspec

from graphcrate.host.context import Context
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE

NamedFile = tuple[str, str, str]  #: name and version of a package, sha256 of its file


class _File(msgspec.Struct):
    sha256: str


class _Package(msgspec.Struct):
    name: str
    version: str
    file: _File


class _Base(msgspec.Struct):
    packages: tuple[_Package, ...] = ()  #: none of a registry's image


class _Compilation(msgspec.Struct):
    base: _Base


class _Lock(msgspec.Struct):
    """The fields of a lock that name wheels and Debian's packages."""

    base: _Base
    packages: tuple[_Package, ...]
    compilation: _Compilation | None = None


def files() -> frozenset[NamedFile]:
    """Return each package of a committed lock and of its bases, by name, version and hash."""
    return below(Context.here().root / "images")


@functools.cache
def below(folder: Path) -> frozenset[NamedFile]:
    """The same of the locks below a folder. A lock that cannot be read names nothing."""
    named = set[NamedFile]()
    for path in folder.glob("**/*.lock.json"):
        with contextlib.suppress(OSError, *UNREADABLE):
            lock = codec.decode(path.read_bytes(), _Lock)
            bases = (lock.base, lock.compilation.base if lock.compilation else _Base())
            packages = (*lock.packages, *(package for base in bases for package in base.packages))
            named |= {(package.name, package.version, package.file.sha256) for package in packages}
    return frozenset(named)
