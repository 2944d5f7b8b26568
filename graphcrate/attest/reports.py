"""What ran and was checked, as predicates of the project's own: smoke suites, runtimes' contracts, the binary audit."""

from collections.abc import Iterable
from typing import Any

import msgspec

from graphcrate.attest.statement import OURS
from graphcrate.model.contract import Finding
from graphcrate.model.report import SmokeReport

SMOKE = f"{OURS}smoke:1"
CONTRACTS = f"{OURS}contracts:1"
AUDIT = f"{OURS}audit:1"
#: of a suite's report: which machine of the site it was, and words that may quote its paths
_PRIVATE = ("node", "partition", "job", "reason")


def smoke(reports: Iterable[SmokeReport], *, cpu_only_allowed: bool = False) -> dict[str, Any]:
    """The suites with device, driver and runtime. `cpu_only_allowed`: a person let it go out without a GPU's report."""
    suites = [
        {name: value for name, value in _object(report).items() if name not in _PRIVATE and value not in ("", None)}
        for report in reports
    ]
    return {"suites": suites, "cpuOnlyAllowed": cpu_only_allowed}


def contracts(findings: Iterable[Finding]) -> dict[str, Any]:
    """What the contracts found."""
    return {"findings": [_object(finding) for finding in findings]}


def audit(report: msgspec.Struct | dict[str, Any]) -> dict[str, Any]:
    """The audit's report as it is, but for what the person called the image."""
    return {name: value for name, value in _object(report).items() if name != "subject"}


def _object(value: Any) -> dict[str, Any]:  # noqa: ANN401
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found
