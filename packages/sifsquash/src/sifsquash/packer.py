"""Cuts files into blocks as a squashfs has them, compressed on several threads.

A block depends on its file's bytes alone. The same files in the same order give the same blocks, on any machine.
"""

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import deflate
import msgspec
import zstandard
from isal import isal_zlib

from sifsquash.squashfs import STORED_DATA
from sifsquash.values import Compression, Stored

_ZEROS = bytes(1 << 18)
#: Of the compressors. A level more takes a third of the time more, and leaves 1 to 6 % less.
LEVELS = {Compression.GZIP: 1, Compression.ZSTD: 1}
#: Bytes of a block. Larger ones compress better; each is inflated whole for the first page that is read of it, which
#: takes deflate three times as long.
BLOCKS = {Compression.GZIP: 1 << 17, Compression.ZSTD: 1 << 18}


def compressor(compression: Compression) -> Callable[[bytes | memoryview], bytes]:
    """A function that compresses one block. May be called from several threads."""
    level = LEVELS[compression]
    if compression is Compression.GZIP:
        return lambda data: bytes(deflate.zlib_compress(data, level))
    local = threading.local()  # a compressor of zstandard is for one thread

    def compress(data: bytes | memoryview) -> bytes:
        if not hasattr(local, "zstd"):
            local.zstd = zstandard.ZstdCompressor(level=level)
        packed: bytes = local.zstd.compress(data)
        return packed

    return compress


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A packed layer: the file with its blocks, and where the fragment blocks (ends of several files) are in it."""

    data: Path
    fragments: list[Stored]


class Raw(Protocol):
    """A rule for what is stored without compressing it, as what programs read while they start may well be."""

    def small(self, path: str) -> bool:
        """Return whether the content of a file that is shorter than a block is."""
        ...

    def large(self, path: str, head: memoryview) -> Callable[[int, memoryview], bool]:
        """Return what tells of each block of a file, with its position, in order; `head` is the first block."""
        ...


class _Nothing:
    """The rule by which everything is compressed."""

    def small(self, path: str) -> bool:
        return False

    def large(self, path: str, head: memoryview) -> Callable[[int, memoryview], bool]:
        return lambda position, block: False


NOTHING: Raw = _Nothing()


class _Ends(NamedTuple):
    """A fragment block that is being filled: its number, and small files one after another."""

    number: int
    data: bytearray


class Packer:
    """Writes files' blocks to a stream. The bytes depend on the files and their order alone.

    What the rule `raw` names is not compressed. The rest is on `pool`; at most `depth` blocks wait in memory.
    """

    def __init__(
        self,
        stream: IO[bytes],
        compression: Compression,
        pool: Executor,
        depth: int,
        position: int = 0,
        first_fragment: int = 0,
        raw: Raw = NOTHING,
    ) -> None:
        """`position` of the stream and the number of the first fragment block are those that `Stored` counts from."""
        self._stream, self._pool, self._depth = stream, pool, depth
        self._compress, self._block = compressor(compression), BLOCKS[compression]
        self._raw = raw
        self._position, self._first_fragment = position, first_fragment
        self._waiting: deque[tuple[Future[tuple[bytes, bool]] | None, Stored]] = deque()
        self._ends: dict[bool, _Ends] = {}  # of what is compressed, and of what is not
        self.fragments: list[Stored] = []

    def add(self, size: int, pieces: Iterable[bytes], path: str = "") -> Stored:
        """Write one file. One that is shorter than a block goes into a fragment block with others."""
        with self.file(size, path) as (stored, write):
            for piece in pieces:
                write(piece)
        return stored

    @contextlib.contextmanager
    def file(self, size: int, path: str = "") -> Iterator[tuple[Stored, Callable[[bytes], object]]]:
        """Begin a file as `add` writes one: where it will be, and what takes its content, piece by piece."""
        if not size:
            yield Stored(), _nowhere
        elif size < self._block:
            ends = self._room(size, self._raw.small(path))
            yield Stored(fragment=self._first_fragment + ends.number, offset=len(ends.data)), ends.data.extend
        else:
            stored = Stored()
            blocks = _FileBlocks(path, self._block, self._raw, functools.partial(self._block_of, stored))
            yield stored, blocks.write
            blocks.finish()

    def finish(self) -> None:
        """Write all that waits."""
        for raw in tuple(self._ends):
            self._end_fragment(raw)
        while self._waiting:
            self._write()

    def _room(self, size: int, raw: bool) -> _Ends:
        """The fragment block for a file of this size."""
        if raw in self._ends and len(self._ends[raw].data) + size > self._block:
            self._end_fragment(raw)
        if raw not in self._ends:
            self._ends[raw] = _Ends(len(self.fragments), bytearray())
            self.fragments.append(Stored())
        return self._ends[raw]

    def _end_fragment(self, raw: bool) -> None:
        number, data = self._ends.pop(raw)
        self._submit(self.fragments[number], bytes(data), raw)

    def _block_of(self, stored: Stored, block: memoryview, raw: bool) -> None:
        if block == _ZEROS[: len(block)]:
            self._put(stored, None)
        else:
            self._submit(stored, block, raw)

    def _submit(self, stored: Stored, block: bytes | memoryview, raw: bool) -> None:
        self._put(stored, self._pool.submit(self._packed, block, raw))

    def _packed(self, block: bytes | memoryview, raw: bool) -> tuple[bytes, bool]:
        if raw:
            return bytes(block), True
        packed = self._compress(block)
        return (bytes(block), True) if len(packed) >= len(block) else (packed, False)

    def _put(self, stored: Stored, block: Future[tuple[bytes, bool]] | None) -> None:
        self._waiting.append((block, stored))
        if len(self._waiting) > self._depth:
            self._write()

    def _write(self) -> None:
        block, stored = self._waiting.popleft()
        data, raw = (b"", False) if block is None else block.result()
        if data and not stored.crc:
            stored.start = self._position
        stored.crc = isal_zlib.crc32(data, stored.crc)
        stored.sizes.append(len(data) | (STORED_DATA if raw else 0))
        self._stream.write(data)
        self._position += len(data)


class _FileBlocks:
    """Cuts one file's content into blocks of `size` bytes; `put` gets each, and whether it is stored raw."""

    def __init__(self, path: str, size: int, raw: Raw, put: Callable[[memoryview, bool], object]) -> None:
        self._path, self._size, self._raw, self._put = path, size, raw, put
        self._rest = b""
        self._position = 0
        self._is_raw: Callable[[int, memoryview], bool] | None = None

    def write(self, piece: bytes) -> None:
        """Take the next piece of the content, which is not changed afterwards."""
        view = memoryview(self._rest + piece if self._rest else piece)
        whole = len(view) // self._size * self._size
        for start in range(0, whole, self._size):
            self._block(view[start : start + self._size])
        self._rest = bytes(view[whole:])

    def finish(self) -> None:
        """Put what is left."""
        if self._rest:
            self._block(memoryview(self._rest))

    def _block(self, block: memoryview) -> None:
        if self._is_raw is None:
            self._is_raw = self._raw.large(self._path, block)
        self._put(block, self._is_raw(self._position, block))
        self._position += len(block)


def _nowhere(_: bytes) -> None:
    """Take content, and drop it."""
