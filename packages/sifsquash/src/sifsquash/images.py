"""Whole images: made of a folder, listed, extracted."""

import contextlib
import hashlib
import os
import platform
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from sifsquash import folder, sif, writer
from sifsquash.errors import ImageError
from sifsquash.packer import Packer
from sifsquash.squashfs import MAGIC, SUPERBLOCK, Squashfs
from sifsquash.values import Compression, Entry

_CHUNK = 1 << 20
_DEPTH = 256  #: blocks in memory that wait to be compressed or written
#: Go's names of this machine's processors, by uname's
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}


def make_squashfs(
    root: Path,
    target: Path,
    *,
    compression: Compression = Compression.GZIP,
    created: int | None = None,
    root_owned: bool = False,
) -> None:
    """Write a folder as a squashfs. `target` appears whole or not at all.

    The same names, contents, owners, modes and times give the same bytes. `created`: Unix seconds of the file system;
    None: the time of its newest file. `root_owned`: as if root owned everything. Raises ImageError, OSError.
    """
    with _appearing(target, root, 0o644) as stream:
        _write(stream, root, compression, created, root_owned=root_owned)


def make_sif(
    root: Path,
    target: Path,
    *,
    compression: Compression = Compression.GZIP,
    created: int | None = None,
    root_owned: bool = False,
    architecture: str = "",
    definition: str = "",
) -> None:
    """Write a folder as a SIF, as `make_squashfs` does. Nothing is added to the folder's files.

    `architecture`: Go's name of the processor that it is for, such as amd64; empty: this machine's. `definition`: a
    text for `inspect --deffile`. Raises ImageError, OSError.
    """
    architecture = architecture or _MACHINES.get(platform.machine(), platform.machine())
    objects = [sif.DataObject(sif.TYPE_DEFINITION, "", definition.encode())] if definition else []
    sif.front(objects, 0, architecture, uuid.UUID(int=0), 0)  # refuses what cannot be before the work begins
    with _appearing(target, root, 0o755) as stream:
        offset = sif.partition_offset(objects)
        stream.seek(offset)
        moment = _write(stream, root, compression, created, root_owned=root_owned)
        size = stream.tell() - offset
        stream.seek(offset)
        digest = hashlib.sha256()
        while piece := stream.read(_CHUNK):
            digest.update(piece)
        stream.seek(0)
        identity = uuid.uuid5(uuid.NAMESPACE_OID, digest.hexdigest())
        stream.write(sif.front(objects, size, architecture, identity, moment))


def root_offset(image: Path) -> int:
    """Return where the squashfs begins in an image: 0 where it is no SIF. Raises ImageError for another file."""
    with image.open("rb") as file:
        head = file.read(512)
    if sif.is_sif(head):
        return sif.root_offset(image)
    if head.startswith(MAGIC):
        return 0
    raise ImageError(f"{image} is neither a SIF nor a squashfs", next_step=f"file {image}")


def entries(image: Path) -> Iterator[tuple[str, Entry]]:
    """Yield every path of an image, "/" first, sorted. Raises ImageError."""
    with Squashfs(image, root_offset(image)) as opened:
        yield from sorted((path, entry) for path, entry, _ in opened.entries())


def read_file(image: Path, path: str) -> bytes:
    """Return the content of a file by its absolute path; no link is followed. Raises ImageError where there is none."""
    with Squashfs(image, root_offset(image)) as opened:
        for name, _, content in opened.entries():
            if name == path and content is not None:
                return b"".join(opened.chunks(content))
    raise ImageError(f"{image} has no file {path}", next_step=f"python -m sifsquash list {image}")


def extract(image: Path, target: Path) -> list[str]:
    """Extract an image into the new folder `target`; return the paths that were left out.

    Owners are set for root alone, modes without set-user-id and set-group-id bits of files; devices and sockets are
    left out, extended attributes are not read, and names of one file become files of their own. Nothing is written
    outside of `target`. Raises ImageError, OSError.
    """
    left_out: list[str] = []
    folders: list[tuple[Path, Entry]] = []
    as_root = os.geteuid() == 0
    with Squashfs(image, root_offset(image)) as opened:
        # Sorted, a folder comes before what is in it, and is made here: no name leads through a link of the image.
        for path, entry, content in sorted(opened.entries(), key=lambda each: each[0]):
            place = Path(f"{target}{path}")
            if entry.kind == "folder":
                place.mkdir(0o700)
                folders.append((place, entry))
                continue
            if entry.kind == "symlink":
                place.symlink_to(entry.link)
            elif entry.kind == "fifo":
                os.mkfifo(place)
            elif content is not None:
                with place.open("xb") as file:
                    file.writelines(opened.chunks(content))
            else:
                left_out.append(path)
                continue
            _apply(place, entry, as_root=as_root)
    for place, entry in reversed(folders):  # the deepest first: a parent may close itself
        _apply(place, entry, as_root=as_root)
    return left_out


def _apply(place: Path, entry: Entry, *, as_root: bool) -> None:
    if as_root:
        os.chown(place, entry.uid, entry.gid, follow_symlinks=False)
    if entry.kind != "symlink":
        place.chmod(entry.mode if entry.kind == "folder" else entry.mode & 0o1777)
    os.utime(place, (entry.mtime, entry.mtime), follow_symlinks=False)


def _write(stream: BinaryIO, root: Path, compression: Compression, created: int | None, *, root_owned: bool) -> int:
    """Write a folder as a squashfs at the stream's position; return its time."""
    begin = stream.tell()
    stream.write(bytes(SUPERBLOCK.size))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        packer = Packer(stream, compression, pool, _DEPTH, SUPERBLOCK.size)
        image = folder.read(root, packer, root_owned=root_owned)
        packer.finish()
    placed = {id(inode): inode.stored for inode in image.values() if inode.stored is not None}
    fragments = [(end.start, end.sizes[0]) for end in packer.fragments]
    moment = max(inode.mtime for inode in image.values()) if created is None else created
    writer.finish(stream, begin, image, placed, fragments, compression, moment)
    return moment


@contextlib.contextmanager
def _appearing(target: Path, root: Path, mode: int) -> Iterator[BinaryIO]:
    """A file beside the target that takes its name when all is written, and goes where something fails."""
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    if part.parent.resolve().is_relative_to(root.resolve()):
        raise ImageError(f"{target} would be a part of itself, as it is in {root}", next_step="name another place")
    try:
        with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), "w+b", buffering=_CHUNK) as stream:
            yield stream
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
