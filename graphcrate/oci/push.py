"""An image from a layout to a registry: blobs side by side, then the manifest, and the tag when all of it is there.

Whoever pulls meanwhile gets the old image or the new one. What was sent when a push breaks off stays in the registry
for the next push, under no tag.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

import msgspec

from graphcrate.host.http import Client
from graphcrate.host.parallel import parallel
from graphcrate.host.progress import Progress
from graphcrate.model.errors import UsageError
from graphcrate.oci import spec
from graphcrate.oci.image import digest_of
from graphcrate.oci.layout import Layout, check_presence
from graphcrate.oci.reference import Reference
from graphcrate.oci.registry import ACCEPT, Repository
from graphcrate.oci.session import FindCredential
from graphcrate.oci.upload import Arrived, Blob, Chunks, Outcome, upload

Form = Literal["oci", "docker"]
THREADS = 4  #: uploads at once
_BLOB_UNKNOWN = ("MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN")


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """An image that a registry has. `digest` and `media_type` are those of its manifest.

    Bytes of blobs and documents: `bytes_sent` went to the connection, those of failed tries too; the registry had
    `bytes_there` and took `bytes_mounted` over from other repositories.
    """

    reference: Reference
    digest: str
    media_type: str
    bytes_sent: int
    bytes_there: int
    bytes_mounted: int


def repository(
    reference: Reference,
    *,
    client: Client,
    find_credential: FindCredential,
    mount_from: Sequence[str] = (),
    trusted_realms: Collection[str] = (),
) -> Repository:
    """The reference's repository, to write to."""
    return Repository(
        client,
        reference,
        find_credential,
        actions="pull,push",
        mount_from=tuple(dict.fromkeys(name for name in mount_from if name != reference.repository)),
        trusted_realms=trusted_realms,
    )


def push_layout(
    layout: Layout,
    reference: Reference,
    *,
    form: Form,
    client: Client,
    find_credential: FindCredential,
    progress: Progress,
    mount_from: Sequence[str] = (),
    trusted_realms: Collection[str] = (),
) -> Pushed:
    """Push the layout's image; under the reference's tag, or under its digest alone where it has none.

    `form`: of the manifest; `docker` is what every runtime can pull. `mount_from`: repositories of the same registry
    that may have layers of it. Raises LayoutError, UsageError (the reference's digest is another
    one), NetworkError, IntegrityError.
    """
    check_presence(layout)
    document, media_type = manifest_of(layout, form)
    digest = digest_of(document)
    if reference.digest not in ("", digest):
        raise UsageError(
            f"the image is {digest}, and {reference} names another one",
            cause=f"The manifest's form ({form}) is part of what a digest is over.",
            next_step=f"leave the digest out: {reference.name}:{reference.tag or layout.tag or 'latest'}",
        )
    target = repository(
        reference,
        client=client,
        find_credential=find_credential,
        mount_from=mount_from,
        trusted_realms=trusted_realms,
    )
    blobs = [
        Blob(descriptor=descriptor, path=layout.blob(descriptor.digest))
        for descriptor in {one.digest: one for one in (*layout.layers, layout.manifest.config)}.values()
    ]
    return push_image(target, reference, blobs, document, media_type, [reference.tag or digest], progress)


def push_image(
    target: Repository,
    reference: Reference,
    blobs: Sequence[Blob],
    document: bytes,
    media_type: str,
    tags: Iterable[str],
    progress: Progress,
) -> Pushed:
    """Push blobs, then the manifest under these tags. Raises as `push_blobs` and `put_manifest`."""
    digest = digest_of(document)
    target.session.retry.note = progress.note
    with progress.task(f"pushing to {target.name}", sum(blob.size for blob in blobs)) as task:
        arrived = push_blobs(target, blobs, task.advance)
    restore = functools.partial(push_blobs, target, blobs, lambda _: None)
    sent = sum(put_manifest(target, tag, document, media_type, restore) for tag in tags)
    sizes = {
        outcome: sum(blob.size for blob in blobs if arrived[blob.descriptor.digest].outcome is outcome)
        for outcome in Outcome
    }
    return Pushed(
        reference=msgspec.structs.replace(reference, digest=digest),
        digest=digest,
        media_type=media_type,
        bytes_sent=sent + sum(one.sent for one in arrived.values()),
        bytes_there=sizes[Outcome.THERE],
        bytes_mounted=sizes[Outcome.MOUNTED],
    )


def push_blobs(target: Repository, blobs: Sequence[Blob], advance: Callable[[int], None]) -> dict[str, Arrived]:
    """Bring these blobs into the repository, largest first; how each came there, by digest.

    The first error ends the others, too. Raises as `upload.upload`.
    """
    wanted = list({blob.descriptor.digest: blob for blob in blobs}.values())
    chunks = Chunks(sum(blob.size for blob in wanted))
    arrived = parallel(
        lambda blob, advancing: upload(target, blob, advancing, chunks, mount_from=target.mount_from),
        wanted,
        threads=THREADS,
        advance=advance,
        size=lambda blob: blob.size,
    )
    return {blob.descriptor.digest: one for blob, one in zip(wanted, arrived, strict=True)}


def put_manifest(
    target: Repository, what: str, data: bytes, media_type: str, restore: Callable[[], object] = lambda: None
) -> int:
    """Store a manifest under a tag or its digest, unless it is there; the bytes that were sent.

    `restore` is called once when the registry misses a blob that it had: it may have cleaned up meanwhile.
    Raises NetworkError, IntegrityError.
    """
    digest, session, url = digest_of(data), target.session, target.url("manifests", what)
    if what != digest:
        present = session.ask("HEAD", url, {"Accept": ACCEPT})
        if present.status == 200 and present.headers.get("Docker-Content-Digest") == digest:
            return 0
    sent = 0
    for again in (False, True):
        response = session.ask("PUT", url, {"Content-Type": media_type}, data)
        sent += len(data)
        if again or not set(session.codes(response)) & set(_BLOB_UNKNOWN):
            break
        restore()
    if response.status not in (200, 201, 202):
        raise session.unexpected(response, f"the manifest of {target.name}")
    session.check_stored(response, digest, f"the manifest of {target.name}")
    return sent


def manifest_of(layout: Layout, form: Form) -> tuple[bytes, str]:
    """The manifest's bytes in this form; those of the layout where it has that form."""
    own = layout.blob(layout.digest).read_bytes()
    if (layout.descriptor.media_type == spec.DOCKER_MANIFEST) == (form == "docker"):
        return own, layout.descriptor.media_type
    if form == "docker":
        return spec.docker_form(layout.manifest), spec.DOCKER_MANIFEST
    raise UsageError(
        f"{layout.path} holds a Docker manifest, which is not turned into an OCI one",
        next_step="publish it in Docker's form",
    )
