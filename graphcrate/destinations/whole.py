"""Files that appear whole where others look on, without a lock: NFS and Lustre are often mounted without any."""

import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from graphcrate.errors import DiskFullError, HostError
from graphcrate.host.cache import DISK_FULL

#: what file systems answer that have no links, or folders that cannot be synced
UNABLE = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_CHUNK = 4 << 20
_FAILING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO)


@contextlib.contextmanager
def parts() -> Iterator[Callable[[Path], Path]]:
    """Gives temporary names beside others; what is left of them at the end is removed."""
    made: list[Path] = []

    def part(target: Path) -> Path:
        made.append(target.with_name(f".{target.name}.{secrets.token_hex(8)}.part"))
        return made[-1]

    try:
        yield part
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def copy(source: Path, target: Path, mode: int, advance: Callable[[int], None]) -> str:
    """Copy a file to the disk, its mode less the umask; the sha256 of what was copied."""
    digest = hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with source.open("rb") as reading, os.fdopen(descriptor, "wb", buffering=0) as writing:
        while chunk := reading.read(_CHUNK):
            digest.update(chunk)
            _write_all(writing, chunk)
            advance(len(chunk))
        os.fsync(descriptor)
    return digest.hexdigest()


def _write_all(stream: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]


def write(path: Path, data: bytes) -> None:
    """A new file, on the disk when this returns."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync(folder: Path) -> None:
    """Bring new names to the disk, where folders can be synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNABLE:
            raise
    finally:
        os.close(descriptor)


def sha256(path: Path, advance: Callable[[int], None] = lambda _: None) -> str:
    """Of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            advance(len(chunk))
    return digest.hexdigest()


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn what a disk or a file server says into DiskFullError and HostError."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        if error.errno in DISK_FULL:
            raise DiskFullError(
                f"the disk that holds {folder} is full, or your share of it is used up",
                next_step="free some room there, or name another place; nothing half-written has stayed",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise HostError(
                f"{where} cannot be written: {error.strerror}",
                cause="The folder belongs to others, or is read-only on this machine.",
                next_step="publish from a node that may write there, or name another folder",
            ) from error
        if error.errno == errno.EFBIG:
            raise HostError(
                f"{where} is larger than its file system takes",
                cause="A FAT32 disk takes files of up to 4 GiB; a quota of the shell (ulimit -f) is another limit.",
                next_step="use a disk with exFAT, ext4 or XFS",
            ) from error
        if error.errno in _FAILING:
            raise HostError(
                f"the file server of {folder} failed: {error.strerror} ({where})",
                cause="A network file system reports some failures of writing only at the end.",
                next_step="run the same command again; nothing half-written has the file's name",
            ) from error
        raise
