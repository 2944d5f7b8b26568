"""Limits of what an archive may hold: one set of numbers for all that is inflated, and what counts against it.

No archive may fill memory or a disk from a few bytes, or keep us busy for hours. The numbers stand well above
what honest archives have; that was measured over 203 wheels, 346 packages, 118 layers and 5 sdists of all stacks on
2026-11-25: a ratio of 9 of a wheel (235 of one of its members, a table of zeros), 11 of a package, 22 of a small layer
and 7 of one above 1 MB, 6 of an sdist; 12,602 files and 1.9 GB in a wheel of torch, 1.9 GB in a layer.
"""

from typing import NamedTuple

from graphcrate.model.errors import IntegrityError

_KB, _MB, _GB = 1 << 10, 1 << 20, 1 << 30


class Limits(NamedTuple):
    """The most that one archive may have."""

    what: str  #: it is, for people
    members: int  #: files, folders, links; each takes some 500 bytes of memory
    names: int  #: bytes of names, link targets and attributes, which are all in memory
    size: int  #: bytes, inflated
    ratio: int  #: inflated bytes for one packed byte, of all together, where they are more than `free`
    free: int  #: inflated bytes that need no such relation: a file of zeros may well be large


#: The largest image of Docker's hub that we know has 27 GB in a layer. Zeros, as in a library of SLIM, pack 1000 to 1,
#: and a `useradd` with a large number leaves gigabytes of them in /var/log/lastlog.
LAYER = Limits("layer", members=4_000_000, names=512 * _MB, size=1024 * _GB, ratio=200, free=8 * _GB)
#: The index takes no wheel above 10 GB; torch's has 1.9 inflated.
WHEEL = Limits("wheel", members=1_000_000, names=256 * _MB, size=256 * _GB, ratio=200, free=_GB)
#: Debian's largest, of NVIDIA's libraries, have 4 GB.
PACKAGE = Limits("package", members=1_000_000, names=256 * _MB, size=64 * _GB, ratio=200, free=_GB)
#: Sources of programs; the largest sdists of the index have 1 GB. Their text packs 10 to 1.
SOURCES = Limits("source archive", members=500_000, names=128 * _MB, size=16 * _GB, ratio=200, free=256 * _MB)
#: Lists of packages, which are read whole: Debian's of all packages has 60 MB, and packs 5 to 1.
LIST = Limits("list of packages", members=1, names=0, size=512 * _MB, ratio=200, free=64 * _MB)
#: Debian's index of all files of a suite, which is read in pieces: 170 MB, and packs 14 to 1.
INDEX = Limits("index of files", members=1, names=0, size=2 * _GB, ratio=200, free=256 * _MB)
CRATE_FILE = 256 * _MB  #: bytes of a crate of unknown size; crates.io takes none above 10 MB without being asked
RELEASE = 16 * _MB  #: bytes of a Release file; Debian's have 200 kB
DIRECTORY = 32 * _MB  #: bytes of a wheel's list of members, each of which takes ten times that; torch's has 1.5 MB
METADATA = (
    64 * _MB
)  #: bytes of RECORD, METADATA, PKG-INFO and their like, which are read whole; torch's RECORD has 1 MB
DOCUMENTS = 64 * _MB  #: bytes of all documents (manifests, configurations) in an image's archive; each has some kB


class Gauge:
    """A gauge of one archive. Raises the reader's error, with the number, as soon as it is too much."""

    def __init__(
        self, limits: Limits, name: str, error: type[IntegrityError] = IntegrityError, packed: int | None = None
    ) -> None:
        """`name`: for errors; empty where their handler adds one.

        `packed`: bytes of the whole archive; None if unknown; then no ratio is checked.
        """
        self._limits, self._name, self._error = limits, name, error
        self._packed = packed
        allowed = limits.size if packed is None else min(limits.size, max(limits.free, limits.ratio * packed))
        self._allowed = allowed
        self._members = self._names = self._waiting = self._size = self._inflated = 0

    def member(self, name: str, size: int, more: int = 0) -> None:
        """One more entry, whose header says that it has `size` bytes; `more` bytes of attributes."""
        self._members += 1
        self._names += len(name) + more
        self._size += max(size, 0)
        if self._members > self._limits.members:
            self._fail(f"has more than {self._limits.members} members")
        if self._names > self._limits.names:
            self._fail(f"has more than {self._limits.names} bytes of names and attributes")
        if self._size > self._allowed:
            claim = f"its headers say {_bytes(self._size)}, with {_short(name)} of {_bytes(size)}"
            self._fail(f"{claim}; {self._reason()}")

    def listed(self, name: str) -> None:
        """A name was read whose entry comes later, and waits in memory until then."""
        self._waiting += len(name)
        if self._waiting > self._limits.names:
            self._fail(f"has more than {self._limits.names} bytes of names and attributes")

    def inflated(self, size: int) -> None:
        """`size` more bytes came out of it."""
        self._inflated += size
        if self._inflated > self._allowed:
            self._fail(f"inflates to more than {_bytes(self._allowed)}; {self._reason()}")

    def _reason(self) -> str:
        if self._packed is None or self._allowed == self._limits.size:
            return f"at most {_bytes(self._limits.size)} are read of a {self._limits.what}"
        ratio = f"at most {self._limits.ratio} times that, and {_bytes(self._limits.free)} of any"
        return f"it has {_bytes(self._packed)} packed, and {ratio} are read of a {self._limits.what}"

    def _fail(self, what: str) -> None:
        raise self._error(
            f"{self._name}: {what}" if self._name else what,
            cause="A bomb: it is made to fill memory or a disk. Nothing that the user packed is like this.",
            next_step="do not use it; ask whoever made it",
        )


def _bytes(size: int) -> str:
    for unit, name in ((_GB, "GiB"), (_MB, "MiB"), (_KB, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size} bytes"


def _short(name: str) -> str:
    text = name if len(name) <= 60 else f"{name[:57]}…"
    return text if text.isprintable() else ascii(text)
