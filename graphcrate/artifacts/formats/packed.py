"""A layer's files as a squashfs holds them: compressed blocks, made once and kept in the cache by the layer's digest.

A block of a squashfs depends on its file's bytes alone. So a layer is packed in one pass over its blob, whatever image
it is in, and a squashfs is put together from packed layers without compressing anything again.
"""

import contextlib
import functools
import hashlib
import json
import tarfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, NamedTuple

import deflate
import msgspec
import zstandard
from isal import isal_zlib

from graphcrate.artifacts.formats.early import EarlyBytes, is_bytecode
from graphcrate.artifacts.formats.merged import IMPLIED, Inode, Stored, check_digest, content_of, inode_of
from graphcrate.artifacts.formats.squashfs import STORED_DATA
from graphcrate.host.cache import Cache, remove_tree
from graphcrate.host.parallel import parallel
from graphcrate.host.workers import default_jobs
from graphcrate.model import codec
from graphcrate.model.compression import Compression
from graphcrate.model.errors import UNREADABLE, LayoutError
from graphcrate.oci.blob import CHUNK, open_blob
from graphcrate.oci.entries import Entries, overlaid, read_entries
from graphcrate.oci.layout import REBUILD, Layout, check_presence
from graphcrate.oci.spec import LayerBlob

#: Raise it whenever the same layer would give other blocks. Part of the cache's keys and of a SIF's identity.
FORMAT = 4
#: Room that blocks take, over the layers' size: gzip has a sixth uncompressed, and smaller blocks.
GROWTH = 1.25
_MOST_WAITING = 256  #: blocks in memory over all layers, waiting to be compressed or written
_ZEROS = bytes(1 << 18)


#: docs/decisions/conversion.md has what others give and take.
LEVELS = {Compression.GZIP: 1, Compression.ZSTD: 1}
#: Bytes of a block. Larger ones compress better; each is inflated whole for the first page that is read of it, which
#: takes deflate three times as long.
BLOCKS = {Compression.GZIP: 1 << 17, Compression.ZSTD: 1 << 18}
#: Bytes of code at the beginning of a library that are left uncompressed, as linkers put what runs at the start first.
#: 0: all of its blocks are compressed, since zstd's take less time to inflate than their room is worth.
EARLY_CODE = {Compression.GZIP: 96 << 20, Compression.ZSTD: 0}


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


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept beside the blocks, together with the layer's `Entries`, which have numbers of inodes."""

    inodes: list[Inode]
    fragments: list[Stored]


class _Ends(NamedTuple):
    """A fragment block that is being filled: its number, and small files one after another."""

    number: int
    data: bytearray


class Packer:
    """Writes files' blocks to a stream. The bytes depend on the files and their order alone.

    What is read while programs start is not compressed (`early`). The rest is on `pool`; at most `depth` blocks wait in
    memory.
    """

    def __init__(
        self,
        stream: IO[bytes],
        compression: Compression,
        pool: Executor,
        depth: int,
        position: int = 0,
        first_fragment: int = 0,
    ) -> None:
        """`position` of the stream and the number of the first fragment block are those that `Stored` counts from."""
        self._stream, self._pool, self._depth = stream, pool, depth
        self._compress, self._block = compressor(compression), BLOCKS[compression]
        self._most_code = EARLY_CODE[compression]
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
            ends = self._room(size, is_bytecode(path))
            yield Stored(fragment=self._first_fragment + ends.number, offset=len(ends.data)), ends.data.extend
        else:
            stored = Stored()
            blocks = _FileBlocks(path, self._block, self._most_code, functools.partial(self._block_of, stored))
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
    """Cuts one file's content into blocks of `size` bytes; `put` gets each, and whether it is read early."""

    def __init__(self, path: str, size: int, most_code: int, put: Callable[[memoryview, bool], object]) -> None:
        self._path, self._size, self._most_code, self._put = path, size, most_code, put
        self._rest = b""
        self._position = 0
        self._early: EarlyBytes | None = None

    def write(self, piece: bytes) -> None:
        """Take the next piece of the content, which nobody changes afterwards."""
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
        if self._early is None:
            self._early = EarlyBytes(self._path, block, self._most_code)
        self._put(block, self._early.has(self._position, block))
        self._position += len(block)


