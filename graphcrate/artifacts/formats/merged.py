"""An image's layers as one tar: what they come to, each file once, with neither a second copy nor root.

Two passes over the layers. The first, side by side, reads headers and hashes what it reads: so no byte of an altered
layer is used. Between the two it is plain which entry of which layer each path is. The second writes folders, then
files in the order in which they lie in the layers; other names of a file follow it as hard links, whichever layer
they come from.
"""

import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from graphcrate.host.parallel import parallel
from graphcrate.model.errors import LayoutError
from graphcrate.oci.blob import CHUNK, TarStream, open_blob, sha256
from graphcrate.oci.entries import Entries, overlaid, parents, read_entries
from graphcrate.oci.layout import REBUILD, Layout, check_presence
from graphcrate.oci.spec import LayerBlob
from graphcrate.oci.tar import BLOCK, END_OF_ARCHIVE, padding

XATTR = "SCHILY.xattr."  #: before the name of an extended attribute, in pax headers
_SMALL = 1 << 16  #: bytes; what is smaller is gathered into pieces of `CHUNK`
_LATEST = 0xFFFFFFFF  #: time that a squashfs can hold, in Unix seconds
_FOLDER, _FILE, _LINK = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE


class Origin(NamedTuple):
    """Where a file's content is: a layer, lowest 0, and the place in its uncompressed tar."""

    layer: int
    offset: int


class Inode(msgspec.Struct, frozen=True, kw_only=True):
    """A file, folder, link, device or pipe. Paths that share one are hard links of each other."""

    kind: bytes  #: type flag of the tar format
    mode: int  #: permission bits, 0 to 0o7777
    uid: int = 0
    gid: int = 0
    mtime: int = 0  #: Unix seconds, as far as a squashfs can hold them
    size: int = 0
    link: str = ""  #: target of a symbolic link
    device: tuple[int, int] = (0, 0)
    xattrs: tuple[tuple[str, str], ...] = ()  #: bytes that are no UTF-8 as surrogates
    origin: Origin | None = None  #: None: `content` has it
    extents: tuple[tuple[int, int], ...] | None = None  #: of a sparse file: (place in it, size) of what is stored
    content: bytes = b""

    @property
    def is_folder(self) -> bool:
        return self.kind == _FOLDER


#: A folder that no layer has an entry for, as `artifacts.formats.rootfs` makes it.
IMPLIED = Inode(kind=_FOLDER, mode=0o755)


class Addition(NamedTuple):
    """An entry that a runtime wants and the image lacks. Its owner is root."""

    path: str
    mode: int = 0o755
    content: bytes | None = None  #: of a file
    link: str = ""  #: target of a symbolic link; with neither it is a folder
    keep: bool = False  #: what the image has at this path stays; folders always do


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The image's files. Paths are relative, the root is empty."""

    paths: Mapping[str, Inode]
    layers: tuple[LayerBlob, ...]

    @property
    def size(self) -> int:
        """Bytes of all contents, each counted once."""
        return sum(inode.size for inode in set_of(self.paths.values()))

    @property
    def tar_size(self) -> int:
        """Bytes of the tar, but for long names and attributes."""
        contents = sum(inode.size + len(padding(inode.size)) for inode in set_of(self.paths.values()))
        return contents + BLOCK * len(self.paths) + len(END_OF_ARCHIVE)


def set_of(inodes: Iterable[Inode]) -> list[Inode]:
    """Each once, by identity: two files may be alike."""
    return list({id(inode): inode for inode in inodes}.values())


def read_merged(layout: Layout, advance: Callable[[int], None] | None = None) -> Merged:
    """Read and check every layer, on all cores. `advance` counts compressed bytes.

    Raises LayoutError for a layer that is missing, cut off or altered (by its digest), or that no engine would take.
    """
    check_presence(layout)
    blobs = layout.layer_blobs
    layers = parallel(
        lambda number, advancing: _read_layer(number, blobs[number], layout.layers[number].digest, advancing),
        range(len(blobs)),
        advance=advance,
        size=lambda number: layout.layers[number].size,
    )
    return Merged(paths=overlaid(layers, IMPLIED), layers=blobs)


