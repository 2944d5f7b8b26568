"""An image to a registry: blobs side by side, then the manifest, and the tag when all of it is there.

A pull meanwhile gets the old image or the new one. What was sent when a push breaks off stays in the registry
for the next push, under no tag.
"""

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from ocilayout.image import digest_of
from ociregistry.repository import ACCEPT, Repository
from ociregistry.upload import RequestSize, UploadBlob, UploadOutcome, upload

#: shows an upload of so many bytes while it is entered, and gives what is called with those that went
Shown = Callable[[int], contextlib.AbstractContextManager[Callable[[int], None]]]
THREADS = 4  #: uploads at once
_BLOB_UNKNOWN = ("MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN")


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """An image that a registry has. `digest` and `media_type` are those of its manifest.

    Bytes of blobs and documents: `bytes_sent` went to the connection, those of failed tries too; the registry had
    `bytes_there` and mounted `bytes_mounted` from other repositories.
    """

    digest: str
    media_type: str
    bytes_sent: int
    bytes_there: int
    bytes_mounted: int


def _ignored(_: int) -> None:
    pass


def push_image(
    target: Repository,
    blobs: Sequence[UploadBlob],
    document: bytes,
    media_type: str,
    shown: Shown = lambda _: contextlib.nullcontext(_ignored),
) -> Pushed:
    """Push blobs, then the manifest under its digest. Raises RegistryError, HttpError."""
    digest = digest_of(document)
    blobs = list({blob.descriptor.digest: blob for blob in blobs}.values())
    with shown(sum(blob.size for blob in blobs)) as advance:
        arrived = push_blobs(target, blobs, advance)
    sent = put_manifest(target, digest, document, media_type, lambda: push_blobs(target, blobs, _ignored))
    sizes = dict.fromkeys(UploadOutcome, 0)
    for blob, (outcome, _) in zip(blobs, arrived, strict=True):
        sizes[outcome] += blob.size
    return Pushed(
        digest=digest,
        media_type=media_type,
        bytes_sent=sent + sum(bytes_sent for _, bytes_sent in arrived),
        bytes_there=sizes[UploadOutcome.EXISTS],
        bytes_mounted=sizes[UploadOutcome.MOUNTED],
    )


def push_blobs(
    target: Repository, blobs: Sequence[UploadBlob], advance: Callable[[int], None]
) -> list[tuple[UploadOutcome, int]]:
    """Bring these blobs into the repository, largest first; how each came there.

    The first error ends the others, too. Raises as `upload.upload`.
    """
    pace = RequestSize(sum(blob.size for blob in blobs))
    return target.parallel(
        lambda blob, advancing: upload(target, blob, advancing, pace),
        blobs,
        threads=THREADS,
        advance=advance,
        size=lambda blob: blob.size,
    )


def put_manifest(
    target: Repository, what: str, data: bytes, media_type: str, restore: Callable[[], object] = lambda: None
) -> int:
    """Store a manifest under a tag or its digest, unless it is there; the bytes that were sent.

    `restore` is called once when the registry misses a blob that it had: it may have cleaned up meanwhile.
    Raises RegistryError, HttpError.
    """
    digest, url = digest_of(data), target.url("manifests", what)
    if what != digest:
        present = target.ask("HEAD", url, {"Accept": ACCEPT})
        if present.status == 200 and present.headers.get("Docker-Content-Digest") == digest:
            return 0
    sent = 0
    for again in (False, True):
        response = target.ask("PUT", url, {"Content-Type": media_type}, data)
        sent += len(data)
        if again or not set(target.codes(response)) & set(_BLOB_UNKNOWN):
            break
        restore()
    if response.status not in (200, 201, 202):
        raise target.unexpected(response, f"the manifest of {target.name}")
    target.check_stored(response, digest, f"the manifest of {target.name}")
    return sent
