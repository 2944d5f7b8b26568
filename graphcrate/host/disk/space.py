"""Room on a disk, and what its file system is."""

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from pathlib import Path

from graphcrate.model import words
from graphcrate.model.errors import DiskFullError
from nsbox import namespaces

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_GET_FLAGS, _SET_FLAGS, _APART = 0x80086601, 0x40086602, 0x20000  #: include/uapi/linux/fs.h; TOPDIR of ext4


def too_large(path: object) -> DiskFullError:
    """The error for a file that may not grow any more, though there is room (EFBIG)."""
    return DiskFullError(
        f"{path}: File too large",
        cause="The limit of this shell (ulimit -f) is reached, or the disk's file system has one: FAT32 holds files "
        "below 4 GB.",
        next_step="ulimit -f unlimited    in this shell, or a folder on another disk (GRAPHCRATE_CACHE=/path: the "
        "cache, --output FOLDER: images); then the same command goes on where it stopped",
    )


def require_room(
    folder: Path,
    needed: int,
    purpose: object,
    *,
    free: int | None = None,
    next_step: str = "free some room, or name a folder on another disk",
) -> None:
    """Raises DiskFullError unless `needed` bytes are free on the disk of `folder`, which need not exist."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free if free is None else free
    if free < needed:
        raise DiskFullError(
            f"{purpose} needs {words.size(needed)}, and {words.size(free)} are free under {folder}",
            next_step=next_step,
        )


def file_system(folder: Path) -> str:
    """Return the kind of file system on which a folder is, or will be: "lustre"; empty where the kernel tells none."""
    with contextlib.suppress(OSError):
        points, whole = namespaces.mount_points(), folder.absolute().resolve()
        return next((points[str(path)] for path in (whole, *whole.parents) if str(path) in points), "")
    return ""


def place_apart(folder: Path) -> None:
    """Ask ext4 to place folders of this one far from each other on the disk. Other file systems need not be asked.

    For some minutes ext4 gives no inode that was freed, and looks long for one beside the many of a tree that was
    removed: an empty file took thirty times as long.
    """
    if file_system(folder) == "ext4":
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                flags = int.from_bytes(fcntl.ioctl(descriptor, _GET_FLAGS, bytes(8)), sys.byteorder)
                fcntl.ioctl(descriptor, _SET_FLAGS, (flags | _APART).to_bytes(8, sys.byteorder))
            finally:
                os.close(descriptor)
