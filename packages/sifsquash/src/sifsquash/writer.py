"""Writes a squashfs of files whose blocks are packed already: here, or in files of packed layers, which are copied.

Format 4.0 as in Linux's Documentation/filesystems/squashfs.rst and fs/squashfs/squashfs_fs.h; numbers are
little-endian. The same files in the same layers, packed alike, give the same bytes.
"""

import itertools
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import IO, BinaryIO

import msgspec
from isal import isal_zlib

from sifsquash.errors import DamagedBlocksError, ImageError
from sifsquash.packer import BLOCKS, NOTHING, Packed, Packer, ReadSet, compressor
from sifsquash.squashfs import MAGIC, METADATA, NO_FRAGMENT, STORED, STORED_DATA, SUPERBLOCK
from sifsquash.values import XATTR, Compression, Inode, Stored

_CHUNK = 1 << 20
_COMPRESSORS = {Compression.GZIP: 1, Compression.ZSTD: 6}
_EXPORTABLE, _NO_XATTRS = 0x80, 0x200
_NO_TABLE = 0xFFFFFFFFFFFFFFFF
_NO_XATTR = 0xFFFFFFFF
_MOST_IDS = 1 << 16
_MOST_NAMES = 256  #: below one header of a folder's listing
_FARTHEST = 1 << 15  #: from the number of a header's inode to that of a name below it
#: Kernels keep eight blocks of inodes and folders, and inflate them again and again for a program that looks for files.
#: So only those are compressed of which next to nothing is left, as of a sparse file's list of holes.
_SPARSE = 1 / 8
ALIGNMENT = 4096  #: of the end, for a loop device
_EXTENDED = 7  #: more than the basic type of an inode
_FOLDER, _FILE, _LINK, _BLOCK_DEVICE, _DEVICE, _PIPE = range(1, 7)
_TAR_TYPES = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.BLKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE
_TYPES = dict(zip(_TAR_TYPES, range(1, 7), strict=True))
#: Kinds of extended attributes that the format has; there is none for POSIX ACLs.
_PREFIXES = ("user.", "trusted.", "security.")


def write(
    stream: BinaryIO,
    image: Mapping[str, Inode],
    layers: Sequence[Packed],
    compression: Compression,
    created: int,
    advance: Callable[[int], None],
    read: ReadSet = NOTHING,
) -> None:
    """Write the files of packed layers at the stream's position.

    `image`: paths without a slash at the start, "" is the root. `created`: Unix seconds; `advance` counts the bytes of
    blocks; `read` is for files that are in no layer. Raises DamagedBlocksError for a packed layer that was altered,
    ImageError for more owners than the format can hold.
    """
    begin = stream.tell()
    stream.write(bytes(SUPERBLOCK.size))
    placed, fragments = _copy(stream, begin, image, layers, compression, advance, read)
    finish(stream, begin, image, placed, fragments, compression, created)


def blocks_size(image: Mapping[str, Inode], layers: Sequence[Packed]) -> int:
    """Return the bytes of the blocks that `write` copies of packed layers."""
    stored = {id(inode): inode.stored for inode in image.values() if inode.stored is not None}.values()
    ends = {(each.layer, each.fragment) for each in stored if each.fragment is not None}
    sizes = [size for each in stored for size in each.sizes]
    sizes += [size for layer, fragment in ends for size in layers[layer].fragments[fragment].sizes]
    return sum(size & (STORED_DATA - 1) for size in sizes)


