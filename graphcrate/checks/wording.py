"""Word contracts' findings and audits for people and scripts. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from graphcrate.model.answer import Answer, AnswerLine, Section
from graphcrate.model.audit import Audit, AuditFinding, PackageCode
from graphcrate.model.contract import ContractFinding
from graphcrate.model.vulnerability import NotKnown, Vulnerability, VulnerabilityReport
from graphcrate.model.words import joined, printable

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


_KINDS = {"debian": "Debian", "python": "Python", "conda": "conda"}
_SHOWN = 5  #: ids of a package; --json has all
_HEADS = ("package", "installed", "fixed in", "known as")


def vulnerabilities(report: VulnerabilityReport) -> Answer:
    """A table of what is known, what is not known and why, then how many packages were judged."""
    rows = [_HEADS, *(_row(vulnerability) for vulnerability in report.known)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    table = [
        AnswerLine("fail", line, (vulnerability.link,) if vulnerability.link else (), _STYLES["fail"])
        for line, vulnerability in zip(lines[1:], report.known, strict=True)
    ]
    unknown = [
        AnswerLine("not known", f"{_count(each)}: {each.why}", _names(each.packages), _STYLES["unknown"])
        for each in report.unknown
    ]
    judged = " and ".join(f"{count} of {_KINDS[kind]}" for kind, count in report.judged.items())
    fixable = f"{report.affected} of these have known vulnerabilities" if report.known else "none is known of these"
    left = sum(len(each.packages) for each in report.unknown)
    summary = f"judged {judged}: {fixable}" if any(report.judged.values()) else "nothing was judged"
    summary += f"; not known of {left} packages" if left else ""
    heading = f"{'':6}{lines[0]}"
    return Answer((Section(tuple(table), heading), Section(tuple(unknown))), summary=(*_unread(report.unread), summary))


def _row(vulnerability: Vulnerability) -> tuple[str, ...]:
    name = (
        f"{vulnerability.name} ({vulnerability.source})"
        if vulnerability.source not in ("", vulnerability.name)
        else vulnerability.name
    )
    ids = joined(vulnerability.ids, _SHOWN) or "an update of the security archive"
    return tuple(
        map(printable, (name, vulnerability.version, " or ".join(vulnerability.fixed) or "no release yet", ids))
    )


def _count(group: NotKnown) -> str:
    count = len(group.packages)
    return f"{count} package{'s' * (count != 1)} of {_KINDS[group.kind]}"


def _names(names: Sequence[str]) -> tuple[str, ...]:
    return (joined(names, 12),) if names else ()


def sentence(finding: AuditFinding) -> str:
    """What an audit found, and where, in a sentence."""
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
