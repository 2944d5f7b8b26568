"""Attestations of an image that goes out: gather them as in-toto statements, and attach them on a registry."""

from collections.abc import Sequence

import msgspec

from dssesign import bundles, signing, statement
from dssesign.keys import PrivateKey
from dssesign.statement import Statement
from graphcrate.checks import licences, system
from graphcrate.checks.reading import read_image
from graphcrate.host.context import Context
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, ResolutionError
from graphcrate.model.lock import encode
from graphcrate.model.report import BuildParameters, BuildReport
from graphcrate.oci.registry import Repository
from graphcrate.publish import predicates, provenance
from graphcrate.publish.policy import ImageEvidence
from ocilayout import spec
from ocilayout.image import descriptor_of, digest_of
from ociregistry import push, referrers
from ociregistry.upload import UploadBlob


def of(candidate: ImageEvidence, digest: str, ctx: Context) -> tuple[Statement, ...]:
    """Gather what is in the image, how it was made, that it ran, and what checks found. `digest`: of its manifest."""
    from graphcrate.publish import bill

    report, lock = candidate.report, candidate.lock
    subject = predicates.Subject(name=report.name, tag=report.tag, digest=digest)
    asked = report.asked or BuildParameters(recipe=report.name, variant=report.cuda, candidate=report.candidate)
    image = read_image(str(candidate.layout.path), ctx).contents
    known, installed = licences.of_image(image.texts, lock.python), system.of_image(image.texts, image.links)
    cut = [file for layer in report.layers for file in layer.cut]
    about = {
        predicates.BILL: bill.sbom(
            lock, subject, devel=asked.flavour == "devel", facts=known, system=installed, cut=cut
        ),
        predicates.PROVENANCE: provenance.provenance(lock, asked, report.artifact.engine, report.build_key),
        predicates.SMOKE: predicates.smoke(
            candidate.evidence.suites,
            manifest=candidate.layout.digest,
            config=candidate.layout.manifest.config.digest,
            cpu_only_allowed=candidate.evidence.cpu_only,
            emulated_allowed=candidate.evidence.emulated,
            starts=candidate.report.starts or (),
        ),
        predicates.CONTRACTS: {"findings": report.contracts},
        predicates.AUDIT: predicates.audit(candidate.audit),
    }
    return tuple(statement.make(subject.name, digest, kind, predicate) for kind, predicate in about.items())


def files(candidate: ImageEvidence, ctx: Context) -> dict[str, bytes]:
    """The build's report, its lock and the statements about the layout's own manifest, by file name."""
    about = of(candidate, candidate.report.digest, ctx)
    documents = {predicates.KINDS[document.predicate_type][1]: statement.encode(document) for document in about}
    folder = candidate.layout.path.parent
    report = codec.decode((folder / "report.json").read_bytes(), BuildReport)
    mine = {"report.json": encode(predicates.public(report)), "lock.json": (folder / "lock.json").read_bytes()}
    return mine | documents


class AttachedStatements(msgspec.Struct, frozen=True, kw_only=True):
    """Statements beside an image. `digests`: of all manifests; `referrers`: as `ociregistry.referrers` lists them."""

    digests: tuple[str, ...] = ()
    referrers: tuple[spec.Descriptor, ...] = ()


def attach(
    target: Repository,
    candidate: ImageEvidence,
    subject: spec.Descriptor,
    names: Sequence[str],
    key: PrivateKey | None,
    ctx: Context,
) -> AttachedStatements:
    """Push the statements under the tags that old cosign looks for; with a key signed, and as bundles for the new one.

    `subject`: the image's manifest; `names`: what it is published as, each of which is signed.
    """
    return _attach(target, of(candidate, subject.digest, ctx), subject, names, key, ctx)


def sign(
    target: Repository, subject: spec.Descriptor, names: Sequence[str], key: PrivateKey, ctx: Context
) -> AttachedStatements:
    """Sign an index of images, of which each has statements of its own: cosign verifies a tag by what it holds."""
    return _attach(target, (), subject, names, key, ctx)


def _attach(
    target: Repository,
    about: Sequence[Statement],
    subject: spec.Descriptor,
    names: Sequence[str],
    key: PrivateKey | None,
    ctx: Context,
) -> AttachedStatements:
    digest, made = subject.digest, list[signing.Tagged]()
    if about:
        made.append(signing.attestations(digest, about, key, stored(target, signing.attestation_tag(digest))))
    if key is not None:
        claims = [signing.claim(name, digest, {predicates.PUBLISHED: name}) for name in names]
        made.insert(0, signing.signatures(digest, claims, key, stored(target, signing.signature_tag(digest))))
    for tagged in made:
        push.push_blobs(target, [_blob(data) for data in tagged.blobs.values()], lambda _: None)
        push.put_manifest(target, tagged.tag, tagged.manifest, spec.MANIFEST)
    digests = tuple(digest_of(tagged.manifest) for tagged in made)
    if key is None:
        return AttachedStatements(digests=digests)
    signed = [*(bundles.sign(digest, {predicates.PUBLISHED: name}) for name in names), *about]
    return _refer(target, [bundles.attach(document, key, subject) for document in signed], digest, digests, ctx)


def _refer(
    target: Repository, made: Sequence[bundles.NewReferrer], digest: str, digests: tuple[str, ...], ctx: Context
) -> AttachedStatements:
    """Push bundles as referrers of the image; where a registry takes none of them, that is said."""
    blobs = {digest_of(data): data for referrer in made for data in referrer.blobs}
    push.push_blobs(target, [_blob(data) for data in blobs.values()], lambda _: None)
    entries = tuple(referrer.descriptor for referrer in made)
    refused = next(filter(None, (referrers.put(target, referrer.manifest) for referrer in made)), "")
    if why := refused or referrers.add(target, digest, entries):
        ctx.progress.note(
            f"warning: {why}. So cosign 1 to 3 and `verify` find the signatures; what looks for referrers does not"
        )
        return AttachedStatements(digests=digests)
    return AttachedStatements(digests=(*digests, *(entry.digest for entry in entries)), referrers=entries)


def stored(source: Repository, tag: str) -> Sequence[spec.Descriptor]:
    """Read the manifest under a tag of cosign's; empty where there is none or another document."""
    try:
        return codec.decode(source.manifest(tag).data, spec.Manifest).layers
    except (ResolutionError, *UNREADABLE):
        return ()


def _blob(data: bytes) -> UploadBlob:
    about = descriptor_of("application/octet-stream", data)
    return UploadBlob(descriptor=about, data=data)
