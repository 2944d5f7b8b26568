"""An image in one tar, as `docker load` and `skopeo copy oci-archive:` take it. Blobs go in as they are."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from graphcrate.model.errors import LayoutError
from graphcrate.oci import spec
from graphcrate.oci.blob import CHUNK, open_blob
from graphcrate.oci.layout import REBUILD, Layout, check_presence
from graphcrate.oci.spec import Descriptor, LayerBlob
from graphcrate.oci.tar import END_OF_ARCHIVE, Kind, header, padding


def write_oci(stream: IO[bytes], layout: Layout, created: int, advance: Callable[[int], None]) -> None:
    """The layout as it is, in a tar. Raises LayoutError for a blob that is missing, cut off or altered."""
    check_presence(layout)
    archive = _Archive(stream, created)
    for descriptor in _once(layout.descriptor, layout.manifest.config, *layout.layers):
        archive.blob(layout, descriptor, advance)
    index = spec.Index(schema_version=2, media_type=spec.INDEX, manifests=(layout.descriptor,))
    archive.data("index.json", msgspec.json.encode(index) + b"\n")
    archive.data("oci-layout", msgspec.json.encode({"imageLayoutVersion": spec.LAYOUT_VERSION}) + b"\n")
    archive.finish()


def write_docker(
    stream: IO[bytes], layout: Layout, name: str | None, created: int, advance: Callable[[int], None]
) -> None:
    """What `docker save` writes: manifest.json, the configuration, the layers. `name` is the image's, with its tag.

    Layers stay compressed, since every Docker inflates gzip; those of zstd, which old ones cannot, are inflated here.
    Raises LayoutError as `write_oci`.
    """
    check_presence(layout)
    archive = _Archive(stream, created)
    places = {}
    for layer in _once(*layout.layers):
        if spec.LAYER_TYPES.get(layer.media_type) == spec.LAYER_ZSTD:
            places[layer.digest] = archive.inflated(layout, layer, advance)
        else:
            places[layer.digest] = archive.blob(layout, layer, advance)
    config = archive.blob(layout, layout.manifest.config, advance)
    saved = {
        "Config": config,
        "RepoTags": [name] if name else None,
        "Layers": [places[x.digest] for x in layout.layers],
    }
    archive.data("manifest.json", msgspec.json.encode([saved]) + b"\n")
    archive.finish()


def _once(*descriptors: Descriptor) -> list[Descriptor]:
    return list({descriptor.digest: descriptor for descriptor in descriptors}.values())


class _Archive:
    """A tar that is being written."""

    def __init__(self, stream: IO[bytes], created: int) -> None:
        self._stream, self._created = stream, created
        for folder in ("blobs", "blobs/sha256"):
            stream.write(header(folder, Kind.FOLDER, mode=0o755, mtime=created))

    def data(self, path: str, content: bytes) -> None:
        self._begin(path, len(content))
        self._stream.write(content)
        self._stream.write(padding(len(content)))

    def blob(self, layout: Layout, descriptor: Descriptor, advance: Callable[[int], None]) -> str:
        """A blob as it is, checked on its way; its name."""
        path = _place(descriptor.digest)
        self._begin(path, descriptor.size)
        digest = hashlib.sha256()
        for chunk in _chunks(layout.blob(descriptor.digest)):
            digest.update(chunk)
            self._stream.write(chunk)
            advance(len(chunk))
        _require(descriptor, digest.hexdigest())
        self._stream.write(padding(descriptor.size))
        return path

    def inflated(self, layout: Layout, layer: Descriptor, advance: Callable[[int], None]) -> str:
        """A layer as a plain tar; its name. Read twice: a tar wants the size first."""
        blob = LayerBlob(path=layout.blob(layer.digest), media_type=layer.media_type)
        digest, diff_id = hashlib.sha256(), hashlib.sha256()
        with open_blob(blob, advance=advance, digest=digest, diff_id=diff_id) as stream:
            stream.drain()
            size = stream.tell()
        _require(layer, digest.hexdigest())
        path = _place(diff_id.hexdigest())
        self._begin(path, size)
        with open_blob(blob) as stream:
            for chunk in stream.chunks(size):
                self._stream.write(chunk)
        self._stream.write(padding(size))
        return path

    def finish(self) -> None:
        self._stream.write(END_OF_ARCHIVE)

    def _begin(self, path: str, size: int) -> None:
        self._stream.write(header(path, Kind.FILE, mode=0o644, mtime=self._created, size=size))


def _place(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _require(descriptor: Descriptor, hexadecimal: str) -> None:
    if f"sha256:{hexadecimal}" != descriptor.digest:
        raise LayoutError(
            f"the blob {descriptor.digest} is damaged: its bytes hash to sha256:{hexadecimal}",
            cause="The file was changed after it was written.",
            next_step=REBUILD,
        )
