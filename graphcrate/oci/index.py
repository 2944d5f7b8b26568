"""From an index to the manifest of a platform: one walk for layouts, archives and registries. Pure.

A document is read by its descriptor, and its size and digest are checked. Indexes are within one another to a depth:
buildx writes one for each image, with attestations beside the manifest, and one may list itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, LayoutError
from graphcrate.model.platform import Platform
from ocilayout import spec
from ocilayout.image import digest_of
from ocilayout.spec import Descriptor

#: Indexes within one another, below `index.json` or a tag.
MAX_DEPTH = 3
#: Gives the bytes of a document. Raises where there is none; what it gives is checked.
ReadBlob = Callable[[Descriptor], bytes]
_Document = TypeVar("_Document")


class NoImageError(LayoutError):
    """Documents are whole, and have no image, or none for the platform."""


@dataclass(frozen=True)
class PlatformImage:
    """The image of one platform."""

    descriptor: Descriptor  #: of the manifest, with annotations of the indexes above it
    manifest: spec.Manifest
    index: tuple[Descriptor, ...] = ()  #: entries of the index that lists the manifest


def find_manifest(descriptor: Descriptor, read: ReadBlob, platform: Platform) -> PlatformImage:
    """Find the manifest that a descriptor names, or the one for the platform in the index that it names.

    A manifest that no index lists is taken for any platform: its configuration says which. Raises NoImageError,
    LayoutError for a damaged document, and what `read` raises.
    """
    entries: tuple[Descriptor, ...] = ()
    for _ in range(MAX_DEPTH + 1):
        if descriptor.media_type in spec.MANIFEST_TYPES:
            return PlatformImage(descriptor, read_document(descriptor, read, spec.Manifest), entries)
        if descriptor.media_type not in spec.INDEX_TYPES:
            raise NoImageError(
                f"{descriptor.digest} is of type {descriptor.media_type or 'unknown'}, which is not an image manifest",
                cause="It is an artifact of another kind, or an image in Docker's format of before 2016.",
            )
        entries = read_document(descriptor, read, spec.ImageIndex).manifests
        entry = _entry_for(platform, entries, descriptor.digest)
        descriptor = msgspec.structs.replace(entry, annotations={**entry.annotations, **descriptor.annotations})
    raise NoImageError("it is an index of indexes of indexes, and no image that can be used")


def root_entry(index: spec.ImageIndex, name: str, platform: Platform, tag: str = "") -> Descriptor:
    """The only image of `index.json`, or the only one with this tag; of several platforms' the one for this platform.

    `name`: of the file. Raises NoImageError, LayoutError.
    """
    if index.schema_version != 2 or index.media_type not in ("", *spec.INDEX_TYPES):
        raise LayoutError(f"{name}: not an image index of schema version 2")
    images = [entry for entry in index.manifests if not tag or entry.annotations.get(spec.REF_NAME) == tag]
    if len(images) > 1:
        images = [entry for entry in images if fits_platform(entry, platform)] or images
    if len(images) != 1:
        names = ", ".join(entry.annotations.get(spec.REF_NAME, "(untagged)") for entry in index.manifests)
        which = f"are tagged {tag!r}" if tag else "in it"
        raise NoImageError(
            f"{name}: {len(images)} images {which}, one was expected", cause=f"The index has: {names or 'none'}."
        )
    return images[0]


def read_document(descriptor: Descriptor, read: ReadBlob, kind: type[_Document]) -> _Document:
    """Read a document, check its size and digest, and decode it. Raises LayoutError, and what `read` raises."""
    data = read(descriptor)
    if len(data) != descriptor.size:
        raise LayoutError(
            f"the blob {descriptor.digest} is damaged: {len(data)} bytes, and its descriptor says {descriptor.size}"
        )
    if (actual := digest_of(data)) != descriptor.digest:
        raise LayoutError(f"the blob {descriptor.digest} is damaged: its bytes hash to {actual}")
    return decode_document(data, kind, descriptor.digest)


def decode_document(data: bytes, kind: type[_Document], name: str) -> _Document:
    """Decode a document of an image. Raises LayoutError."""
    try:
        return codec.decode(data, kind)
    except UNREADABLE as error:
        raise LayoutError(f"{name} is malformed: {codec.explained(error, data)}") from error


def read_config(manifest: spec.Manifest, read: ReadBlob) -> spec.ImageConfig:
    """Read the configuration of an image. Raises as `find_manifest`."""
    if manifest.config.media_type not in spec.CONFIG_TYPES:
        raise NoImageError(
            f"its configuration is of type {manifest.config.media_type}: it is not a container image",
            cause="It is an artifact of another kind, such as a Helm chart, a signature or a SIF.",
        )
    return read_document(manifest.config, read, spec.ImageConfig)


def fits_platform(entry: Descriptor, platform: Platform) -> bool:
    """Return whether an index has this entry for a platform."""
    named = entry.platform
    return named is not None and platform.fits(named.os, named.architecture, named.variant)


def _entry_for(platform: Platform, entries: Sequence[Descriptor], index: str) -> Descriptor:
    """The first entry for a platform, as the image specification has it; where none names any, the only entry."""
    for entry in entries:
        if fits_platform(entry, platform):
            return entry
    unnamed = [entry for entry in entries if entry.platform is None]
    if len(unnamed) == 1:
        return unnamed[0]
    names = {f"{entry.platform.os}/{entry.platform.architecture}" for entry in entries if entry.platform is not None}
    known = ", ".join(sorted(names - {"unknown/unknown"})) or "no platform"
    raise NoImageError(
        f"the index {index} has no image for {platform.name}",
        cause=f"It is for {known}.",
        next_step=f"name an image for {platform.name}",
    )
