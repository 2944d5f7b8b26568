"""Files of two packed layers are told to be equal where their content is, and only there."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sifsquash.contents import Contents, are_equal
from sifsquash.errors import DamagedBlocksError
from sifsquash.packer import BLOCKS, Packed, Packer
from sifsquash.values import Compression

BLOCK = BLOCKS[Compression.GZIP]
SIZES = some.sampled_from([0, 1, 9, 5000, BLOCK - 1, BLOCK, 2 * BLOCK + 5])
FILES = some.lists(some.tuples(SIZES, some.sampled_from("xyz\0")), min_size=1, max_size=6)


def packed(folder, files, compression):
    """Pack these files; return the layer and where each is."""
    folder.mkdir()
    with (folder / "data").open("wb") as stream, ThreadPoolExecutor(2) as pool:
        packer = Packer(stream, compression, pool, 4)
        stored = [packer.add(len(data), (data[:3], data[3:])) for data in files]
        packer.finish()
    return Packed(data=folder / "data", fragments=packer.fragments), stored


@settings(max_examples=30, deadline=None)
@given(first=FILES, second=FILES, compression=some.sampled_from(Compression))
def test_files_of_two_layers_are_equal_where_their_bytes_are(tmp_path_factory, first, second, compression):
    folder = tmp_path_factory.mktemp("layers")
    contents = [[letter.encode() * size for size, letter in files] for files in (first, second)]
    (one, its), (other, others) = (
        packed(folder / name, files, compression) for name, files in zip("ab", contents, strict=True)
    )
    with Contents(one, compression) as left, Contents(other, compression) as right:
        for mine, stored in zip(contents[0], its, strict=True):
            for theirs, placed in zip(contents[1], others, strict=True):
                if len(mine) == len(theirs):
                    assert are_equal(left, stored, right, placed, len(mine)) == (mine == theirs)


def test_blocks_with_a_chosen_checksum_are_compared_themselves(tmp_path):
    """CRC-32 is linear: who writes a file can give it the checksum of another one."""
    data = bytes(range(256)) * 2048
    one, (its,) = packed(tmp_path / "a", [data], Compression.ZSTD)
    other, (others,) = packed(tmp_path / "b", [data[::-1]], Compression.ZSTD)
    its.sizes = others.sizes = [100, 100]
    its.crc = others.crc = 7
    with ExitStack() as stack:
        left, right = (stack.enter_context(Contents(layer, Compression.ZSTD)) for layer in (one, other))
        assert not are_equal(left, its, right, others, len(data))


@pytest.mark.parametrize("size", [9, BLOCK], ids=["in a fragment block", "in blocks"])
@pytest.mark.parametrize("damage", ["cut off", "altered"])
@pytest.mark.parametrize("compression", list(Compression))
def test_damaged_blocks_are_an_error(tmp_path, size, damage, compression):
    layer, (stored,) = packed(tmp_path / "a", [b"x" * size], compression)
    with Contents(layer, compression) as whole:
        assert are_equal(whole, stored, whole, stored, size)
    data = layer.data.read_bytes()
    layer.data.write_bytes(data[:-1] + (b"" if damage == "cut off" else bytes([data[-1] ^ 1])))
    with Contents(layer, compression) as damaged, pytest.raises(DamagedBlocksError):
        are_equal(damaged, stored, damaged, stored, size)
