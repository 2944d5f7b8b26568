"""Walks: a loop over folders that are still to be read, which ends where no honest tree goes on."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from hostiletrees.errors import TooDeepError

#: Folders in folders that a walk takes. Ten times those of the deepest package (some 25: generated code, JavaScript's
#: node_modules), and far below the 1,000 at which programs that read the image's files end, Python's own among them.
DEEPEST = 256


def walk(
    root: str | Path,
    deepest: int | None = DEEPEST,
    failed: Callable[[OSError], None] = lambda _: None,
    refused: Callable[[str | Path, str], Exception] = TooDeepError,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Give each folder's path, and the names of its folders and of its other entries, as `os.walk` does.

    Folders that are taken from the list are not entered. `failed` hears of one that cannot be read. Raises what
    `refused` makes of the root and a path below `deepest` folders, or longer than the kernel takes; None goes on
    without those.
    """
    waiting = [(os.fspath(root), 0)]
    while waiting:
        at, depth = waiting.pop()
        folders: list[str] = []
        others: list[str] = []
        links: set[str] = set()
        try:
            with os.scandir(at) as entries:
                for entry in entries:
                    (folders if _is_folder(entry) else others).append(entry.name)
                    if entry.is_symlink():
                        links.add(entry.name)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG and deepest is not None:
                raise refused(root, at) from error
            failed(error)  # gone, or closed to this user
            continue
        yield at, folders, others
        below = [f"{at}/{name}" for name in folders if name not in links]
        if below and depth == deepest:
            raise refused(root, below[0])
        waiting += [(path, depth + 1) for path in reversed(below)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
