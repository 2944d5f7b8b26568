"""A lock: exactly the packages of a root filesystem, as JSON that the user can read and keep."""

import json
import re
from pathlib import PurePosixPath
from typing import NamedTuple

from debroot.errors import DebrootError
from debroot.lists import Package
from debroot.mirrors import is_path, is_time

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:~_-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class LockError(DebrootError):
    """A lock is damaged, or was made to fetch or write something else."""


class Lock(NamedTuple):
    """The packages of a suite for one architecture. `listed`: when the lists were made that they are from."""

    suite: str
    architecture: str
    listed: str
    packages: tuple[Package, ...]

    def encode(self) -> str:
        """As JSON, a package a line."""
        head = {"format": 1, "suite": self.suite, "architecture": self.architecture, "listed": self.listed}
        fields = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items())
        lines = ",\n".join(f"  {json.dumps(package._asdict())}" for package in self.packages)
        return f'{{{fields}, "packages": [\n{lines}\n]}}\n'


def decode(text: str) -> Lock:
    """Read a lock, which may be anybody's. Raises LockError."""
    try:
        rows = json.loads(text)
        if rows["format"] != 1:
            raise LockError(f"the lock has format {rows['format']!r}, which is not known")
        if type(rows["packages"]) is not list:
            raise LockError("the lock has no list of packages")
        packages = tuple(Package(**row) for row in rows["packages"])
        lock = Lock(rows["suite"], rows["architecture"], rows["listed"], packages)
        words = [lock.suite, lock.architecture, *(word for each in packages for word in each[:3])]
        sound = all(map(_WORD.fullmatch, words)) and is_time(lock.listed) and all(map(_is_sound, packages))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LockError(f"this is not a lock: {type(error).__name__}: {error}") from error
    if not sound:
        raise LockError(
            "the lock names a file that is not of a Debian archive",
            cause="It is damaged, or was made to do harm.",
        )
    return lock


def _is_sound(package: Package) -> bool:
    is_file = is_path(package.path) and PurePosixPath(package.path).suffix == ".deb"
    return bool(is_file and _SHA256.fullmatch(package.sha256) and type(package.size) is int and package.size > 0)
