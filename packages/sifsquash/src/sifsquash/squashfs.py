"""Reading a squashfs, in a file of its own or in a SIF, without root, FUSE or a copy on the disk.

Format 4.0 as in Linux's Documentation/filesystems/squashfs.rst and fs/squashfs/squashfs_fs.h. Numbers are
little-endian. What the file claims is checked before it is used: images may be anybody's.
"""

import contextlib
import functools
import lzma
import os
import shlex
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from sifsquash.bounds import MOST, Bounds
from sifsquash.errors import ImageError
from sifsquash.values import Content, Entry, Kind

MAGIC = b"hsqs"
SUPERBLOCK = struct.Struct("<4sIIIIHHHHHHQQQQQQQQ")
_COMMON = struct.Struct("<HHHHII")
METADATA = 8192  #: most bytes in a block of metadata
STORED = 1 << 15  #: in the header of a block of metadata: it is not compressed
STORED_DATA = 1 << 24  #: the same in the size of a block of data
NO_FRAGMENT = 0xFFFFFFFF
_LARGEST_BLOCK = 1 << 20
_LONGEST = 1 << 26  #: bytes that one inode or listing may take
#: type of an inode, basic and extended
_KINDS: tuple[Kind, ...] = ("folder", "file", "symlink", "device", "device", "fifo", "socket")
_COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}


