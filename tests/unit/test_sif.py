"""A SIF's bytes before its partition, written and read. What engines make of them is tested in tests/engines."""

import hashlib
import struct
import uuid

import pytest

from graphcrate.artifacts.formats import sif
from graphcrate.artifacts.formats.sif import TYPE_DEFINITION, TYPE_JSON, Blob
from graphcrate.model.errors import LayoutError

BLOBS = (Blob(TYPE_DEFINITION, "", b"Bootstrap: oci\n"), Blob(TYPE_JSON, "oci-config.json", b'{"Cmd":["sh"]}'))
IDENTITY = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
PARTITION = b"hsqs" + bytes(8188)


def front(**changes):
    values = {"size": len(PARTITION), "architecture": "amd64", "identity": IDENTITY, "created": 1_700_000_000}
    return sif.front(BLOBS, **{**values, **changes})


def test_the_header_is_that_of_the_format():
    data = front()
    assert len(data) == sif.partition_offset(BLOBS) == 32768
    assert data[:32] == b"#!/usr/bin/env run-singularity\n\0"
    assert data[32:48] == b"SIF_MAGIC\x0001\x0002\0"
    assert data[48:64] == IDENTITY.bytes
    numbers = struct.unpack_from("<8q", data, 64)
    assert numbers == (1_700_000_000, 1_700_000_000, 45, 48, 4096, 48 * 585, 32176, 32768 + 8192 - 32176)
    assert not any(data[128:4096])


def test_descriptors_tell_where_objects_are():
    data = front()
    seen = []
    for number in range(48):
        kind, used, ident, group, link, offset, size, padded, *times = struct.unpack_from(
            "<iBIIIqqqqqqq", data, 4096 + 585 * number
        )
        if used:
            seen.append((kind, ident, group, link, offset, size, padded))
            assert times == [1_700_000_000, 1_700_000_000, 0, 0]
    first, second = (len(blob.data) for blob in BLOBS)
    assert seen == [
        (0x4001, 1, 0xF0000001, 0, 32176, first, first),
        (0x4006, 2, 0xF0000001, 0, 32176 + first, second, second),
        (0x4004, 3, 0xF0000001, 0, 32768, 8192, 32768 - 32176 - first - second + 8192),
    ]
    assert data[32176 : 32176 + first] == BLOBS[0].data
    assert b"oci-config.json\0" in data[4096 + 585 : 4096 + 2 * 585]
    extra = data[4096 + 2 * 585 + 73 + 128 :]
    assert extra[:11] == struct.pack("<ii", 1, 2) + b"02\0"


def test_its_bytes_are_these():
    """Golden: a change of any byte needs `artifacts.convert.SIF_FORMAT` raised."""
    assert hashlib.sha256(front()).hexdigest() == GOLDEN


GOLDEN = "6342312c9a666a01628b1760770074fd08188dfc488be9be8b49ccef3d85188f"


#: where front() has the partition's descriptor: its kind, place and size, and after the name file system and purpose
DESCRIPTOR = 4096 + 2 * 585
KIND, PLACE, SIZE, SYSTEM, PURPOSE = (DESCRIPTOR + offset for offset in (0, 17, 25, 201, 205))


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (SYSTEM, 2, "ext3"),
        (SYSTEM, 5, "encrypted"),
        (KIND, 0x4005, "no root file system"),
        (PURPOSE, 3, "no root file system"),
        (SIZE + 4, 1, "cut short"),
        (PLACE + 4, -1, "cut short"),
    ],
)
def test_what_is_written_is_read_unless_its_partition_cannot_be(tmp_path, offset, value, message):
    path, data = tmp_path / "image.sif", bytearray(front() + PARTITION)
    path.write_bytes(data)
    assert sif.is_sif(data[:64])
    assert sif.root_offset(path) == 32768
    struct.pack_into("<i", data, offset, value)
    path.write_bytes(data)
    with pytest.raises(LayoutError, match=message):
        sif.root_offset(path)


@pytest.mark.parametrize("length", [0, 50, 127, 128, 4100, 32768 + len(PARTITION) - 1])
def test_a_file_that_is_cut_short(tmp_path, length):
    path = tmp_path / "image.sif"
    path.write_bytes((front() + PARTITION)[:length])
    with pytest.raises(LayoutError):
        sif.root_offset(path)


def test_the_partition_is_aligned_whatever_stands_before():
    for size in (0, 1, 592, 593, 100_000):
        blobs = (Blob(TYPE_JSON, "x", bytes(size)),)
        assert sif.partition_offset(blobs) % 4096 == 0
        assert 0 <= sif.partition_offset(blobs) - 32176 - size < 4096


def test_unknown_architectures_are_refused():
    assert front(architecture="arm64")[45:48] == b"04\0"
    with pytest.raises(LayoutError, match="'vax'"):
        front(architecture="vax")
