"""Files with passwords and tokens, closed to all other users."""

import os
import shlex
import stat
from pathlib import Path

from graphcrate.model.errors import HostError, UsageError

LARGEST = 1 << 20


def read(path: Path, name: str) -> str:
    """Read a file in UTF-8 that only its owner may read, this user or root. `name`: "a list of users".

    Raises UsageError where it cannot be read, HostError where others may read or replace it.
    """
    quoted = shlex.quote(str(path))
    try:
        # a pipe would wait for a writer
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(LARGEST + 1) if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or error
        is_absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        what = f"there is no file {path}" if is_absent else f"{path}: it cannot be read: {why}"
        raise UsageError(what, next_step=f"ls -l {quoted}") from error
    if data is None or len(data) > LARGEST:
        what = f"{path}: it is not a file of at most {LARGEST >> 20} MB"
        raise UsageError(what, cause=f"It should be {name}.", next_step=f"ls -l {quoted}")
    if status.st_uid not in (0, os.geteuid()):
        raise HostError(
            f"{path} belongs to another user, who could replace {name}",
            next_step=f"sudo chown {os.geteuid()} {quoted}",
        )
    if status.st_mode & 0o077:
        raise HostError(
            f"{path} can be read or written by others (mode {stat.S_IMODE(status.st_mode):o})",
            cause=f"It is {name}.",
            next_step=f"chmod 600 {quoted}",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: it is not in UTF-8", next_step=f"file {quoted}") from error
