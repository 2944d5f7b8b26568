"""Singularity image files: the place of the root file system, and all that stands before it. No engine needed.

Layout of github.com/apptainer/sif v2, `pkg/sif`: a header of 128 bytes, then descriptors; integers little-endian.
"""

import struct
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sifsquash.errors import ImageError

MAGIC = b"SIF_MAGIC\0"
MAGIC_OFFSET = 32  #: after the launch line
_HEADER = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR = struct.Struct("<iBIIIqqqqqqq128s384s")
_PARTITION = struct.Struct("<ii")
_MOST_DESCRIPTORS = 1 << 16
TYPE_DEFINITION, _TYPE_PARTITION, TYPE_JSON = 0x4001, 0x4004, 0x4006
_PRIMARY = 2
_SQUASHFS = 1
_FILE_SYSTEMS = {1: "squashfs", 2: "ext3", 3: "an archive", 4: "raw data", 5: "an encrypted squashfs"}
_LAUNCH = b"#!/usr/bin/env run-singularity\n"
_VERSION = b"01\0"
#: `pkg/sif/arch.go`, by Go's names
_ARCHITECTURES = {
    "386": b"01\0",
    "amd64": b"02\0",
    "arm": b"03\0",
    "arm64": b"04\0",
    "ppc64le": b"06\0",
}
_DESCRIPTORS = 48  #: as many as the engines give an image; signatures take the free ones
_DESCRIPTORS_OFFSET = 4096
_DATA_OFFSET = _DESCRIPTORS_OFFSET + _DESCRIPTORS * _DESCRIPTOR.size
_GROUP = 0xF0000001  #: the first group of objects: what one signature covers
_ALIGNMENT = 4096  #: of a partition


class DataObject(NamedTuple):
    """An object that is not the partition."""

    kind: int  #: `TYPE_DEFINITION` or `TYPE_JSON`
    name: str
    data: bytes


def is_sif(head: bytes) -> bool:
    """Return whether a file that begins with these (at least 42) bytes is one."""
    return head[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGIC)] == MAGIC


def root_offset(path: Path) -> int:
    """The offset of the squashfs that the image runs from. Raises ImageError for another file system, or for none."""
    total = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or not is_sif(head):
            raise ImageError(f"{path} is not a SIF file")
        count, offset = _HEADER.unpack(head)[-5:-3]
        if not 0 <= count <= _MOST_DESCRIPTORS or not 0 <= offset <= total:
            raise ImageError(f"{path}: the SIF header is malformed")
        file.seek(offset)
        table = file.read(count * _DESCRIPTOR.size)
    if len(table) != count * _DESCRIPTOR.size:
        raise ImageError(f"{path}: the SIF descriptors are cut short")
    for kind, used, *numbers, _, extra in _DESCRIPTOR.iter_unpack(table):
        system, purpose = _PARTITION.unpack_from(extra)
        if kind != _TYPE_PARTITION or not used or purpose != _PRIMARY:
            continue
        if system != _SQUASHFS:
            raise ImageError(
                f"{path}: its root file system is {_FILE_SYSTEMS.get(system, f'of unknown type {system}')}",
                cause="Only a squashfs can be read without its engine.",
            )
        start, size = numbers[3:5]
        if start < 0 or size < 0 or start + size > total:
            raise ImageError(f"{path}: the partition ends beyond the file; it was cut short")
        return int(start)
    raise ImageError(f"{path}: the SIF has no root file system")


def partition_offset(blobs: Sequence[DataObject]) -> int:
    """The offset of the partition in an image with these objects before it."""
    end = _DATA_OFFSET + sum(len(blob.data) for blob in blobs)
    return end + -end % _ALIGNMENT


def front(blobs: Sequence[DataObject], size: int, architecture: str, identity: uuid.UUID, created: int) -> bytes:
    """All bytes of an image before its partition, a squashfs of `size` bytes. `created` in Unix seconds.

    Raises ImageError for an architecture that the format has no number for.
    """
    if (code := _ARCHITECTURES.get(architecture)) is None:
        raise ImageError(f"a SIF cannot be of the architecture {architecture!r}")
    start, data = partition_offset(blobs), b"".join(blob.data for blob in blobs)
    objects = [(blob.kind, 0, len(blob.data), blob.name, b"") for blob in blobs]
    padding = start - _DATA_OFFSET - len(data)
    objects.append((_TYPE_PARTITION, padding, size, "", _PARTITION.pack(_SQUASHFS, _PRIMARY) + code))
    table, position = b"", _DATA_OFFSET
    for number, (kind, before, length, name, extra) in enumerate(objects, 1):
        position += before
        extent = position, length, before + length
        # No owner: the last two numbers are of the past.
        table += _DESCRIPTOR.pack(kind, 1, number, _GROUP, 0, *extent, created, created, 0, 0, name.encode(), extra)
        position += length
    header = _HEADER.pack(
        _LAUNCH,
        MAGIC,
        _VERSION,
        code,
        identity.bytes,
        created,
        created,
        _DESCRIPTORS - len(blobs) - 1,
        _DESCRIPTORS,
        _DESCRIPTORS_OFFSET,
        _DESCRIPTORS * _DESCRIPTOR.size,
        _DATA_OFFSET,
        start + size - _DATA_OFFSET,
    )
    whole = header.ljust(_DESCRIPTORS_OFFSET, b"\0") + table.ljust(_DATA_OFFSET - _DESCRIPTORS_OFFSET, b"\0") + data
    return whole.ljust(start, b"\0")
