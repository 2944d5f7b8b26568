"""A program or library, in pieces or on the disk, to what an audit asks about."""

import mmap
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from graphcrate.artifacts.formats import elf, fatbin
from graphcrate.artifacts.formats.elf import Extent, ForeignError, UnlistedError
from graphcrate.model.audit import Binary
from graphcrate.model.errors import IntegrityError

_MAGIC = b"\x7fELF"
_LOADABLE = ("ET_DYN", "ET_EXEC")
_ENDING, _STEM, _LONGEST = re.compile(rb"(\.so(?:\.\d+)*)\0"), re.compile(rb"[A-Za-z0-9_+.\-]+\Z"), 80


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
    if not first.startswith(_MAGIC):
        return None
    with tempfile.TemporaryFile(dir=folder) as temporary:
        temporary.write(first)
        temporary.writelines(pieces)
        temporary.flush()
        return _judged(cast("BinaryIO", temporary), name)


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
        code, fault = fatbin.read(file, found.fat_binaries, name) if found.fat_binaries else [], ""
    except IntegrityError as error:  # a CUDA yet to come may write it otherwise, and the library loads all the same
        code, fault = [], error.what
    named = mentions(file, found.fat_binaries)
    return msgspec.structs.replace(found.binary, code=fatbin.usual(code), code_fault=fault, mentions=named)


def mentions(file: BinaryIO, code: Extent | None) -> tuple[str, ...]:
    """Names of libraries in a file but for these bytes of GPU code, sorted: who opens what he does not link names it.

    `code` None: in all of the file, which is not empty.
    """
    names: set[bytes] = set()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for start, end in ((0, code.offset), (code.offset + code.size, len(data))) if code else ((0, len(data)),):
            for ending in _ENDING.finditer(data, start, end):
                at = ending.start()
                stem = _STEM.search(data, max(at - _LONGEST, start), at)
                # What has no byte before it may be the end of a longer name.
                if stem and stem.start() > start and not _STEM.match(data, stem.start() - 1, stem.start()):
                    names.add(stem[0] + ending[1])
    return tuple(sorted(name.decode() for name in names))
