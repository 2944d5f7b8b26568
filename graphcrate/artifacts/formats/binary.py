"""A program or library, as a stream or a file, to what an audit asks about."""

import itertools
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from graphcrate.artifacts.formats import elf, elf_strip, fatbin
from graphcrate.artifacts.formats.elf import Elf, ForeignError, UnlistedError
from graphcrate.artifacts.formats.fatbin import Code
from graphcrate.model.audit import Binary, VersionWanted, Wanted
from graphcrate.model.errors import IntegrityError

MAGIC = b"\x7fELF"
_LOADABLE = ("ET_DYN", "ET_EXEC")


def of_stream(pieces: Iterable[bytes], name: str, folder: Path | None = None) -> Binary | None:
    """A file that comes in pieces; None where no loader would take it: no ELF, an object file, a core.

    `folder`: where what is looked at is kept for the while. One that is damaged or of 32 bits has a `fault`, one
    whose GPU code is not understood a `code_fault`.
    """
    pieces = iter(pieces)
    first = next(pieces, b"")
    while len(first) < len(MAGIC) and (more := next(pieces, b"")):
        first += more
    if not first.startswith(MAGIC):
        return None

    with tempfile.TemporaryFile(dir=folder) as file:
        mentions = elf_strip.copy(itertools.chain((first,), pieces), cast("BinaryIO", file))
        return _judged(cast("BinaryIO", file), name, mentions)


def of_file(file: BinaryIO, name: str) -> Binary | None:
    """The same of an open file on a disk; of its GPU code the headers alone are read."""
    if file.read(len(MAGIC)) != MAGIC:
        return None
    return _judged(file, name, None)


def _judged(file: BinaryIO, name: str, mentions: tuple[str, ...] | None) -> Binary | None:
    size = file.seek(0, os.SEEK_END)
    try:
        found = elf.read_stream(file, name)
    except UnlistedError as error:
        return Binary(size=size, opaque=error.what)
    except IntegrityError as error:
        return Binary(size=size, fault=error.what, foreign=isinstance(error, ForeignError))
    if found.type not in _LOADABLE:
        return None
    code: Sequence[Code] = ()
    fault = ""
    try:
        code = fatbin.read(file, found.fat_binaries, name) if found.fat_binaries else ()
    except IntegrityError as error:  # a CUDA yet to come may write it otherwise, and the library loads all the same
        fault = error.what
    if mentions is None:
        mentions = elf_strip.mentions(file, found.fat_binaries)
    return msgspec.structs.replace(of_parts(found, code, size, mentions), code_fault=fault)


def of_parts(found: Elf, code: Sequence[Code], size: int, mentions: tuple[str, ...] = ()) -> Binary:
    """Of what was read of it: its tables, and the code of each of its fat binaries."""
    exports: dict[str, tuple[str, ...]] = {}
    for symbol in found.defined:
        exports[symbol.name] = (*exports.get(symbol.name, ()), symbol.version)
    strings = elf.string_forms(symbol.name for symbol in (*found.undefined, *found.defined))
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
        old_strings=strings.old,
        new_strings=strings.new,
        code=fatbin.usual(code),
        mentions=mentions,
    )
