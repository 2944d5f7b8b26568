"""What the system refused, in words for people: for errors that nobody nearer to their cause has explained."""

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from graphcrate.host.cache import DISK_FULL
from graphcrate.model.errors import DiskFullError, GraphcrateError, HostError
from graphcrate.model.words import printable

_FOREIGN = "This user may not do that: the file, or a folder above it, belongs to somebody else or is closed to others."
_OTHER_KIND = "Something of another kind is there: a file where a folder has to be, or a folder in a file's place."
_NO_NAME = "Nothing can have this name: it is too long, or a link in it leads back to itself."
_FAILING = "A disk fails, or a server of files has gone away."
_TOO_MANY = "One process may not have more files open here."
_AGAIN = "df    names the disks and servers; the same command again goes on where this one stopped"
_LOOK = "ls -ld {path}    shows what is there and whose it is"
#: errno → cause and next step
_KNOWN = {
    errno.EACCES: (_FOREIGN, _LOOK),
    errno.EPERM: (_FOREIGN, _LOOK),
    errno.EROFS: ("Its file system is mounted read-only.", "run the command from a folder of your own"),
    errno.EEXIST: (_OTHER_KIND, _LOOK),
    errno.ENOTDIR: (_OTHER_KIND, _LOOK),
    errno.EISDIR: (_OTHER_KIND, _LOOK),
    errno.ENOENT: ("It is not there, or something has removed it meanwhile.", "ls -la {folder}    shows what is there"),
    errno.ENAMETOOLONG: (_NO_NAME, "name another folder for what is written"),
    errno.ELOOP: (_NO_NAME, "name another folder for what is written"),
    errno.EIO: (_FAILING, _AGAIN),
    errno.ESTALE: (_FAILING, _AGAIN),
    errno.ENOLCK: ("Its file server gives out no locks (NFS without lockd).", "work in a folder on a local disk"),
    errno.EMFILE: (_TOO_MANY, "ulimit -n 4096    and the same command again"),
}
#: say enough without a file's name: reading and writing give none
_PLAIN = (*DISK_FULL, errno.EIO, errno.ESTALE, errno.EMFILE)


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
    cause, step = _KNOWN.get(error.errno, ("", _LOOK))
    folder = str(Path(path).parent)
    return HostError(what, cause=cause, next_step=step.format(path=shlex.quote(path), folder=shlex.quote(folder)))
