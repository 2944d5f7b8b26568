"""Files below a folder that others' code has written: no link in it is followed, neither out of it nor inside.

A program in a sandbox cannot reach the host; a link that it leaves in its folder could make who reads that do so.
Links of a root file system, which are followed inside it, are for `host.rooted`.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path


def read(root: Path, name: str) -> bytes | None:
    """The content of a file; None where there is none, where a link leads to it, and for what is no plain file."""
    with contextlib.suppress(OSError), _folder(root, name) as (folder, last):
        descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    return None


def is_plain(path: Path, root: Path) -> bool:
    """Whether it is a file below `root` itself, and no link leads to it."""
    return path.is_file() and path.is_relative_to(root) and path.resolve() == root.resolve() / path.relative_to(root)


@contextlib.contextmanager
def _folder(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """The folder of a file, open, and the file's name in it."""
    *folders, last = Path(name).parts
    opened = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        for name_below in folders:
            below = os.open(name_below, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened)
            os.close(opened)
            opened = below
        yield opened, last
    finally:
        os.close(opened)
