"""Cuts files into blocks as a squashfs has them, compressed on several threads.

A block depends on its file's bytes alone. The same files in the same order give the same blocks, on any machine.
"""

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from operator import attrgetter
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import deflate
import msgspec
import zstandard
from isal import isal_zlib

from sifsquash.squashfs import STORED_DATA
from sifsquash.values import Compression, Stored

_ZEROS = bytes(1 << 18)
#: Of the compressors: where little can be gained, and where the middle of a block says that much can. There the fourth
#: level takes half of the time more for 1 % of the size; here as much for 6 %.
LEVELS = {Compression.GZIP: (1, 4), Compression.ZSTD: (1, 1)}
_SAMPLE = 1 << 12  #: bytes that say it
_DENSE = 0.4  #: part of them that is left where little can be gained
#: Bytes of a block. Larger ones compress better; each is inflated whole for the first page that is read of it.
BLOCKS = {Compression.GZIP: 1 << 18, Compression.ZSTD: 1 << 18}
_MOST_HELD = 1 << 26  #: bytes of small files that wait for their place


def compressor(compression: Compression) -> Callable[[bytes | memoryview], bytes]:
    """A function that compresses one block. May be called from several threads."""
    level, more = LEVELS[compression]
    if compression is Compression.GZIP:

        def deflated(data: bytes | memoryview) -> bytes:
            middle = data[len(data) // 2 :][:_SAMPLE]
            is_dense = len(deflate.zlib_compress(middle, level)) > _DENSE * len(middle)
            return bytes(deflate.zlib_compress(data, level if is_dense else more))

        return deflated
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


class ReadSet(Protocol):
    """The files that programs read while they start, as far as they are known.

    A share is the part of a block that compression has to leave, for the block to be stored as it is.
    """

    @property
    def small(self) -> float:
        """The share of the blocks that small files of the set are in."""
        ...

    def rank(self, path: str) -> int | None:
        """Return the place of a file that is shorter than a block, among those that are read; None: it is not."""
        ...

    def share(self, path: str, head: memoryview) -> Callable[[int, memoryview], float]:
        """Return what tells the share of each block of a file, by its position, in order; `head` is the first."""
        ...


class _Nothing:
    """Nothing is known: what compression does not shrink is stored as it is."""

    small = 1.0

    def rank(self, path: str) -> int | None:
        return None

    def share(self, path: str, head: memoryview) -> Callable[[int, memoryview], float]:
        return lambda position, block: 1


NOTHING: ReadSet = _Nothing()


class _Ends(NamedTuple):
    """A fragment block that is being filled: its number, and small files one after another."""

    number: int
    data: bytearray


class _Held(NamedTuple):
    """A small file that waits for its place among those that are read one after another."""

    rank: int
    stored: Stored
    content: bytearray


class Packer:
    """Writes files' blocks to a stream. The bytes depend on the files and their order alone.

    Small files of the read set stand together, in its order, after all others. Blocks are compressed on `pool`; at most
    `depth` of them wait in memory.
    """

    def __init__(
        self,
        stream: IO[bytes],
        compression: Compression,
        pool: Executor,
        depth: int,
        position: int = 0,
        first_fragment: int = 0,
        read: ReadSet = NOTHING,
    ) -> None:
        """`position` of the stream and the number of the first fragment block are those that `Stored` counts from."""
        self._stream, self._pool, self._depth = stream, pool, depth
        self._compress, self._block = compressor(compression), BLOCKS[compression]
        self._read = read
        self._position, self._first_fragment = position, first_fragment
        self._waiting: deque[tuple[Future[tuple[bytes, bool]] | None, Stored]] = deque()
        self._ends: _Ends | None = None
        self._share = 1.0  # of fragment blocks
        self._held: list[_Held] = []
        self._room_held = _MOST_HELD
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
            rank = self._read.rank(path)
            if rank is not None and size <= self._room_held:
                self._room_held -= size
                self._held.append(held := _Held(rank, Stored(), bytearray()))
                yield held.stored, held.content.extend
            else:
                ends = self._room(stored := Stored(), size)
                yield stored, ends.extend
        else:
            stored = Stored()
            blocks = _FileBlocks(path, self._block, self._read, functools.partial(self._block_of, stored))
            yield stored, blocks.write
            blocks.finish()

    def finish(self) -> None:
        """Write all that waits."""
        self._end_fragment()
        self._share = self._read.small
        for held in sorted(self._held, key=attrgetter("rank")):
            self._room(held.stored, len(held.content)).extend(held.content)
        self._held.clear()
        self._end_fragment()
        while self._waiting:
            self._write()

    def _room(self, stored: Stored, size: int) -> bytearray:
        """Place a file of this size: in the fragment block that takes its content next."""
        if self._ends and len(self._ends.data) + size > self._block:
            self._end_fragment()
        if self._ends is None:
            self._ends = _Ends(len(self.fragments), bytearray())
            self.fragments.append(Stored())
        stored.fragment, stored.offset = self._first_fragment + self._ends.number, len(self._ends.data)
        return self._ends.data

    def _end_fragment(self) -> None:
        if self._ends:
            self._submit(self.fragments[self._ends.number], bytes(self._ends.data), self._share)
            self._ends = None

    def _block_of(self, stored: Stored, block: memoryview, share: float) -> None:
        if block == _ZEROS[: len(block)]:
            self._put(stored, None)
        else:
            self._submit(stored, block, share)

    def _submit(self, stored: Stored, block: bytes | memoryview, share: float) -> None:
        self._put(stored, self._pool.submit(self._packed, block, share))

    def _packed(self, block: bytes | memoryview, share: float) -> tuple[bytes, bool]:
        packed = self._compress(block) if share else block
        return (bytes(block), True) if len(packed) >= share * len(block) else (bytes(packed), False)

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
    """Cuts one file's content into blocks of `size` bytes; `put` gets each, and its share (`ReadSet`)."""

    def __init__(self, path: str, size: int, read: ReadSet, put: Callable[[memoryview, float], object]) -> None:
        self._path, self._size, self._read, self._put = path, size, read, put
        self._rest = b""
        self._position = 0
        self._share: Callable[[int, memoryview], float] | None = None

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
        if self._share is None:
            self._share = self._read.share(self._path, block)
        self._put(block, self._share(self._position, block))
        self._position += len(block)


def _nowhere(_: bytes) -> None:
    """Take content, and drop it."""