def _nowhere(_: bytes) -> None:
    """Take content that nobody wants."""


def read_packed(
    layout: Layout, compression: Compression, cache: Cache, advance: Callable[[int], None]
) -> tuple[dict[str, Inode], tuple[Packed, ...]]:
    """The image's files and where their blocks are, packing on all cores what the cache lacks.

    `advance` counts bytes of layers. Raises LayoutError for a layer that is missing, cut off or altered (by its
    digest), or that no engine would take.
    """
    check_presence(layout)
    blobs = layout.layer_blobs
    jobs = default_jobs()
    depth = max(4, _MOST_WAITING // min(jobs, len(blobs) or 1))
    same: dict[str, list[int]] = {}  # an image may have a layer several times
    for number, layer in enumerate(layout.layers):
        same.setdefault(layer.digest, []).append(number)
    with ThreadPoolExecutor(jobs) as pool:

        def read(digest: str, advancing: Callable[[int], None]) -> list[tuple[Entries[Inode], Packed]]:
            numbers = same[digest]
            folder, size = _place(digest, compression, cache), layout.layers[numbers[0]].size
            if (loaded := _loaded(folder, numbers)) is None:
                with _alone(folder, cache):
                    if (loaded := _loaded(folder, numbers)) is None:
                        remove_tree(folder)
                        with cache.folder() as new:
                            _pack(blobs[numbers[0]], digest, new, compression, pool, depth, advancing)
                            cache.adopt(new, folder)
                        advancing(size * (len(numbers) - 1))
                        return [_load(folder, number) for number in numbers]
            advancing(size * len(numbers))
            return loaded

        read_layers = parallel(
            read, tuple(same), advance=advance, size=lambda digest: layout.layers[same[digest][0]].size, threads=jobs
        )
    numbered: dict[int, tuple[Entries[Inode], Packed]] = {}
    for numbers, places in zip(same.values(), read_layers, strict=True):
        numbered.update(zip(numbers, places, strict=True))
    layers = [numbered[number] for number in range(len(blobs))]
    return overlaid([entries for entries, _ in layers], IMPLIED), tuple(packed for _, packed in layers)


def _pack(
    blob: LayerBlob,
    digest: str,
    folder: Path,
    compression: Compression,
    pool: Executor,
    depth: int,
    advance: Callable[[int], None],
) -> None:
    """Write a layer's blocks and index into `folder`. Raises LayoutError where the bytes have another digest."""
    held: list[Inode] = []
    seen = hashlib.sha256()
    with (folder / "data").open("xb", buffering=CHUNK) as data:
        packer = Packer(data, compression, pool, depth)

        def keep(path: str, header: tarfile.TarInfo) -> Inode:
            inode = inode_of(path, header)
            if inode.is_file:
                stored = packer.add(inode.size, content_of(header, stream), path)
                inode = msgspec.structs.replace(inode, stored=stored)
            held.append(inode)
            return inode

        try:
            with open_blob(blob, advance=advance, digest=seen) as stream:
                entries = read_entries(stream, keep)
        except LayoutError as error:
            again = REBUILD if error.next_step == error.usual else error.next_step
            raise LayoutError(f"layer {digest}: {error.what}", cause=error.cause, next_step=again) from error
        check_digest("layer", digest, f"sha256:{seen.hexdigest()}")
        packer.finish()
    _write_index(folder, entries, held, packer.fragments)


class LayerBlocks:
    """Packs a layer while it is written (`oci.layer.LayerWriter`), byte for byte as it is packed from its blob.

    Writes into the new `folder`; `mtime` everywhere, owner root. To be closed, whatever happens.
    """

    def __init__(self, folder: Path, compression: Compression, mtime: int, jobs: int) -> None:
        folder.mkdir()
        self.compression, self._folder, self._mtime = compression, folder, mtime
        self._stack = contextlib.ExitStack()
        pool = self._stack.enter_context(ThreadPoolExecutor(jobs))
        data = self._stack.enter_context((folder / "data").open("xb", buffering=CHUNK))
        self._packer = Packer(data, compression, pool, max(4, _MOST_WAITING // jobs))
        self._entries, self._held = Entries[Inode](), list[Inode]()

    def folder(self, path: str, mode: int) -> None:
        """Note a folder."""
        self._entries.folders.add(path)
        self._keep(path, Inode(kind=tarfile.DIRTYPE, mode=mode, mtime=self._mtime))

    def symlink(self, path: str, target: str) -> None:
        """Note a symbolic link."""
        self._keep(path, Inode(kind=tarfile.SYMTYPE, mode=0o777, mtime=self._mtime, link=target))

    @contextlib.contextmanager
    def file(self, path: str, mode: int, size: int) -> Iterator[Callable[[bytes], object]]:
        """Begin a file; give what takes its content, piece by piece."""
        with self._packer.file(size, path) as (stored, write):
            yield write
        self._keep(path, Inode(kind=tarfile.REGTYPE, mode=mode, mtime=self._mtime, size=size, stored=stored))

    def finish(self) -> Path:
        """Write all that waits; give the folder, which is whole then."""
        self._packer.finish()
        self.close()
        _write_index(self._folder, self._entries, self._held, self._packer.fragments)
        return self._folder

    def close(self) -> None:
        """End its threads."""
        self._stack.close()

    def _keep(self, path: str, inode: Inode) -> None:
        self._entries.by_path[path] = inode
        self._held.append(inode)


def adopt(made: Path, digest: str, compression: Compression, cache: Cache) -> None:
    """Move a packed layer into the cache, where none is."""
    folder = _place(digest, compression, cache)
    with _alone(folder, cache):
        if _loaded(folder, [0]) is None:
            remove_tree(folder)
            cache.adopt(made, folder)


def _place(digest: str, compression: Compression, cache: Cache) -> Path:
    return cache.path("squashed", f"{digest.removeprefix('sha256:')}-{compression}{FORMAT}")


def _alone(folder: Path, cache: Cache) -> AbstractContextManager[object]:
    """Keep other processes from a packed layer: or one removes what another has just packed."""
    return cache.exclusively(f"squashed-{folder.name}")


def _write_index(folder: Path, entries: Entries[Inode], held: Sequence[Inode], fragments: Sequence[Stored]) -> None:
    """Write a packed layer's index. `held`: the entries' inodes, each once, in order."""
    numbers = {id(inode): number for number, inode in enumerate(held)}
    index = _Index(inodes=list(held), fragments=list(fragments))
    kept = msgspec.to_builtins(entries.mapped(lambda inode: numbers[id(inode)])) | msgspec.to_builtins(index)
    # By the standard library: names that are not UTF-8 have surrogates, which it alone writes.
    (folder / "index.json").write_text(json.dumps(kept), "ascii")


def _loaded(folder: Path, numbers: Iterable[int]) -> list[tuple[Entries[Inode], Packed]] | None:
    """A packed layer, once for each of its places in the image; None where it is not there, or damaged."""
    with contextlib.suppress(OSError, ValueError, LookupError, *UNREADABLE):
        return [_load(folder, number) for number in numbers]
    return None


def _load(folder: Path, number: int) -> tuple[Entries[Inode], Packed]:
    kept = json.loads((folder / "index.json").read_text("ascii"))
    index = codec.convert(kept, _Index)
    for inode in index.inodes:
        if inode.stored is not None:
            inode.stored.layer = number
    entries = codec.convert(kept, Entries[int]).mapped(index.inodes.__getitem__)
    return entries, Packed(data=folder / "data", fragments=index.fragments)