def finish(
    stream: BinaryIO,
    begin: int,
    image: Mapping[str, Inode],
    placed: dict[int, Stored],
    fragments: Sequence[tuple[int, int]],
    compression: Compression,
    created: int,
) -> None:
    """Write all that describes the files after their blocks, and the superblock at `begin`.

    `placed`: where the blocks of each inode that is a file are, from `begin` on, by `id(inode)`; `fragments`: start and
    stored size of each fragment block. Raises ImageError for more owners than the format can hold.
    """
    compress = compressor(compression)
    block = BLOCKS[compression]
    tree = _Tree(image, placed, compress, block)
    starts = []
    for table in (tree.inodes, tree.folders):
        starts.append(stream.tell() - begin)
        stream.write(table.finish())
    tables = (
        b"".join(struct.pack("<QII", start, size, 0) for start, size in fragments),
        struct.pack(f"<{len(tree.references)}Q", *tree.references),
        struct.pack(f"<{len(tree.ids)}I", *tree.ids),
    )
    starts += [_write_table(stream, begin, data, compress) for data in tables]
    starts.append(tree.xattrs.write(stream, begin, compress))
    end = stream.tell() - begin
    stream.write(bytes(-end % ALIGNMENT))
    inodes, folders, fragment_table, export_table, id_table, xattr_table = starts
    stream.seek(begin)
    stream.write(
        SUPERBLOCK.pack(
            MAGIC,
            len(tree.references),
            created,
            block,
            len(fragments),
            _COMPRESSORS[compression],
            block.bit_length() - 1,
            _EXPORTABLE | (0 if xattr_table != _NO_TABLE else _NO_XATTRS),
            len(tree.ids),
            4,
            0,
            tree.references[0],
            end,
            id_table,
            xattr_table,
            inodes,
            folders,
            fragment_table,
            export_table,
        )
    )
    stream.seek(0, 2)


def _copy(
    stream: BinaryIO,
    begin: int,
    image: Mapping[str, Inode],
    layers: Sequence[Packed],
    compression: Compression,
    advance: Callable[[int], None],
    read: ReadSet,
) -> tuple[dict[int, Stored], list[tuple[int, int]]]:
    """Copy all blocks, layer by layer. Return where files are now, by identity, and the fragment blocks."""
    distinct = {id(image[path]): image[path] for path in sorted(image)}  # two files may be alike
    files = [inode for inode in distinct.values() if inode.is_file]
    placed: dict[int, Stored] = {}
    fragments: list[tuple[int, int]] = []
    for number, packed in enumerate(layers):
        here = [(inode, inode.stored) for inode in files if inode.stored is not None and inode.stored.layer == number]
        used = sorted({stored.fragment for _, stored in here if stored.fragment is not None})
        ends = [packed.fragments[fragment] for fragment in used]
        runs = [stored for stored in (*(stored for _, stored in here), *ends) if any(stored.sizes)]
        moved: dict[int, int] = {}
        with packed.data.open("rb", buffering=0) as source:
            for stored in sorted(runs, key=lambda stored: stored.start):
                moved[stored.start] = stream.tell() - begin
                if not _copy_run(source, stream, stored, advance):
                    raise DamagedBlocksError(packed.data)
        numbers = {fragment: len(fragments) + count for count, fragment in enumerate(used)}
        fragments += [(moved[end.start], end.sizes[0]) for end in ends]
        for inode, stored in here:
            start = moved[stored.start] if any(stored.sizes) else 0
            fragment = None if stored.fragment is None else numbers[stored.fragment]
            placed[id(inode)] = msgspec.structs.replace(stored, start=start, fragment=fragment)
    with ThreadPoolExecutor(1) as pool:
        packer = Packer(stream, compression, pool, 1, stream.tell() - begin, len(fragments), read)
        added = {id(inode): packer.add(inode.size, (inode.content,)) for inode in files if inode.stored is None}
        packer.finish()
    return placed | added, fragments + [(end.start, end.sizes[0]) for end in packer.fragments]


def _copy_run(source: IO[bytes], stream: BinaryIO, stored: Stored, advance: Callable[[int], None]) -> bool:
    """Copy a file's blocks. Return whether they are what was written."""
    left = sum(size & (STORED_DATA - 1) for size in stored.sizes)
    crc = 0
    source.seek(stored.start)
    while left and (data := source.read(min(left, _CHUNK))):
        crc = isal_zlib.crc32(data, crc)
        stream.write(data)
        advance(len(data))
        left -= len(data)
    return not left and crc == stored.crc


