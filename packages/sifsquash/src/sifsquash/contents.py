"""Reads the files of packed layers, to tell whether two of them have the same content."""

import contextlib
import functools
import itertools
import os
import zlib
from collections.abc import Iterator
from typing import Self

import zstandard
from isal import isal_zlib

from sifsquash.errors import DamagedBlocksError
from sifsquash.packer import BLOCKS, Packed
from sifsquash.squashfs import STORED_DATA
from sifsquash.values import Compression, Stored

_CHUNK = 1 << 20
_KEPT = 64  #: fragment blocks in memory: neighbours are asked for one after another


class Contents(contextlib.AbstractContextManager["Contents"]):
    """The content of a packed layer. Raises DamagedBlocksError where its bytes are not those that were written."""

    def __init__(self, packed: Packed, compression: Compression) -> None:
        self._packed, self._compression = packed, compression
        self._fragment = functools.lru_cache(_KEPT)(self._read_fragment)

    def __enter__(self) -> Self:
        self._file = self._packed.data.open("rb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def end(self, stored: Stored, size: int) -> bytes:
        """Return the content of a file that is in a fragment block."""
        assert stored.fragment is not None
        content = self._fragment(stored.fragment)[stored.offset :][:size]
        if len(content) != size:
            raise DamagedBlocksError(self._packed.data)
        return content

    def blocks(self, stored: Stored) -> Iterator[bytes]:
        """Give the blocks of a file as they are stored, in pieces of one size but for the last."""
        left = sum(size & (STORED_DATA - 1) for size in stored.sizes)
        position, crc = stored.start, 0
        while left:
            data = os.pread(self._file.fileno(), min(left, _CHUNK), position)
            if len(data) != min(left, _CHUNK):
                raise DamagedBlocksError(self._packed.data)
            crc = isal_zlib.crc32(data, crc)
            position, left = position + len(data), left - len(data)
            yield data
        if crc != stored.crc:
            raise DamagedBlocksError(self._packed.data)

    def _read_fragment(self, number: int) -> bytes:
        if number >= len(self._packed.fragments):
            raise DamagedBlocksError(self._packed.data)
        stored, most = self._packed.fragments[number], BLOCKS[self._compression]
        data = b"".join(self.blocks(stored))
        if stored.sizes[0] & STORED_DATA:
            return data
        try:
            if self._compression is Compression.GZIP:
                return zlib.decompressobj().decompress(data, most)
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=most)
        except (zlib.error, zstandard.ZstdError) as error:
            raise DamagedBlocksError(self._packed.data) from error


def are_equal(left: Contents, its: Stored, right: Contents, others: Stored, size: int) -> bool:
    """Return whether two files of `size` bytes have the same content, of layers that are packed alike.

    Blocks are compared as they are stored: a file that is compressed in one layer alone is another one.
    Raises DamagedBlocksError.
    """
    if its.fragment is not None and others.fragment is not None:
        return left.end(its, size) == right.end(others, size)
    if (its.sizes, its.crc, its.fragment) != (others.sizes, others.crc, others.fragment):
        return False
    # The checksum is no proof: whoever made a layer may have chosen it.
    pairs = itertools.zip_longest(left.blocks(its), right.blocks(others))
    return all(mine == theirs for mine, theirs in pairs)
