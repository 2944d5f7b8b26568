"""Layers to a tree, read from their tars without unpacking anything: one pass over each, then merged in order.

The layers of an OCI image layout are read side by side. Where the reader has a name, the cache remembers what it took
of each, under the layer's digest and that name, since many images share a layer.
"""

import contextlib
import hashlib
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec
from isal import igzip, igzip_lib

from graphcrate.artifacts.formats.merged import check_digest, inode_of
from graphcrate.artifacts.tree.reader import OpenedTree, Selection, Tools
from graphcrate.host.disk import trees
from graphcrate.host.disk.cache import Cache
from graphcrate.host.parallel import parallel
from graphcrate.model import codec
from graphcrate.model.contract import Settings
from graphcrate.model.errors import UNREADABLE, LayoutError
from graphcrate.model.tree import Entry, Form, Kind
from graphcrate.oci import layer_files
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import Layout
from layertar.blob import InflateError
from layertar.entries import Entries, Faults, device_of, overlaid, read_entries
from layertar.stream import TarStream, content_of
from ocilayout import spec
from ocilayout.spec import LayerBlob
from sifsquash.values import Inode

_FOLDER = "trees"
_FAST = 1  #: igzip's level
_SMALL = 1 << 16  #: bytes of a file that is selected in memory
_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "folder",
    tarfile.REGTYPE: "file",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "fifo",
}


class LayerEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry, and what is kept of its content, if anything."""

    entry: Entry
    content: bytes | None = None


LayerTree = Entries[LayerEntry]
#: A folder that no layer has an entry for.
_IMPLIED = LayerEntry(Entry("folder", 0o755))


def read_layer(stream: TarStream, selection: Selection) -> LayerTree:
    """Read one layer to its end, hashing its files. Raises LayoutError for one that no runtime would unpack."""

    def keep(path: str, header: tarfile.TarInfo) -> LayerEntry:
        inode = inode_of(path, header)
        if inode.is_file:
            return _file(f"/{path}", inode, content_of(header, stream), selection)
        link, mode = inode.link, 0o777 if inode.link else inode.mode
        link = device_of(inode.kind, inode.device) or link
        return LayerEntry(Entry(_KINDS[inode.kind], mode, inode.uid, inode.gid, 0, "", link))

    return read_entries(stream, keep)


def read_unpacked(root: Path, selection: Selection) -> LayerTree:
    """The same of a layer that `oci.layer_files` has; without hashes."""
    tree = LayerTree()
    for at, folders, names in trees.walk(root):
        for on_disk in (Path(at, name) for name in (*folders, *names)):
            path, status = str(on_disk.relative_to(root)), on_disk.lstat()
            mode, link, content = stat.S_IMODE(status.st_mode), "", None
            kind: Kind = "file"
            if stat.S_ISDIR(status.st_mode):
                kind = "folder"
                tree.folders.add(path)
            elif stat.S_ISLNK(status.st_mode):
                kind, mode, link = "symlink", 0o777, str(on_disk.readlink())
            elif selection.keep(f"/{path}", status.st_size):
                content = selection.distil(f"/{path}", status.st_size, on_disk)
            size = status.st_size if kind == "file" else 0
            tree.by_path[path] = LayerEntry(Entry(kind, mode, 0, 0, size, "", link), content)
    return tree


class WrittenLayer:
    """A layer as a reader sees it, read while it is written; without hashes. A copy for `ocilayout.layer.LayerWriter`.

    `folder`: for what is selected of it, one file at a time.
    """

    def __init__(self, selection: Selection, folder: Path) -> None:
        self.tree = LayerTree()
        self._selection, self._on_disk = selection, folder / "file"

    def folder(self, path: str, mode: int) -> None:
        """Take a folder."""
        self.tree.folders.add(path)
        self._add(path, Entry("folder", mode))

    def symlink(self, path: str, target: str) -> None:
        """Take a symbolic link."""
        self._add(path, Entry("symlink", 0o777, link=target))

    @contextlib.contextmanager
    def file(self, path: str, mode: int, size: int) -> Iterator[Callable[[bytes], object]]:
        """Take a file; give what takes its content, piece by piece, and what is not selected drops it."""
        content = None
        if not self._selection.keep(f"/{path}", size):
            yield len
        elif size < _SMALL:
            pieces: list[bytes] = []
            yield pieces.append
            content = self._selection.distil(f"/{path}", size, pieces)
        else:
            with self._on_disk.open("wb") as file:
                yield file.write
            content = self._selection.distil(f"/{path}", size, self._on_disk)
            self._on_disk.unlink()
        self._add(path, Entry("file", mode, size=size), content)

    def _add(self, path: str, entry: Entry, content: bytes | None = None) -> None:
        self.tree.by_path[path] = LayerEntry(entry, content)


def _file(path: str, inode: Inode, content: Iterator[bytes], selection: Selection) -> LayerEntry:
    digest = hashlib.sha256()

    def pieces() -> Iterator[bytes]:
        for chunk in content:
            if selection.hashes:
                digest.update(chunk)
            yield chunk

    rest = pieces()
    kept = selection.distil(path, inode.size, rest) if selection.keep(path, inode.size) else None
    if selection.hashes:
        for _ in rest:  # not read
            pass
    sha256 = digest.hexdigest() if selection.hashes else ""
    return LayerEntry(Entry("file", inode.mode, inode.uid, inode.gid, inode.size, sha256), kept)


def open_layers(
    name: str,
    form: Form,
    layers: Sequence[LayerTree | LayoutError],
    config: spec.ImageConfig,
    manifest: spec.Manifest | None = None,
    index: tuple[spec.Descriptor, ...] = (),
) -> OpenedTree:
    """Open an image from its layers and its documents. An error in the place of a layer: why it cannot be read."""
    merged: dict[str, LayerEntry] = {}
    broken = [layer for layer in layers if isinstance(layer, LayoutError)]
    if not broken:
        contradictions = Faults()
        whole = [layer for layer in layers if not isinstance(layer, LayoutError)]
        try:
            merged = overlaid(whole, _IMPLIED, contradictions.add, LayoutError)
        except LayoutError as error:
            contradictions.errors.append(error)
        broken = cast("list[LayoutError]", contradictions.errors)  # of the class that `overlaid` was given
        if broken:
            merged = {}
    entries = {f"/{path}": kept.entry for path, kept in merged.items()}

    def read(path: str) -> bytes:
        content = merged[path.removeprefix("/")].content
        if content is None:
            raise KeyError(path)
        return content

    settings = _settings(config)
    return OpenedTree(
        name,
        form,
        entries,
        read,
        settings=settings,
        config=config,
        manifest=manifest,
        index=index,
        unread=tuple(f"the layers cannot be read: {error.what}" for error in broken),
        broken=_joined(broken),
    )


def _joined(errors: Sequence[LayoutError]) -> LayoutError | None:
    """One error for all of them."""
    if len(errors) < 2:
        return errors[0] if errors else None
    whats = "; ".join(error.what for error in errors)
    return LayoutError(f"{len(errors)} faults: {whats}", cause=errors[0].cause, next_step=errors[0].next_step)


def _settings(config: spec.ImageConfig) -> Settings:
    """Return the settings with which containers of the image start."""
    run = config.run
    return Settings(
        platform=f"{config.os}/{config.architecture}",
        environment=run.env or (),
        user=run.user or "",
        entrypoint=run.entrypoint or (),
        command=run.cmd or (),
        working_folder=run.working_dir or "",
        volumes=tuple(sorted(run.volumes or ())),
        labels=run.labels or {},
    )


def read_layout(name: str, layout: Layout, tools: Tools) -> OpenedTree:
    """Read an OCI image layout. Layers that cannot be read are named in the result, each of them."""
    blobs = layout.layer_blobs

    def read(number: int, advance: Callable[[int], None]) -> LayerTree | LayoutError:
        blob, descriptor = blobs[number], layout.layers[number]

        def read_blob() -> LayerTree:
            files = layer_files.place(tools.ctx.cache, descriptor.digest)
            if files.is_dir() and not tools.selection.hashes:  # its digest was taken when this run wrote both
                advance(descriptor.size)
                return read_unpacked(files, tools.selection)
            return read_compared(blob, descriptor.digest, tools.selection, advance)

        try:
            return remembered(descriptor.digest, tools.selection, tools.ctx.cache, read_blob)
        except LayoutError as error:
            return LayoutError(f"layer {blob.path.name}: {error.what}", cause=error.cause, next_step=error.next_step)

    sizes = [descriptor.size for descriptor in layout.layers]
    with tools.ctx.progress.task(f"reading {name}", sum(sizes), brief=True) as task:
        layers = parallel(read, range(len(sizes)), advance=task.advance, size=lambda number: sizes[number])
    return open_layers(name, "layout", layers, layout.config, layout.manifest, layout.index)


def read_compared(
    blob: LayerBlob, digest: str, selection: Selection, advance: Callable[[int], None] = lambda _: None
) -> LayerTree:
    """Read a layer, and compare its bytes with its digest: before it is remembered under that, for other images, too.

    Raises LayoutError.
    """
    hashed = hashlib.sha256()
    with open_blob(blob, advance=advance, digest=hashed) as stream:
        tree = read_layer(stream, selection)
    check_digest("layer", digest, f"sha256:{hashed.hexdigest()}")
    return tree


def remembered(digest: str, selection: Selection, cache: Cache, read: Callable[[], LayerTree]) -> LayerTree:
    """The layer of this digest as the reader sees it, from the cache or read now. Raises what `read` raises."""
    if not selection.name:
        return read()
    path = cache.path(_FOLDER, f"{digest.removeprefix('sha256:')}-{selection.name}")
    try:
        data = igzip_lib.decompress(path.read_bytes(), flag=igzip_lib.DECOMP_GZIP)
        return codec.unpack(data, LayerTree)
    except FileNotFoundError:
        pass
    except (InflateError, *UNREADABLE):  # of a version that wrote otherwise, or damaged
        path.unlink(missing_ok=True)
    layer = read()
    cache.write(path, igzip.compress(msgspec.msgpack.encode(layer), compresslevel=_FAST))
    return layer
