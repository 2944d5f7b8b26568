"""An image of a registry in the cache: its layers as records that our own images can hold, and its files."""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import deflate
import msgspec

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import synced
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept
from graphcrate.host.parallel import parallel
from graphcrate.model.errors import IntegrityError, LayoutError, ResolutionError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.report import LayerRecord, PackageBytes
from graphcrate.oci import access, index
from graphcrate.oci.blob import open_blob
from graphcrate.oci.index import PlatformImage
from graphcrate.oci.layout import Layout, layer_records
from graphcrate.oci.registry import Repository
from graphcrate.oci.validate import inspect_layer
from ocilayout import spec
from ocilayout.image import digest_of
from ocilayout.spec import LayerBlob
from ociregistry.reference import Reference

#: Raise it whenever the same image would give other layers.
FORMAT = 1
THREADS = 4  #: downloads at once
PIECE = 1 << 20  #: uncompressed bytes of one gzip member, where a layer is compressed again
LEVEL = 6
GROWTH = 5  #: from compressed bytes to those on the disk, with all that is unpacked


def find(reference: Reference, ctx: Context, platform: Platform = DEFAULT) -> tuple[Repository, str]:
    """Ask for the image for a platform that a reference means today: its repository and digest. Raises as `documents`.

    Its manifest is in the cache then.
    """
    source = access.repository(reference, ctx)
    return source, find_manifest(source, reference, ctx.cache, platform).descriptor.digest


def find_manifest(
    source: Repository, reference: Reference, cache: Cache, platform: Platform = DEFAULT
) -> PlatformImage:
    """Find the manifest for a platform that a reference means today. Raises as `documents`."""
    document = source.manifest(reference.digest or reference.tag)
    descriptor = spec.Descriptor(media_type=document.media_type, digest=document.digest, size=len(document.data))

    def fetch(digest: str) -> bytes:
        return document.data if digest == document.digest else source.manifest(digest).data

    with _of_registry(str(reference), platform):
        return index.find_manifest(
            descriptor, lambda entry: _cached(cache, entry.digest, lambda: fetch(entry.digest)), platform
        )


def read_layout(name: Reference, ctx: Context, platform: Platform = DEFAULT) -> tuple[Repository, Layout]:
    """Read an image's documents as a layout in the cache, whose layers may be missing. Raises as `documents`.

    A manifest that is listed in no index is taken for any platform.
    """
    source = access.repository(name, ctx)
    image = find_manifest(source, name, ctx.cache, platform)
    manifest, config = documents(source, image.descriptor.digest, ctx.cache, platform=None)
    return source, Layout(
        path=ctx.cache.root,
        descriptor=image.descriptor,
        manifest=manifest,
        config=config,
        records=tuple(layer_records(manifest, config)),
        index=image.index,
    )


def documents(
    source: Repository, digest: str, cache: Cache, *, platform: Platform | None = DEFAULT
) -> tuple[spec.Manifest, spec.ImageConfig]:
    """Manifest and configuration of an image, from the cache or the registry. Raises ResolutionError, NetworkError.

    Of an image for this platform; None: for any.
    """
    data = _cached(cache, digest, lambda: source.manifest(digest).data)
    with _of_registry(digest, platform or DEFAULT):
        manifest = index.decode_document(data, spec.Manifest, digest)
        config = index.read_config(
            manifest, lambda descriptor: _cached(cache, descriptor.digest, lambda: source.config(descriptor))
        )
    if platform is not None and not platform.fits(config.os, config.architecture):
        raise ResolutionError(
            f"{digest} has no image for {platform.name}",
            cause=f"It is for {config.os}/{config.architecture}.",
            next_step=_another(platform),
        )
    if len(config.rootfs.diff_ids) != len(manifest.layers):
        raise IntegrityError(f"{digest} has {len(manifest.layers)} layers, its configuration tells of others")
    return manifest, config


@contextlib.contextmanager
def _of_registry(name: str, platform: Platform) -> Iterator[None]:
    """Raise ResolutionError for what is no image for the platform, and IntegrityError for damaged documents."""
    try:
        yield
    except index.NoImageError as error:
        raise ResolutionError(f"{name}: {error.what}", cause=error.cause, next_step=_another(platform)) from error
    except LayoutError as error:
        raise IntegrityError(f"{name}: the registry served a malformed image: {error.what}") from error


def _another(platform: Platform) -> str:
    return f"name another tag or image, which was built for {platform.name}"


def _cached(cache: Cache, digest: str, fetch: Callable[[], bytes]) -> bytes:
    """The document of this digest, from the cache or fetched into it."""
    path = cache.blob(digest)
    if path.is_file() and digest_of(data := path.read_bytes()) == digest:
        return data
    data = fetch()
    cache.write(path, data)
    return data


def folder(digest: str, cache: Cache) -> Path:
    """The folder in the cache for what is known of this image."""
    return cache.path("bases", "registry", f"{digest.removeprefix('sha256:')}-{FORMAT}", "rootfs").parent


def pull(
    source: Repository, name: str, digest: str, ctx: Context, platform: Platform = DEFAULT
) -> tuple[tuple[LayerRecord, ...], Path]:
    """The image's layers, and its files as a root file system; at once where they are in the cache.

    `name` is the repository's, for titles. Raises NetworkError, IntegrityError, LayoutError, DiskFullError.
    """
    cache = ctx.cache
    record, rootfs = folder(digest, cache) / "layers.json", folder(digest, cache) / "rootfs"
    if (layers := _known(record, rootfs, cache)) is None:
        with cache.exclusively(f"base-{digest.removeprefix('sha256:')}"), cache.guard():
            if (layers := _known(record, rootfs, cache)) is None:
                layers = _bring(source, name, digest, rootfs, ctx, platform)
                cache.keep(record, msgspec.json.encode(layers))
    return layers, rootfs