class Squashfs(contextlib.AbstractContextManager["Squashfs"]):
    """An open squashfs. Raises ImageError for one that is broken or of a compression that is not known."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path, self._offset = path, offset
        self._file = path.open("rb", buffering=0)
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def entries(self) -> Iterator[tuple[str, Entry, Content | None]]:
        """Yield every path ("/" is the root), its entry, and where the content of a file is; a folder before its own.

        Raises ImageError for a tree that is broken, in itself, or larger than `MOST`.
        """
        bounds = Bounds(MOST, str(self._path), os.fstat(self._file.fileno()).st_size)
        waiting = [("/", self._root)]
        seen: set[int] = set()
        while waiting:
            path, reference = waiting.pop()
            entry, content, listing = self._inode(reference)
            bounds.member(path, entry.size, len(entry.link))
            yield path, entry, content
            if listing is None:
                continue
            if reference in seen:
                self.fail("a folder is in itself")
            seen.add(reference)
            below = path.rstrip("/")
            for name, inside in self._names(*listing):
                bounds.listed(f"{below}/{name}")
                waiting.append((f"{below}/{name}", inside))

    def content(self, path: str) -> bytes:
        """Return the content of the file at this absolute path, by the folders above it alone; empty for none.

        No link is followed. Raises ImageError for a tree that is broken, or a file of more than 64 MB.
        """
        reference = self._root
        for name in filter(None, path.split("/")):
            _, _, listing = self._inode(reference)
            inside = dict(self._names(*listing)) if listing else {}
            if name not in inside:
                return b""
            reference = inside[name]
        _, content, _ = self._inode(reference)
        if content is None:
            return b""
        if content.size > _LONGEST:
            self.fail("a file is longer than there can be")
        return b"".join(self.chunks(content))

    def chunks(self, content: Content) -> Iterator[bytes]:
        """The content in blocks. May be called from several threads."""
        position, left = content.start, content.size
        for stored in content.sizes:
            expected = min(left, self._block_size)
            size = stored & (STORED_DATA - 1)
            block = bytes(expected) if not size else self._data(position, stored)
            if len(block) != expected:
                self.fail("a block of a file has the wrong size")
            yield block
            position, left = position + size, left - expected
        if left:
            tail = self._fragment(content.fragment)[content.offset : content.offset + left]
            if len(tail) != left:
                self.fail("the end of a file is missing")
            yield tail

    def _open(self) -> None:
        head = self._read(0, SUPERBLOCK.size)
        if head[:4] != MAGIC:
            self.fail("this is not a squashfs")
        _, _, _, block_size, fragments, compression, _, _, ids, major, _, *positions = SUPERBLOCK.unpack(head)
        root, self.size, id_table, _, inodes, folders, fragment_table, _ = positions  # size: bytes, without padding
        if major != 4 or not 4096 <= block_size <= _LARGEST_BLOCK:
            self.fail(f"squashfs version {major} with blocks of {block_size} bytes is not known")
        self._block_size, self._root, self._inodes, self._folders = block_size, root, inodes, folders
        self.compression = _COMPRESSIONS.get(compression, f"number {compression}")
        self._inflate = self._decompressor()
        # Bound to this object, so that it goes with it; blocks of metadata are asked for again and again.
        self.metadata = functools.lru_cache(4096)(self._read_metadata)
        self._fragment = functools.lru_cache(32)(self._read_fragment)
        self._ids: tuple[int, ...] = struct.unpack(f"<{ids}I", self._table(id_table, 4 * ids))
        self._fragments = tuple(struct.iter_unpack("<QII", self._table(fragment_table, 16 * fragments)))

    def _decompressor(self) -> Callable[[bytes, int], bytes]:
        """(data, most bytes) → data. lzo's gives all that there is."""
        match self.compression:
            case "gzip":
                return lambda data, most: zlib.decompressobj().decompress(data, most)
            case "xz":
                return lambda data, most: lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(data, most)
            case "zstd":
                import zstandard

                return lambda data, most: zstandard.ZstdDecompressor().decompress(data, max_output_size=most)
            case "lzo" | "lz4" as name:
                # Libraries that come with an extra are imported where an image asks for them.
                try:
                    return _lzo() if name == "lzo" else _lz4()
                except ImportError as error:
                    raise ImageError(
                        f"{self._path}: a squashfs compressed with {name} cannot be read here: {error}",
                        cause="Its library is not installed: it comes with an extra of sifsquash.",
                        next_step=f"python -m pip install 'sifsquash[{name}]'",
                    ) from error
        raise ImageError(
            f"{self._path}: a squashfs compressed with {self.compression} cannot be read",
            cause="Known are gzip, lzo, lz4, xz and zstd.",
            next_step=f"unsquashfs -d FOLDER {shlex.quote(str(self._path))}    and give the folder",
        )

    def _inode(self, reference: int) -> tuple[Entry, Content | None, tuple[int, int, int] | None]:
        """The entry, a file's content, and a folder's (block, offset, size) of its listing."""
        stream = _Stream(self, self._inodes + (reference >> 16), reference & 0xFFFF)
        kind, mode, uid, gid, mtime, _ = _COMMON.unpack(stream.take(_COMMON.size))
        extended, basic = divmod(kind - 1, 7)
        if not 0 <= extended <= 1 or max(uid, gid) >= len(self._ids):
            self.fail("an inode is malformed")
        name, link, size = _KINDS[basic], "", 0
        content = listing = None
        if name == "folder":
            if extended:
                _, length, block, _, _, offset, _ = stream.unpack("<IIIIHHI")
            else:
                block, _, length, offset, _ = stream.unpack("<IIHHI")
            listing = (block, offset, max(length - 3, 0))  # it counts "." and ".."
        elif name == "file":
            content = self._content(stream, bool(extended))
            size = content.size
        elif name == "symlink":
            _, length = stream.unpack("<II")
            link, mode = os.fsdecode(stream.take(length)), 0o777
        elif name == "device":
            _, device = stream.unpack("<II")
            minor = (device & 0xFF) | (device >> 12 & 0xFFF00)
            link = f"{'b' if basic == 3 else 'c'} {device >> 8 & 0xFFF}:{minor}"
        return Entry(name, mode & 0o7777, self._ids[uid], self._ids[gid], size, link, mtime), content, listing

    def _content(self, stream: "_Stream", extended: bool) -> Content:
        if extended:
            start, size, _, _, fragment, offset, _ = stream.unpack("<QQQIIII")
        else:
            start, fragment, offset, size = stream.unpack("<IIII")
        count = size // self._block_size if fragment != NO_FRAGMENT else -(-size // self._block_size)
        if 4 * count > _LONGEST:
            self.fail("a file has more blocks than there can be")
        return Content(start, stream.unpack(f"<{count}I"), size, fragment, offset)

    def _names(self, block: int, offset: int, size: int) -> Iterator[tuple[str, int]]:
        """Names in a folder and the inodes they stand for."""
        stream = _Stream(self, self._folders + block, offset)
        while size > 0:
            count, start, _ = stream.unpack("<III")
            size -= 12
            for _ in range(count + 1):
                inode_offset, _, _, length = stream.unpack("<HhHH")
                name = os.fsdecode(stream.take(length + 1))
                if name in (".", "..") or "/" in name or "\0" in name:
                    self.fail(f"a folder has the name {name!r} in it")
                size -= 8 + length + 1
                yield name, start << 16 | inode_offset

    def _table(self, start: int, size: int) -> bytes:
        """A table of fixed entries: blocks of metadata, found by a list of their positions."""
        if size == 0:
            return b""
        if size > _LONGEST:
            self.fail("a table is longer than there can be")
        count = -(-size // METADATA)
        positions = struct.unpack(f"<{count}Q", self._read(start, 8 * count))
        data = b"".join(self.metadata(position)[0] for position in positions)
        if len(data) != size:
            self.fail("a table has the wrong size")
        return data

    def _read_metadata(self, position: int) -> tuple[bytes, int]:
        """The block of metadata at this position, and the position of the next."""
        head = int.from_bytes(self._read(position, 2), "little")
        size = head & (STORED - 1)
        if size > METADATA:
            self.fail("a block is larger than there can be")
        data = self._read(position + 2, size)
        if not head & STORED:
            data = self._unpacked(data, METADATA)
        return data, position + 2 + size

    def _read_fragment(self, number: int) -> bytes:
        if number >= len(self._fragments):
            self.fail("the end of a file is missing")
        start, stored, _ = self._fragments[number]
        return self._data(start, stored)

    def _data(self, position: int, stored: int) -> bytes:
        size = stored & (STORED_DATA - 1)
        # Whoever writes one keeps what compression would make larger as it is.
        if size > self._block_size:
            self.fail("a block is larger than there can be")
        data = self._read(position, size)
        return data if stored & STORED_DATA else self._unpacked(data, self._block_size)

    def _unpacked(self, data: bytes, most: int) -> bytes:
        try:
            inflated = self._inflate(data, most)
        except Exception as error:  # each library has errors of its own
            raise ImageError(f"{self._path}: compressed data is broken: {error}") from error
        if len(inflated) > most:
            self.fail("compressed data is broken: it is longer than a block")
        return inflated

    def _read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._file.fileno(), size, self._offset + position)
        except (OverflowError, OSError) as error:
            raise ImageError(f"{self._path}: nothing can be read at byte {position}") from error
        if len(data) != size:
            self.fail("the file ends too early; it was cut short")
        return data

    def fail(self, what: str) -> NoReturn:
        """Raises ImageError."""
        raise ImageError(f"{self._path}: {what}", cause="The image is damaged, or not what it seems.")


def _lzo() -> Callable[[bytes, int], bytes]:
    import lzallright

    return lzallright.LZOCompressor.decompress


def _lz4() -> Callable[[bytes, int], bytes]:
    import lz4.block

    return lambda data, most: lz4.block.decompress(data, uncompressed_size=most)


class _Stream:
    """Metadata from a position on, over as many blocks as it takes."""

    def __init__(self, image: Squashfs, position: int, offset: int) -> None:
        self._image, self._next = image, position
        self._data, self._position = b"", 0
        self._more()
        if offset > len(self._data):
            image.fail("a position in it does not exist")
        self._position = offset

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def take(self, size: int) -> bytes:
        if size > _LONGEST:
            self._image.fail("a name or a list is longer than there can be")
        while len(self._data) - self._position < size:
            self._more()
        data = self._data[self._position : self._position + size]
        self._position += size
        return data

    def _more(self) -> None:
        data, self._next = self._image.metadata(self._next)
        self._data, self._position = self._data[self._position :] + data, 0
