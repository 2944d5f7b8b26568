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
_FAILING = "A disk fails, or a server of files has gone away."
#: what the system's own words leave open
_CAUSES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), _FOREIGN),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), _OTHER_KIND),
    **dict.fromkeys((errno.EIO, errno.ESTALE), _FAILING),
    errno.ENOLCK: "Its file server gives out no locks (NFS without lockd); a folder on a local disk has them.",
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
    step = f"ls -ld {shlex.quote(path)}    shows what is there and whose it is" if path else "df    names the disks"
    return HostError(what, cause=_CAUSES.get(error.errno, ""), next_step=step)
