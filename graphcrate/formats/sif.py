"""Singularity image files: where the root file system lies in one.

Layout of github.com/apptainer/sif v2, `pkg/sif`: a header of 128 bytes, then descriptors; integers little-endian.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from graphcrate.errors import LayoutError

MAGIC = b"SIF_MAGIC\0"
MAGIC_OFFSET = 32  #: after the launch line
_HEADER = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR = struct.Struct("<iBIIIqqqqqqq128s384s")
_PARTITION = struct.Struct("<ii")
_MOST_DESCRIPTORS = 1 << 16
_TYPE_PARTITION = 0x4004
_PRIMARY = 2
_FILE_SYSTEMS = {1: "squashfs", 2: "ext3", 3: "an archive", 4: "raw data", 5: "an encrypted squashfs"}


class Partition(NamedTuple):
    """Bytes of the file that hold a squashfs."""

    offset: int
    size: int


def is_sif(head: bytes) -> bool:
    """Whether a file that begins with these (at least 42) bytes is one."""
    return head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] == MAGIC


def root_partition(path: Path) -> Partition:
    """The squashfs that the image runs from. Raises LayoutError where there is none, or another file system."""
    total = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or not is_sif(head):
            raise LayoutError(f"{path} is no SIF file")
        count, offset = _HEADER.unpack(head)[-5], _HEADER.unpack(head)[-4]
        if not 0 <= count <= _MOST_DESCRIPTORS or not 0 <= offset <= total:
            raise LayoutError(f"{path}: the SIF header is malformed")
        file.seek(offset)
        table = file.read(count * _DESCRIPTOR.size)
    if len(table) != count * _DESCRIPTOR.size:
        raise LayoutError(f"{path}: the SIF descriptors are cut short")
    for kind, used, *numbers, _, extra in _DESCRIPTOR.iter_unpack(table):
        system, purpose = _PARTITION.unpack_from(extra)
        if kind != _TYPE_PARTITION or not used or purpose != _PRIMARY:
            continue
        if system != 1:
            raise LayoutError(
                f"{path}: its root file system is {_FILE_SYSTEMS.get(system, f'of unknown type {system}')}",
                cause="Only a squashfs can be read without its engine.",
            )
        start, size = numbers[3], numbers[4]
        if start < 0 or size < 0 or start + size > total:
            raise LayoutError(f"{path}: the partition ends beyond the file; it was cut short")
        return Partition(start, size)
    raise LayoutError(f"{path}: the SIF has no root file system")
