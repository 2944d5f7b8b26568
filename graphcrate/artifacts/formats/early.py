"""Find what of an image is read while programs start, so that a squashfs has it where and as it is read fast.

For the stacks of `data/read_set.toml` that is a record, committed: a recording of each build would differ between
machines. For other libraries a rule looks at names and headers alone (docs/decisions/conversion.md): the tables of the
loader, constants and the first part of the code, but no GPU code and nothing for debuggers or exceptions.
"""

import functools
import hashlib
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from graphcrate.compat.facts.facts import table_reader
from treeaudit.fatbin import BEGINNING

MOST_CODE = 96 << 20  #: bytes of a segment with code; linkers put what runs at the start first
MOST_DATA = 24 << 20  #: bytes of a segment without code; what the loader relocates comes first
UNIT = 1 << 17  #: bytes that a number of `LibraryReads.read` stands for
HEAD = 1 << 16  #: bytes at the beginning of a library by which it is known
#: Parts of a block that compression has to leave for the block to be stored as it is. The less it leaves, the more room
#: that takes, and the less time inflating.
_KNOWN, _LIKELY, _ELSE = 0.5, 0.6, 1.0
#: Beginnings of the names of libraries that others open when they are first used, not when they are loaded.
_LATER = ("libcudnn_", "libcusolver", "libnvperf", "libnvrtc", "libtorch_cuda_linalg", "libtriton")
_PACKAGES = "/site-packages/"
_IDENTITY = b"\x7fELF\x02\x01"  #: 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD, _EH_FRAME = 1, 0x6474E550
_EXECUTABLE, _WRITABLE = 1, 2


class _Part(NamedTuple):
    """Bytes of a file from `start` to before `end`."""

    start: int
    end: int
    writable: bool


class LibraryReads(msgspec.Struct, frozen=True):
    """A library that was read: the SHA-256 of its beginning, and the units that were, as "0-3 7"."""

    name: str
    head: str
    read: str


class Recorded(msgspec.Struct, frozen=True):
    """The record: libraries, and the paths of small files by their folders, in the order in which they are read."""

    library: tuple[LibraryReads, ...] = ()
    small: tuple[tuple[str, ...], ...] = ()

    def ranks(self) -> dict[str, int]:
        """Return the place of each small file."""
        paths = (f"{folder}/{name}".lstrip("/") for folder, *names in self.small for name in names)
        return {path: rank for rank, path in enumerate(paths)}

    def units(self) -> dict[str, frozenset[int]]:
        """Return the units of libraries that were read, by the digests of their beginnings."""
        return {library.head: frozenset(_numbers(library.read)) for library in self.library}


def _numbers(text: str) -> list[int]:
    runs = (run.partition("-") for run in text.split())
    return [number for first, _, last in runs for number in range(int(first), int(last or first) + 1)]


def head_digest(head: bytes | memoryview) -> str:
    """Return by what the library with this beginning is known."""
    return hashlib.sha256(head[:HEAD]).hexdigest()


class Early:
    """The set of files that are read, as `sifsquash.packer` asks for it: small ones are stored as they are.

    With `is_stored`, blocks of libraries may be, too.
    """

    small = 0.0

    def __init__(self, record: Callable[[], Recorded], *, is_stored: bool) -> None:
        self._record, self._is_stored = record, is_stored

    def rank(self, path: str) -> int | None:
        """Return the place of a small file among those that are read."""
        return self._ranks.get(path)

    def share(self, path: str, head: memoryview) -> Callable[[int, memoryview], float]:
        """Return what tells of a file's blocks, asked in their order."""
        if not self._is_stored or head[: len(_IDENTITY)] != _IDENTITY:
            return _compressed
        read = self._units.get(head_digest(head))
        if read is None:
            early = EarlyBytes(path, head, MOST_CODE)
            return lambda start, block: _LIKELY if early.has(start, block) else _ELSE
        units = read

        def share(start: int, block: memoryview) -> float:
            here = range(start // UNIT, -(-(start + len(block)) // UNIT))
            return _ELSE if units.isdisjoint(here) else _KNOWN

        return share

    @functools.cached_property
    def _ranks(self) -> Mapping[str, int]:
        return self._record().ranks()

    @functools.cached_property
    def _units(self) -> Mapping[str, frozenset[int]]:
        return self._record().units()


def _compressed(start: int, block: memoryview) -> float:
    return _ELSE


recorded = table_reader("read_set", Recorded)


class EarlyBytes:
    """Tells of one file's blocks, asked in their order, whether they are read early.

    `head` is the first block; `most_code` the bytes of a segment with code that count.
    """

    def __init__(self, path: str, head: bytes | memoryview, most_code: int) -> None:
        self._early = _segments(bytes(head), most_code) if _loaded(path) else ()
        self._gpu = False  # GPU code has begun, after which there is neither other code nor constants

    def has(self, start: int, block: bytes | memoryview) -> bool:
        """Return whether the block that begins at byte `start` has any."""
        here = [early for early in self._early if early.start < start + len(block) and start < early.end]
        if any(early.writable for early in here):
            return True
        if here and not self._gpu:
            self._gpu = BEGINNING in bytes(block)
        return bool(here) and not self._gpu


def _loaded(path: str) -> bool:
    """Return whether a library or program of this name may be loaded when another program starts."""
    name = path.rpartition("/")[2]
    # Programs that packages bring, such as ptxas, are called for a purpose.
    return not name.startswith(_LATER) and (".so" in name or _PACKAGES not in path)


def _segments(head: bytes, most_code: int) -> tuple[_Part, ...]:
    """Find the early parts of a library or program; none where its headers are not in `head`, or for another file."""
    if len(head) < _HEADER.size or not head.startswith(_IDENTITY):
        return ()
    *_, table, _, _, _, entry, count, _, _, _ = _HEADER.unpack_from(head)
    if entry != _SEGMENT.size or table + entry * count > len(head):
        return ()
    segments = [_SEGMENT.unpack_from(head, table + entry * number) for number in range(count)]
    frames = [offset for kind, _, offset, *_ in segments if kind == _EH_FRAME]
    early = []
    for kind, flags, offset, _, _, size, _, _ in segments:
        if kind == _LOAD:
            most = most_code if flags & _EXECUTABLE else MOST_DATA
            # The rest of a segment after the table of frames is for exceptions, too.
            ends = [offset + min(size, most), *(frame for frame in frames if offset <= frame < offset + size)]
            early.append(_Part(offset, min(ends), bool(flags & _WRITABLE)))
    return tuple(early)
