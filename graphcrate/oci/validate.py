"""Re-check every invariant of a written layout, from the bytes alone.

Documents and their digests are checked by `read_layout`; here come the blobs: sizes, digests, diff_ids, that each
layer is a tar which every runtime unpacks alike, and that the layers do not contradict each other.
"""

import hashlib
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from graphcrate.host.parallel import parallel
from graphcrate.model.errors import LayoutError
from graphcrate.model.words import printable
from graphcrate.oci import spec
from graphcrate.oci.blob import open_blob
from graphcrate.oci.entries import HARMLESS_DEVICES, Entries, device_of, overlaid, read_entries
from graphcrate.oci.layout import REBUILD, Layout, check_presence
from graphcrate.oci.spec import LayerBlob


@dataclass(frozen=True)
class LayerFacts:
    """What reading a layer's blob showed."""

    digest: str
    diff_id: str
    unpacked_size: int
    entries: Entries[str]  #: of each device that is a machine's own what it is, else nothing


def validate(layout: Layout, advance: Callable[[int], None] | None = None) -> tuple[str, ...]:
    """Read every layer; `advance` counts compressed bytes. Raises LayoutError.

    Returns warnings: what breaks no rule but should not be there, such as blobs that nothing refers to.
    """
    check_presence(layout)
    _check_documents(layout)
    facts = parallel(inspect_layer, layout.layer_blobs, advance=advance, size=lambda blob: blob.path.stat().st_size)
    for layer, diff_id, seen in zip(layout.layers, layout.config.rootfs.diff_ids, facts, strict=True):
        if seen.digest != layer.digest:
            raise LayoutError(f"layer {layer.digest} is damaged: its bytes hash to {seen.digest}", next_step=REBUILD)
        if seen.diff_id != diff_id:
            raise LayoutError(f"layer {layer.digest} holds {seen.diff_id}, the configuration says {diff_id}")
    merged = overlaid([seen.entries for seen in facts], "")
    devices = [f"/{printable(path)} ({device})" for path, device in sorted(merged.items()) if device]
    return (*_warnings(layout), *_of_devices(devices))


def inspect_layer(blob: LayerBlob, advance: Callable[[int], None] | None = None) -> LayerFacts:
    """Read a layer to its end and check its entries. `advance` counts compressed bytes. Raises LayoutError."""
    digest, diff_id = hashlib.sha256(), hashlib.sha256()
    try:
        with open_blob(blob, advance=advance, digest=digest, diff_id=diff_id) as stream:
            entries = read_entries(stream, _device)
            unpacked = stream.tell()
    except LayoutError as error:
        raise LayoutError(
            f"layer {blob.path.name}: {error.what}", cause=error.cause, next_step=error.next_step
        ) from error
    return LayerFacts(f"sha256:{digest.hexdigest()}", f"sha256:{diff_id.hexdigest()}", unpacked, entries)


def _device(_: str, header: tarfile.TarInfo) -> str:
    device = device_of(header.type, (header.devmajor, header.devminor))
    return "" if device in HARMLESS_DEVICES else device


def _check_documents(layout: Layout) -> None:
    """What the manifest and the configuration say of each other."""
    manifest, config = layout.manifest, layout.config
    if manifest.schema_version != 2:
        raise LayoutError(f"the manifest has schema version {manifest.schema_version}, not 2")
    if manifest.media_type not in ("", layout.descriptor.media_type):
        raise LayoutError(f"the manifest says it is {manifest.media_type}, the index {layout.descriptor.media_type}")
    for layer in manifest.layers:
        if layer.media_type not in spec.LAYER_TYPES:
            raise LayoutError(f"layer {layer.digest} is of unknown type {layer.media_type}")
    if config.rootfs.type != "layers" or len(config.rootfs.diff_ids) != len(manifest.layers):
        raise LayoutError(
            f"the manifest has {len(manifest.layers)} layers, the configuration {len(config.rootfs.diff_ids)} diff_ids"
        )
    if config.history is not None:
        entries = sum(not entry.empty_layer for entry in config.history)
        if entries != len(manifest.layers):
            raise LayoutError(f"the history tells of {entries} layers, the manifest has {len(manifest.layers)}")
    if not (config.architecture and config.os):
        raise LayoutError("the configuration names no architecture or operating system")
    platform = layout.descriptor.platform
    if platform is not None and (platform.architecture, platform.os) != (config.architecture, config.os):
        raise LayoutError(f"the index says {platform.os}/{platform.architecture}, the configuration {config.os}/…")


def _of_devices(devices: list[str]) -> Iterator[str]:
    if devices:
        more = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
        yield f"the image has a device of a machine, {devices[0]}{more}: no runtime needs it; do not unpack it as root"


def _warnings(layout: Layout) -> Iterator[str]:
    known = {layout.digest, layout.manifest.config.digest, *(layer.digest for layer in layout.layers)}
    for path in sorted((layout.path / "blobs").rglob("*")):
        if path.is_file() and (path.parent.name != "sha256" or f"sha256:{path.name}" not in known):
            yield f"{path.relative_to(layout.path)} belongs to no image of the layout"
