"""Files below a folder that others' code has written: no link in it is followed, neither out of it nor inside.

A program in a sandbox cannot reach the host; a link that it leaves in its folder could make who reads that do so.
Links of a root file system, which are followed inside it, are for `debroot.rooted`.
"""

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from graphcrate.host.disk import trees
from graphcrate.model.errors import IntegrityError
from graphcrate.model.words import printable

GIT = ".git"
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class PlainFile(NamedTuple):
    """A file below `root` that no link leads to, by the path `name` that it has there."""

    root: Path
    name: str

    def read(self) -> bytes:
        """Return all of it. Raises IntegrityError where it is no plain file any more."""
        with self.opened() as stream:
            return stream.read()

    @contextlib.contextmanager
    def opened(self) -> Iterator[io.BufferedReader]:
        """Open it. Raises IntegrityError where it is no plain file any more, or was moved."""
        with contextlib.ExitStack() as stack:
            try:
                stream = stack.enter_context(opened(self.root, self.name))
            except OSError as error:
                raise IntegrityError(f"{self.shown} cannot be read: {error.strerror}") from error
            yield stream

    @property
    def is_executable(self) -> bool:
        """Return whether its owner may execute it."""
        with self.opened() as stream:
            return bool(os.fstat(stream.fileno()).st_mode & 0o100)

    @property
    def shown(self) -> str:
        """Its path, for people."""
        return printable(str(self.root / self.name))


def read(root: Path, name: str) -> bytes | None:
    """The content of a file; None where there is none, where a link leads to it, and for what is no plain file."""
    with contextlib.suppress(OSError), opened(root, name) as stream:
        return stream.read()
    return None


def is_plain(path: Path, root: Path) -> bool:
    """Return whether it is a file below `root` itself, and no link leads to it."""
    return path.is_file() and path.is_relative_to(root) and path.resolve() == root.resolve() / path.relative_to(root)


def files(
    root: Path, is_left_out: Callable[[str, Collection[str]], bool] = lambda name, _: name == GIT
) -> Iterator[tuple[str, PlainFile]]:
    """Give every file below a folder by its path, in order: those of a folder, then those of the folders in it.

    A link counts as the file of the folder that it leads to; one to a folder, and one to nothing, as nothing.
    `is_left_out` gets a name and the names of the files beside it. Raises IntegrityError, with its name, for a link
    that leads out of the folder or to what git keeps there, and for devices, sockets and FIFOs; BuildError below
    `trees.DEEPEST` folders.
    """
    home, waiting = root.resolve(), [""]
    while waiting:
        folder = waiting.pop()
        if folder.count("/") > trees.DEEPEST:
            raise trees.too_deep(root, root / folder)
        modes = _modes(root, folder)
        beside = [name for name, mode in modes.items() if not stat.S_ISDIR(mode)]
        folders = []
        for name in sorted(modes):
            path, mode = f"{folder}{name}", modes[name]
            if is_left_out(name, beside):
                continue
            if stat.S_ISDIR(mode):
                folders.append(f"{path}/")
            elif stat.S_ISREG(mode):
                yield path, PlainFile(root, path)
            elif not stat.S_ISLNK(mode):
                raise _refused(root / path, f"is {_KINDS.get(stat.S_IFMT(mode), 'no file')}", "remove it")
            elif (target := _target(home, path)) is not None:
                yield path, PlainFile(root, target)
        waiting += reversed(folders)


def _modes(root: Path, folder: str) -> dict[str, int]:
    """Names in a folder, each with its mode."""
    with _folder(root, Path(folder).parts) as opened:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=opened)
        try:
            with os.scandir(descriptor) as entries:
                return {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries}
        finally:
            os.close(descriptor)


def _target(home: Path, path: str) -> str | None:
    """The plain file below the folder that a link means; None where it means a folder, or nothing.

    Raises IntegrityError for one that leads elsewhere.
    """
    real = os.path.realpath(home / path)
    below = os.path.relpath(real, home)
    if below == ".." or below.startswith("../") or GIT in below.split("/"):
        raise _refused(
            home / path,
            f"is a link that leads out of its folder, to {printable(str((home / path).readlink()))}",
            "put what it means in its place, or take it out",
        )
    return below if Path(real).is_file() else None


def _refused(path: Path, what: str, step: str) -> IntegrityError:
    return IntegrityError(
        f"{printable(str(path))} {what}",
        cause="What is built would get a file of this machine that does not belong to it.",
        next_step=f"{step}, and run the same command again",
    )


@contextlib.contextmanager
def opened(root: Path, name: str) -> Iterator[io.BufferedReader]:
    """A plain file, open. Raises OSError for anything else."""
    *folders, last = Path(name).parts
    with _folder(root, folders) as folder:
        descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        yield stream


@contextlib.contextmanager
def _folder(root: Path, names: Sequence[str]) -> Iterator[int]:
    """A folder below `root` by the names that lead to it, open."""
    opened = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        for name in names:
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened)
            os.close(opened)
            opened = below
        yield opened
    finally:
        os.close(opened)
