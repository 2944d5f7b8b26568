"""Files and folders that appear whole or not at all, also outside the cache, also where an older one stands."""

import contextlib
import errno
import fcntl
import functools
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from graphcrate.host import process
from graphcrate.host.disk import waiting
from graphcrate.host.disk.living import ignoring_no_locks, living_folder, remove_abandoned
from graphcrate.host.disk.os_errors import explaining
from graphcrate.host.disk.trees import remove_tree
from graphcrate.model.errors import HostError

_RENAME_EXCHANGE, _AT_FDCWD = 2, -100  #: include/uapi/linux/fs.h and fcntl.h
#: a kernel before 3.15; file systems without it (NFS, FAT, some FUSE, an overlay's lower folders); a filter of calls
#: that does not know this one; a name that is not there
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM, errno.ENOENT)


def write_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file, whole or not at all; its folder is made. Without a mode it is as the umask has it.

    Raises DiskFullError and HostError.
    """
    with writing(path, mode) as part:
        part.write_bytes(content)


@contextlib.contextmanager
def synced(path: Path) -> Iterator[BinaryIO]:
    """Open a new file whose bytes are on the disk at the end, so that a rename afterwards names a whole file."""
    with path.open("xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def make_folder(path: Path) -> None:
    """Make a folder in which files can be made, and those above it. Raises DiskFullError and HostError."""
    inside = path / "files"
    with explaining(inside):
        inside.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass


def check_writable(folder: Path) -> None:
    """Raises HostError where no file can be made in a folder, or it cannot be made: asked before a long work."""
    there = next(above for above in (folder.absolute(), *folder.absolute().parents) if above.exists())
    with explaining(folder):
        try:
            with tempfile.TemporaryFile(dir=there):
                pass
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(there)) from error


def check_link(path: Path) -> None:
    """Raises HostError where something stands that `link` would not replace: to be asked before a long work."""
    if not path.exists() or path.is_symlink():  # in this order: another process may be making the link
        return
    quoted = shlex.quote(str(path))
    raise HostError(f"{path} exists and is not a link", next_step=f"mv {quoted} {quoted}.old")


def link(path: Path, target: Path) -> None:
    """Make `path` a symbolic link to `target`; another link there is replaced. Raises HostError for anything else."""
    with explaining(path):
        check_link(path)
        with _part(path) as temporary:
            temporary.symlink_to(target)
            temporary.replace(path)


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A new, empty folder beside `target` that takes its place at the end, or is removed on any error.

    One process at a time; others wait. `target` is the old folder or the new one at any moment. Where the kernel or
    the file system cannot exchange two names, there is none for the instant between two renames: a run that is killed
    then leaves none, and the next call puts the old one back. What a killed run left is removed by the next.
    Raises DiskFullError and HostError.
    """
    with _alone(target) as partial:
        partial.mkdir(0o700)
        yield partial
        if not _exchange(partial, target):
            _rename_twice(partial, target)


def _exchange(first: Path, second: Path) -> bool:
    """Let two names change places in one step; False, and nothing done, where that is not possible or one is absent."""
    number = _renameat2(first, second, _RENAME_EXCHANGE)
    if number and number not in _NO_EXCHANGE:
        raise OSError(number, os.strerror(number), str(second))
    return number == 0


def _renameat2(source: Path, target: Path, flags: int) -> int:
    """Call renameat2(2); its error number, 0 where it succeeds."""
    import ctypes  # 10 ms, for none but those who write an image

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):  # glibc before 2.28
        return errno.ENOSYS
    failed = library.renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags)
    return ctypes.get_errno() if failed else 0


def _rename_twice(partial: Path, target: Path) -> None:
    old = _beside(target, "old")
    with contextlib.suppress(FileNotFoundError):
        target.rename(old)
    try:
        partial.rename(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # else it would be away until the next call
            old.rename(target)
        raise
    remove_tree(old)


@contextlib.contextmanager
def appearing(target: Path, part: str) -> Iterator[Path | None]:
    """A new, empty folder beside `target` whose subfolder `part` becomes it at the end; None where it is there already.

    Otherwise as `replacing`, without the replacing.
    """
    with _alone(target) as partial:
        if target.exists():
            yield None
        else:
            partial.mkdir(0o700)
            yield partial
            (partial / part).rename(target)


@contextlib.contextmanager
def writing(target: Path, mode: int | None = 0o644) -> Iterator[Path]:
    """A name for a new file that takes `target`'s place at the end, or is removed on any error.

    Without a mode it is as the umask has it. What killed runs left beside it is removed; nothing else stays.
    Raises DiskFullError and HostError.
    """
    with _part(target) as grown:
        yield grown
        if mode is not None:
            grown.chmod(mode)
        grown.replace(target)


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """A name in a new folder beside `target`; that is removed at the end, killed runs' are before."""
    with explaining(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(target.parent, f".{target.name}.part-")
        with living_folder(target.parent, f".{target.name}.part-") as folder:
            yield folder / target.name


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder among the machine's temporary files; removed at the end, after kill -9 by the next of that prefix.

    Raises DiskFullError and HostError.
    """
    with process.uninterrupted():  # in between, the file by which the folder is tried would stay
        parent = Path(tempfile.gettempdir())
    with contextlib.ExitStack() as stack:
        with explaining(parent / prefix):
            remove_abandoned(parent, prefix)
            folder = stack.enter_context(living_folder(parent, prefix))
        yield folder


def create(target: Path, content: bytes, mode: int) -> bool:
    """Write a new file, whole and on the disk when this returns; False, and nothing done, where its name is taken.

    Raises DiskFullError and HostError.
    """
    with _part(target) as temporary:
        with synced(temporary) as stream:
            stream.write(content)
        temporary.chmod(mode)
        return claim(temporary, target)


def claim(source: Path, target: Path) -> bool:
    """Give a file a name that nothing has; False, and nothing done, where it is taken. `source` may keep its own."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):  # no hard links here: vfat, some FUSE
            raise
        if os.path.lexists(target):
            return False
        source.rename(target)
    return True


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[Path]:
    """The name of a folder beside `target`, for this process alone; removed before and after."""
    partial, old = _beside(target, "partial"), _beside(target, "old")
    with explaining(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(_beside(target, "lock")):
            remove_tree(partial)
            if old.exists() and not target.exists():
                old.rename(target)
            remove_tree(old)
            try:
                yield partial
            finally:
                remove_tree(partial)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that is a file, which is there only meanwhile: it is removed while it is held.

    A process that waited for it then has one that is no longer there, and takes the next.
    """
    while True:
        with path.open("ab") as file:
            with ignoring_no_locks():
                waiting.until(functools.partial(_flocked, file.fileno()), path, "writes the same image")
            if not _is_named(file.fileno(), path):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold a lock that is a file for as long as a program runs; False: another process has it."""
    with contextlib.ExitStack() as stack:
        with explaining(path):
            file = stack.enter_context(path.open("ab"))
            is_ours = True
            with ignoring_no_locks():
                is_ours = _flocked(file.fileno())
        yield is_ours


def _flocked(descriptor: int) -> bool:
    """Lock a file, unless another process has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _beside(target: Path, kind: str) -> Path:
    return target.parent / f".{target.name}.{kind}"