class _Metadata:
    """A table in blocks of up to 8 KiB, each compressed by itself where that leaves less than `share` of it."""

    def __init__(self, compress: Callable[[bytes], bytes], share: float = 1) -> None:
        self._compress, self._share = compress, share
        self._buffer, self._blocks = bytearray(), bytearray()
        self.starts: list[int] = []  #: of the blocks

    @property
    def position(self) -> tuple[int, int]:
        """The place of the next byte: the start of its block, and its offset in that."""
        return len(self._blocks), len(self._buffer)

    def add(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= METADATA:
            self._flush()

    def finish(self) -> bytearray:
        """All blocks."""
        if self._buffer:
            self._flush()
        return self._blocks

    def _flush(self) -> None:
        data = bytes(self._buffer[:METADATA])
        del self._buffer[:METADATA]
        packed = self._compress(data)
        raw = len(packed) >= len(data) * self._share
        self.starts.append(len(self._blocks))
        head = len(data) | STORED if raw else len(packed)
        self._blocks += head.to_bytes(2, "little") + (data if raw else packed)


def _write_table(
    stream: BinaryIO, begin: int, data: bytes, compress: Callable[[bytes], bytes], head: bytes = b""
) -> int:
    """Write a table of fixed entries: its blocks, then `head` and the list of their positions. Return where that is."""
    table = _Metadata(compress)
    table.add(data)
    start = stream.tell() - begin
    stream.write(table.finish())
    positions = stream.tell() - begin
    stream.write(head + b"".join((start + block).to_bytes(8, "little") for block in table.starts))
    return positions


class _Xattrs:
    """Sets of extended attributes, each once."""

    def __init__(self, compress: Callable[[bytes], bytes]) -> None:
        self._pairs = _Metadata(compress)
        self._sets: dict[bytes, int] = {}
        self._table = bytearray()

    def number(self, xattrs: Iterable[tuple[str, str]]) -> int:
        """The number of a set; `_NO_XATTR` of an empty one."""
        count, pairs = 0, b""
        for key, value in xattrs:
            name, content = key.removeprefix(XATTR), _encoded(value)
            for kind, prefix in enumerate(_PREFIXES):
                if name.startswith(prefix):
                    rest = _encoded(name.removeprefix(prefix))
                    pairs += struct.pack("<HH", kind, len(rest)) + rest + struct.pack("<I", len(content)) + content
                    count += 1
        if not count:
            return _NO_XATTR
        if pairs not in self._sets:
            self._sets[pairs] = len(self._sets)
            block, offset = self._pairs.position
            self._table += struct.pack("<QII", block << 16 | offset, count, len(pairs))
            self._pairs.add(pairs)
        return self._sets[pairs]

    def write(self, stream: BinaryIO, begin: int, compress: Callable[[bytes], bytes]) -> int:
        """Write the tables. Return where they begin; `_NO_TABLE` where there are no attributes."""
        if not self._sets:
            return _NO_TABLE
        head = struct.pack("<QII", stream.tell() - begin, len(self._sets), 0)
        stream.write(self._pairs.finish())
        return _write_table(stream, begin, bytes(self._table), compress, head)


@dataclass(slots=True, eq=False)
class _Node:
    """An inode to be written. `names`: of a folder, sorted; `links`: names that it has; `reference`: its position."""

    inode: Inode
    names: list[tuple[bytes, "_Node"]] = field(default_factory=list)
    number: int = 0
    links: int = 0
    reference: int = -1


class _Tree:
    """Inodes and the listings of folders. `references` are the inodes', by their numbers from 1 on."""

    def __init__(
        self, image: Mapping[str, Inode], placed: dict[int, Stored], compress: Callable[[bytes], bytes], block: int
    ) -> None:
        self.inodes, self.folders = _Metadata(compress, _SPARSE), _Metadata(compress, _SPARSE)
        self.xattrs = _Xattrs(compress)
        self.ids: dict[int, int] = {}  #: owner → number
        self._placed, self._block = placed, block
        ordered = sorted(image, key=lambda path: path.split("/") if path else [])
        # A folder has one path, and folders that no layer has an entry for share an inode.
        folders = {path: _Node(image[path]) for path in ordered if image[path].is_folder}
        others: dict[int, _Node] = {}
        for path, inode in image.items():
            if path:
                parent, _, name = path.rpartition("/")
                node = folders[path] if inode.is_folder else others.setdefault(id(inode), _Node(inode))
                folders[parent].names.append((_encoded(name), node))
        numbers = itertools.count(2)
        folders[""].number = 1
        for folder in folders.values():
            folder.names.sort(key=itemgetter(0))
            for _, node in folder.names:
                node.number = node.number or next(numbers)
                node.links += 1
        # From the leaves to the root: a listing refers to inodes that are written.
        for path, folder in reversed(folders.items()):
            above = folders[path.rpartition("/")[0]].number if path else len(folders) + len(others) + 1
            self._write_folder(folder, above)
        written = sorted((*folders.values(), *others.values()), key=attrgetter("number"))
        self.references = [node.reference for node in written]

    def _write_folder(self, folder: _Node, above: int) -> None:
        for _, node in folder.names:
            if not node.inode.is_folder and node.reference < 0:
                self._write_inode(node, *self._described(node))
        (first, offset), length = self.folders.position, 0
        index: list[bytes] = []
        last = first
        for group in _groups(folder.names):
            name, head = group[0]
            start = self.folders.position[0]
            if start != last:  # a reader may begin here, with the first of these names
                index.append(struct.pack("<III", length, start, len(name) - 1) + name)
                last = start
            listing = struct.pack("<III", len(group) - 1, head.reference >> 16, head.number)
            for name, node in group:
                kind, number = _TYPES[node.inode.kind], node.number - head.number
                listing += struct.pack("<HhHH", node.reference & 0xFFFF, number, kind, len(name) - 1) + name
            self.folders.add(listing)
            length += len(listing)
        size = length + 3  # as if "." and ".." were in it
        links = 2 + sum(node.inode.is_folder for _, node in folder.names)
        xattr = self.xattrs.number(folder.inode.xattrs)
        if index or xattr != _NO_XATTR:
            body = struct.pack("<IIIIHHI", links, size, first, above, len(index), offset, xattr)
            self._write_inode(folder, _FOLDER + _EXTENDED, body + b"".join(index))
        else:
            self._write_inode(folder, _FOLDER, struct.pack("<IIHHI", first, links, size, offset, above))

    def _described(self, node: _Node) -> tuple[int, bytes]:
        """Type and body of what is not a folder."""
        inode = node.inode
        kind, xattr = _TYPES[inode.kind], self.xattrs.number(inode.xattrs)
        if kind == _FILE:
            return self._described_file(inode, node.links, xattr)
        more = b"" if xattr == _NO_XATTR else struct.pack("<I", xattr)
        body = struct.pack("<I", node.links)
        if kind == _LINK:
            target = _encoded(inode.link)
            body += struct.pack("<I", len(target)) + target
        elif kind in (_BLOCK_DEVICE, _DEVICE):
            major, minor = inode.device
            body += struct.pack("<I", minor & 0xFF | major << 8 | (minor & ~0xFF) << 12)
        return kind + (_EXTENDED if more else 0), body + more

    def _described_file(self, inode: Inode, links: int, xattr: int) -> tuple[int, bytes]:
        stored = self._placed[id(inode)]
        blocks = struct.pack(f"<{len(stored.sizes)}I", *stored.sizes)
        fragment = NO_FRAGMENT if stored.fragment is None else stored.fragment
        holes = stored.sizes.count(0)
        if links == 1 and xattr == _NO_XATTR and not holes and max(stored.start, inode.size) <= 0xFFFFFFFF:
            return _FILE, struct.pack("<IIII", stored.start, fragment, stored.offset, inode.size) + blocks
        # The last block may be shorter than the others.
        empty = max(holes * self._block - (-inode.size % self._block if stored.sizes[-1:] == [0] else 0), 0)
        numbers = (stored.start, inode.size, empty, links, fragment, stored.offset, xattr)
        return _FILE + _EXTENDED, struct.pack("<QQQIIII", *numbers) + blocks

    def _write_inode(self, node: _Node, kind: int, body: bytes) -> None:
        inode = node.inode
        block, offset = self.inodes.position
        node.reference = block << 16 | offset
        mode = 0o777 if inode.link else inode.mode  # Linux has no other mode of a link
        owners = [self.ids.setdefault(owner, len(self.ids)) for owner in (inode.uid, inode.gid)]
        if len(self.ids) > _MOST_IDS:
            raise ImageError("the image's files have more owners and groups than a squashfs can hold")
        self.inodes.add(struct.pack("<HHHHII", kind, mode, *owners, inode.mtime, node.number) + body)


def _groups(names: Iterable[tuple[bytes, _Node]]) -> Iterator[list[tuple[bytes, _Node]]]:
    """The names that may stand below one header: their inodes begin in one block and have near numbers."""
    group: list[tuple[bytes, _Node]] = []
    for name, node in names:
        if group and (
            len(group) == _MOST_NAMES
            or node.reference >> 16 != group[0][1].reference >> 16
            or not -_FARTHEST <= node.number - group[0][1].number < _FARTHEST
        ):
            yield group
            group = []
        group.append((name, node))
    if group:
        yield group


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
