"""Attestations of an image that goes out: gather them as in-toto statements, and attach them on a registry."""

from collections.abc import Iterator, Sequence

from graphcrate.checks import licences, system
from graphcrate.checks.reading import read_image
from graphcrate.host.context import Context
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, ResolutionError
from graphcrate.model.report import Asked
from graphcrate.oci import push, spec
from graphcrate.oci.image import digest_of
from graphcrate.oci.registry import Repository
from graphcrate.oci.upload import Blob
from graphcrate.publish.attest import provenance, signing, statement
from graphcrate.publish.attest.keys import PrivateKey
from graphcrate.publish.attest.statement import Statement, Subject
from graphcrate.publish.policy import Candidate


def of(candidate: Candidate, digest: str, ctx: Context) -> tuple[Statement, ...]:
    """Gather what is in the image, how it was made, that it ran, and what checks found. `digest`: of its manifest."""
    from graphcrate.publish.attest import bill

    report, lock = candidate.report, candidate.lock
    subject = Subject(name=report.name, tag=report.tag, digest=digest)
    asked = report.asked or Asked(recipe=report.name, variant=report.cuda, candidate=report.candidate)
    found = read_image(str(candidate.layout.path), ctx).contents
    known, installed = licences.of_image(found.texts, lock.python), system.of_image(found.texts, found.links)
    cut = [one for layer in report.layers for one in layer.cut]
    predicates = {
        statement.BILL: bill.sbom(
            lock, subject, devel=asked.flavour == "devel", facts=known, system=installed, cut=cut
        ),
        statement.PROVENANCE: provenance.provenance(lock, asked, report.artifact.engine, report.build_key),
        statement.SMOKE: statement.smoke(
            candidate.evidence.suites,
            manifest=candidate.layout.digest,
            config=candidate.layout.manifest.config.digest,
            cpu_only_allowed=candidate.evidence.cpu_only,
        ),
        statement.CONTRACTS: {"findings": report.contracts},
        statement.AUDIT: statement.audit(candidate.audit),
    }
    return tuple(statement.make(subject, kind, predicate) for kind, predicate in predicates.items())


def files(candidate: Candidate, ctx: Context) -> dict[str, bytes]:
    """The build's report, its lock and the statements about the layout's own manifest, by file name."""
    about = of(candidate, candidate.report.digest, ctx)
    documents = {statement.KINDS[one.predicate_type][1]: statement.encode(one) for one in about}
    folder = candidate.layout.path.parent
    return {**{name: (folder / name).read_bytes() for name in ("report.json", "lock.json")}, **documents}


def attach(
    target: Repository, candidate: Candidate, digest: str, key: PrivateKey | None, ctx: Context
) -> Iterator[str]:
    """Push the statements under the tags that cosign looks for, signed if there is a key; digests of the manifests."""
    about = of(candidate, digest, ctx)
    made = [signing.attestations(digest, about, key, stored(target, signing.attestation_tag(digest)))]
    if key is not None:
        claim = signing.claim(target.name, digest)
        made.insert(0, signing.signatures(digest, claim, key, stored(target, signing.signature_tag(digest))))
    for tagged in made:
        push.push_blobs(target, [_blob(data) for data in tagged.blobs.values()], lambda _: None)
        push.put_manifest(target, tagged.tag, tagged.manifest, spec.MANIFEST)
        yield digest_of(tagged.manifest)


def stored(source: Repository, tag: str) -> Sequence[spec.Descriptor]:
    """What the manifest under a tag of cosign's has; empty where there is none or another document."""
    try:
        return codec.decode(source.manifest(tag).data, spec.Manifest).layers
    except (ResolutionError, *UNREADABLE):
        return ()


def _blob(data: bytes) -> Blob:
    about = spec.Descriptor(media_type="application/octet-stream", digest=digest_of(data), size=len(data))
    return Blob(descriptor=about, data=data)
