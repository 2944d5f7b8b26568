"""An image from a layout to a registry: blobs side by side, then the manifest, and the tag when all of it is there.

A pull meanwhile gets the old image or the new one. What was sent when a push breaks off stays in the registry
for the next push, under no tag.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from graphcrate.host.parallel import parallel
from graphcrate.host.progress import Progress
from graphcrate.model.errors import UsageError
from graphcrate.oci.image import writing_errors
from graphcrate.oci.layout import Layout, check_presence
from graphcrate.oci.registry import ACCEPT, Repository
from graphcrate.oci.upload import RequestSize, UploadBlob, UploadOutcome, upload
from ocilayout import spec
from ocilayout.image import digest_of

#: In the order of the command line: typing takes one of two orders for the other.
ManifestForm = Literal["docker", "oci"]
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


def push_layout(target: Repository, layout: Layout, form: ManifestForm, progress: Progress) -> Pushed:
    """Push the layout's image under its digest. `form`: of the manifest; `docker` is what every runtime can pull.

    Raises LayoutError, UsageError for a manifest that has no such form, NetworkError, IntegrityError.
    """
    check_presence(layout)
    document, media_type = manifest_of(layout, form)
    descriptors = (*layout.layers, layout.manifest.config)
    blobs = [UploadBlob(descriptor=descriptor, path=layout.blob(descriptor.digest)) for descriptor in descriptors]
    return push_image(target, blobs, document, media_type, progress)


def push_image(
    target: Repository, blobs: Sequence[UploadBlob], document: bytes, media_type: str, progress: Progress
) -> Pushed:
    """Push blobs, then the manifest under its digest. Raises as `push_blobs` and `put_manifest`."""
    digest = digest_of(document)
    blobs = list({blob.descriptor.digest: blob for blob in blobs}.values())
    target.retry.note = progress.note
    with progress.task(f"pushing to {target.name}", sum(blob.size for blob in blobs)) as task:
        arrived = push_blobs(target, blobs, task.advance)
    sent = put_manifest(target, digest, document, media_type, lambda: push_blobs(target, blobs, lambda _: None))
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
    return parallel(
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
    Raises NetworkError, IntegrityError.
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


def manifest_of(layout: Layout, form: ManifestForm) -> tuple[bytes, str]:
    """The manifest's bytes in this form; those of the layout where it has that form."""
    own = layout.blob(layout.digest).read_bytes()
    if (layout.descriptor.media_type == spec.DOCKER_MANIFEST) == (form == "docker"):
        return own, layout.descriptor.media_type
    if form == "docker":
        with writing_errors():
            return spec.docker_form(layout.manifest), spec.DOCKER_MANIFEST
    raise UsageError(
        f"{layout.path} holds a Docker manifest, which is not turned into an OCI one",
        next_step="publish it in Docker's form",
    )
