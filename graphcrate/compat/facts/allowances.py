"""Findings of the audit that a recipe allows: in the image's label, in words, and which those are. Pure.

An image says itself what was allowed, so a later audit judges as its build did. What is allowed warns instead
of failing: it is never out of sight.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from graphcrate.model import codec
from graphcrate.model.allowance import Allowance
from graphcrate.model.audit import AuditFinding
from graphcrate.model.errors import UNREADABLE
from graphcrate.model.plan import Plan

LABEL = "graphcrate.allow"
MOST = 50  #: of one image


def label(allow: Sequence[Allowance]) -> str:
    """The label of an image with these."""
    return msgspec.json.encode(allow).decode()


def of_labels(labels: Mapping[str, str]) -> tuple[Allowance, ...]:
    """Read from an image's labels what was allowed; skip labels that are not understood."""
    try:
        return codec.decode(labels.get(LABEL, "[]").encode("utf-8", "replace"), tuple[Allowance, ...])[:MOST]
    except UNREADABLE:
        return ()


def why(finding: AuditFinding, allow: Sequence[Allowance]) -> str:
    """The reason why a finding is allowed, by the first that is about it; empty where none is."""
    return next((allowance.why for allowance in allow if _is_about(allowance, finding)), "")


def judged(finding: AuditFinding, allow: Sequence[Allowance]) -> AuditFinding:
    """The finding, as a warning that says why it is allowed where it is."""
    reason = why(finding, allow) if finding.severity != "note" else ""
    return msgspec.structs.replace(finding, severity="warn", allowed=reason) if reason else finding


def line(allowance: Allowance) -> str:
    """For people: `libraries of rdkit (libX*): nothing is drawn`."""
    patterns = [pattern for pattern in (allowance.file, allowance.library) if pattern != "*"]
    return (
        f"{allowance.check} of {allowance.package}"
        + (f" ({', '.join(patterns)})" if patterns else "")
        + f": {allowance.why}"
    )


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a plan's lines on them."""
    for label in of_labels(plan.config.labels):
        yield f"  allowed   {line(label)}"


def _is_about(allowance: Allowance, finding: AuditFinding) -> bool:
    missing = [name for group in finding.missing for name in group]
    return (
        allowance.check == finding.check
        and fnmatch.fnmatchcase(finding.package, re.sub("[_.]", "-", allowance.package).lower())
        and fnmatch.fnmatchcase(finding.file, allowance.file)
        and (allowance.library == "*" or bool(missing))
        and all(fnmatch.fnmatchcase(name, allowance.library) for name in missing)
    )
