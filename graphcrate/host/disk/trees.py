"""Trees of folders that others' code wrote, however deep: walked and removed by loops, and no link is followed.

Those of Python 3.11's standard library (os.walk, Path.rglob, shutil.rmtree, shutil.copytree) call themselves for each
folder, and end with RecursionError some 1,000 deep, which a program makes in a second.
"""

import contextlib
import errno
import itertools
import os
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from graphcrate.model.errors import BuildError

#: Folders in folders that a walk takes. Ten times those of the deepest package (some 25: generated code, JavaScript's
#: node_modules), and far below the 1,000 at which programs that read the image's files end, Python's own among them.
DEEPEST = 256
_OPEN = 64  #: folders that are open at once while a tree is removed: a shell's limit is 1,024 (ulimit -n)
_TIMES = 8  #: that what came into a folder meanwhile is removed once more
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def walk(
    root: str | Path, deepest: int | None = DEEPEST, failed: Callable[[OSError], None] = lambda _: None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Give each folder's path, and the names of its folders and of its other entries, as `os.walk` does.

    Folders that are taken from the list are not entered. `failed` hears of one that cannot be read. Raises BuildError
    below `deepest` folders, and for a path that is longer than the kernel takes; None goes on without those.
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
                raise too_deep(root, at) from error
            failed(error)  # gone, or closed to this user
            continue
        yield at, folders, others
        below = [f"{at}/{name}" for name in folders if name not in links]
        if below and depth == deepest:
            raise too_deep(root, below[0])
        waiting += [(path, depth + 1) for path in reversed(below)]


def entries(root: Path) -> Iterator[Path]:
    """Every entry below a folder; as `walk`."""
    return (Path(at, name) for at, *names in walk(root) for name in itertools.chain(*names))


def files(root: Path) -> Iterator[Path]:
    """Every entry below a folder that is no folder itself; as `walk`."""
    return (Path(at, name) for at, _, names in walk(root) for name in names)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def too_deep(root: str | Path, path: str | Path) -> BuildError:
    """Return the error for a folder below `root` that is too deep to be walked."""
    inside = os.path.relpath(path, root)
    return BuildError(
        f"/{inside[:60]}… is {inside.count('/') + 1} folders deep, and {DEEPEST} is the limit",
        cause="No package has such folders, and programs that read an image's files end in them.",
        next_step="leave out the package or the source that makes them; whoever maintains it wants to know",
    )


def remove_tree(path: Path) -> None:
    """Remove a folder with all in it, however deep, also where folders lack permissions for their owner.

    What links lead to stays. Raises OSError where something stays that is not this user's to remove.
    """
    try:
        top = _opened(os.fspath(path), None)
    except FileNotFoundError:
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    path.rmdir()


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


def _opened(name: str, folder: int | None) -> int:
    """A folder, open, with the permissions that its owner needs to empty it. Raises OSError, for a link too."""
    try:
        opened = os.open(name, _FOLDER, dir_fd=folder)
        status = os.fstat(opened)
        if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with contextlib.suppress(OSError):  # root needs none, others find out
                os.fchmod(opened, 0o700)
        return opened
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
        return os.open(name, _FOLDER, dir_fd=folder)


def _empty(top: int) -> None:
    """Remove all in an open folder. Raises OSError.

    Goes down to `_OPEN` folders and brings what is deeper up into the top one: each is then within reach once more.
    """
    number = 0
    for _ in range(_TIMES):
        while names := _names(top):
            before = number
            for name in names:
                number = _remove(top, name, number)
            if number == before:
                break
        if not _names(top):
            return
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _names(folder: int) -> list[str]:
    return os.listdir(folder)


def _remove(top: int, name: str, number: int) -> int:
    """Remove an entry of the top folder; too deep folders get new names there. Return the next such number."""
    if _unlinked(top, name):
        return number
    inner = _opened(name, top)
    trail, left = [(top, name, inner)], [_names(inner)]
    try:
        while trail:
            parent, own, folder = trail[-1]
            if not left[-1]:
                trail.pop()
                left.pop()
                _leave(parent, own, folder)
                continue
            below = left[-1].pop()
            if _unlinked(folder, below):
                continue
            inner = _opened(below, folder)
            if len(trail) < _OPEN:
                trail.append((folder, below, inner))
                left.append(_names(inner))
            else:
                os.close(inner)  # it has permissions now, which moving a folder asks for
                number += 1
                os.rename(below, f".graphcrate-{os.getpid()}-{number}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        for _, _, folder in trail:
            with contextlib.suppress(OSError):
                os.close(folder)
    return number


def _leave(parent: int, name: str, folder: int) -> None:
    """Close a folder whose entries are gone, and remove it; one that was written into meanwhile stays for now."""
    os.close(folder)
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
            raise


def _unlinked(folder: int, name: str) -> bool:
    """Remove an entry that is no folder; False for a folder. Raises OSError."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):  # POSIX has the second for a folder, and the first is Linux's
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        raise
    return True
