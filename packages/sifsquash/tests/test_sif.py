"""A SIF's bytes before its partition, written and read. What engines make of them is tested in tests/engines."""

import hashlib
import struct
import uuid

import pytest

from sifsquash import sif
from sifsquash.errors import ImageError
from sifsquash.sif import TYPE_DEFINITION, TYPE_JSON, DataObject

BLOBS = (
    DataObject(TYPE_DEFINITION, "", b"Bootstrap: oci\n"),
    DataObject(TYPE_JSON, "oci-config.json", b'{"Cmd":["sh"]}'),
)
IDENTITY = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
PARTITION = b"hsqs" + bytes(8188)


def front(**changes):
    values = {"size": len(PARTITION), "architecture": "amd64", "identity": IDENTITY, "created": 1_700_000_000}
    return sif.front(BLOBS, **{**values, **changes})


def test_sif_front_has_its_golden_digest():
    """Golden: a change of any byte needs `squashed.SIF_FORMAT` raised. Apptainer reads it in tests/engines."""
    assert hashlib.sha256(front()).hexdigest() == "6342312c9a666a01628b1760770074fd08188dfc488be9be8b49ccef3d85188f"


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
def test_sif_partition_offset_is_read_and_a_damaged_descriptor_refused(tmp_path, offset, value, message):
    path, data = tmp_path / "image.sif", bytearray(front() + PARTITION)
    path.write_bytes(data)
    assert sif.is_sif(data[:64])
    assert sif.root_offset(path) == 32768
    struct.pack_into("<i", data, offset, value)
    path.write_bytes(data)
    with pytest.raises(ImageError, match=message):
        sif.root_offset(path)


def test_sif_partition_is_aligned_to_4096_for_every_front_size():
    for size in (0, 1, 592, 593, 100_000):
        place = sif.partition_offset((DataObject(TYPE_JSON, "x", bytes(size)),))
        assert (place % 4096, 0 <= place - 32176 - size < 4096) == (0, True)


def test_sif_of_unknown_architecture_is_refused():
    assert front(architecture="arm64")[45:48] == b"04\0"
    with pytest.raises(ImageError, match="'vax'"):
        front(architecture="vax")
