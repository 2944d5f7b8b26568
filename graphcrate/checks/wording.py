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
        _entry(one.status, f"{one.title} ({', '.join(one.runtimes)}): {one.seen}", why=one.why, fix=one.fix)
        for one in sorted(findings, key=lambda one: list(_WORDS).index(one.status))
        if everything or one.status in ("fail", "warn")
    ]
    return Answer((Section(tuple(entries)),), summary=(*_unread(unread), _counted(one.status for one in findings)))


def audit(found: Audit, *, everything: bool = True) -> Answer:
    """Word each finding, the worst first, and the GPU code of each package; else only what fails or warns."""
    entries = [
        _entry(one.severity, told(one), breaks=one.breaks, fix=one.fix, allowed=one.allowed)
        for one in found.findings
        if everything or one.severity != "note"
    ]
    packages = [AnswerLine(f"{one.package} {one.version}".rstrip(), _code(one)) for one in found.code if everything]
    floors = [f"glibc {found.glibc}"] * bool(found.glibc) + [f"GLIBCXX {found.glibcxx}"] * bool(found.glibcxx)
    whose = "those that were looked at" if found.left else "its packages"
    summary = (
        f"{found.binaries} programs and libraries of {found.bytes / 1e9:.1f} GB: "
        + (_counted(one.severity for one in found.findings) or "nothing is wrong")
        + (f"; {whose} need {' and '.join(floors)}" if floors else "")
    )
    sections = Section(tuple(entries)), Section(tuple(packages), "GPU code")
    return Answer(sections, summary=(*_unread(found.unread), *_unread(found.left, "looked at"), summary))


def stored(faults: Iterable[str], warnings: Iterable[str], summary: str) -> Answer:
    """Word what is wrong with the bytes of an image, the worst first."""
    entries = *(_entry("fail", fault) for fault in faults), *(_entry("warn", warning) for warning in warnings)
    return Answer((Section(entries),), summary=(summary,))


def told(one: AuditFinding) -> str:
    """Say what an audit found, and where."""
    return f"{one.package} {one.file}".rstrip() + f": {one.what}"


def after_build(part: str, answer: Answer, fine: str, command: str, *, counted: Collection[str] = ()) -> Iterator[str]:
    """Yield a line that counts what an answer has, and one for each with its fix. `command` says more.

    `counted`: labels of those that are counted, and said elsewhere.
    """
    entries = answer.sections[0].entries
    yield f"{part}: " + (f"{_counted(one.label for one in entries)}    ({command})" if entries else fine)
    for one in entries:
        if one.label in counted:
            continue
        yield printable(f"  {one.label}  {'; '.join((one.text, *one.details[-1:]))}")


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
