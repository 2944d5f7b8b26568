"""Attestations of an image that goes out: gather them as in-toto statements, and attach them on a registry."""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from graphcrate.checks import licences
from graphcrate.checks.audit import run as auditing
from graphcrate.host.context import Context
from graphcrate.model.errors import ResolutionError
from graphcrate.model.report import Asked
from graphcrate.oci import push, spec
from graphcrate.oci.image import digest_of
from graphcrate.oci.registry import Repository
from graphcrate.oci.upload import Blob
from graphcrate.publish.attest import provenance, sbom, signing, statement
from graphcrate.publish.attest.keys import PrivateKey
from graphcrate.publish.attest.statement import Statement, Subject
from graphcrate.publish.policy import Candidate

_BYTES = "application/octet-stream"
#: file name beside a published file, by predicate type
_FILES = {
    statement.BILL: "bill-of-materials.json",
    provenance.PREDICATE: "provenance.json",
    statement.SMOKE: "suites.json",
    statement.CONTRACTS: "contracts.json",
    statement.AUDIT: "audit.json",
}


def of(candidate: Candidate, subject: Subject, ctx: Context) -> tuple[Statement, ...]:
    """Gather what is in the image, how it was made, that it ran, and what checks found."""
    report, lock = candidate.report, candidate.lock
    asked = report.asked or Asked(recipe=report.name, variant=report.cuda, candidate=report.candidate)
    devel = asked.flavour == "devel"
    made = provenance.provenance(
        lock, asked, engine=report.artifact.engine, created=lock.created, build_key=report.build_key, devel=devel
    )
    known = licences.of_image(auditing.read_image(str(candidate.layout.path), ctx).texts, lock.python)
    cut = [one for layer in report.layers for one in layer.cut]
    bill = msgspec.json.decode(sbom.sbom(lock, subject, created=lock.created, devel=devel, facts=known, cut=cut))
    smoke = statement.smoke(candidate.evidence.suites, cpu_only_allowed=candidate.evidence.cpu_only)
    return (
        statement.make(subject, statement.BILL, bill),
        statement.make(subject, provenance.PREDICATE, made),
        statement.make(subject, statement.SMOKE, smoke),
        statement.make(subject, statement.CONTRACTS, statement.contracts(report.contracts)),
        statement.make(subject, statement.AUDIT, statement.audit(candidate.audit)),
    )


def files(candidate: Candidate, ctx: Context) -> dict[str, bytes]:
    """The build's report and the statements about the layout's own manifest, by file name."""
    report = candidate.report
    subject = Subject(name=report.name, tag=report.tag, digest=report.digest)
    documents = {_FILES[one.predicate_type]: statement.encode(one) for one in of(candidate, subject, ctx)}
    return {"report.json": (candidate.folder / "report.json").read_bytes(), **documents}


def attach(
    target: Repository, candidate: Candidate, subject: Subject, key: PrivateKey | None, ctx: Context
) -> Iterator[str]:
    """Push the statements under the tags that cosign looks for, signed if there is a key; digests of the manifests."""
    before = {}
    for tag in (signing.signature_tag(subject.digest), signing.attestation_tag(subject.digest)):
        with suppress(ResolutionError):
            before[tag] = target.manifest(tag).data
    about = of(candidate, subject, ctx)
    for tagged in signing.attached(about, subject.digest, target.name, key, before):
        blobs = [
            Blob(descriptor=spec.Descriptor(media_type=_BYTES, digest=digest, size=len(data)), data=data)
            for digest, data in tagged.blobs.items()
        ]
        push.push_blobs(target, blobs, lambda _: None)
        push.put_manifest(target, tagged.tag, tagged.manifest, spec.MANIFEST)
        yield digest_of(tagged.manifest)
