"""What is told of an image beside it: signatures, SBOMs and reports as manifests whose `subject` the image is.

Distribution specification 1.1: a registry lists them by its referrers API; for one without it the client keeps an
index of them under a tag made of the digest.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.errors import IntegrityError, NetworkError, ResolutionError
from graphcrate.host.connections import HttpError
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.oci import spec
from graphcrate.oci.image import digest_of
from graphcrate.oci.push import push_blobs, put_manifest
from graphcrate.oci.registry import Repository
from graphcrate.oci.upload import Blob, Pace

PAGES = 100  #: of one list
TRIES = 5  #: to enter a list that others write, too
_LINK = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One blob of what is attached."""

    media_type: str
    data: bytes
    annotations: Mapping[str, str] = {}


def attach(
    target: Repository,
    subject: str,
    artifact_type: str,
    blobs: Sequence[Attachment],
    annotations: Mapping[str, str] | None = None,
) -> str:
    """Attach blobs to the manifest with the digest `subject`, which is there; the digest of the artifact's manifest.

    The same arguments give the same digest, so what is attached twice is there once. `target` was made with the
    action `push`. Raises ResolutionError (no such subject), NetworkError, IntegrityError.
    """
    about = target.manifest(subject)
    layers = tuple(_descriptor(blob.media_type, blob.data, blob.annotations) for blob in blobs)
    empty = _descriptor(spec.EMPTY, spec.EMPTY_BLOB)
    manifest = spec.ArtifactManifest(
        schema_version=2,
        media_type=spec.MANIFEST,
        artifact_type=artifact_type,
        config=empty,
        layers=layers or (empty,),
        subject=spec.Descriptor(media_type=about.media_type, digest=subject, size=len(about.data)),
        annotations=dict(annotations or {}),
    )
    contents = [(empty, spec.EMPTY_BLOB), *zip(layers, (blob.data for blob in blobs), strict=True)]
    sent = [Blob(descriptor=descriptor, data=data) for descriptor, data in contents]
    push_blobs(target, sent, lambda _: None, Pace())
    document = msgspec.json.encode(manifest)
    digest = digest_of(document)
    put_manifest(target, digest, document, spec.MANIFEST)
    entry = spec.Descriptor(
        media_type=spec.MANIFEST,
        digest=digest,
        size=len(document),
        annotations=manifest.annotations,
        artifact_type=artifact_type,
    )
    if _by_api(target, subject) is None:
        _enter(target, subject, entry)
    return digest


def referrers(source: Repository, digest: str, artifact_type: str = "") -> tuple[spec.Descriptor, ...]:
    """Descriptors of the manifests whose subject is `digest`, of one type or of all. Raises NetworkError."""
    found = _by_api(source, digest)
    if found is None:
        found = _by_tag(source, digest)
    return tuple(entry for entry in found if artifact_type in ("", entry.artifact_type))


def fallback_tag(digest: str) -> str:
    """The tag of the index that a client keeps: `sha256:abc` → `sha256-abc`."""
    return digest.replace(":", "-")


def _by_api(source: Repository, digest: str) -> tuple[spec.Descriptor, ...] | None:
    """As the registry lists them, page by page; None where it has no such list."""
    found: list[spec.Descriptor] = []
    url = source.url("referrers", digest)
    for _ in range(PAGES):
        try:
            response = source.session.ask("GET", url, {"Accept": spec.INDEX})
        except HttpError as error:
            raise source.session.explained(error) from error
        if response.status in (401, 403):
            raise source.session.refused(response)
        page = _index(response.body) if response.status == 200 else None
        if page is None:
            if not found:
                return None
            raise NetworkError(f"{source.session.host} breaks off its list of what belongs to {digest}")
        found += page.manifests
        following = _LINK.search(response.headers.get("Link") or "")
        url = source.session.joined(response, following[1]) if following else ""
        if not source.session.is_ours(url):
            break
    return tuple(found)


def _by_tag(source: Repository, digest: str) -> tuple[spec.Descriptor, ...]:
    try:
        document = source.manifest(fallback_tag(digest))
    except ResolutionError:
        return ()
    index = _index(document.data)
    if index is None:
        raise IntegrityError(f"{source.name}:{fallback_tag(digest)} is no list of what belongs to that image")
    return index.manifests


def _index(data: bytes) -> spec.Index | None:
    try:
        index = msgspec.json.decode(data, type=spec.Index)
    except UNREADABLE:
        return None
    return index if index.media_type in ("", spec.INDEX) else None


def _enter(target: Repository, subject: str, entry: spec.Descriptor) -> None:
    """Enter it into the list under the tag. Somebody else may write at the same time: then the later one repeats."""
    for _ in range(TRIES):
        there = _by_tag(target, subject)
        if any(one.digest == entry.digest for one in there):
            return
        index = spec.Index(schema_version=2, media_type=spec.INDEX, manifests=(*there, entry))
        put_manifest(target, fallback_tag(subject), msgspec.json.encode(index), spec.INDEX)
    if all(one.digest != entry.digest for one in _by_tag(target, subject)):
        raise NetworkError(
            f"{target.name}:{fallback_tag(subject)} does not keep what is entered into it",
            cause="Somebody else attaches to the same image all the time, or the registry serves old tags.",
            next_step="run the same command again",
        )


def _descriptor(media_type: str, data: bytes, annotations: Mapping[str, str] | None = None) -> spec.Descriptor:
    return spec.Descriptor(
        media_type=media_type, digest=digest_of(data), size=len(data), annotations=dict(annotations or {})
    )