def with_additions(merged: Merged, additions: Sequence[Addition], mtime: int) -> Merged:
    """The image with these entries. Raises LayoutError where one of its files stands where a folder has to be."""
    paths = dict(merged.paths)
    for addition in additions:
        standing = paths.get(addition.path)
        folder = addition.content is None and not addition.link
        if standing is not None and (folder or addition.keep):
            continue
        if standing is not None and standing.is_folder:
            raise LayoutError(f"/{addition.path} is a folder in the image, and a runtime wants a file there")
        for parent in parents(addition.path):
            above = paths.setdefault(parent, msgspec.structs.replace(IMPLIED, mtime=mtime))
            if not above.is_folder:
                raise LayoutError(f"/{parent} is no folder in the image, and a runtime wants /{addition.path} in it")
        kind = _FOLDER if folder else _LINK if addition.link else _FILE
        content = addition.content or b""
        paths[addition.path] = Inode(
            kind=kind,
            mode=addition.mode,
            mtime=mtime,
            size=len(content),
            link=addition.link,
            content=content,
        )
    return msgspec.structs.replace(merged, paths=paths)


def tar(merged: Merged) -> Iterator[bytes]:
    """The tar in pieces of a useful size. The root has no entry: squashfs-tools would skip it.

    Raises LayoutError for a layer that cannot be read any more.
    """
    gathered = bytearray()
    for piece in _pieces(merged):
        if len(piece) < _SMALL:
            gathered += piece
            if len(gathered) < CHUNK:
                continue
            piece = b""
        if gathered:
            yield bytes(gathered)
            gathered.clear()
        if piece:
            yield piece
    yield bytes(gathered) + END_OF_ARCHIVE


def _read_layer(number: int, blob: LayerBlob, digest: str, advance: Callable[[int], None]) -> Entries[Inode]:
    def keep(_: int, path: str, header: tarfile.TarInfo, __: tarfile.TarFile) -> Inode:
        return _inode(path, header, Origin(number, header.offset_data))

    seen = sha256()
    try:
        with open_blob(blob, advance=advance, digest=seen) as stream:
            entries = read_entries(stream, keep)
    except LayoutError as error:
        raise LayoutError(f"layer {digest}: {error.what}", cause=error.cause, next_step=REBUILD) from error
    if f"sha256:{seen.hexdigest()}" != digest:
        raise LayoutError(
            f"layer {digest} is damaged: its bytes hash to sha256:{seen.hexdigest()}",
            cause="The file was changed after it was written.",
            next_step=REBUILD,
        )
    return entries


def _inode(path: str, header: tarfile.TarInfo, origin: Origin) -> Inode:
    regular = header.isreg()  # sparse files too
    if not (regular or header.isdir() or header.issym() or header.isfifo() or header.isdev()):
        raise LayoutError(f"{path} is of an unknown type {header.type!r}")
    try:
        mtime = min(max(int(header.mtime), 0), _LATEST)
    except (ValueError, OverflowError) as error:
        raise LayoutError(f"{path} has no valid time") from error
    xattrs = tuple((name, value) for name, value in sorted(header.pax_headers.items()) if name.startswith(XATTR))
    return Inode(
        kind=_FILE if regular else header.type,
        mode=header.mode & 0o7777,
        uid=header.uid,
        gid=header.gid,
        mtime=mtime,
        size=header.size if regular else 0,
        link=header.linkname if header.issym() else "",
        device=(header.devmajor, header.devminor) if header.isdev() else (0, 0),
        xattrs=xattrs,
        origin=origin if regular else None,
        extents=_extents(header) if regular and header.issparse() else None,
    )


def _extents(header: tarfile.TarInfo) -> tuple[tuple[int, int], ...]:
    """The map of a sparse file, whose end it may name by an empty extent. Raises LayoutError for one that lies."""
    extents = tuple((int(start), int(size)) for start, size in cast("Iterable[tuple[int, int]]", header.sparse))
    position = 0
    for start, size in extents:
        if start < position or size < 0 or start + size > header.size:
            raise LayoutError(f"{header.name} is a sparse file whose map does not fit")
        position = start + size
    return extents


