"""Limits of what an image may claim to hold: no file may fill memory or a disk from a few bytes."""

from typing import NamedTuple

from sifsquash.errors import ImageError

_MB, _GB = 1 << 20, 1 << 30


class Most(NamedTuple):
    """The most that is read of one image."""

    members: int  #: files, folders, links; each takes some 500 bytes of memory
    names: int  #: bytes of names and link targets, which are all in memory
    size: int  #: bytes of all files
    ratio: int  #: bytes of files for one of the image, where they are more than `free`
    free: int  #: bytes of files that need no such relation: a file of zeros may well be large


#: Holes take no bytes, so an image's files may be larger than it is. The largest images that we know have 27 GB.
MOST = Most(members=4_000_000, names=512 * _MB, size=1024 * _GB, ratio=200, free=8 * _GB)


class Bounds:
    """Counts the entries of one image of `packed` bytes. Raises ImageError, with the number, when it is too much."""

    def __init__(self, most: Most, name: str, packed: int) -> None:
        self._most, self._name, self._packed = most, name, packed
        self._allowed = min(most.size, max(most.free, most.ratio * packed))
        self._members = self._names = self._waiting = self._size = 0

    def member(self, name: str, size: int, more: int = 0) -> None:
        """Count an entry of `size` bytes, and `more` bytes of its link."""
        self._members += 1
        self._names += len(name) + more
        self._size += size
        if self._members > self._most.members:
            self._fail(f"has more than {self._most.members} members")
        if self._names > self._most.names:
            self._fail(f"has more than {self._most.names} bytes of names and attributes")
        if self._size > self._allowed:
            shown = name if len(name) <= 60 and name.isprintable() else ascii(name[:60])
            claim = f"its headers say {_bytes(self._size)}, with {shown} of {_bytes(size)}"
            relation = f"at most {self._most.ratio} times that, and {_bytes(self._most.free)} of any"
            self._fail(f"{claim}; it has {_bytes(self._packed)} packed, and {relation} are read")

    def listed(self, name: str) -> None:
        """Count a name whose entry is read later, and waits in memory until then."""
        self._waiting += len(name)
        if self._waiting > self._most.names:
            self._fail(f"has more than {self._most.names} bytes of names and attributes")

    def _fail(self, what: str) -> None:
        raise ImageError(
            f"{self._name}: {what}",
            cause="A bomb: it is made to fill memory or a disk. Nothing that the user packed is like this.",
            next_step="do not use it; ask whoever made it",
        )


def _bytes(size: int) -> str:
    for unit, name in ((_GB, "GiB"), (_MB, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} bytes"
