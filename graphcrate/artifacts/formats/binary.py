"""A program or library, in pieces or on the disk, to what an audit asks about.

Of one that comes in pieces a copy is made, without its GPU code: of a gigabyte of torch, what remains to be looked at
is small. The code is found by what a fat binary begins with (`artifacts.formats.fatbin`) and passed over, entry by
entry; its place stays empty but for the first bytes, in a sparse file.
"""

import itertools
import mmap
import os
import re
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from graphcrate.artifacts.formats import elf, fatbin
from graphcrate.artifacts.formats.elf import Extent, ForeignError, UnlistedError
from graphcrate.model.audit import Binary, VersionWanted, Wanted
from graphcrate.model.errors import IntegrityError

_MAGIC = b"\x7fELF"
_LOADABLE = ("ET_DYN", "ET_EXEC")
_HEADER = struct.Struct("<8xQ")
_ENTRY = struct.Struct("<4xIQ")
_ENTRY_HEADERS = range(48, 4097)  #: bytes; 64 to 112 have been seen
_ENDING, _LONGEST = b".so", 80
_STEM, _REST = re.compile(rb"[A-Za-z0-9_+.\-]+\Z"), re.compile(rb"(\.so(?:\.\d+)*)\0")


def read(content: Iterable[bytes] | Path, name: str, folder: Path | None = None) -> Binary | None:
    """Read a file; None where no loader would take it: no ELF, an object file, a core.

    `folder`: where what comes in pieces is copied to for the while. A file that is damaged or of 32 bits has a `fault`,
    one whose GPU code is not understood a `code_fault`.
    """
    if isinstance(content, Path):
        with content.open("rb") as file:
            return _judged(file, name) if file.read(len(_MAGIC)) == _MAGIC else None
    pieces = iter(content)
    first = next(pieces, b"")
    while len(first) < len(_MAGIC) and (more := next(pieces, b"")):
        first += more
    if not first.startswith(_MAGIC):
        return None
    with tempfile.TemporaryFile(dir=folder) as temporary:
        copy = cast("BinaryIO", temporary)
        strip(itertools.chain((first,), pieces), copy)
        return _judged(copy, name)


def _judged(file: BinaryIO, name: str) -> Binary | None:
    size = file.seek(0, os.SEEK_END)
    try:
        found = elf.read_stream(file, name)
    except UnlistedError as error:
        return Binary(size=size, opaque=error.what)
    except IntegrityError as error:
        return Binary(size=size, fault=error.what, foreign=isinstance(error, ForeignError))
    if found.type not in _LOADABLE:
        return None
    try:
        code, fault = fatbin.read(file, found.fat_binaries, name) if found.fat_binaries else (), ""
    except IntegrityError as error:  # a CUDA yet to come may write it otherwise, and the library loads all the same
        code, fault = (), error.what
    exports: dict[str, tuple[str, ...]] = {}
    for symbol in found.defined:
        exports[symbol.name] = (*exports.get(symbol.name, ()), symbol.version)
    old_strings, new_strings = elf.string_forms(symbol.name for symbol in (*found.undefined, *found.defined))
    return Binary(
        size=size,
        machine=found.machine,
        soname=found.soname,
        interpreter=found.interpreter,
        needed=found.needed,
        runpath=found.runpath,
        inherited=found.inherited,
        exports=exports,
        wanted=tuple(Wanted(symbol.name, symbol.version) for symbol in found.undefined if not symbol.weak),
        versions_wanted=tuple(VersionWanted(need.library, need.version) for need in found.needs if not need.weak),
        versions=found.versions,
        old_strings=old_strings,
        new_strings=new_strings,
        code=fatbin.usual(code),
        mentions=mentions(file, found.fat_binaries),
        code_fault=fault,
    )


def mentions(file: BinaryIO, code: Extent | None) -> tuple[str, ...]:
    """Names of libraries in a file but for these bytes of GPU code, sorted: who opens what he does not link names it.

    `code` None: in all of the file, which is not empty.
    """
    names: set[bytes] = set()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for start, end in ((0, code.offset), (code.offset + code.size, len(data))) if code else ((0, len(data)),):
            at = data.find(_ENDING, start, end)
            while at >= 0:
                stem = _STEM.search(data, max(at - _LONGEST, start), at)
                ending = _REST.match(data, at, min(at + _LONGEST, end))
                # What has no byte before it may be the end of a longer name.
                if stem and ending and stem.start() > start and not _STEM.match(data, stem.start() - 1, stem.start()):
                    names.add(stem[0] + ending[1])
                at = data.find(_ENDING, at + len(_ENDING), end)
    return tuple(sorted(name.decode() for name in names))


def strip(pieces: Iterable[bytes], out: BinaryIO) -> None:
    """Write a file that comes in pieces to `out`, new and seekable, with holes for GPU code."""
    source = _Source(iter(pieces), out)
    while source.fill(len(fatbin.BEGINNING)):
        found = source.ready.find(fatbin.BEGINNING)
        source.write(found if found >= 0 else len(source.ready) - len(fatbin.BEGINNING) + 1)
        if found >= 0:
            _pass_over(source)
    source.write(len(source.ready))
    out.truncate(source.at)
    out.flush()


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
        begin = min(code, fatbin.BEGIN)  # which tells code from zeros
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

    def write(self, count: int) -> None:
        """Into the file."""
        self._out.seek(self.at)
        self._out.write(self.ready[:count])
        self.ready, self.at = self.ready[count:], self.at + count

    def skip(self, count: int) -> None:
        """Leave a hole."""
        while count and self.fill(1):
            passed = min(count, len(self.ready))
            self.ready, self.at, count = self.ready[passed:], self.at + passed, count - passed
