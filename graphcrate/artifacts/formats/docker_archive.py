"""An image in one tar, as `docker load` and `skopeo copy oci-archive:` take it. Blobs go in as they are."""

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from graphcrate.artifacts.formats.merged import check_digest
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import Layout, check_presence
from layertar.stream import CHUNK
from ocilayout import spec
from ocilayout.spec import Descriptor, LayerBlob
from ocilayout.tar import END_OF_ARCHIVE, EntryType, header, padding

Advance = Callable[[int], None]
_Kind = TypeVar("_Kind")


class Saved(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """An image in Docker's manifest.json: names of its parts in the archive."""

    config: str
    repo_tags: tuple[str, ...] | None = None
    layers: tuple[str, ...]


def write_oci(stream: IO[bytes], layout: Layout, created: int, advance: Advance, below: str = "") -> None:
    """The layout as it is, in a tar. Raises LayoutError for a blob that is missing, cut off or altered.

    `below`: a folder of the tar, with a slash at its end.
    """
    archive = _Archive(stream, layout, created, advance, below)
    archive.blob(layout.descriptor)
    archive.blob(layout.manifest.config)
    for layer in layout.layers:
        archive.blob(layer)
    archive.document("index.json", _index(layout))
    archive.document("oci-layout", {"imageLayoutVersion": spec.LAYOUT_VERSION})
    stream.write(END_OF_ARCHIVE)


def _index(layout: Layout) -> spec.ImageIndex:
    return spec.ImageIndex(schema_version=2, media_type=spec.INDEX, manifests=(layout.descriptor,))


def is_docker(path: Path, layout: Layout, name: str | None) -> bool:
    """Return whether a file is what `write_docker` writes of this image.

    It is whole: the list of its parts comes last.
    """
    config = _blob_path(layout.manifest.config.digest)  # names the layers' contents, too
    saved = _document(path, "manifest.json", tuple[Saved, ...]) or ()
    return [(image.config, image.repo_tags) for image in saved] == [(config, (name,) if name else None)]


def is_oci(path: Path, layout: Layout) -> bool:
    """Return whether a file is what `write_oci` writes of this layout."""
    return _document(path, "index.json", spec.ImageIndex) == _index(layout)


def _blob_path(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _document(path: Path, name: str, kind: type[_Kind]) -> _Kind | None:
    try:
        with tarfile.open(path, "r:") as archive, archive.extractfile(name) or io.BytesIO() as stream:
            return codec.decode(stream.read(), kind)
    except (OSError, KeyError, tarfile.TarError, *UNREADABLE):
        return None


def write_docker(stream: IO[bytes], layout: Layout, name: str | None, created: int, advance: Advance) -> None:
    """Write the archive that `docker save` writes: manifest.json, configuration, layers.

    `name`: the image's, with its tag.
    Layers stay compressed, since every Docker inflates gzip; those of zstd, which old ones cannot, are inflated here.
    Raises LayoutError as `write_oci`.
    """
    archive = _Archive(stream, layout, created, advance)
    for layer in layout.layers:
        if spec.LAYER_TYPES.get(layer.media_type) == spec.LAYER_ZSTD:
            archive.inflated(layer)
        else:
            archive.blob(layer)
    config = layout.manifest.config
    archive.blob(config)
    layers = tuple(archive.paths[layer.digest] for layer in layout.layers)
    saved = Saved(config=archive.paths[config.digest], repo_tags=(name,) if name else None, layers=layers)
    archive.document("manifest.json", [saved])
    stream.write(END_OF_ARCHIVE)


class _Archive:
    """A tar that is being written. `paths`: of the blobs in it, by digest; each goes in once."""

    def __init__(self, stream: IO[bytes], layout: Layout, created: int, advance: Advance, below: str = "") -> None:
        check_presence(layout)
        self._stream, self._layout, self._created, self._advance = stream, layout, created, advance
        self._below, self.paths = below, dict[str, str]()
        for folder in ("blobs", "blobs/sha256"):
            stream.write(header(f"{below}{folder}", EntryType.FOLDER, mode=0o755, mtime=created))

    def document(self, path: str, value: object) -> None:
        data = msgspec.json.encode(value) + b"\n"
        self._file(path, len(data), (data,))

    def blob(self, descriptor: Descriptor) -> None:
        """A blob as it is, checked on its way."""
        if descriptor.digest not in self.paths:
            self._put(descriptor, descriptor.digest, descriptor.size, self._checked(descriptor))

    def inflated(self, layer: Descriptor) -> None:
        """A layer as a plain tar. Read twice: a tar has the size first."""
        if layer.digest in self.paths:
            return
        blob = LayerBlob(path=self._layout.blob(layer.digest), media_type=layer.media_type)
        digest, diff_id = hashlib.sha256(), hashlib.sha256()
        with open_blob(blob, advance=self._advance, digest=digest, diff_id=diff_id) as stream:
            stream.drain()
            size = stream.tell()
        check_digest("the blob", layer.digest, f"sha256:{digest.hexdigest()}")
        with open_blob(blob) as stream:
            self._put(layer, diff_id.hexdigest(), size, stream.chunks(size))

    def _put(self, descriptor: Descriptor, name: str, size: int, pieces: Iterable[bytes]) -> None:
        path = self.paths[descriptor.digest] = _blob_path(name)
        self._file(path, size, pieces)

    def _file(self, path: str, size: int, pieces: Iterable[bytes]) -> None:
        self._stream.write(header(f"{self._below}{path}", EntryType.FILE, mode=0o644, mtime=self._created, size=size))
        self._stream.writelines(pieces)
        self._stream.write(padding(size))

    def _checked(self, descriptor: Descriptor) -> Iterator[bytes]:
        digest = hashlib.sha256()
        with self._layout.blob(descriptor.digest).open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                self._advance(len(chunk))
                yield chunk
        check_digest("the blob", descriptor.digest, f"sha256:{digest.hexdigest()}")
