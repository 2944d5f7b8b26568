"""A library out of a stream, without its GPU code: of a gigabyte of torch, what remains to be looked at is small.

GPU code is found by what a fat binary begins with (`artifacts.formats.fatbin`) and passed over, entry by entry; its
place stays empty but for the first bytes, in a sparse file. On the way the names of libraries that stand in the data
are noted: who opens a library that he does not link must name it.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from graphcrate.artifacts.formats.elf import Extent
from graphcrate.artifacts.formats.fatbin import BEGIN, BEGINNING

_HEADER = struct.Struct("<8xQ")
_ENTRY = struct.Struct("<4xIQ")
_ENTRY_HEADERS = range(48, 4097)  #: bytes; 64 to 112 have been seen
_CHUNK = 1 << 20
_ENDING, _LONGEST = b".so", 80
_STEM, _REST = re.compile(rb"[A-Za-z0-9_+.\-]+\Z"), re.compile(rb"(\.so(?:\.\d+)*)\0")


def copy(pieces: Iterable[bytes], out: BinaryIO) -> tuple[str, ...]:
    """Write a file that comes in pieces to `out`, new and seekable, with holes for GPU code.

    Returns the names of libraries that stand in what was written, sorted.
    """
    source, mentioned = _Source(iter(pieces), out), _Mentions()
    while source.fill(len(BEGINNING)):
        found = source.ready.find(BEGINNING)
        kept = found if found >= 0 else len(source.ready) - len(BEGINNING) + 1
        mentioned.look(source.write(kept))
        if found >= 0:
            _pass_over(source)
    mentioned.look(source.write(len(source.ready)))
    out.truncate(source.at)
    return mentioned.names


def mentions(file: BinaryIO, code: Extent | None) -> tuple[str, ...]:
    """Names of libraries in a file, without these bytes of GPU code; sorted."""
    found = _Mentions()
    before, after = (code.offset, code.offset + code.size) if code else (None, None)
    for start, end in ((0, before), (after, None)):
        if start is not None:
            file.seek(start)
            while piece := file.read(_CHUNK if end is None else min(_CHUNK, end - file.tell())):
                found.look(piece)
    return found.names


def _pass_over(source: "_Source") -> None:
    """Over a fat binary, or over as much of what looked like one as is of that form."""
    if not source.fill(_HEADER.size):
        return
    (size,) = _HEADER.unpack_from(source.ready)
    source.write(_HEADER.size)
    end = source.at + size
    while source.at < end and source.fill(_ENTRY.size):
        header, code = _ENTRY.unpack_from(source.ready)
        if header not in _ENTRY_HEADERS or source.at + header + code > end or not source.fill(header):
            return
        begin = min(code, BEGIN)  # which tells code from zeros
        if not source.fill(header + begin):
            return
        source.write(header + begin)
        source.skip(code - begin)


class _Source:
    """The pieces, buffered. `at`: where in the file what is `ready` begins."""

    def __init__(self, pieces: Iterator[bytes], out: BinaryIO) -> None:
        self._pieces, self._out, self._over = pieces, out, False
        self.ready, self.at = b"", 0

    def fill(self, count: int) -> bool:
        """Whether that many bytes are ready, after waiting for them."""
        while len(self.ready) < count and not self._over:
            piece = next(self._pieces, None)
            self._over = piece is None
            self.ready += piece or b""
        return len(self.ready) >= count

    def write(self, count: int) -> bytes:
        """Into the file."""
        piece = self.ready[:count]
        self._out.seek(self.at)
        self._out.write(piece)
        self.ready, self.at = self.ready[count:], self.at + count
        return piece

    def skip(self, count: int) -> None:
        """Leave a hole."""
        while count and self.fill(1):
            passed = min(count, len(self.ready))
            self.ready, self.at, count = self.ready[passed:], self.at + passed, count - passed


class _Mentions:
    def __init__(self) -> None:
        self._names: set[bytes] = set()
        self._before = b""

    def look(self, piece: bytes) -> None:
        """At a piece that follows the one before, or comes after a hole: a name across it is none."""
        text = self._before + piece
        at = text.find(_ENDING)
        while at >= 0:
            stem = _STEM.search(text, max(at - _LONGEST, 0), at)
            ending = _REST.match(text, at, at + _LONGEST)
            # What has no byte before it may be the end of a longer name.
            if stem and ending and stem.start() and not _STEM.match(text, stem.start() - 1, stem.start()):
                self._names.add(stem[0] + ending[1])
            at = text.find(_ENDING, at + len(_ENDING))
        self._before = text[-2 * _LONGEST :]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name.decode() for name in self._names))
