"""Trees of folders that others' code wrote, walked and removed by `hostiletrees`, in our words."""

import contextlib
import itertools
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from graphcrate.model.errors import BuildError
from hostiletrees import walking
from hostiletrees.removing import remove_tree as remove_tree
from hostiletrees.walking import DEEPEST as DEEPEST


def walk(
    root: str | Path, deepest: int | None = DEEPEST, failed: Callable[[OSError], None] = lambda _: None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Give each folder's path, and the names of its folders and of its other entries, as `hostiletrees` does.

    Raises BuildError below `deepest` folders, and for a path that is longer than the kernel takes.
    """
    return walking.walk(root, deepest, failed, too_deep)


def entries(root: Path) -> Iterator[Path]:
    """Every entry below a folder; as `walk`."""
    return (Path(at, name) for at, *names in walk(root) for name in itertools.chain(*names))


def files(root: Path) -> Iterator[Path]:
    """Every entry below a folder that is no folder itself; as `walk`."""
    return (Path(at, name) for at, _, names in walk(root) for name in names)


def too_deep(root: str | Path, path: str | Path) -> BuildError:
    """Return the error for a folder below `root` that is too deep to be walked."""
    inside = os.path.relpath(path, root)
    return BuildError(
        f"/{inside[:60]}… is {inside.count('/') + 1} folders deep, and {DEEPEST} is the limit",
        cause="No package has such folders, and programs that read an image's files end in them.",
        next_step="leave out the package or the source that makes them; whoever maintains it wants to know",
    )


def discard(path: Path, say: Callable[[str], None]) -> bool:
    """Remove a folder, say what cannot be removed, and return whether it is gone."""
    try:
        remove_tree(path)
    except OSError as error:
        again = f"as its owner or root: rm -rf {shlex.quote(str(path))}"
        say(f"{path} stays: it cannot be removed ({error.strerror}); {again}")
        return False
    return True


@contextlib.contextmanager
def folder_in(parent: Path, prefix: str = "tmp") -> Iterator[Path]:
    """Give a new folder that guests may write to, removed at the end; what cannot be removed stays."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        discard(folder, lambda _: None)
