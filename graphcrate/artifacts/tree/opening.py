"""Open what a user names as a tree: a file, a folder, a layout, an image of an engine's store or of a registry."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.artifacts import origin, pull
from graphcrate.artifacts.locate import FORMS, Located, locate
from graphcrate.artifacts.tree import archives, filesystems, layers
from graphcrate.artifacts.tree.compare import AllowedDifference, Comparison, distil, is_kept, judge_differences
from graphcrate.artifacts.tree.reader import OpenedTree, Selection, Tools
from graphcrate.host.context import Context
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.words import size
from graphcrate.oci import reference
from graphcrate.oci.layout import Layout
from ocilayout import spec
from ociregistry.reference import Reference

#: Which layers of an image on a registry are brought here: up to a gigabyte in all, the lowest first; all; none.
Fetch = Literal["small", "all", "none"]
_MOST_FETCHED = 10**9


def opened(ref: str, tools: Tools, output: Path, fetch: Fetch) -> OpenedTree:
    """Open what a user names.

    Raises UsageError for what does not exist, LayoutError for what is no image, NetworkError, ResolutionError.
    """
    return _reader(locate(ref, output), fetch, tools.platform)(tools)


def compare(
    first: str, second: str, ctx: Context, allowances: Sequence[AllowedDifference], output: Path = Path("dist")
) -> Comparison:
    """Read both and compare them. Raises as `opened`."""
    readers = [_reader(locate(ref, output), "all") for ref in (first, second)]  # both, before the long work begins
    with ExitStack() as stack:
        tools = Tools(ctx, stack, Selection(keep=is_kept, distil=distil))
        left, right = (read(tools) for read in readers)
        for image in (left, right):
            if image.unread:
                raise image.broken or LayoutError(f"{image.name}: {image.unread[0]}")
        return judge_differences(left, right, allowances)


def _reader(image: Located, fetch: Fetch, platform: Platform = DEFAULT) -> Callable[[Tools], OpenedTree]:
    """Choose how an image is read. Raises UsageError for one that cannot be, LayoutError."""
    match image.form:
        case "registry":
            return partial(_pulled, reference.parse(image.name), fetch)
        case "layout":
            if image.has_layout:
                return partial(layers.read_layout, image.ref, image.layout_for(platform))
            raise UsageError(
                f"{image.ref} has no OCI layout", cause="An engine built it.", next_step=f"give docker:{image.name}"
            )
        case "docker" | "podman" | "archive":
            return partial(archives.read_saved, image)
        case "folder":
            if not any(image.path.iterdir()):
                raise UsageError(f"the folder {image.path} is empty", next_step=f"give {FORMS}")
            return partial(filesystems.read_folder, image.ref, image.path)
        case "sif" | "squashfs":
            return partial(filesystems.read_squashed, image.form, image.ref, (image.path,))
        case "delta":
            return partial(_pair, image)


def with_layers(layout: Layout, chosen: Sequence[spec.Descriptor]) -> Layout:
    """The layout with some of its layers."""
    return dataclasses.replace(layout, manifest=msgspec.structs.replace(layout.manifest, layers=tuple(chosen)))


def _pair(image: Located, tools: Tools) -> OpenedTree:
    """Read a delta over its base: what Singularity shows of both."""
    base = origin.base_of(image.path, tools.ctx.environment)
    return filesystems.read_squashed("sif", image.ref, (base, image.path), tools)


def _pulled(name: Reference, fetch: Fetch, tools: Tools) -> OpenedTree:
    """Read an image of a registry."""
    source, layout = pull.read_layout(name, tools.ctx, tools.platform)
    brought, unread, left = _chosen(layout.layers, fetch)
    pull.bring(source, str(name), brought, tools.ctx)
    tree = layers.read_layout(str(name), with_layers(layout, brought), tools)
    typed = msgspec.structs.replace(layout.manifest, media_type=layout.descriptor.media_type)
    unread = (*tree.unread, *unread)
    return dataclasses.replace(tree, form="registry", manifest=typed, unread=unread, left=left)


def _chosen(
    listed: Sequence[spec.Descriptor], fetch: Fetch
) -> tuple[list[spec.Descriptor], tuple[str, ...], tuple[str, ...]]:
    """The layers to bring, what is said of those that cannot be read, and of those that are left there by choice."""
    most = {"small": _MOST_FETCHED, "all": sum(layer.size for layer in listed), "none": -1}[fetch]
    chosen: list[spec.Descriptor] = []
    readable = [layer for layer in listed if layer.media_type in spec.LAYER_TYPES]
    unread = tuple(f"a layer of type {layer.media_type} cannot be read" for layer in listed if layer not in readable)
    for layer in readable:
        if sum(other.size for other in chosen) + layer.size <= most:
            chosen.append(layer)
    left = [layer for layer in readable if layer not in chosen]
    left_size = size(sum(layer.size for layer in left))
    summary = f"{len(left)} of {len(listed)} layers ({left_size}) were left on the registry (--fetch all brings them)"
    return chosen, unread, (summary,) if left else ()
