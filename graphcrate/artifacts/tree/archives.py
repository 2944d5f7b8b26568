"""Images in one tar, as they stream by: what docker, podman and skopeo save (docker-archive, oci-archive).

Layers are read where they stand, before anything tells which of them the image has: a stream is never gone back in,
and nothing of it is written to the disk but small files that may be compared in another form.
"""

import io
import itertools
import posixpath
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO, Any, TypeVar, cast

import msgspec

from graphcrate.artifacts.formats.kinds import GZIP_MAGIC, ZSTD_MAGIC
from graphcrate.artifacts.tree.layers import Documents, LayerTree, opened, read_layer
from graphcrate.artifacts.tree.reader import Opened, Spool
from graphcrate.model.errors import LayoutError
from graphcrate.model.tree import Form
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.oci import spec
from graphcrate.oci.blob import CHUNK, MAX_READ, TarStream, inflated, members

_Document = TypeVar("_Document")


class _Saved(msgspec.Struct, frozen=True, rename="pascal"):
    """An image in Docker's manifest.json."""

    config: str
    layers: tuple[str, ...]
    repo_tags: tuple[str, ...] | None = None


@dataclass
class _Archive:
    """What was found on the way, by its name in the tar."""

    documents: dict[str, bytes] = field(default_factory=dict)
    layers: dict[str, LayerTree] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def resolved(self, name: str) -> str:
        """The name that links lead to: Docker saves a layer that comes twice as a link."""
        for _ in range(len(self.links) + 1):
            if name not in self.links:
                break
            name = self.links[name]
        return name


class Chunks(io.RawIOBase):
    """A file of pieces that come one after another, readable forward only."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (a buffer; typing has no name for it in 3.11)
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def read_archive(name: str, form: Form, source: io.RawIOBase, spool: Spool) -> Opened:
    """The one image in a tar, compressed or not. Raises LayoutError where there is none, or are several."""
    archive = _Archive()
    for member, _ in members(stream := _stream(source)):
        path = posixpath.normpath(member.name)
        if member.issym():
            archive.links[path] = posixpath.normpath(posixpath.join(posixpath.dirname(path), member.linkname))
        elif member.islnk():
            archive.links[path] = posixpath.normpath(member.linkname)
        elif member.isfile() and member.size:
            _read_member(archive, path, member, stream, spool)
    if "manifest.json" in archive.documents:
        config, layers = _docker_image(archive)
        return opened(name, form, layers, Documents(config), spool)
    documents, layers = _oci_image(archive)
    return opened(name, form, layers, documents, spool)


def _stream(source: io.RawIOBase) -> TarStream:
    """The tar in these bytes, whatever it is compressed with."""
    reader = io.BufferedReader(source, CHUNK)
    head = reader.peek(len(ZSTD_MAGIC))
    kind = spec.LAYER_TAR
    if head.startswith(GZIP_MAGIC):
        kind = spec.LAYER_GZIP
    elif head.startswith(ZSTD_MAGIC):
        kind = spec.LAYER_ZSTD
    return inflated(kind, cast("IO[bytes]", reader))


def _read_member(archive: _Archive, path: str, member: tarfile.TarInfo, stream: TarStream, spool: Spool) -> None:
    """A document or a layer; whatever else there is means nothing."""
    pieces = stream.chunks(member.size)
    first = next(pieces)
    if first[:1] in (b"{", b"[") and first[257:262] != b"ustar" and member.size <= MAX_READ:
        archive.documents[path] = first + b"".join(pieces)
    elif path.startswith("blobs/") or path.endswith(".tar"):
        try:
            archive.layers[path] = read_layer(_stream(Chunks(itertools.chain((first,), pieces))), spool)
        except LayoutError as error:
            raise LayoutError(f"layer {path}: {error.what}", cause=error.cause) from error


def _docker_image(archive: _Archive) -> tuple[spec.ImageConfig, list[LayerTree]]:
    saved = _decoded(archive, "manifest.json", tuple[_Saved, ...])
    if len(saved) != 1:
        names = ", ".join(tag for image in saved for tag in image.repo_tags or ("(untagged)",))
        raise LayoutError(f"the archive has {len(saved)} images, one was expected", cause=f"It has: {names or 'none'}.")
    config = _decoded(archive, saved[0].config, spec.ImageConfig)
    return config, [_layer(archive, name) for name in saved[0].layers]


def _oci_image(archive: _Archive) -> tuple[Documents, list[LayerTree]]:
    if "index.json" not in archive.documents:
        raise LayoutError(
            "the tar has neither manifest.json nor index.json",
            cause="It is no image that Docker, podman or skopeo saved; a root file system perhaps.",
            next_step="mkdir root && tar -C root -xf FILE    and give the folder",
        )
    index = _decoded(archive, "index.json", spec.Index)
    entries: tuple[spec.Descriptor, ...] = ()
    while True:
        images = [entry for entry in index.manifests if entry.platform is None or _is_ours(entry.platform)]
        if len(images) != 1:
            raise LayoutError(f"the archive has {len(images)} images for linux/amd64, one was expected")
        if images[0].media_type not in spec.INDEX_TYPES:
            break
        index = _decoded(archive, _blob(images[0]), spec.Index)
        entries = index.manifests
    manifest = _decoded(archive, _blob(images[0]), spec.Manifest)
    config = _decoded(archive, _blob(manifest.config), spec.ImageConfig)
    documents = Documents(config, manifest, entries)
    return documents, [_layer(archive, _blob(layer)) for layer in manifest.layers]


def _is_ours(platform: spec.Platform) -> bool:
    return (platform.os, platform.architecture) == ("linux", "amd64")


def _blob(descriptor: spec.Descriptor) -> str:
    return f"blobs/{descriptor.digest.replace(':', '/')}"


def _layer(archive: _Archive, name: str) -> LayerTree:
    found = archive.layers.get(archive.resolved(posixpath.normpath(name)))
    if found is None:
        raise LayoutError(f"the layer {name} is missing from the archive")
    return found


def _decoded(archive: _Archive, name: str, kind: type[_Document]) -> _Document:
    data = archive.documents.get(archive.resolved(posixpath.normpath(name)))
    if data is None:
        raise LayoutError(f"{name} is missing from the archive")
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise LayoutError(f"{name} is malformed: {error}") from error
