"""Word contracts' findings and audits for people and scripts. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from graphcrate.model.answer import Answer, AnswerLine, Section
from graphcrate.model.audit import Audit, AuditFinding, PackageCode
from graphcrate.model.contract import ContractFinding
from graphcrate.model.words import printable

#: of a contract's status or an audit's severity, the worst first: in words, and in rich's
_WORDS = {"fail": "fail", "warn": "warn", "unknown": "not known", "note": "note", "pass": "pass"}
_STYLES = {"fail": "bold red", "warn": "yellow", "unknown": "dim", "note": "dim", "pass": "green"}


def contracts(findings: Sequence[ContractFinding], unread: Iterable[str] = (), *, everything: bool = True) -> Answer:
    """Word each finding, the worst first; without `everything` only what fails or warns."""
    entries = [
        _entry(
            finding.status,
            f"{finding.title} ({', '.join(finding.runtimes)}): {finding.seen}",
            why=finding.why,
            fix=finding.fix,
        )
        for finding in sorted(findings, key=lambda finding: list(_WORDS).index(finding.status))
        if everything or finding.status in ("fail", "warn")
    ]
    return Answer(
        (Section(tuple(entries)),), summary=(*_unread(unread), _counted(finding.status for finding in findings))
    )


def audit(judged: Audit, *, everything: bool = True) -> Answer:
    """Word each finding, the worst first, and the GPU code of each package; else only what fails or warns."""
    entries = [
        _entry(finding.severity, sentence(finding), breaks=finding.breaks, fix=finding.fix, allowed=finding.allowed)
        for finding in judged.findings
        if everything or finding.severity != "note"
    ]
    packages = [
        AnswerLine(f"{finding.package} {finding.version}".rstrip(), _code(finding))
        for finding in judged.code
        if everything
    ]
    floors = [f"glibc {judged.glibc}"] * bool(judged.glibc) + [f"GLIBCXX {judged.glibcxx}"] * bool(judged.glibcxx)
    whose = "those that were looked at" if judged.left else "its packages"
    summary = (
        f"{judged.binaries} programs and libraries of {judged.bytes / 1e9:.1f} GB: "
        + (_counted(finding.severity for finding in judged.findings) or "nothing is wrong")
        + (f"; {whose} need {' and '.join(floors)}" if floors else "")
    )
    sections = Section(tuple(entries)), Section(tuple(packages), "GPU code")
    return Answer(sections, summary=(*_unread(judged.unread), *_unread(judged.left, "looked at"), summary))


def stored(faults: Iterable[str], warnings: Iterable[str], summary: str) -> Answer:
    """Word what is wrong with the bytes of an image, the worst first."""
    entries = *(_entry("fail", fault) for fault in faults), *(_entry("warn", warning) for warning in warnings)
    return Answer((Section(entries),), summary=(summary,))


def sentence(finding: AuditFinding) -> str:
    """Word a finding of the audit, with its place, as a sentence."""
    return f"{finding.package} {finding.file}".rstrip() + f": {finding.what}"


def after_build(part: str, answer: Answer, fine: str, command: str, *, counted: Collection[str] = ()) -> Iterator[str]:
    """Yield a line that counts what an answer has, and one for each with its fix. `command` says more.

    `counted`: labels of those that are counted, and listed elsewhere.
    """
    entries = answer.sections[0].entries
    yield f"{part}: " + (f"{_counted(entry.label for entry in entries)}    ({command})" if entries else fine)
    for entry in entries:
        if entry.label in counted:
            continue
        yield printable(f"  {entry.label}  {'; '.join((entry.text, *entry.details[-1:]))}")


def _counted(statuses: Iterable[str]) -> str:
    """`1 fail, 2 warn, 30 pass`."""
    counts = Counter(statuses)
    return ", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items() if status in counts)


def _entry(status: str, text: str, **details: str) -> AnswerLine:
    lines = tuple(f"{name}: {value}" for name, value in details.items() if value)
    return AnswerLine(_WORDS[status], text, lines, _STYLES[status])


def _unread(reasons: Iterable[str], what: str = "read") -> tuple[str, ...]:
    return tuple(f"not {what}: {reason}" for reason in reasons)


def _code(package: PackageCode) -> str:
    """`7.0, 8.0; PTX 8.0; in few parts 9.0`."""
    parts = {"": package.code.sass, "PTX ": package.code.ptx, "in few parts ": package.code.some}
    return "; ".join(f"{kind}{', '.join(names)}" for kind, names in parts.items() if names)
