"""An image in a tar as a layout in the cache. Docker's tars lack a manifest: it is made, and always the same."""

import hashlib
import itertools
from collections.abc import Iterator
from functools import partial
from typing import IO

import msgspec

from graphcrate.artifacts import saved
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import synced
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept
from graphcrate.model.errors import LayoutError
from graphcrate.model.platform import Platform
from graphcrate.oci.index import read_config, read_document
from graphcrate.oci.layout import Layout, check_presence, layer_records
from ocilayout import spec
from ocilayout.image import descriptor_of


class _Brought(msgspec.Struct, frozen=True):
    """An image that was read before: its manifest, and the entries of the image index that lists this one."""

    descriptor: spec.Descriptor
    index: tuple[spec.Descriptor, ...] = ()


def read(tar: saved.SavedTar, ctx: Context, platform: Platform, *, layers: bool) -> Layout:
    """Read a tar's image for a platform as a layout in the cache; without `layers` these are measured and not kept.

    The same image is not read again while the cache has what is asked of it. Raises LayoutError for a tar without an
    image or a damaged one, DiskFullError.
    """
    key = hashlib.sha256(f"{tar.identity}\n{platform.name}".encode()).hexdigest()
    record = ctx.cache.path("brought", key)
    before = kept(record, _Brought)
    if before and (layout := _known(before, ctx.cache, layers=layers)):
        return layout
    if layers:
        ctx.cache.require(tar.size, f"the layers of {tar.name}")
    image = saved.read(tar, partial(_keep, cache=ctx.cache) if layers else _measure, ctx, platform)
    try:
        descriptor, manifest = _manifest(image, ctx.cache)
    except LayoutError as error:
        raise LayoutError(f"{tar.name}: {error.what}", cause=error.cause, next_step=error.next_step) from error
    ctx.cache.write(ctx.cache.blob(manifest.config.digest), image.config_data)
    brought = _Brought(descriptor, image.listed.index if image.listed else ())
    ctx.cache.keep(record, msgspec.json.encode(brought))
    return _layout(brought, manifest, image.config, ctx.cache)


def _known(brought: _Brought, cache: Cache, *, layers: bool) -> Layout | None:
    """Return the layout of an image that was read before; None where the cache lacks some of it."""
    read_blob = partial(_read_blob, cache=cache)
    try:
        manifest = read_document(brought.descriptor, read_blob, spec.Manifest)
        layout = _layout(brought, manifest, read_config(manifest, read_blob), cache)
        if layers:
            check_presence(layout)
    except (LayoutError, FileNotFoundError):
        return None
    for descriptor in layout.layers:
        cache.use(cache.blob(descriptor.digest))
    return layout


def _read_blob(descriptor: spec.Descriptor, cache: Cache) -> bytes:
    return cache.blob(descriptor.digest).read_bytes()


def _layout(brought: _Brought, manifest: spec.Manifest, config: spec.ImageConfig, cache: Cache) -> Layout:
    return Layout(
        path=cache.root,
        descriptor=brought.descriptor,
        manifest=manifest,
        config=config,
        records=tuple(layer_records(manifest, config)),
        index=brought.index,
    )


def _measure(pieces: Iterator[bytes], size: int, file: IO[bytes] | None = None) -> spec.Descriptor:
    """Describe a layer as it streams by, into `file` where there is one."""
    first, digest = next(pieces), hashlib.sha256()
    for piece in itertools.chain((first,), pieces):
        digest.update(piece)
        if file is not None:
            file.write(piece)
    return spec.Descriptor(media_type=saved.layer_type(first), digest=f"sha256:{digest.hexdigest()}", size=size)


def _keep(pieces: Iterator[bytes], size: int, cache: Cache) -> spec.Descriptor:
    """Describe a layer, and keep it in the cache."""
    with cache.folder() as folder:
        part = folder / "layer"
        with synced(part) as file:
            layer = _measure(pieces, size, file)
        cache.adopt(part, cache.blob(layer.digest))
    return layer


def _manifest(image: saved.SavedImage[spec.Descriptor], cache: Cache) -> tuple[spec.Descriptor, spec.Manifest]:
    """Return the image's manifest, kept in the cache. Raises LayoutError where its documents tell of other layers."""
    layers = tuple(_read_layers(image))
    if image.listed is None:
        config = descriptor_of(spec.CONFIG, image.config_data)
        manifest = spec.Manifest(schema_version=2, media_type=spec.MANIFEST, config=config, layers=layers)
        data = msgspec.json.encode(manifest)
        descriptor = descriptor_of(spec.MANIFEST, data)
    else:
        descriptor, manifest, data = image.listed.descriptor, image.listed.manifest, image.manifest_data
        for layer, stated in zip(layers, manifest.layers, strict=True):
            _check(stated.digest, layer.digest)
    cache.write(cache.blob(descriptor.digest), data)
    return descriptor, manifest


def _read_layers(image: saved.SavedImage[spec.Descriptor]) -> Iterator[spec.Descriptor]:
    """Yield the layers. Raises LayoutError for one that could not be read, or is not the configuration's."""
    diff_ids = image.config.rootfs.diff_ids
    if len(image.layers) != len(diff_ids):
        raise LayoutError(f"it has {len(image.layers)} layers, and its configuration tells of {len(diff_ids)}")
    for layer, diff_id in zip(image.layers, diff_ids, strict=True):
        if isinstance(layer, LayoutError):
            raise layer
        if layer.media_type == spec.LAYER_TAR:
            _check(diff_id, layer.digest)
        yield layer


def _check(stated: str, measured: str) -> None:
    if stated != measured:
        raise LayoutError(f"its layer {stated} is damaged: its bytes hash to {measured}")
