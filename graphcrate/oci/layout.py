"""OCI image layouts: a folder with `oci-layout`, `index.json` and `blobs/sha256/<hex>`, holding one image."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from graphcrate.host.disk.atomic import replacing
from graphcrate.model.errors import LayoutError
from graphcrate.model.platform import DEFAULT, Platform, supported
from graphcrate.model.report import LayerRecord
from graphcrate.oci.image import TITLE, Image
from graphcrate.oci.index import decode_document, find_manifest, read_config, root_entry
from ocilayout import layout, spec
from ocilayout.spec import LayerBlob

REBUILD = "remove the image's folder and build it again; unchanged parts come from the cache"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """One image of a layout, its documents read and their digests checked. `validate` checks the rest."""

    path: Path
    descriptor: spec.Descriptor  #: of the manifest, from the index
    manifest: spec.Manifest
    config: spec.ImageConfig
    records: tuple[LayerRecord, ...]  #: of the layers; without owners and unpacked sizes (0) unless just written
    index: tuple[spec.Descriptor, ...] = ()  #: entries of an image index in the layout, of which the manifest is one

    @property
    def digest(self) -> str:
        """Of the manifest."""
        return self.descriptor.digest

    @property
    def tag(self) -> str:
        """`org.opencontainers.image.ref.name`, or empty."""
        return self.descriptor.annotations.get(spec.REF_NAME, "")

    @property
    def layers(self) -> tuple[spec.Descriptor, ...]:
        """Lowest first."""
        return self.manifest.layers

    @property
    def layer_blobs(self) -> tuple[LayerBlob, ...]:
        """The layers as files, lowest first: what `artifacts.formats.rootfs.unpack` takes."""
        return tuple(LayerBlob(path=self.blob(layer.digest), media_type=layer.media_type) for layer in self.layers)

    @property
    def size(self) -> int:
        """Bytes of all blobs, each counted once."""
        layers = {layer.digest: layer.size for layer in self.layers}
        return sum(layers.values()) + self.manifest.config.size + self.descriptor.size

    @property
    def platform(self) -> Platform:
        """Return the platform of its programs; the default one for a platform that no image is made for."""
        return supported(f"{self.config.os}/{self.config.architecture}")

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that a container of the image starts with."""
        return self.config.run.environment

    @property
    def labels(self) -> Mapping[str, str]:
        """The configuration's labels."""
        return self.config.run.labels or {}

    def blob(self, digest: str) -> Path:
        """The path of the blob `sha256:<hex>`."""
        return _blob(self.path, digest)


def write_layout(destination: Path, image: Image, blobs: Callable[[str], Path], tag: str) -> Layout:
    """Write the image as a layout at `destination`, whole or not at all; another layout there is replaced.

    `blobs` gives the file of a layer's digest. Layers are hard links where the file system allows it, else copies;
    either is read-only, and readable by all under any umask.
    """
    if is_whole(destination, image.digest, tag):
        return dataclasses.replace(read_layout(destination, tag), records=image.layers)
    files = {layer.digest: blobs(layer.digest) for layer in image.layers}
    with replacing(destination) as partial:
        layout.write(partial, image.documents, files, tag, image.platform.architecture)
    return dataclasses.replace(read_layout(destination, tag), records=image.layers)


def read_layout(path: Path, tag: str = "", platform: Platform = DEFAULT) -> Layout:
    """Read the layout at `path`: the image tagged `tag`, or its only one. Raises LayoutError.

    Of an image for several platforms that for `platform` is taken.
    """
    marker, index_file = path / "oci-layout", path / "index.json"
    version = decode_document(_read(marker), dict[str, str], str(marker)).get("imageLayoutVersion")
    if version != spec.LAYOUT_VERSION:
        raise LayoutError(f"{marker}: layout version {version!r}, and {spec.LAYOUT_VERSION} is known")
    index = decode_document(_read(index_file), spec.ImageIndex, str(index_file))
    entry = root_entry(index, str(index_file), platform, tag)
    try:
        image = find_manifest(entry, lambda descriptor: _read_blob(path, descriptor), platform)
        config = read_config(image.manifest, lambda descriptor: _read_blob(path, descriptor))
    except LayoutError as error:
        raise LayoutError(f"{path}: {error.what}", cause=error.cause, next_step=error.next_step) from error
    return Layout(
        path=path,
        descriptor=image.descriptor,
        manifest=image.manifest,
        config=config,
        records=tuple(layer_records(image.manifest, config)),
        index=image.index,
    )


def is_whole(path: Path, digest: str, tag: str = "") -> bool:
    """Return whether `path` is a layout of the image with this digest, each blob there with its size.

    Reads no layer.
    """
    try:
        layout = read_layout(path, tag)
        check_presence(layout)
    except LayoutError:
        return False
    return layout.digest == digest


def check_presence(layout: Layout) -> None:
    """Raises LayoutError unless every blob is there and has its size. `validate` also reads them."""
    for descriptor in (layout.descriptor, layout.manifest.config, *layout.layers):
        if error := absence(layout, descriptor):
            raise error


def absence(layout: Layout, descriptor: spec.Descriptor) -> LayoutError | None:
    """The error for a blob that is missing or has another size than its descriptor says; None for any other."""
    path = layout.blob(descriptor.digest)
    if not path.is_file():
        return LayoutError(f"{layout.path}: the blob {descriptor.digest} is missing", next_step=REBUILD)
    if (size := path.stat().st_size) != descriptor.size:
        return LayoutError(
            f"{layout.path}: the blob {descriptor.digest} has {size} bytes, its descriptor says {descriptor.size}",
            cause="The file was cut off or changed after it was written.",
            next_step=REBUILD,
        )
    return None


def layer_records(manifest: spec.Manifest, config: spec.ImageConfig) -> Iterator[LayerRecord]:
    """Yield the documents' records of the layers. Whether they agree is for `validate`."""
    titles = [entry.created_by or "" for entry in config.history or () if not entry.empty_layer]
    for layer, diff_id, title in itertools.zip_longest(manifest.layers, config.rootfs.diff_ids, titles, fillvalue=None):
        if layer is not None:
            yield LayerRecord(
                title=(title or layer.digest).removeprefix(TITLE),
                digest=layer.digest,
                diff_id=diff_id or "",
                size=layer.size,
                unpacked_size=0,
                media_type=layer.media_type,
            )


def _blob(path: Path, digest: str) -> Path:
    if not spec.DIGEST.fullmatch(digest):
        raise LayoutError(f"{digest!r} is not a digest (`sha256:` and 64 hexadecimal digits)")
    return path / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _read_blob(path: Path, descriptor: spec.Descriptor) -> bytes:
    try:
        return _blob(path, descriptor.digest).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise LayoutError(f"the blob {descriptor.digest} is missing", next_step=REBUILD) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise LayoutError(
            f"{path} is missing", cause="The folder is not an OCI image layout, or not a whole one."
        ) from error
