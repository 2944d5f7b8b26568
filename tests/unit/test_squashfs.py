"""Squashfs files are read as mksquashfs writes them, and broken ones are refused."""

import contextlib
import struct

import lz4.block
import pytest
from lzallright import LZOCompressor

from graphcrate.artifacts.formats.squashfs import MAGIC, SUPERBLOCK, Squashfs
from graphcrate.model.errors import LayoutError
from graphcrate.model.tree import Entry
from tests.unit.squashfs_samples import sample

COMPRESSIONS = ("gzip", "lzo", "lz4", "xz", "zstd")
CONTENTS = {
    "/blocks": bytes(range(256)) * 40 + b"tail",
    "/holes": bytes(20000) + b"end",
    "/empty": b"",
    "/d/small": b"small\n",
    "/d/e/again": b"small\n",
    "/caf\udce9": b"latin",
}
ENTRIES = {
    "/": Entry("folder", 0o755),
    "/blocks": Entry("file", 0o644, size=10244),
    "/holes": Entry("file", 0o644, size=20003),
    "/empty": Entry("file", 0o4755),
    "/d": Entry("folder", 0o755),
    "/d/small": Entry("file", 0o640, 5, 7, 6),
    "/d/e": Entry("folder", 0o755),
    "/d/e/again": Entry("file", 0o640, 5, 7, 6),
    "/caf\udce9": Entry("file", 0o644, size=5),
    "/link": Entry("symlink", 0o777, 1000, 1000, link="../target"),
    "/null": Entry("device", 0o666, link="c 1:3"),
    "/disk": Entry("device", 0o660, 0, 6, link="b 8:17"),
    "/pipe": Entry("fifo", 0o600, 5, 7),
    "/sock": Entry("socket", 0o600, 5, 7),
}


def whole(path, offset=0):
    """Entries and contents."""
    with Squashfs(path, offset) as image:
        found = list(image.entries())
        contents = {name: b"".join(image.chunks(content)) for name, _, content in found if content is not None}
    return {name: entry for name, entry, _ in found}, contents


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("offset", [0, 4096])
def test_squashfs_entries_and_contents_are_read_with_each_compression(tmp_path, compression, offset):
    path = tmp_path / "image"
    path.write_bytes(bytes(offset) + sample(compression))
    assert whole(path, offset) == (ENTRIES, CONTENTS)


def test_squashfs_with_unknown_compression_is_an_error_with_unsquashfs(tmp_path):
    data = bytearray(sample("gzip"))
    data[20:22] = (2).to_bytes(2, "little")
    (tmp_path / "image").write_bytes(data)
    with pytest.raises(LayoutError, match="compressed with lzma") as caught:
        whole(tmp_path / "image")
    assert "unsquashfs" in caught.value.next_step


@pytest.mark.parametrize(
    ("number", "compress"),
    [(3, LZOCompressor().compress), (5, lambda data: lz4.block.compress(data, store_size=False))],
    ids=["lzo", "lz4"],
)
@pytest.mark.parametrize("size", [8192, 8193, 1_000_000])
def test_squashfs_metadata_block_above_8192_bytes_is_refused(tmp_path, number, compress, size):
    """A squashfs with a table of ids in one block, and nothing else."""
    compressed, places = compress(bytes(size)), (0, 0, 96, 0, 0, 0, 0, 0)
    head = SUPERBLOCK.pack(MAGIC, 0, 0, 4096, 0, number, 12, 0, 2048, 4, 0, *places)
    (tmp_path / "image").write_bytes(head + struct.pack("<QH", 104, len(compressed)) + compressed)
    with pytest.raises(LayoutError, match="broken") if size > 8192 else contextlib.nullcontext():
        Squashfs(tmp_path / "image").__exit__()
