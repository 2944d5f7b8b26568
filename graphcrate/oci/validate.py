"""Re-check every invariant of a written layout, from the bytes alone.

Documents and their digests are checked by `read_layout`; here come the blobs: sizes, digests, diff_ids, and that
each layer is a tar which every runtime unpacks alike.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphcrate.errors import LayoutError
from graphcrate.oci import spec
from graphcrate.oci.blob import members, open_blob, sha256
from graphcrate.oci.layout import REBUILD, Layout, check_presence
from graphcrate.oci.names import Names
from graphcrate.oci.spec import LayerBlob

if TYPE_CHECKING:
    from graphcrate.host.progress import Progress


@dataclass(frozen=True)
class LayerFacts:
    """What reading a layer's blob showed. `paths` and links are relative to the image's root."""

    digest: str
    diff_id: str
    unpacked_size: int
    paths: frozenset[str]  #: what may be the target of a hard link
    links: tuple[tuple[str, str], ...]  #: hard links whose targets are not in this layer


def validate(layout: Layout, progress: "Progress | None" = None, jobs: int | None = None) -> tuple[str, ...]:
    """The full level: read every layer, on `jobs` threads (default: all cores). Raises LayoutError.

    Returns warnings: what breaks no rule but should not be there, such as blobs that nothing refers to.
    """
    check_presence(layout)
    _check_documents(layout)
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        if progress is None:
            facts = list(_inspect_all(layout, pool, None))
        else:
            with progress.task("Checking layers", sum(layer.size for layer in layout.layers)) as task:
                facts = list(_inspect_all(layout, pool, task.advance))
    below: set[str] = set()
    for layer, diff_id, seen in zip(layout.layers, layout.config.rootfs.diff_ids, facts, strict=True):
        if seen.digest != layer.digest:
            raise LayoutError(f"layer {layer.digest} is damaged: its bytes hash to {seen.digest}", next_step=REBUILD)
        if seen.diff_id != diff_id:
            raise LayoutError(f"layer {layer.digest} holds {seen.diff_id}, the configuration says {diff_id}")
        for path, target in seen.links:
            if target not in below:
                raise LayoutError(f"layer {layer.digest}: {path} is a hard link to {target}, which does not exist")
        below |= seen.paths
    return tuple(_warnings(layout))


def inspect_layer(blob: LayerBlob, advance: Callable[[int], None] | None = None) -> LayerFacts:
    """Read a layer to its end and check its entries. `advance` counts compressed bytes. Raises LayoutError."""
    digest, diff_id, names = sha256(), sha256(), Names()
    try:
        with open_blob(blob, advance=advance, digest=digest, diff_id=diff_id) as stream:
            for member, _ in members(stream):
                names.add(member)
            unpacked = stream.tell()
    except LayoutError as error:
        raise LayoutError(f"layer {blob.path.name}: {error.what}", cause=error.cause) from error
    return LayerFacts(
        digest=f"sha256:{digest.hexdigest()}",
        diff_id=f"sha256:{diff_id.hexdigest()}",
        unpacked_size=unpacked,
        paths=frozenset(names.files),
        links=tuple(names.links_below.items()),
    )


def _inspect_all(
    layout: Layout, pool: ThreadPoolExecutor, advance: Callable[[int], None] | None
) -> Iterator[LayerFacts]:
    # The largest first, so that no core waits for a late large one; results in the layers' order.
    order = sorted(range(len(layout.layers)), key=lambda number: -layout.layers[number].size)
    blobs: Sequence[LayerBlob] = layout.layer_blobs
    started = {number: pool.submit(inspect_layer, blobs[number], advance) for number in order}
    try:
        for number in range(len(blobs)):
            yield started[number].result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


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


def _warnings(layout: Layout) -> Iterator[str]:
    known = {layout.digest, layout.manifest.config.digest, *(layer.digest for layer in layout.layers)}
    for path in sorted((layout.path / "blobs").rglob("*")):
        if path.is_file() and (path.parent.name != "sha256" or f"sha256:{path.name}" not in known):
            yield f"{path.relative_to(layout.path)} belongs to no image of the layout"
