"""Removal: most of a tree by threads, what they leave by a loop, all by open folders and no path."""

import contextlib
import errno
import os
import stat
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_OPEN = 64  #: folders that are open at once while a tree is removed: a shell's limit is 1,024 (ulimit -n)
_TIMES = 8  #: that what came into a folder meanwhile is removed once more
_THREADS = 16  #: that remove entries of one tree
_AT_ONCE = 64  #: entries of a folder that one of them removes
_NEAR = 24  #: folders below the top that threads go down: at most _THREADS * _NEAR folders are open then
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a folder with all in it, however deep, also where folders lack permissions for their owner.

    What links lead to stays. Raises OSError where something stays that is not this user's to remove.
    """
    try:
        top = _opened(os.fspath(path), None)
    except FileNotFoundError:
        return
    try:
        # The collector may end a generator in the midst of anything, while another thread is started too: none then.
        if sys.exc_info()[0] is not GeneratorExit:
            _Thinning(top).run()
        _empty(top)
    finally:
        os.close(top)
    path.rmdir()


@dataclass(eq=False)
class _Folder:
    """A folder that threads empty. `left`: slices of its names, and folders in it, that they are not done with."""

    name: str
    above: "_Folder | None"
    depth: int
    opened: int = -1
    left: int = 1


class _Thinning:
    """The removal of most of a tree by threads: each entry waits for the disk, or for a file server's answer.

    What is too deep, cannot be removed or came meanwhile stays: `_empty` removes it, or says why not.
    """

    def __init__(self, top: int) -> None:
        self._top = _Folder("", None, 0, top)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._waiting: list[tuple[_Folder, Sequence[str] | None]] = []  #: the newest first, so that few are open
        self._open: set[int] = set()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="remove")

    def run(self) -> None:
        """Remove what can be removed. No thread works, and no folder is open, when this ends, however it ends."""
        try:
            self._waiting.append((self._top, None))
            self._pool.submit(self._work)
            self._done.wait()
        except RuntimeError:  # this user may start no thread
            return
        finally:
            self._waiting.clear()
            self._pool.shutdown(cancel_futures=True)
            for opened in self._open:
                os.close(opened)

    def _submit(self, folder: _Folder, names: Sequence[str] | None) -> None:
        """Have these names of a folder removed; None: all that it has."""
        self._waiting.append((folder, names))
        with contextlib.suppress(RuntimeError):  # no further thread: those that are there do it; or interrupted
            self._pool.submit(self._work)

    def _work(self) -> None:
        try:
            folder, names = self._waiting.pop()
        except IndexError:  # interrupted
            return
        try:
            with contextlib.suppress(OSError):
                self._clear(folder, self._entered(folder) if names is None else names)
        finally:
            self._leave(folder)

    def _entered(self, folder: _Folder) -> Sequence[str]:
        """Open a folder, hand out slices of its names, and return the one to begin with. Raises OSError."""
        if folder.above is not None:
            opened = _opened(folder.name, folder.above.opened)
            with self._lock:
                self._open.add(opened)
            folder.opened = opened
        names = _names(folder.opened)
        for start in range(_AT_ONCE, len(names), _AT_ONCE):
            self._add(folder, folder, names[start : start + _AT_ONCE])
        return names[:_AT_ONCE]

    def _clear(self, folder: _Folder, names: Sequence[str]) -> None:
        for name in names:
            if not _unlinked(folder.opened, name) and folder.depth < _NEAR:
                self._add(folder, _Folder(name, folder, folder.depth + 1), None)

    def _add(self, counted: _Folder, folder: _Folder, names: Sequence[str] | None) -> None:
        with self._lock:
            counted.left += 1
        self._submit(folder, names)

    def _leave(self, folder: _Folder | None) -> None:
        """Count a part of a folder as done; remove it after its last one, which is a part of the folder above."""
        while folder is not None:
            with self._lock:
                folder.left -= 1
                if folder.left:
                    return
                self._open.discard(folder.opened)
            if folder.above is None:
                self._done.set()
            elif folder.opened != -1:
                os.close(folder.opened)
                with contextlib.suppress(OSError):
                    os.rmdir(folder.name, dir_fd=folder.above.opened)
            folder = folder.above


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
