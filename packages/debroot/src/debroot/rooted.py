"""Paths of a tree as a process inside it sees them: links end in the tree, wherever they say they lead.

The kernel follows a link of the tree to the host's file (`etc/passwd` → `/etc/shadow`), and we may be root. So nothing
of a tree that others filled is opened by joining paths; no one else changes it meanwhile.
"""

import itertools
import os
import stat
from pathlib import Path

_LINKS = 40  #: in one path, as the kernel has it (path_resolution(7))


def host_path(root: Path, path: str, *, follow: bool = False) -> Path | None:
    """The host's path of `path`, without a link above it; its last part may be one, unless it is to be followed, too.

    None where something above it is no folder, or where links go in a circle. What is not there needs not be.
    """
    reached, left, links = root, path.split("/")[::-1], 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            reached = reached if reached == root else reached.parent
            continue
        reached /= part
        status = _status(reached)
        if status is None or not (left or follow):
            continue
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _LINKS:
                return None
            target = os.readlink(reached)  # noqa: PTH115 (Path drops what a final slash means)
            reached = root if target.startswith("/") else reached.parent
            left += target.split("/")[::-1]
        elif left and not stat.S_ISDIR(status.st_mode):
            return None
    return reached


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_bytes(root: Path, path: str) -> bytes | None:
    """The content of a plain file; None where there is none."""
    file = host_path(root, path, follow=True)
    status = _status(file) if file is not None else None
    return file.read_bytes() if file is not None and status is not None and stat.S_ISREG(status.st_mode) else None


def make_folders(path: Path) -> None:
    """Make a folder of a tree, and those above that are absent, for all to read under any umask. Raises OSError."""
    absent = list(itertools.takewhile(lambda folder: not folder.is_dir(), (path, *path.parents)))
    for folder in reversed(absent):
        folder.mkdir()
        folder.chmod(0o755)


def write_text(root: Path, path: str, text: str, mode: int = 0o644) -> None:
    """Put a new file there, in place of what has its name. Raises OSError."""
    if (target := host_path(root, path)) is None:
        raise NotADirectoryError(f"/{path} of the tree has a file where a folder is needed")
    make_folders(target.parent)
    target.unlink(missing_ok=True)
    with target.open("x", encoding="utf-8") as file:
        file.write(text)
    target.chmod(mode)
