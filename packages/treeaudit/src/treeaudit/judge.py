"""One program or library: what the loader goes by, its GPU code, and why it cannot be used where that is so."""

import os
from typing import BinaryIO

import msgspec

from treeaudit import elf, fatbin
from treeaudit.elf import Elf
from treeaudit.errors import FileError, ForeignError, UnlistedError
from treeaudit.values import Binary

MAGIC = b"\x7fELF"
_LOADABLE = ("ET_DYN", "ET_EXEC")


def judge(file: BinaryIO, name: str, *, with_code: bool = True) -> tuple[Binary | None, Elf | None]:
    """Read an open ELF file; return its facts, and where its parts are. No facts: no loader would take it, as a core.

    A file that is damaged or of 32 bits has a `fault`, one whose tables nothing names is `opaque`; then there are no
    parts. One whose GPU code is not understood has a `code_fault`; without `with_code` it is not read.
    """
    size = file.seek(0, os.SEEK_END)
    try:
        parts = elf.read_stream(file, name)
    except UnlistedError as error:
        return Binary(size=size, opaque=error.what), None
    except FileError as error:
        return Binary(size=size, fault=error.what, foreign=isinstance(error, ForeignError)), None
    if parts.type not in _LOADABLE:
        return None, parts
    if not with_code:
        return parts.binary, parts
    try:
        code, fault = fatbin.read(file, parts.fat_binaries, name) if parts.fat_binaries else [], ""
    except FileError as error:  # a CUDA yet to come may write it otherwise, and the library loads all the same
        code, fault = [], error.what
    return msgspec.structs.replace(parts.binary, code=fatbin.usual(code), code_fault=fault), parts
