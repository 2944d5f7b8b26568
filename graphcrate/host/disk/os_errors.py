"""Errors of the system in words for people, where no code nearer to the cause has explained them."""

import contextlib
import errno
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from graphcrate.host.disk.space import DISK_FULL, too_large
from graphcrate.model.errors import DiskFullError, GraphcrateError, HostError
from graphcrate.model.words import printable


class MachineError(HostError):
    """A fault that no other engine mends either: a limit, a disk's options, a program that builds everywhere."""


class _Advice(NamedTuple):
    """Advice that the system's own words leave open: why, and what to type.

    In `step`, {there} stands for the path, or for the nearest folder above it that exists; {folder} for that folder.
    """

    cause: str
    step: str
    plain: bool = False  #: says enough without a path: reading, writing and starting a program give none


_FOREIGN = _Advice(
    "This user may not do that: the file, or a folder above it, belongs to somebody else or is closed to others.",
    "ls -ld {there}    shows what is there and whose it is",
)
_OTHER_KIND = _Advice(
    "Something of another kind is there: a file where a folder has to be, or a folder in a file's place.",
    "ls -ld {there}    shows what is there and whose it is",
)
_FAILING = _Advice(
    "A disk fails, or a server of files has gone away.",
    "df {there}    names the disk or server; where it fails too, ask the administrator of this machine",
    plain=True,
)
_ADVICE = {
    errno.EACCES: _FOREIGN,
    errno.EPERM: _FOREIGN,
    errno.EEXIST: _OTHER_KIND,
    errno.ENOTDIR: _OTHER_KIND,
    errno.EISDIR: _OTHER_KIND,
    errno.ENOENT: _Advice(
        "Nothing of this name is there: it was never made, was removed meanwhile, or its disk is not mounted here.",
        "ls -la {folder}    shows what is there: the nearest folder above it that exists",
    ),
    errno.EROFS: _Advice(
        "The disk is mounted read-only.",
        "findmnt -T {there}    names the disk and how it is mounted",
        plain=True,
    ),
    errno.EXDEV: _Advice(
        "A folder in a lower layer of an overlay, such as a container's image, cannot be renamed.",
        "mv {there} {there}.old    copies it there; then the same command again",
    ),
    errno.EIO: _FAILING,
    errno.ESTALE: _FAILING,
    errno.ENOLCK: _Advice(
        "Its file server gives out no locks (NFS without lockd); a folder on a local disk has them.",
        "findmnt -T {there}    names the file server; GRAPHCRATE_CACHE=/path, --output FOLDER: other folders",
    ),
    errno.EMFILE: _Advice(
        "The limit of open files of this shell is reached (ulimit -n).",
        # A number would lower a limit that is higher already, and the hard one with it.
        'ulimit -n "$(ulimit -Hn)"    in this shell, as far as it may go; then the same command again',
        plain=True,
    ),
    errno.ENFILE: _Advice(
        "All programs of this machine together have as many files open as it allows.",
        "cat /proc/sys/fs/file-nr    shows files that are open, and how many may be",
        plain=True,
    ),
    errno.EAGAIN: _Advice(
        "This user's limit of processes (ulimit -u), or that of the job or container, is reached.",
        "ulimit -u; cat /sys/fs/cgroup/pids.max 2>/dev/null    show the limits; then the same command again, with "
        "fewer programs running",
        plain=True,
    ),
    errno.ENOMEM: _Advice(
        "The machine, this job's limit or `ulimit -v` has no more memory.",
        "free -h; ulimit -v    show how much there is; then the same command again, with more",
        plain=True,
    ),
}
_ELSE = _Advice("", "ls -ld {there}    shows what is there and whose it is")
#: what a program prints that came to a limit, in Python's words
_PRINTED = {errno.EAGAIN: "can't start new thread", errno.ENOMEM: "MemoryError", errno.EMFILE: "[Errno 24]"}


def by_limit(what: str, lines: Sequence[str], there: object) -> GraphcrateError | None:
    """The error of a program that came to a limit, by its last words: DiskFullError or MachineError; else None.

    `what`: it could not do, with its words; `there`: where it wrote.
    """
    words = "\n".join(lines)
    if any(os.strerror(number) in words for number in DISK_FULL):
        return DiskFullError(
            what,
            cause=f"The disk that holds {there} is full, or this user's quota on it.",
            next_step="free some room and run the same command again; it goes on where it stopped",
        )
    cause, step = limit_in(lines)
    return MachineError(what, cause=cause, next_step=step) if cause else None


def limit_in(lines: Iterable[str]) -> tuple[str, str]:
    """Cause and next step where a program's last words name a limit of processes, files or memory; else two ""."""
    words = "\n".join(lines)
    for number, printed in _PRINTED.items():
        if printed in words or os.strerror(number) in words:
            return _ADVICE[number].cause, _ADVICE[number].step
    return "", ""


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Raise errors of the system as `explained` has them; `path` is what they are about where they name no file."""
    try:
        yield
    except OSError as error:
        if (explanation := explained(error, path)) is None:
            raise
        raise explanation from error


def explained(error: OSError, about: Path | None = None) -> GraphcrateError | None:
    """As DiskFullError or MachineError; None for what says too little, such as a fault of this program."""
    named = isinstance(error.filename, str | bytes | os.PathLike)
    raw = os.fsdecode(error.filename) if named else str(about or "")
    if error.errno is None or not (raw or _is_plain(error.errno)):
        return None
    path = printable(raw)
    what = f"{path}: {error.strerror}" if path else f"the system says: {error.strerror}"
    if error.errno in DISK_FULL:
        what = f"the disk that holds {about} is full, or this user's quota on it" if about else what
        return DiskFullError(
            what, next_step="free some room and run the same command again; it goes on where it stopped"
        )
    if error.errno == errno.EFBIG:
        return too_large(path or "a file")
    advice = _ADVICE.get(error.errno, _ELSE)
    return MachineError(what, cause=advice.cause, next_step=_filled(advice.step, raw))


def _is_plain(number: int) -> bool:
    return number in (*DISK_FULL, errno.EFBIG) or (number in _ADVICE and _ADVICE[number].plain)


def _filled(step: str, path: str) -> str:
    """Put paths that exist, and that a terminal shows as they are, into a step; none where no path is known."""
    if not path:
        return re.sub(r"( -T)? \{there\}", "", step)
    parents = [*map(str, Path(path).parents), "/"]
    shown = [parent for parent in (path, *parents) if printable(parent) == parent and os.path.lexists(parent)]
    folder = next(parent for parent in parents if parent in shown and os.path.isdir(parent))  # noqa: PTH112
    return step.replace("{there}", shlex.quote(shown[0])).replace("{folder}", shlex.quote(folder))
