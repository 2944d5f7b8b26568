"""Find what cannot be loaded or run in an image by its report and the audit beside it; raise an error for it.

Light to import, as an unchanged image is judged by it.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from graphcrate.checks import wording
from graphcrate.host.disk import documents
from graphcrate.model.audit import Audit, AuditFinding
from graphcrate.model.command import IMAGE_AGAIN, command, setting
from graphcrate.model.errors import AuditError, RecipeError
from graphcrate.model.report import BuildReport
from graphcrate.model.words import listed, printable

AUDIT = "audit.json"  #: beside report.json


def failures(report: BuildReport, folder: Path) -> list[str]:
    """Say what cannot be loaded or run in an image, by package, each with what to do. `folder`: of the image."""
    if report.audit is None or not report.audit.fail:
        return []
    with contextlib.suppress(RecipeError):
        audit = documents.read(folder / AUDIT, Audit, "the audit of an image", IMAGE_AGAIN)
        if audit is not None and audit.digest == report.digest:
            broken = sorted(
                (finding for finding in audit.findings if finding.severity == "fail"),
                key=lambda finding: (
                    finding.package,
                    not finding.missing,
                ),  # what others cannot be loaded for comes first
            )
            return [printable(f"  {_sentence(finding)}") for finding in broken]
    return [printable(f"  {finding}") for finding in report.audit.failures]


def _sentence(finding: AuditFinding) -> str:
    """Word a finding, with what to do."""
    fix = finding.fix or f"another release of {finding.package}, or an image without it"
    return f"{wording.sentence(finding)}; fix: {fix}"


def raise_if_broken(report: BuildReport, folder: Path, again: Callable[[Sequence[str]], str] | None = None) -> None:
    """Raises AuditError, with every finding, for an image in which something cannot be loaded or run.

    It stays where it is. `folder`: of the image; `again`: the command that builds it with more of Debian's packages.
    """
    if not (lines := failures(report, folder)):
        return
    packages = listed(sorted({line.split()[0].rstrip(":") for line in lines}))
    step = (
        f"{command('check', report.image, only='binaries')}    has the rest; "
        f"{setting(keep_going=True).both()} runs the tests all the same"
    )
    if again is not None and report.audit is not None and report.audit.packages:
        step = f"{again(report.audit.packages)}    (with what is missing); {step}"
    raise AuditError(
        "\n".join((f"{report.name}:{report.tag} was built, and cannot work as a whole: see {packages}", *lines)),
        next_step=step,
    )
