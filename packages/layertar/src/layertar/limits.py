"""Limits of what an archive may hold, and the gauge that counts against them.

No archive may fill memory or a disk from a few bytes, or keep a program busy for hours.
"""

from typing import NamedTuple

from layertar.errors import ArchiveError, BombError

_KB, _MB, _GB = 1 << 10, 1 << 20, 1 << 30


class Limits(NamedTuple):
    """The most that one archive may have."""

    what: str  #: it is, for people
    members: int  #: files, folders, links; each takes some 500 bytes of memory
    names: int  #: bytes of names, link targets and attributes, which are all in memory
    size: int  #: bytes, inflated
    ratio: int  #: inflated bytes for one packed byte, of all together, where they are more than `free`
    free: int  #: inflated bytes that need no such relation: a file of zeros may well be large


#: The largest image of Docker's hub that we know has 27 GB in a layer. Zeros pack 1000 to 1, and a
#: `useradd` with a large number leaves gigabytes of them in /var/log/lastlog.
LAYER = Limits("layer", members=4_000_000, names=512 * _MB, size=1024 * _GB, ratio=200, free=8 * _GB)


class Gauge:
    """A gauge of one archive. Raises the error that it is given, with the number, as soon as it is too much."""

    def __init__(
        self, limits: Limits, name: str, error: type[ArchiveError] = BombError, packed: int | None = None
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
        """Count an entry whose header says that it has `size` bytes; `more` bytes of attributes."""
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
        """Count a name that was read, whose entry comes later and waits in memory until then."""
        self._waiting += len(name)
        if self._waiting > self._limits.names:
            self._fail(f"has more than {self._limits.names} bytes of names and attributes")

    def inflated(self, size: int) -> None:
        """Count `size` more bytes that came out of it."""
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
