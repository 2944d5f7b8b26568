"""Writes a squashfs by squashfs-tools, from a stream: no file of the image lies on the disk but in the result."""

import re
import struct
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from graphcrate.artifacts.formats import squashfs
from graphcrate.artifacts.formats.merged import Inode, Merged, tar
from graphcrate.compat import facts
from graphcrate.compat.facts import numbers
from graphcrate.host import process
from graphcrate.host.progress import Task
from graphcrate.host.workers import default_jobs
from graphcrate.model.errors import DiskFullError, HostError, LayoutError, UsageError

PROGRAM = "mksquashfs"
_HEADER = struct.Struct("<HHHI")  #: of an inode, after its kind: mode, numbers of owner and group, time
#: The first release that reads a tar (August 2021).
_NEEDED = (4, 5)
_VERSION = re.compile(r"mksquashfs version (\d+)\.(\d+)(\S*)")
_KERNEL = re.compile(r"\d+\.\d+")
_FULL = re.compile(r"no space left on device|quota exceeded|file too large", re.IGNORECASE)
#: Bytes of a block. Larger ones compress better; each is inflated whole for the first page that is read of it.
#: docs/decisions/conversion.md has what others give and take.
BLOCK = "256K"
#: Of its caches; it would take a quarter of the machine.
_MEMORY = "256M"


class Compression(StrEnum):
    """Of a squashfs."""

    GZIP = "gzip"
    ZSTD = "zstd"


#: Levels: docs/decisions/conversion.md has what others give and take.
LEVELS = {Compression.GZIP: 6, Compression.ZSTD: 3}


def choose(kernel: str | None) -> Compression:
    """The compression that a kernel ("3.10", "5.14.0-70.el9") can mount; gzip where none is named.

    Raises UsageError.
    """
    if kernel is None:
        return Compression.GZIP
    if (found := _KERNEL.match(kernel)) is None:
        raise UsageError(
            f"{kernel!r} is no kernel's version", next_step="--kernel 3.10    (`uname -r` on the target says it)"
        )
    mounts_zstd = numbers(found[0]) >= numbers(facts.limits().kernel_zstd.since)
    return Compression.ZSTD if mounts_zstd else Compression.GZIP


def version() -> str:
    """The program's version. Raises HostError where it is missing or too old."""
    told = process.run([PROGRAM, "-version"], timeout=60).lines
    found = next(filter(None, map(_VERSION.match, told)), None)
    if found is None:
        raise HostError(f"{PROGRAM} does not say its version", cause="It says: " + " ".join(told[:2]))
    text = f"{found[1]}.{found[2]}{found[3]}"
    if (int(found[1]), int(found[2])) < _NEEDED:
        raise HostError(
            f"{PROGRAM} {text} is too old: it cannot read a stream",
            cause="squashfs-tools do so since 4.5 (2021).",
            next_step="convert on a newer machine (Debian 12, Ubuntu 22.04), or --to docker and convert where it goes",
        )
    return text


def write(target: Path, offset: int, merged: Merged, compression: Compression, created: int, task: Task) -> None:
    """Write the files at `offset` of the new file `target`. `task` counts bytes of the tar; `created`: Unix seconds.

    The same arguments and squashfs-tools give the same bytes, whatever the number of cores. Raises DiskFullError,
    BuildError, and LayoutError where a layer cannot be read any more.
    """

    def counted() -> Iterator[bytes]:
        for piece in tar(merged):
            yield piece
            task.advance(len(piece))

    command = arguments(target, offset, compression, created)
    done = process.feed(command, counted())
    if not done.returncode:
        settle_root(target, offset, merged.paths[""])
        return
    if any(_FULL.search(line) for line in done.lines):
        raise DiskFullError(
            f"the disk that holds {target.parent.parent} is full",
            cause=f"{PROGRAM} says: {' '.join(done.lines[:2])}",
            next_step="free some room, or name a file on another disk: --output /path",
        )
    raise process.failure(command, done.returncode, done.lines)


def arguments(target: Path, offset: int, compression: Compression, created: int) -> list[str]:
    """The command."""
    return [
        *(PROGRAM, "-", str(target), "-tar", "-noappend", "-offset", str(offset)),
        *("-comp", compression.value, "-Xcompression-level", str(LEVELS[compression]), "-b", BLOCK),
        # inodes as they are, for `settle_root`: half a percent
        *("-noI", "-mkfs-time", str(created)),
        *("-mem", _MEMORY, "-processors", str(default_jobs()), "-no-progress", "-quiet"),
    ]


def settle_root(target: Path, offset: int, root: Inode) -> None:
    """Give the root folder its mode, owner and time: 4.5.1 takes them from who runs it, and when, whatever it is told.

    Raises LayoutError where nothing else in the image has the root's owner or group.
    """
    with squashfs.Squashfs(target, offset) as image:
        places, ids = image.root_header(), image.ids
    if root.uid not in ids or root.gid not in ids:
        raise LayoutError(
            f"the root folder belongs to {root.uid}:{root.gid}, and no file does",
            cause="squashfs-tools cannot write that from a stream.",
        )
    data = _HEADER.pack(root.mode, ids.index(root.uid), ids.index(root.gid), root.mtime)
    with target.open("r+b") as file:
        for place, byte in zip(places[2:], data, strict=True):  # what kind of inode it is stays
            file.seek(place)
            file.write(bytes((byte,)))
