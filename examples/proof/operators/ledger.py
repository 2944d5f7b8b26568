"""Gathers what the checks of operators found. Needs no torch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

#: largest error allowed, as a share of the result's largest entry (or of 1, where that is smaller); docs/smoke.md tells
#: how they were found
BANDS = {"float64": 1e-10, "float32": 2e-5, "float16": 1e-2}
#: what an operator says that has no code for a type
NO_CODE = re.compile(r"not implemented for|not supported|[Uu]nsupported|expected scalar type|must have the same dtype")
MOST_NAMED = 12  #: findings in the reason; all are in the metrics


@dataclass(frozen=True)
class Finding:
    """An operator that is wrong: where, how, and by how much, if that can be said."""

    operator: str
    where: str
    what: str
    error: float | None = None

    def __str__(self) -> str:
        return f"{self.operator} ({self.where}): {self.what}"


@dataclass
class Ledger:
    """All that was found."""

    checked: dict[str, set[str]] = field(default_factory=dict)  #: extension → names of operators
    errors: dict[str, float] = field(default_factory=dict)  #: type → largest error of an operator within its band
    widest: dict[str, str] = field(default_factory=dict)  #: type → whose error that was
    unsupported: dict[str, set[str]] = field(default_factory=dict)  #: "float16 on cpu" → operators
    left_out: dict[str, str] = field(default_factory=dict)  #: operator → why it could not be called
    findings: list[Finding] = field(default_factory=list)

    def begin(self, operator: str) -> None:
        """Note that an operator ("torch_scatter.scatter_sum") is being checked."""
        extension, _, name = operator.partition(".")
        self.checked.setdefault(extension, set()).add(name)

    def measured(self, operator: str, kind: str, where: str, what: str, error: float, slack: float = 1.0) -> bool:
        """Judge an error of type `kind`; `slack` widens its band. Returns whether it is within."""
        allowed = BANDS[kind] * slack
        if not error <= allowed:
            size = f"off by {error:.1e}" if math.isfinite(error) else "not a number where the reference is one"
            self.wrong(operator, f"{kind} on {where}", f"{what} {size}, {allowed:.0e} is allowed", error)
            return False
        if error / slack >= self.errors.get(kind, 0.0):
            self.errors[kind], self.widest[kind] = error / slack, operator
        return True

    def wrong(self, operator: str, where: str, what: str, error: float | None = None) -> None:
        """Note a wrong operator; the same complaint is noted once."""
        finding = Finding(operator, where, " ".join(what.split())[:300], error)
        if str(finding) not in map(str, self.findings):
            self.findings.append(finding)

    def has_no_code(self, operator: str, kind: str, where: str) -> None:
        """Note that an operator says that it does not do this type."""
        self.unsupported.setdefault(f"{kind} on {where}", set()).add(operator)

    def reason(self) -> str:
        """The findings as a sentence; empty when there are none."""
        told = [str(finding) for finding in self.findings[:MOST_NAMED]]
        if len(self.findings) > MOST_NAMED:
            names = sorted({finding.operator for finding in self.findings[MOST_NAMED:]})
            told.append(f"and {len(self.findings) - MOST_NAMED} more, of {', '.join(names)}")
        return "; ".join(told)

    def metrics(self) -> dict[str, Any]:
        """The figures of the verdict; JSON has no infinities, so sizes without end are left out."""
        return {
            "operators": {name: len(operators) for name, operators in sorted(self.checked.items())},
            "largest_error": {
                kind: {"error": float(f"{self.errors[kind]:.2g}"), "of": self.widest[kind], "allowed": BANDS[kind]}
                for kind in BANDS
                if kind in self.errors
            },
            "no_code": {where: sorted(operators) for where, operators in sorted(self.unsupported.items())},
            "left_out": dict(sorted(self.left_out.items())),
            "failed": [
                {
                    "operator": finding.operator,
                    "where": finding.where,
                    "what": finding.what,
                    "error": finding.error if finding.error is None or math.isfinite(finding.error) else None,
                }
                for finding in self.findings
            ],
        }
