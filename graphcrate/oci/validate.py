"""Re-check every invariant of a written layout, from the bytes alone, and name everything that breaks one.

Documents and their digests are checked by `read_layout`; here come the blobs: sizes, digests, diff_ids, that each
layer is a tar which every runtime unpacks alike, and that the layers do not contradict each other.
"""

import hashlib
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from graphcrate.host.disk import trees
from graphcrate.host.parallel import parallel
from graphcrate.model.errors import LayoutError
from graphcrate.model.words import printable
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import Layout, absence
from layertar.entries import (
    HARMLESS_DEVICES,
    Entries,
    Faults,
    Refuse,
    device_of,
    overlaid,
    raise_first,
    read_entries,
)
from ocilayout import spec
from ocilayout.spec import LayerBlob


@dataclass(frozen=True)
class LayerFacts:
    """Facts from reading a layer's blob."""

    digest: str
    diff_id: str
    unpacked_size: int
    entries: Entries[str]  #: of each device that is a machine's own what it is, else nothing


@dataclass(frozen=True)
class Validation:
    """`faults` break a rule of the image; `warnings`: what breaks none, and should not be there."""

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def validate(layout: Layout, advance: Callable[[int], None] | None = None) -> Validation:
    """Read every layer; `advance` counts compressed bytes."""
    faults = [*_document_faults(layout)]
    for document in (layout.descriptor, layout.manifest.config):
        if error := absence(layout, document):
            faults.append(error.what)
    layers = layout.layers
    read = parallel(
        lambda number, advancing: _read_layer(layout, number, advancing),
        range(len(layers)),
        advance=advance,
        size=lambda number: layers[number].size,
    )
    for layer_faults, _ in read:
        faults.extend(layer_faults)
    warnings = [*_strangers(layout)]
    entries = [layer_entries for _, layer_entries in read if layer_entries is not None]
    if len(entries) == len(layers):  # else what is below a layer is not known
        contradictions = Faults()
        try:
            warnings.extend(_device_warnings(overlaid(entries, "", contradictions.add, LayoutError)))
        except LayoutError as error:
            contradictions.errors.append(error)
        faults.extend(error.what for error in contradictions.errors)
    return Validation(tuple(dict.fromkeys(faults)), tuple(warnings))


def _read_layer(layout: Layout, number: int, advance: Callable[[int], None]) -> tuple[list[str], Entries[str] | None]:
    """Faults of a layer, and its entries; None where it cannot be read to its end."""
    layer = layout.layers[number]
    if layer.media_type not in spec.LAYER_TYPES:  # a fault of the manifest
        return [], None
    if error := absence(layout, layer):
        return [error.what], None
    blob, refused = layout.layer_blobs[number], Faults()
    facts = None
    faults = []
    try:
        facts = inspect_layer(blob, advance, refused.add)
    except LayoutError as error:
        faults.append(error.what)
    else:
        diff_ids = layout.config.rootfs.diff_ids
        if facts.digest != layer.digest:
            faults.append(f"layer {layer.digest} is damaged: its bytes hash to {facts.digest}")
        elif len(diff_ids) == len(layout.layers) and facts.diff_id != diff_ids[number]:
            faults.append(f"layer {layer.digest} holds {facts.diff_id}, the configuration says {diff_ids[number]}")
    named = [f"layer {blob.path.name}: {error.what}" for error in refused.errors]
    return [*named, *faults], facts.entries if facts else None


def inspect_layer(
    blob: LayerBlob, advance: Callable[[int], None] | None = None, refuse: Refuse = raise_first
) -> LayerFacts:
    """Read a layer to its end and check its entries. `advance` counts compressed bytes. Raises LayoutError."""
    digest, diff_id = hashlib.sha256(), hashlib.sha256()
    try:
        with open_blob(blob, advance=advance, digest=digest, diff_id=diff_id) as stream:
            entries = read_entries(stream, _device, refuse)
            unpacked = stream.tell()
    except LayoutError as error:
        raise LayoutError(
            f"layer {blob.path.name}: {error.what}", cause=error.cause, next_step=error.next_step
        ) from error
    return LayerFacts(f"sha256:{digest.hexdigest()}", f"sha256:{diff_id.hexdigest()}", unpacked, entries)


def _device(_: str, header: tarfile.TarInfo) -> str:
    device = device_of(header.type, (header.devmajor, header.devminor))
    return "" if device in HARMLESS_DEVICES else device


def _document_faults(layout: Layout) -> Iterator[str]:
    """Yield contradictions of the manifest and the configuration with each other or the specification."""
    manifest, config = layout.manifest, layout.config
    if manifest.schema_version != 2:
        yield f"the manifest has schema version {manifest.schema_version}, not 2"
    if manifest.media_type not in ("", layout.descriptor.media_type):
        yield f"the manifest says it is {manifest.media_type}, the index {layout.descriptor.media_type}"
    for layer in manifest.layers:
        if layer.media_type not in spec.LAYER_TYPES:
            yield f"layer {layer.digest} is of unknown type {layer.media_type}"
    if config.rootfs.type != "layers":
        yield f"the configuration's diff_ids are of type {config.rootfs.type!r}, not 'layers'"
    if len(config.rootfs.diff_ids) != len(manifest.layers):
        count = len(config.rootfs.diff_ids)
        yield f"the manifest has {len(manifest.layers)} layers, the configuration {count} diff_ids"
    if config.history is not None:
        entries = sum(not entry.empty_layer for entry in config.history)
        if entries != len(manifest.layers):
            yield f"the history tells of {entries} layers, the manifest has {len(manifest.layers)}"
    if not (config.architecture and config.os):
        yield "the configuration names no architecture or operating system"
        return
    platform = layout.descriptor.platform
    if platform is not None and (platform.architecture, platform.os) != (config.architecture, config.os):
        made_for = f"{config.os}/{config.architecture}"
        yield f"the index says {platform.os}/{platform.architecture}, the configuration {made_for}"


def _device_warnings(merged: Mapping[str, str]) -> Iterator[str]:
    devices = [f"/{printable(path)} ({device})" for path, device in sorted(merged.items()) if device]
    if devices:
        more = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
        yield f"the image has a device of a machine, {devices[0]}{more}: no runtime needs it; do not unpack it as root"


def _strangers(layout: Layout) -> Iterator[str]:
    known = {layout.digest, layout.manifest.config.digest, *(layer.digest for layer in layout.layers)}
    for path in sorted(trees.files(layout.path / "blobs")):
        if path.is_file() and (path.parent.name != "sha256" or f"sha256:{path.name}" not in known):
            yield f"{path.relative_to(layout.path)} belongs to no image of the layout"
