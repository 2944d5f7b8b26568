"""What the system refused, in words for people: for errors that nobody nearer to their cause has explained."""

import contextlib
import errno
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from graphcrate.host.cache import DISK_FULL, too_large
from graphcrate.model.errors import DiskFullError, GraphcrateError, HostError
from graphcrate.model.words import printable

_FOREIGN = "This user may not do that: the file, or a folder above it, belongs to somebody else or is closed to others."
_OTHER_KIND = "Something of another kind is there: a file where a folder has to be, or a folder in a file's place."
_FAILING = "A disk fails, or a server of files has gone away."
#: what the system's own words leave open
_CAUSES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), _FOREIGN),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), _OTHER_KIND),
    **dict.fromkeys((errno.EIO, errno.ESTALE), _FAILING),
    errno.ENOLCK: "Its file server gives out no locks (NFS without lockd); a folder on a local disk has them.",
    errno.EROFS: "The disk is mounted read-only.",
    errno.EMFILE: "The limit of open files of this shell is reached (ulimit -n).",
    errno.ENFILE: "All programs of this machine together have as many files open as it allows.",
    errno.EAGAIN: "This user's limit of processes (ulimit -u), or that of the job or container, is reached.",
    errno.ENOMEM: "The machine, this job's limit or `ulimit -v` has no more memory.",
}
#: what to type where the path says nothing about it
_STEPS = {
    errno.EMFILE: "ulimit -n 1024    in this shell; then the same command again",
    errno.ENFILE: "cat /proc/sys/fs/file-nr    shows files that are open, and how many may be",
    errno.EAGAIN: "ulimit -u; cat /sys/fs/cgroup/pids.max    show the limits; then the same command again, with fewer "
    "programs running",
    errno.ENOMEM: "free -h; ulimit -v    show how much there is; then the same command again, with more",
}
#: say enough without a file's name: reading, writing and starting a program give none
_PLAIN = (*DISK_FULL, errno.EFBIG, errno.EIO, errno.ESTALE, *_STEPS)


def limit_in(lines: Iterable[str]) -> tuple[str, str]:
    """Cause and next step where a program's last words name a limit of processes, files or memory; else two ""."""
    words = "\n".join(lines)
    told = {errno.EAGAIN: "can't start new thread", errno.ENOMEM: "MemoryError", errno.EMFILE: "[Errno 24]"}
    found = [number for number, said in told.items() if said in words or os.strerror(number) in words]
    return (_CAUSES[found[0]], _STEPS[found[0]]) if found else ("", "")


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Raise errors of the system as `explained` has them; `path` is what they are about where they name no file."""
    try:
        yield
    except OSError as error:
        if (known := explained(error, path)) is None:
            raise
        raise known from error


def explained(error: OSError, about: Path | None = None) -> GraphcrateError | None:
    """As DiskFullError or HostError; None for what says too little, such as a fault of this program."""
    named = isinstance(error.filename, str | bytes | os.PathLike)
    if error.errno is None or not (named or about or error.errno in _PLAIN):
        return None
    path = printable(os.fsdecode(error.filename) if named else str(about or ""))
    what = f"{path}: {error.strerror}" if path else f"the system says: {error.strerror}"
    if error.errno in DISK_FULL:
        what = f"the disk that holds {about} is full, or this user's quota on it" if about else what
        return DiskFullError(
            what, next_step="free some room and run the same command again; it goes on where it stopped"
        )
    if error.errno == errno.EFBIG:
        return too_large(path or "a file")
    step = _STEPS.get(error.errno) or _step(error.errno, path)
    return HostError(what, cause=_CAUSES.get(error.errno, ""), next_step=step)


def _step(number: int, path: str) -> str:
    """What to type about a path; without one, about disks."""
    if not path:
        return "df    names the disks"
    quoted = shlex.quote(path)
    if number == errno.EROFS:
        return f"findmnt -T {quoted}    names the disk and how it is mounted"
    if number == errno.ENOENT:
        quoted = shlex.quote(str(next((one for one in Path(path).parents if one.is_dir()), Path("/"))))
        return f"ls -la {quoted}    shows what is there: the nearest folder above it that exists"
    return f"ls -ld {quoted}    shows what is there and whose it is"
