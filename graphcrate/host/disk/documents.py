"""Files of ours that travel and that people merge and edit: locks, proofs, reports. Each fault of one is one sentence.

The only module that reads them: their types (`model.values`) say what a hash, a name and a size may be, and this
says what is wrong, where in the file, and what to type.
"""

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import TypeVar

from graphcrate.model import codec
from graphcrate.model.command import Command
from graphcrate.model.errors import UNREADABLE, RecipeError
from graphcrate.model.lock import Lock

#: Of a file, in bytes. The largest lock of ours has 0.3 MB, a report of a large image 1 MB.
LARGEST = 64 << 20
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_Value = TypeVar("_Value")


def read_lock(path: Path, renew: str | Command, *, committed: bool = False) -> Lock | None:
    """Read a lock; None where there is none. Raises as `read`. `committed`: git has a whole one, in a checkout."""
    is_gits = committed and any((folder / ".git").exists() for folder in path.absolute().parents)
    back = f"git checkout -- {shlex.quote(shown(path))}    (as it was committed); or " if is_gits else ""
    return read(path, Lock, "a lock", renew, back)


def read(path: Path, kind: type[_Value], name: str, renew: str | Command, back: str = "") -> _Value | None:
    """Read a document in JSON; None where there is none. `name`: "a lock". Raises RecipeError.

    `renew`: the command that makes the document again; `back`: one that brings it back as it was, before " or ".
    """
    step = f"{back}{renew}"
    data = _content(path, name, step)
    if data is None:
        return None
    try:
        return codec.decode(data, kind)
    except UNREADABLE as error:
        if line := codec.conflict(data):
            raise _conflict(path, line, renew) from error
        raise RecipeError(
            f"{shown(path)}: {codec.explained(error, data)}",
            cause=f"It is read as {name}, and was cut off, edited by hand, or written by another graphcrate.",
            next_step=step,
        ) from error


def shown(path: Path) -> str:
    """A path as a user would type it: from the working folder on where it is below that."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere; or the working folder was removed
        return str(path)


def _content(path: Path, name: str, again: str) -> bytes | None:
    """The bytes of a file of sane size; None where there is none. Raises RecipeError."""
    try:
        # a pipe would wait for a writer
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(LARGEST + 1) if stat.S_ISREG(mode) else None
    except IsADirectoryError:
        data = None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise RecipeError(
            f"{shown(path)}: it cannot be read: {error.strerror}",
            cause=f"It should be {name}.",
            next_step=f"ls -l {shlex.quote(shown(path))}    (who may read it)",
        ) from error
    if data is None:
        raise RecipeError(
            f"{shown(path)}: it is a {'folder' if path.is_dir() else 'pipe or device'}",
            cause=f"It should be {name}, which is a file.",
            next_step=f"move it elsewhere, then {again}",
        )
    if len(data) > LARGEST:
        raise RecipeError(
            f"{shown(path)}: it has more than {LARGEST >> 20} MB",
            cause=f"It should be {name}, which has less than one.",
            next_step=again,
        )
    return data


def _conflict(path: Path, line: int, renew: str | Command) -> RecipeError:
    quoted = shlex.quote(shown(path))
    return RecipeError(
        f"{shown(path)}: line {line}: an unresolved git merge conflict (<<<<<<< in line {line})",
        cause="Two branches changed it. Lines of both make no lock: take one of them whole, or make it again.",
        next_step=f"git checkout --theirs {quoted}    (or --ours: your own branch's); or {renew}",
    )