def _known(record: Path, rootfs: Path, cache: Cache) -> tuple[LayerRecord, ...] | None:
    layers = kept(record, tuple[LayerRecord, ...]) if rootfs.is_dir() else None
    return layers if layers is not None and all(cache.blob(layer.digest).is_file() for layer in layers) else None


def _bring(
    source: Repository, name: str, digest: str, rootfs: Path, ctx: Context, platform: Platform
) -> tuple[LayerRecord, ...]:
    cache, progress = ctx.cache, ctx.progress
    manifest, config = documents(source, digest, cache, platform=platform)
    check_types(manifest.layers, f"{name}@{digest}", "name another base")
    size = sum(layer.size for layer in manifest.layers)
    cache.require(size * GROWTH, f"the base {name}")
    bring(source, name, manifest.layers, ctx)
    with progress.task(f"checking {name}", size) as task:
        layers = parallel(
            lambda pair, advancing: _checked(*pair, cache, advancing),
            list(zip(manifest.layers, config.rootfs.diff_ids, strict=True)),
            threads=THREADS,
            advance=task.advance,
        )
    titled = tuple(
        msgspec.structs.replace(
            layer,
            title=f"{name}@{digest[:19]} ({number} of {len(layers)})",
            owners=(PackageBytes(name=name, version=digest[:19], bytes=layer.unpacked_size),),
        )
        for number, layer in enumerate(layers, 1)
    )
    with progress.task(f"unpacking {name}", sum(layer.size for layer in layers)) as task:
        blobs = [LayerBlob(path=cache.blob(layer.digest), media_type=layer.media_type) for layer in layers]
        unpack(blobs, rootfs, advance=task.advance)
    return titled


def check_types(layers: Iterable[spec.Descriptor], name: str, next_step: str) -> None:
    """Raise ResolutionError for a layer that cannot be read."""
    for layer in layers:
        if layer.media_type not in spec.LAYER_TYPES:
            raise ResolutionError(
                f"{name} has a layer of type {layer.media_type}, which may not be distributed or is unknown",
                next_step=next_step,
            )


def bring(source: Repository, name: str, layers: Sequence[spec.Descriptor], ctx: Context) -> None:
    """Bring an image's layers into the cache, and show how far that is. Raises as `download`."""
    with ctx.progress.task(f"pulling {name}", sum(layer.size for layer in layers)) as task:
        download(source, layers, ctx.cache, task.advance)


def download(
    source: Repository, layers: Iterable[spec.Descriptor], cache: Cache, advance: Callable[[int], None]
) -> None:
    """Bring blobs into the cache, several at once. What has arrived when one fails stays for the next run."""

    def fetch(layer: spec.Descriptor, advancing: Callable[[int], None]) -> None:
        with cache.exclusively(f"blob-{layer.digest.removeprefix('sha256:')}"), cache.guard():
            if cache.blob(layer.digest).is_file():
                advancing(layer.size)
                return
            partial = cache.path("partial", layer.digest.removeprefix("sha256:"))
            source.blob(layer, partial, advancing)
            cache.adopt(partial, cache.blob(layer.digest))

    parallel(fetch, list({layer.digest: layer for layer in layers}.values()), threads=THREADS, advance=advance)


def _checked(layer: spec.Descriptor, diff_id: str, cache: Cache, advance: Callable[[int], None]) -> LayerRecord:
    """The record of a layer whose bytes are what the configuration says; as gzip, and of an OCI type."""
    blob = LayerBlob(path=cache.blob(layer.digest), media_type=layer.media_type)
    facts = inspect_layer(blob, advance)
    if (facts.digest, facts.diff_id) != (layer.digest, diff_id):
        if facts.digest != layer.digest:  # damaged in the cache: fetched again by the next run
            blob.path.unlink(missing_ok=True)
        raise LayoutError(
            f"layer {layer.digest} holds {facts.diff_id}, and its configuration says {diff_id}",
            cause="The image was made by a faulty tool, or the cache's disk is faulty.",
            next_step="run the same command again; where it repeats itself, name another base",
        )
    digest, size = layer.digest, layer.size
    if spec.LAYER_TYPES[layer.media_type] != spec.LAYER_GZIP:
        digest, size = _as_gzip(blob, cache)
    return LayerRecord(title="", digest=digest, diff_id=diff_id, size=size, unpacked_size=facts.unpacked_size)


def _as_gzip(blob: LayerBlob, cache: Cache) -> tuple[str, int]:
    """The same tar as gzip in the cache, its bytes alike on any machine; (digest, size)."""
    with cache.folder() as folder:
        path, digest = folder / "layer", hashlib.sha256()
        with synced(path) as target, open_blob(blob) as stream:
            while (piece := stream.read(PIECE)) or not target.tell():  # one member for an empty layer too
                member = bytes(deflate.gzip_compress(piece, LEVEL))
                digest.update(member)
                target.write(member)
        size = path.stat().st_size
        name = f"sha256:{digest.hexdigest()}"
        cache.adopt(path, cache.blob(name))
    return name, size
