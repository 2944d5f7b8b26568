"""A tree of folders that others' code wrote, walked by a loop: none is so deep that it ends this program."""

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from debroot.errors import TooDeepError

DEEPEST = 256  #: folders in folders: ten times those of the deepest package


def walk(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Give each folder's path, the names of its folders and of its other entries; links are not followed.

    Raises TooDeepError.
    """
    waiting = [(os.fspath(root), 0)]
    while waiting:
        at, depth = waiting.pop()
        folders, others = list[str](), list[str]()
        try:
            with os.scandir(at) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise TooDeepError(root, at, DEEPEST) from error
            continue  # gone, or closed to this user
        yield at, folders, others
        if folders and depth == DEEPEST:
            raise TooDeepError(root, f"{at}/{folders[0]}", DEEPEST)
        waiting += [(f"{at}/{name}", depth + 1) for name in reversed(folders)]


def entries(root: Path) -> Iterator[Path]:
    """Every entry below a folder; as `walk`."""
    return (Path(at, name) for at, *names in walk(root) for name in itertools.chain(*names))
