"""An image that may go out, to where it goes: gate, blobs, proofs, and the tag last; then what its users type."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from graphcrate import catalogue, delivering, statements
from graphcrate.admitting import Candidate, Request, Signer, examine
from graphcrate.attest import keyfile, statement, storage
from graphcrate.attest.keys import PrivateKey
from graphcrate.destinations.parse import parse, reference_for, vpc_reference
from graphcrate.errors import ResolutionError, UsageError
from graphcrate.host import settings
from graphcrate.host.http import Client
from graphcrate.host.person import ask_password, is_there
from graphcrate.host.workplace import Workplace
from graphcrate.model.destination import Acr, Destination, Folder, Oras, Registry
from graphcrate.model.proof import Subject
from graphcrate.model.publish import Published
from graphcrate.oci import credentials, push, spec
from graphcrate.oci.reference import TAG_RULE, Reference, is_tag
from graphcrate.oci.referrers import Attachment, attach
from graphcrate.oci.registry import Repository
from graphcrate.oci.upload import Blob, Pace
from graphcrate.render import pulling

_BYTES = "application/octet-stream"
#: what a person may say → the field of the request, and what it is for
_OPTIONS: Mapping[str, tuple[str, str, tuple[type[Destination], ...]]] = {
    "--form": ("form", "a registry", (Registry, Acr)),
    "--mount-from": ("mount_from", "a registry", (Registry, Acr)),
    "--tag": ("tags", "a registry and oras://", (Registry, Acr, Oras)),
    "--as": ("forms", "a folder", (Folder,)),
    "--kernel": ("kernel", "a folder and oras://", (Folder, Oras)),
    "--compression": ("compression", "a folder and oras://", (Folder, Oras)),
    "--keep": ("keep", "a folder", (Folder,)),
    "--replace": ("replace", "a folder", (Folder,)),
}


def publish(request: Request, place: Workplace, to: str) -> Published:
    """Publish where a person says (`destinations.parse`). Raises as `examine` and whatever the destination raises."""
    destination = destination_of(request, place, to)
    report = catalogue.find_image(request.ref, request.output)[1]
    if isinstance(destination, Registry | Acr):
        return to_registry(request, place, reference_for(destination, report.name, report.tag), to)
    return delivering.deliver(request, place, destination, to)


def destination_of(request: Request, place: Workplace, to: str) -> Destination:
    """Where it goes. Raises UsageError for no such place, and for an option that does not apply to it."""
    destination = parse(to, place.environment)
    for option, (field, words, kinds) in _OPTIONS.items():
        value = getattr(request, field)
        if not (value is None or value is False or value == () or isinstance(destination, kinds)):
            raise UsageError(
                f"{option} does not apply to {to}", cause=f"It is for {words}.", next_step=f"leave {option} out"
            )
    if request.signer.name and not isinstance(destination, Registry | Acr):
        raise UsageError(
            f"{to} has no place for signatures",
            cause="They are kept beside an image on a registry; files on a shelf have checksums.",
            next_step="leave --key out, or publish to a registry",
        )
    for tag in request.tags:
        if not is_tag(tag):
            raise UsageError(
                f"{tag!r} is not a tag ({TAG_RULE})",
                cause="A further tag names the same image in the same repository, of which it says nothing.",
                next_step="--tag latest",
            )
    return destination


def to_registry(request: Request, place: Workplace, reference: Reference, destination: str) -> Published:
    """Publish on a registry. `reference` has a tag.

    Blobs, then the manifest by its digest, then the proofs, and the tags when all of it is there.
    Raises as `examine`, NetworkError, IntegrityError.
    """
    start = settings.now()
    candidate = examine(request, place)
    report, signer = candidate.report, request.signer
    key = keyfile.read_private(signer.key, place.environment, ask_password) if signer.key else None
    client, form = Client(place.environment), request.form or "docker"
    find = functools.partial(credentials.for_destination, reference, place.environment)
    realms = credentials.trusted_realms(place.environment)
    pushed = push.push_layout(
        candidate.layout,
        msgspec.structs.replace(reference, tag="", digest=""),  # under its digest alone, until all is there
        form=form,
        client=client,
        find_credential=find,
        progress=place.progress,
        mount_from=request.mount_from,
        trusted_realms=realms,
    )
    target = push.repository(reference, client=client, find_credential=find, trusted_realms=realms)
    subject = Subject(name=report.name, tag=report.tag, digest=pushed.manifest_digest)
    proofs = tuple(_attached(target, candidate, subject, key, signer, place))
    tags = tuple(dict.fromkeys((reference.tag, *request.tags)))
    document = target.manifest(pushed.digest)
    for tag in tags:
        push.put_manifest(target, tag, document.data, pushed.media_type)
    named = msgspec.structs.replace(reference, tag=tags[0], digest="")
    return Published(
        name=report.name,
        tag=report.tag,
        destination=destination,
        reference=str(named),
        digest=pushed.digest,
        form=form,
        tags=tags,
        bytes_sent=pushed.bytes_sent,
        bytes_there=pushed.bytes_there,
        bytes_mounted=pushed.bytes_mounted,
        proofs=proofs,
        signed=signer.name,
        cpu_only=candidate.evidence.cpu_only,
        seconds=round(settings.now() - start, 3),
        lines=pulling.lines(named, report.name, inside=vpc_reference(named)),
    )


def _attached(
    target: Repository, candidate: Candidate, subject: Subject, key: PrivateKey | None, signer: Signer, place: Workplace
) -> Iterator[str]:
    """Attach the proofs; the digest of each artifact."""
    said, created = statements.of(candidate, subject, place), candidate.lock.created
    if key is not None:
        tags = (storage.signature_tag(subject.digest), storage.attestation_tag(subject.digest))
        proof = storage.signed(said, subject, target.name, key, created, _there(target, tags))
    elif signer.keyless:
        from graphcrate.host import keyless

        every = (statement.signed(subject), *said)
        bundles = keyless.sign([statement.encode(one) for one in every], browser=is_there())
        proof = storage.Attached(
            referrers=tuple(
                storage.bundle(data, one.predicate_type, created) for one, data in zip(every, bundles, strict=True)
            )
        )
    else:
        proof = storage.unsigned(said, created)
    for one in proof.referrers:
        blob = Attachment(media_type=one.artifact_type, data=one.data)
        yield attach(target, subject.digest, one.artifact_type, [blob], one.annotations)
    for tagged in proof.tagged:
        blobs = [
            Blob(descriptor=spec.Descriptor(media_type=_BYTES, digest=digest, size=len(data)), data=data)
            for digest, data in tagged.blobs.items()
        ]
        push.push_blobs(target, blobs, lambda _: None, Pace())
        push.put_manifest(target, tagged.tag, tagged.manifest, spec.MANIFEST)


def _there(target: Repository, tags: Sequence[str]) -> Mapping[str, bytes]:
    """Manifests that lie under these tags."""
    found = {}
    for tag in tags:
        with suppress(ResolutionError):
            found[tag] = target.manifest(tag).data
    return found
