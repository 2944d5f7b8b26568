"""All that is said of an image that goes out, as in-toto statements."""

import msgspec

from graphcrate import auditing
from graphcrate.admitting import Candidate
from graphcrate.attest import facts, provenance, reports, sbom, statement
from graphcrate.host.workplace import Workplace
from graphcrate.model.proof import Asked, Statement, Subject

#: file name in a bundle, by predicate type
_FILES = {
    sbom.PREDICATE: "bill-of-materials.json",
    provenance.PREDICATE: "provenance.json",
    reports.SMOKE: "suites.json",
    reports.CONTRACTS: "contracts.json",
    reports.AUDIT: "audit.json",
}


def of(candidate: Candidate, subject: Subject, place: Workplace) -> tuple[Statement, ...]:
    """All that is said of an image: what is in it, how it was made, that it ran, what checks found."""
    report, lock = candidate.report, candidate.lock
    asked = report.asked or Asked(recipe=report.name, variant=report.cuda, candidate=report.candidate)
    devel = asked.flavour == "devel"
    made = provenance.provenance(
        lock, asked, engine=report.artifact.engine, created=lock.created, build_key=report.build_key, devel=devel
    )
    read = auditing.read_image(str(candidate.layout.path), place)
    known = facts.of_image(read.texts, read.links, lock.python)
    bill = msgspec.json.decode(sbom.sbom(lock, subject, created=lock.created, devel=devel, facts=known))
    smoke = reports.smoke(candidate.evidence.suites, cpu_only_allowed=candidate.evidence.cpu_only)
    return (
        statement.make(subject, sbom.PREDICATE, bill),
        statement.make(subject, provenance.PREDICATE, made),
        statement.make(subject, reports.SMOKE, smoke),
        statement.make(subject, reports.CONTRACTS, reports.contracts(report.contracts)),
        statement.make(subject, reports.AUDIT, reports.audit(candidate.audit)),
    )


def files(candidate: Candidate, place: Workplace) -> dict[str, bytes]:
    """The same about the layout's own manifest: file name → statement."""
    report = candidate.report
    subject = Subject(name=report.name, tag=report.tag, digest=report.digest)
    return {_FILES[one.predicate_type]: statement.encode(one) for one in of(candidate, subject, place)}