def _pieces(merged: Merged) -> Iterator[bytes]:
    names: dict[int, list[str]] = {}
    for path in sorted(merged.paths):
        names.setdefault(id(merged.paths[path]), []).append(path)
    stored: dict[Origin, list[str]] = {}
    for path in sorted(merged.paths):
        if path and merged.paths[path].is_folder:
            yield _header(path, merged.paths[path])
    for inode in set_of(merged.paths[path] for path in sorted(merged.paths)):
        if inode.origin is not None:
            stored[inode.origin] = names[id(inode)]
        elif not inode.is_folder:
            yield from _written(names[id(inode)], inode, (inode.content,))
    for number, blob in enumerate(merged.layers):
        wanted = {origin.offset: paths for origin, paths in stored.items() if origin.layer == number}
        if wanted:
            yield from _contents(merged, blob, wanted)


def _contents(merged: Merged, blob: LayerBlob, wanted: Mapping[int, list[str]]) -> Iterator[bytes]:
    """The files of one layer that are in the image, with all their names, in the layer's order."""
    with open_blob(blob) as stream:
        for offset in sorted(wanted):
            paths = wanted[offset]
            inode = merged.paths[paths[0]]
            stream.seek(offset)
            content = stream.chunks(inode.size) if inode.extents is None else _expanded(inode, stream)
            yield from _written(paths, inode, content)


def _expanded(inode: Inode, stream: TarStream) -> Iterator[bytes]:
    """The content of a sparse file, its holes as zeros."""
    position = 0
    for start, size in (*(inode.extents or ()), (inode.size, 0)):
        while position < start:
            yield bytes(min(CHUNK, start - position))
            position += min(CHUNK, start - position)
        yield from stream.chunks(size)
        position += size


def _written(paths: Sequence[str], inode: Inode, content: Iterable[bytes]) -> Iterator[bytes]:
    yield _header(paths[0], inode)
    yield from content
    yield padding(inode.size)
    for path in paths[1:]:
        yield _header(path, inode, hard_link_to=paths[0])


def _header(path: str, inode: Inode, hard_link_to: str = "") -> bytes:
    """The header block(s) of one entry, in GNU's form.

    Not in pax's: squashfs-tools 4.5 and 4.6 take the leading slash of a link's target away where that is in a pax
    header. Attributes, which only pax has, get one of their own.
    """
    name = _encoded(path + "/" if inode.is_folder else path)
    target = _encoded(hard_link_to or inode.link)
    kind = tarfile.LNKTYPE if hard_link_to else inode.kind
    before = b""
    if inode.xattrs and not hard_link_to:
        records = b"".join(_record(_encoded(key), _encoded(value)) for key, value in inode.xattrs)
        before = _block(b"././@PaxHeader", tarfile.XHDTYPE, IMPLIED, len(records)) + records + padding(len(records))
    for long, flag in ((target, tarfile.GNUTYPE_LONGLINK), (name, tarfile.GNUTYPE_LONGNAME)):
        if len(long) > 100:
            before += _block(b"././@LongLink", flag, IMPLIED, len(long) + 1) + long + b"\0" + padding(len(long) + 1)
    return before + _block(name, kind, inode, 0 if hard_link_to else inode.size, target)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _record(key: bytes, value: bytes) -> bytes:
    """One pax record: its own length in decimal, a space, key=value, newline."""
    body = b" %b=%b\n" % (key, value)
    length = len(body)
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return b"%d%b" % (length, body)


def _block(name: bytes, kind: bytes, inode: Inode, size: int, target: bytes = b"") -> bytes:
    block = b"".join(
        (
            name[:100].ljust(100, b"\0"),
            _number(inode.mode, 8),
            _number(inode.uid, 8),
            _number(inode.gid, 8),
            _number(size, 12),
            _number(inode.mtime, 12),
            b" " * 8,  # the checksum counts itself as blanks
            kind,
            target[:100].ljust(100, b"\0"),
            b"ustar  \0",
            bytes(64),  # no names of owners: numbers count
            _number(inode.device[0], 8),
            _number(inode.device[1], 8),
            bytes(167),
        )
    )
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _number(value: int, width: int) -> bytes:
    """Octal, or where that is too short GNU's base 256."""
    if value < 8 ** (width - 1):
        return b"%0*o\0" % (width - 1, value)
    return b"\x80" + value.to_bytes(width - 1, "big")
