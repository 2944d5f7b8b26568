"""Folders of runs: one lives as long as the process that made it, and the next run removes those of killed ones."""

import contextlib
import errno
import fcntl
import glob
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from graphcrate.host.disk.trees import discard

Say = Callable[[str], None]
#: what a disk says that has no locks: Lustre mounted without `flock`, some of FUSE and 9p
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP)


def silent(_: str) -> None:
    """Say nothing."""


@contextlib.contextmanager
def ignoring_no_locks() -> Iterator[None]:
    """End the block quietly where the disk has no locks."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


@contextlib.contextmanager
def living_folder(parent: Path, prefix: str, say: Say = silent) -> Iterator[Path]:
    """A new folder, removed at the end; after kill -9 by `remove_abandoned` of the next run with that prefix.

    `say` hears of one that cannot be removed.

    A locked file beside it tells that its process lives: the kernel frees it with the process, a file server with the
    machine. The file is there before the folder and as long, so a kill leaves no folder without one.
    """
    lock, file = _locked_file(parent, prefix)
    folder = lock.with_suffix("")
    with file:
        try:
            folder.mkdir(0o700)
            folder.chmod(0o700)  # without the set-group-ID bit of the folder above, which all below would have
            yield folder
        finally:
            if discard(folder, say):
                lock.unlink(missing_ok=True)


def _locked_file(parent: Path, prefix: str) -> tuple[Path, IO[bytes]]:
    """A new file that this process has locked; another one if `remove_abandoned` took it before it was."""
    while True:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=".lock", dir=parent)
        file = os.fdopen(handle, "wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:  # on such a disk it cannot be taken for abandoned
                file.close()
                Path(name).unlink(missing_ok=True)
                raise
        if os.fstat(handle).st_nlink:
            return Path(name), file
        file.close()


def remove_abandoned(parent: Path, prefix: str, say: Say = silent) -> None:
    """Remove the folders of killed runs: those whose file is not locked. `say` hears of those that stay."""
    for lock in parent.glob(f"{glob.escape(prefix)}*.lock"):
        with contextlib.suppress(OSError), lock.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if discard(lock.with_suffix(""), say):
                lock.unlink()
