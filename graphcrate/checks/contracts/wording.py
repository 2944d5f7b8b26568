"""Word findings for people and scripts. Pure."""

from collections.abc import Iterable, Iterator

from graphcrate.checks.contracts import count
from graphcrate.model.contract import Finding, Inspection
from graphcrate.model.table import Answer, Column, Row, Table
from graphcrate.model.words import printable

_WORDS = {"fail": "fail", "warn": "warn", "unknown": "not known", "pass": "pass"}
_ORDER = tuple(_WORDS)
_STYLES = {"fail": "bold red", "warn": "yellow", "unknown": "dim", "pass": "green"}
_COLUMNS = (
    *(Column("status"), Column("id", only="lines"), Column("runtimes", only="lines")),
    *(Column("check", 3, "terminal"), Column("seen", 4), Column("why", 5), Column("fix", 4)),
)


def answer(inspection: Inspection) -> Answer:
    """Make a row of each finding, the worst first."""
    rows = []
    for one in sorted(inspection.findings, key=lambda finding: _ORDER.index(finding.status)):
        identity = (one.status, one.check, ",".join(one.runtimes), f"{one.title} ({', '.join(one.runtimes)})")
        rows.append(Row((*identity, one.seen, one.why, one.fix), _STYLES[one.status]))
    return Answer((Table(_COLUMNS, tuple(rows)),), summary=summary(inspection.findings))


def summary(findings: Iterable[Finding]) -> str:
    """`1 fail, 2 warn, 30 pass`."""
    return ", ".join(f"{number} {_WORDS[status]}" for status, number in count(findings).items())


def after_build(findings: Iterable[Finding], ref: str) -> Iterator[str]:
    """What a person is told after a build: nothing of what passed or is not known."""
    told = [finding for finding in findings if finding.status in ("fail", "warn")]
    if not told:
        yield "contracts: all kept that can be judged without the host"
        return
    yield f"contracts: {summary(told)}    (./build.py check {ref})"
    for finding in sorted(told, key=lambda finding: _ORDER.index(finding.status)):
        runtimes = ", ".join(finding.runtimes)
        yield f"  {finding.status}  {finding.title} ({runtimes}): {printable(finding.seen)}; {printable(finding.fix)}"
