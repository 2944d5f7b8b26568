"""Word contracts' findings and audits for people and scripts. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from graphcrate.model.answer import Answer, Entry, Section
from graphcrate.model.audit import Audit, PackageCode
from graphcrate.model.contract import Finding, Inspection
from graphcrate.model.words import printable

#: of a contract's status or an audit's severity, the worst first: in words, and in rich's
_WORDS = {"fail": "fail", "warn": "warn", "unknown": "not known", "note": "note", "pass": "pass"}
_STYLES = {"fail": "bold red", "warn": "yellow", "unknown": "dim", "note": "dim", "pass": "green"}


def count(statuses: Iterable[str]) -> dict[str, int]:
    """How many there are of each status or severity, the worst first."""
    counts = Counter(statuses)
    return {status: counts[status] for status in _WORDS if status in counts}


def counted(statuses: Iterable[str]) -> str:
    """`1 fail, 2 warn, 30 pass`."""
    return ", ".join(f"{number} {_WORDS[status]}" for status, number in count(statuses).items())


def contracts(inspection: Inspection, *, everything: bool = True) -> Answer:
    """Word each finding, the worst first; without `everything` only what fails or warns."""
    entries = []
    for one in _sorted(inspection.findings):
        if everything or one.status in ("fail", "warn"):
            text = f"{one.title} ({', '.join(one.runtimes)})"
            if one.status == "pass":
                entries.append(_entry(one.status, f"{text}: {one.seen}", {}))
            else:
                entries.append(_entry(one.status, text, {"seen": one.seen, "why": one.why, "fix": one.fix}))
    summary = (*_unread(inspection.unread), counted(one.status for one in inspection.findings))
    return Answer((Section(tuple(entries)),), summary=summary)


def _entry(status: str, text: str, details: Mapping[str, str]) -> Entry:
    lines = tuple(f"{name}: {value}" for name, value in details.items() if value)
    return Entry(_WORDS[status], text, lines, _STYLES[status])


def _unread(reasons: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"not read: {reason}" for reason in reasons)


def contracts_after_build(findings: Iterable[Finding], ref: str) -> Iterator[str]:
    """What a person is told after a build: nothing of what passed or is not known."""
    told = [finding for finding in findings if finding.status in ("fail", "warn")]
    if not told:
        yield "contracts: all kept that can be judged without the host"
        return
    yield f"contracts: {counted(one.status for one in told)}    (./build.py check {ref})"
    for one in _sorted(told):
        runtimes = ", ".join(one.runtimes)
        yield f"  {one.status}  {one.title} ({runtimes}): {printable(one.seen)}; {printable(one.fix)}"


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: list(_WORDS).index(finding.status))


def audit(found: Audit, *, everything: bool = True) -> Answer:
    """Word each finding, the worst first, and the GPU code of each package; else only what fails or warns."""
    entries = [
        _entry(
            one.severity,
            " ".join(part for part in (one.package, one.file) if part) + f": {one.what}",
            {"breaks": one.breaks, "fix": one.fix},
        )
        for one in found.findings
        if everything or one.severity != "note"
    ]
    packages = [Entry(f"{one.package} {one.version}".rstrip(), code(one)) for one in found.code if everything]
    floors = [f"glibc {found.glibc}"] * bool(found.glibc) + [f"GLIBCXX {found.glibcxx}"] * bool(found.glibcxx)
    summary = (
        f"{found.binaries} programs and libraries of {found.bytes / 1e9:.1f} GB: "
        + (counted(one.severity for one in found.findings) or "nothing is wrong")
        + (f"; its packages need {' and '.join(floors)}" if floors else "")
    )
    sections = Section(tuple(entries)), Section(tuple(packages), "GPU code")
    return Answer(sections, summary=(*_unread(found.unread), summary))


def code(package: PackageCode) -> str:
    """`7.0, 8.0; PTX 8.0; in few parts 9.0`."""
    parts = {"": package.code.sass, "PTX ": package.code.ptx, "in few parts ": package.code.some}
    return "; ".join(f"{kind}{', '.join(names)}" for kind, names in parts.items() if names)


def audit_after_build(found: Audit, ref: str) -> Iterator[str]:
    """What a person is told after a build: nothing of notes."""
    told = [finding for finding in found.findings if finding.severity != "note"]
    if not told:
        yield f"audit: {found.binaries} programs and libraries, nothing that cannot be loaded or run"
        return
    yield f"audit: {counted(one.severity for one in told)}    (./build.py check {ref} --only binaries)"
    for one in told:
        words = f"{printable(f'{one.package} {one.file}'.rstrip())}: {printable(one.what)}; {printable(one.fix)}"
        yield f"  {one.severity}  {words}".rstrip("; ")
