"""A tag that has images of several platforms: what it holds, whether this one may join, and setting it.

A registry cannot change an index in one step. So it is read, changed, written, and read again: two writers of
whom one lost an image to the other find that out and add what is missing.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dssesign import keys, verify
from graphcrate.model import codec
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import (
    UNREADABLE,
    GateError,
    IntegrityError,
    LayoutError,
    NetworkError,
    ResolutionError,
    UsageError,
)
from graphcrate.model.platform import Platform
from graphcrate.oci import index, platform_index
from graphcrate.oci.platform_index import Index
from graphcrate.oci.registry import Repository
from graphcrate.publish.verify import attached_to
from ocilayout import spec
from ociregistry import push
from ociregistry.repository import Document

TRIES = 6  #: of setting a tag that others set at the same moment
_TITLE, _CUDA, _TORCH = "org.opencontainers.image.title", "graphcrate.cuda", "graphcrate.torch"
_SAME = (_TITLE, _CUDA)  #: labels that the images of a tag have alike
_REPLACE = f"{command(ETC, replace=True)}    leaves the tag with this image alone"


class TagState(NamedTuple):
    """A tag's state: its document, None where it is not there, and the images in it, also a single one."""

    document: Document | None
    images: Index

    @property
    def digest(self) -> str:
        """Of the document; empty where the tag is not there."""
        return self.document.digest if self.document else ""


class TaggedImage(NamedTuple):
    """The image that a tag is set to, for its platform."""

    document: Document
    platform: Platform
    config: spec.ImageConfig


def state(source: Repository, tag: str) -> TagState:
    """Ask what a tag holds; of what is no image that runtimes pull, no more than that.

    Raises NetworkError, LayoutError for a malformed index.
    """
    try:
        document = source.manifest(tag)
    except ResolutionError:
        return TagState(None, platform_index.EMPTY)
    name = f"{source.name}:{tag}"
    if document.media_type in spec.INDEX_TYPES:
        return TagState(document, platform_index.read(document.data, name))
    descriptor = _descriptor(document)
    config = _config(source, descriptor)
    return TagState(document, platform_index.single(descriptor, config) if config else platform_index.EMPTY)


def check(
    source: Repository,
    tag: str,
    platform: Platform,
    config: spec.ImageConfig,
    key: keys.PrivateKey | None,
    note: Callable[[str], None],
) -> None:
    """Check that an image may share its tag with those of other platforms, before anything is sent.

    Raises UsageError for an image of another kind, GateError for one that the key did not sign: the index of both is
    signed with it.
    """
    name, own = f"{source.name}:{tag}", config.run.labels or {}
    for entry in state(source, tag).images.others(platform):
        where, theirs = platform_index.name_of(entry), _config(source, entry)
        labels = (theirs.run.labels or {}) if theirs else {}
        if any(labels.get(label) != own.get(label) for label in _SAME):
            raise UsageError(
                f"{name} holds {_called(labels)} for {where}, and this is {_called(own)} for {platform.name}",
                cause="A tag for several platforms has the same stack for each of them.",
                next_step=f"name another tag; or {_REPLACE}",
            )
        if labels.get(_TORCH) != own.get(_TORCH):
            note(
                f"warning: {name} keeps torch {labels.get(_TORCH)} for {where} beside torch {own.get(_TORCH)} for "
                f"{platform.name}: publish that one, too"
            )
        if key is not None and not _is_signed(source, entry.digest, key):
            raise GateError(
                f"{name} has an image for {where} that this key has not signed, and it would sign the list of both",
                cause=f"Its digest is {entry.digest}. Who trusts the key would run it, whoever published it.",
                next_step=f"publish that one with the same key first; or {_REPLACE}",
            )


def put(
    target: Repository, tag: str, image: TaggedImage, sign: Callable[[spec.Descriptor], None], *, replace: bool
) -> TagState:
    """Set a tag to the image alone, or to an index of all platforms' images, and return what it holds then.

    `sign` gets the descriptor of such an index, which is in the registry, before the tag is set. `replace`: all
    that the tag holds gives way. Raises NetworkError, IntegrityError, LayoutError.
    """
    own = _descriptor(image.document)
    alone = TagState(image.document, platform_index.single(own, image.config))
    if replace:
        push.put_manifest(target, tag, image.document.data, image.document.media_type)
        return alone
    signed = set[str]()

    def signs(listing: Document) -> None:
        if listing.digest not in signed:
            sign(_descriptor(listing))
            signed.add(listing.digest)

    for _ in range(TRIES):
        before = state(target, tag)
        others = before.images.others(image.platform)
        if before.document and own.digest in (before.digest, *(entry.digest for entry in before.images.entries)):
            if others:
                signs(before.document)
            return before
        after = image.document
        if others:
            changed = before.images.with_image(own, image.platform)
            after = Document(data=changed.document, media_type=changed.media_type)
            push.put_manifest(target, after.digest, after.data, after.media_type)
            signs(after)
            if state(target, tag).digest != before.digest:
                continue
        push.put_manifest(target, tag, after.data, after.media_type)
    raise NetworkError(
        f"{target.name}:{tag} was set by others {TRIES} times while this image was to be added to it",
        cause="The image is in the registry under its digest, and not under that tag.",
        next_step="run the same command again; what is there is not sent again",
    )


def _called(labels: Mapping[str, str]) -> str:
    """An image's stack, by its labels."""
    if not labels.get(_TITLE):
        return "another image"
    return f"{labels[_TITLE]} for CUDA {labels[_CUDA]}" if labels.get(_CUDA) else labels[_TITLE]


def _config(source: Repository, descriptor: spec.Descriptor) -> spec.ImageConfig | None:
    """The configuration of an image; None where it is damaged, or not an image, such as a SIF."""
    if descriptor.media_type not in spec.MANIFEST_TYPES:
        return None
    try:
        manifest = codec.decode(source.manifest(descriptor.digest).data, spec.Manifest)
        is_there = source.has(manifest.config)
        return index.read_config(manifest, source.config) if is_there else None
    except (IntegrityError, LayoutError, ResolutionError, *UNREADABLE):
        return None


def _is_signed(source: Repository, digest: str, key: keys.PrivateKey) -> bool:
    """Return whether this key has signed an image."""
    return any(
        verdict.is_verified for verdict in verify.signatures(digest, attached_to(source, digest), key.public_key())
    )


def _descriptor(document: Document) -> spec.Descriptor:
    return spec.Descriptor(media_type=document.media_type, digest=document.digest, size=len(document.data))
