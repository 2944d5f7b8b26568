"""One tag for images of several platforms: the index that lists them, and how it changes with one of them. Pure.

What others wrote into an index stays as it is, also what this program does not know of.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, LayoutError
from graphcrate.model.platform import OS, Platform
from graphcrate.oci.index import fits_platform
from ocilayout import spec
from ocilayout.image import descriptor_of
from ocilayout.spec import Descriptor, DescriptorPlatform

_ABOUT = "vnd.docker.reference.digest"  #: annotation of buildx's statements: the manifest in the index they are about
_NO_PLATFORM = DescriptorPlatform(architecture="unknown", os="unknown")  #: of such statements


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """A tag's images by platform. `fields`: of the document, with entries as they were written."""

    fields: Mapping[str, Any]
    entries: tuple[Descriptor, ...]

    @property
    def document(self) -> bytes:
        """Its bytes: the same for the same entries, in whichever order they came."""
        pairs = sorted(zip(self.entries, self.fields["manifests"], strict=True), key=lambda pair: _order(pair[0]))
        fixed = {"schemaVersion": 2, "mediaType": self.media_type}
        return msgspec.json.encode({**self.fields, **fixed, "manifests": [raw for _, raw in pairs]})

    @property
    def media_type(self) -> str:
        """Docker's list where all images have Docker's form: enroot asks for that alone."""
        is_dockers = all(entry.media_type == spec.DOCKER_MANIFEST for entry in self.entries)
        return spec.DOCKER_INDEX if is_dockers else spec.INDEX

    @property
    def descriptor(self) -> Descriptor:
        return descriptor_of(self.media_type, self.document)

    @property
    def platforms(self) -> tuple[str, ...]:
        """List the platforms of its images: "linux/amd64"."""
        return tuple(name_of(entry) for entry in sorted(self.entries, key=_order) if not _is_statement(entry))

    def others(self, platform: Platform) -> tuple[Descriptor, ...]:
        """Its images for other platforms than this one."""
        return tuple(entry for entry in self.entries if not _is_statement(entry) and not fits_platform(entry, platform))

    def with_image(self, image: Descriptor, platform: Platform) -> "Index":
        """The index with this image for its platform in place of what it had for that."""
        gone = {entry.digest for entry in self.entries if not _is_statement(entry) and fits_platform(entry, platform)}
        kept = [
            (entry, raw)
            for entry, raw in zip(self.entries, self.fields["manifests"], strict=True)
            if entry.digest not in gone and entry.annotations.get(_ABOUT) not in gone
        ]
        own = entry_of(image, platform)
        pairs = [*kept, (own, msgspec.to_builtins(own))]
        fields = {**self.fields, "manifests": [raw for _, raw in pairs]}
        return Index(fields=fields, entries=tuple(entry for entry, _ in pairs))


EMPTY = Index(fields={"manifests": []}, entries=())


def entry_of(image: Descriptor, platform: Platform) -> Descriptor:
    """The entry of a manifest for a platform."""
    where = DescriptorPlatform(architecture=platform.architecture, os=OS)
    return Descriptor(media_type=image.media_type, digest=image.digest, size=image.size, platform=where)


def single(image: Descriptor, config: spec.ImageConfig) -> Index:
    """A tag's one manifest as an index, for the platform that its configuration names."""
    where = DescriptorPlatform(architecture=config.architecture, os=config.os)
    entry = Descriptor(media_type=image.media_type, digest=image.digest, size=image.size, platform=where)
    return Index(fields={"manifests": [msgspec.to_builtins(entry)]}, entries=(entry,))


def read(data: bytes, name: str) -> Index:
    """Read an index, ours or another tool's. `name`: its tag. Raises LayoutError where it is not one."""
    try:
        fields = codec.decode(data, dict[str, Any])
        entries = codec.decode(data, spec.ImageIndex).manifests
    except UNREADABLE as error:
        raise LayoutError(f"{name} holds a malformed index: {codec.explained(error, data)}") from error
    for entry in entries:
        if not spec.DIGEST.fullmatch(entry.digest):
            raise LayoutError(f"{name} holds a malformed index: {entry.digest!r} is not a digest")
    return Index(fields=fields, entries=entries)


def name_of(entry: Descriptor) -> str:
    """The platform of an entry in words; "an unknown platform" where it says none."""
    return f"{entry.platform.os}/{entry.platform.architecture}" if entry.platform else "an unknown platform"


def _is_statement(entry: Descriptor) -> bool:
    return _ABOUT in entry.annotations or entry.platform == _NO_PLATFORM


def _order(entry: Descriptor) -> tuple[bool, str, str]:
    return _is_statement(entry), name_of(entry), entry.digest
