"""Files of a read set: small ones stand together in its order, blocks may be stored as they are, and all come back."""

import random
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sifsquash import packer, writer
from sifsquash.packer import BLOCKS, NOTHING, Packer
from sifsquash.squashfs import STORED_DATA, SUPERBLOCK, Squashfs
from sifsquash.values import Compression, Inode

BLOCK = BLOCKS[Compression.GZIP]
SIZES = some.one_of(some.integers(0, 300), some.sampled_from([BLOCK - 1, BLOCK, 2 * BLOCK + 5]))


class Known:
    """A read set: ranks of paths, and one share for all blocks."""

    def __init__(self, ranks, share=1.0):
        self.rank = ranks.get
        self._share = self.small = share

    def share(self, path, head):
        return lambda position, block: self._share


def squashed(path, files, read=NOTHING, compression=Compression.GZIP, jobs=2):
    """Write these files as a squashfs."""
    image = {"": Inode(kind=tarfile.DIRTYPE, mode=0o755)}
    with path.open("wb") as stream, ThreadPoolExecutor(jobs) as pool:
        stream.write(bytes(SUPERBLOCK.size))
        pack = Packer(stream, compression, pool, 3 * jobs, SUPERBLOCK.size, 0, read)
        for name, data in files.items():
            stored = pack.add(len(data), (data[:7], data[7:]), name)
            image[name] = Inode(kind=tarfile.REGTYPE, mode=0o644, size=len(data), stored=stored)
        pack.finish()
        placed = {id(inode): inode.stored for inode in image.values() if inode.is_file}
        fragments = [(each.start, each.sizes[0]) for each in pack.fragments]
        writer.finish(stream, 0, image, placed, fragments, compression, 1)
    return path


def read_back(path):
    """The content of each file, and where it is."""
    with Squashfs(path) as image:
        found = {name.lstrip("/"): content for name, _, content in image.entries() if content}
        return {name: b"".join(image.chunks(content)) for name, content in found.items()}, found


@settings(max_examples=40, deadline=None)
@given(
    sizes=some.lists(SIZES, max_size=8),
    ranks=some.dictionaries(some.integers(0, 7).map(str), some.integers(0, 3)),
    share=some.sampled_from([0.0, 0.3, 1.0]),
    compression=some.sampled_from(Compression),
)
def test_files_of_any_read_set_come_back_and_threads_change_no_byte(tmp_path_factory, sizes, ranks, share, compression):
    folder = tmp_path_factory.mktemp("packed")
    files = {str(number): random.Random(number).randbytes(size // 2).ljust(size) for number, size in enumerate(sizes)}
    one = squashed(folder / "one", files, Known(ranks, share), compression)
    assert read_back(one)[0] == files
    assert squashed(folder / "two", files, Known(ranks, share), compression, jobs=1).read_bytes() == one.read_bytes()


def test_small_files_of_the_read_set_stand_together_in_its_order(tmp_path):
    files = {name: name.encode() * 100 for name in "abcdef"}
    _, found = read_back(squashed(tmp_path / "image", files, Known({"e": 1, "b": 2, "c": 5})))
    assert sorted(found, key=lambda name: (found[name].fragment, found[name].offset)) == list("adfebc")
    assert [found[name].fragment for name in "adfebc"] == [0, 0, 0, 1, 1, 1]


def test_small_files_wait_in_memory_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(packer, "_MOST_HELD", 250)
    files = {name: name.encode() * 100 for name in "abc"}
    content, found = read_back(squashed(tmp_path / "image", files, Known({"c": 0, "b": 1, "a": 2})))
    assert content == files
    assert sorted(found, key=lambda name: (found[name].fragment, found[name].offset)) == list("cba"), "c has no room"


@pytest.mark.parametrize(("share", "stored"), [(0.0, [True, True]), (0.6, [True, False]), (0.9, [False, False])])
def test_block_is_stored_as_it_is_where_compression_leaves_its_share(tmp_path, share, stored):
    half, three_quarters = (random.Random(1).randbytes(BLOCK * part // 4).ljust(BLOCK) for part in (2, 3))
    _, found = read_back(squashed(tmp_path / "image", {"large": three_quarters + half}, Known({}, share)))
    assert [bool(size & STORED_DATA) for size in found["large"].sizes] == stored
