"""Findings as lines for people and scripts. Pure."""

from collections.abc import Iterable, Iterator

from graphcrate.checks.contracts import count
from graphcrate.model.contract import Finding, Inspection
from graphcrate.model.words import printable

_WORDS = {"fail": "fail", "warn": "warn", "unknown": "not known", "pass": "pass"}
_ORDER = tuple(_WORDS)


def lines(inspection: Inspection) -> Iterator[str]:
    """One line for each finding, the worst first, fields apart by tabs: status, check, runtimes, seen, why, fix."""
    for finding in sorted(inspection.findings, key=lambda finding: _ORDER.index(finding.status)):
        fields = (
            *(finding.status, finding.check, ",".join(finding.runtimes)),
            *(finding.seen, finding.why, finding.fix),
        )
        yield "\t".join(printable(field) for field in fields).rstrip("\t")


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
