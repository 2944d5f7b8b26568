"""Squashfs files are read as mksquashfs writes them, and broken ones are refused."""

import base64
import contextlib
import struct
import sys
import zlib
from pathlib import Path

import lz4.block
import pytest
from lzallright import LZOCompressor

from sifsquash import squashfs
from sifsquash.bounds import Most
from sifsquash.errors import ImageError
from sifsquash.squashfs import MAGIC, SUPERBLOCK, Squashfs
from sifsquash.values import Entry

#: Squashfs files as mksquashfs 4.5.1 writes them (`-b 4096`), deflated and in base 85, all of one tree: an empty file,
#: one in blocks, one with holes and a tail, a small one under two names, a symbolic link, a name that is no UTF-8, two
#: devices, a fifo, a socket, and owners beside root. One file more here is one test more.
SAMPLES = {path.stem: path for path in Path(__file__).parent.glob("data/mksquashfs/*.b85")}
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


def sample(compression):
    """The file, padded as mksquashfs does."""
    data = zlib.decompress(base64.b85decode("".join(SAMPLES[compression].read_text("ascii").split())))
    return data + bytes(-len(data) % 4096)


def whole(path, offset=0):
    """Entries and contents."""
    with Squashfs(path, offset) as image:
        found = list(image.entries())
        contents = {name: b"".join(image.chunks(content)) for name, _, content in found if content is not None}
    return {name: entry._replace(mtime=0) for name, entry, _ in found}, contents


@pytest.mark.parametrize("compression", SAMPLES)
@pytest.mark.parametrize("offset", [0, 4096])
def test_squashfs_entries_and_contents_are_read_with_each_compression(tmp_path, compression, offset):
    path = tmp_path / "image"
    path.write_bytes(bytes(offset) + sample(compression))
    assert whole(path, offset) == (ENTRIES, CONTENTS)


@pytest.mark.parametrize("compression", SAMPLES)
def test_content_is_found_by_its_path_and_empty_for_what_is_no_file(tmp_path, compression):
    path = tmp_path / "image"
    path.write_bytes(sample(compression))
    with Squashfs(path) as image:
        assert {name: image.content(name) for name in CONTENTS} == CONTENTS
        for other in ("/", "/link", "/null", "/nowhere", "/link/below", next(iter(CONTENTS)) + "/below"):
            assert image.content(other) == b"", other


def test_squashfs_with_unknown_compression_is_an_error_with_unsquashfs(tmp_path):
    data = bytearray(sample("gzip"))
    data[20:22] = (2).to_bytes(2, "little")
    (tmp_path / "image").write_bytes(data)
    with pytest.raises(ImageError, match="compressed with lzma") as caught:
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
    with pytest.raises(ImageError, match="broken") if size > 8192 else contextlib.nullcontext():
        Squashfs(tmp_path / "image").__exit__()


def test_squashfs_beyond_its_bounds_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(sample("zstd"))
    total = sum(entry.size for entry in ENTRIES.values())
    most = Most(members=len(ENTRIES), names=1 << 20, size=total, ratio=1, free=total)
    for change, message in (
        ({}, ""),
        ({"members": len(ENTRIES) - 1}, "has more than 13 members"),
        ({"names": 30}, "has more than 30 bytes of names"),
        ({"size": total - 1}, "its headers say"),
        ({"ratio": 1, "free": 0}, "say 19.5 KiB, with /holes of 19.5 KiB; it has 4 KiB packed"),
    ):
        monkeypatch.setattr(squashfs, "MOST", most._replace(**change))
        with pytest.raises(ImageError, match=message) if message else contextlib.nullcontext():
            with Squashfs(path) as image:
                list(image.entries())


def test_squashfs_of_a_library_that_is_missing_names_the_extra(monkeypatch, tmp_path):
    (tmp_path / "image").write_bytes(sample("lz4"))
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(ImageError) as caught:
        whole(tmp_path / "image")
    assert caught.value.next_step == "python -m pip install 'sifsquash[lz4]'"
