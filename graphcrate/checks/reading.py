"""What a person names, opened: a file, a folder, a layout, an image of an engine's store or of a registry."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.artifacts import pull
from graphcrate.artifacts.locate import FORMS, locate
from graphcrate.artifacts.tree import layers as trees
from graphcrate.artifacts.tree import opening
from graphcrate.artifacts.tree.reader import Opened, Tools
from graphcrate.model.errors import UsageError
from graphcrate.oci import reference, spec
from graphcrate.oci.layout import Layout

#: Which layers of an image on a registry are brought here: up to a gigabyte in all, the lowest first; all; none.
Fetch = Literal["small", "all", "none"]
_MOST_FETCHED = 10**9


def opened(ref: str, tools: Tools, output: Path, fetch: Fetch) -> Opened:
    """Open what a person names.

    Raises UsageError for what does not exist, LayoutError for what is no image, NetworkError, ResolutionError.
    """
    image = locate(ref, output)
    if image.form == "registry":
        return _pulled(image.name, tools, fetch)
    if image.form == "rootfs" and not any(image.path.iterdir()):
        raise UsageError(f"the folder {image.path} is empty", next_step=f"give {FORMS}")
    return opening.reader(image)(tools)


def with_layers(layout: Layout, layers: Sequence[spec.Descriptor]) -> Layout:
    """The layout with some of its layers."""
    return dataclasses.replace(layout, manifest=msgspec.structs.replace(layout.manifest, layers=tuple(layers)))


def _pulled(ref: str, tools: Tools, fetch: Fetch) -> Opened:
    """An image of a registry by its reference."""
    name = reference.parse(ref)
    source = pull.repository(name, tools.ctx.environment)
    document = source.manifest(name.digest or name.tag)
    index: tuple[spec.Descriptor, ...] = ()
    if document.media_type in spec.INDEX_TYPES:
        index = pull.decode(document.data, spec.Index, str(name)).manifests
        if len(index) == 1 and index[0].platform is None:
            document = source.manifest(index[0].digest)
    document = pull.for_platform(source, document, str(name))
    manifest, config = pull.documents(source, document.digest, tools.ctx.cache, any_platform=True)
    layers, unread = _chosen(manifest.layers, fetch)
    with tools.ctx.progress.task(f"pulling {name}", sum(layer.size for layer in layers)) as task:
        pull.download(source, layers, tools.ctx.cache, task.advance)
    descriptor = spec.Descriptor(media_type=document.media_type, digest=document.digest, size=len(document.data))
    layout = Layout(path=tools.ctx.cache.root, descriptor=descriptor, manifest=manifest, config=config, records=())
    found = trees.read_layout(str(name), with_layers(layout, layers), tools)
    typed = msgspec.structs.replace(manifest, media_type=document.media_type)
    return dataclasses.replace(found, form="registry", manifest=typed, index=index, unread=(*found.unread, *unread))


def _chosen(layers: Sequence[spec.Descriptor], fetch: Fetch) -> tuple[list[spec.Descriptor], tuple[str, ...]]:
    """The layers to bring, and what is said of the others."""
    most = {"small": _MOST_FETCHED, "all": sum(layer.size for layer in layers), "none": -1}[fetch]
    chosen: list[spec.Descriptor] = []
    readable = [layer for layer in layers if layer.media_type in spec.LAYER_TYPES]
    unread = [f"a layer of type {layer.media_type} cannot be read" for layer in layers if layer not in readable]
    for layer in readable:
        if sum(one.size for one in chosen) + layer.size <= most:
            chosen.append(layer)
    if left := len(readable) - len(chosen):
        unread.append(f"{left} of {len(layers)} layers were left on the registry (--fetch all brings them)")
    return chosen, tuple(unread)
