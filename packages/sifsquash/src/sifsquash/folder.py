"""A folder on the disk as a squashfs has it: each file once, its content packed while it is read."""

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sifsquash.errors import ImageError
from sifsquash.packer import Packer
from sifsquash.values import LATEST, XATTR, Inode

_CHUNK = 1 << 20
_TYPES = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFCHR: tarfile.CHRTYPE,
    stat.S_IFBLK: tarfile.BLKTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}
_BYTES = ("utf-8", "surrogateescape")


def read(root: Path, packer: Packer, *, root_owned: bool = False) -> dict[str, Inode]:
    """Pack the files of a folder; return what is in it, by paths without a slash at the start, the folder itself as "".

    Names of one file (hard links) share an inode. Links are never followed; sockets are left out. `root_owned`: as if
    root owned everything. Raises ImageError for a file that changes while it is read, OSError for one that may not be.
    """
    image: dict[str, Inode] = {}
    known: dict[tuple[int, int], Inode] = {}
    for path, on_disk, status in _walk(str(root)):
        identity = status.st_dev, status.st_ino
        if stat.S_ISSOCK(status.st_mode):
            continue
        if identity in known:
            image[path] = known[identity]
            continue
        inode = _inode(on_disk, status, root_owned=root_owned)
        if inode.is_file:
            inode = msgspec.structs.replace(inode, stored=packer.add(inode.size, _content(on_disk, inode.size), path))
        image[path] = inode
        if not inode.is_folder and status.st_nlink > 1:
            known[identity] = inode
    return image


def _walk(root: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Paths in the image and on the disk, in an order that the names alone decide."""
    if not Path(root).is_dir():
        raise ImageError(f"{root} is not a folder", next_step=f"ls -ld {root}")
    yield "", root, os.lstat(root)
    waiting = [""]
    while waiting:
        above = waiting.pop()
        folders = []
        with os.scandir(f"{root}/{above}") as listed:
            names = sorted(entry.name for entry in listed)
        for name in names:
            path = f"{above}/{name}".lstrip("/")
            status = os.lstat(f"{root}/{path}")
            yield path, f"{root}/{path}", status
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)
        waiting += reversed(folders)


def _inode(on_disk: str, status: os.stat_result, *, root_owned: bool) -> Inode:
    kind = _TYPES[stat.S_IFMT(status.st_mode)]
    xattrs = []
    for name in sorted(os.listxattr(on_disk, follow_symlinks=False)):
        value = os.getxattr(on_disk, name, follow_symlinks=False)
        xattrs.append((f"{XATTR}{name}", value.decode(*_BYTES)))
    return Inode(
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        uid=0 if root_owned else status.st_uid,
        gid=0 if root_owned else status.st_gid,
        mtime=min(max(int(status.st_mtime), 0), LATEST),
        size=status.st_size if kind == tarfile.REGTYPE else 0,
        link=os.readlink(on_disk) if kind == tarfile.SYMTYPE else "",  # noqa: PTH115 (bytes that are no UTF-8 stay)
        device=(os.major(status.st_rdev), os.minor(status.st_rdev))
        if kind in (tarfile.CHRTYPE, tarfile.BLKTYPE)
        else (0, 0),
        xattrs=tuple(xattrs),
    )


def _content(on_disk: str, size: int) -> Iterator[bytes]:
    """The content in pieces, which are `size` bytes together."""
    left = size
    with Path(on_disk).open("rb", buffering=0) as file:
        while piece := file.read(_CHUNK):
            left -= len(piece)
            if left < 0:
                break
            yield piece
    if left:
        raise ImageError(
            f"{on_disk} changed while it was read",
            cause="Another program writes to the folder.",
            next_step="the same command again when nothing writes to the folder",
        )
