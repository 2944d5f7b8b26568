"""What a new image is held against before anything runs in it: contracts of runtimes, the audit of its libraries."""

from pathlib import Path

import msgspec

from graphcrate.checks import wording
from graphcrate.checks.audit import run as auditing
from graphcrate.checks.contracts import run as checking
from graphcrate.compat.facts import gpu_models
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.model.errors import AuditError
from graphcrate.model.lock import encode
from graphcrate.model.plan import Plan
from graphcrate.model.report import Audited, BuildReport

AUDIT = "audit.json"  #: beside report.json


def vet(report: BuildReport, plan: Plan, folder: Path, ctx: Context, gpu: str | None) -> BuildReport:
    """The report with what was found, which a person is told; the whole audit is written to the image's folder."""
    gpus = gpu_models(gpu) if gpu else ()
    found = auditing.of_build(report, ctx, gpus)
    write_file(folder / AUDIT, encode(found))
    contracts = checking.of_build(report, plan, ctx, gpus)
    name = report.image
    for line in (*wording.contracts_after_build(contracts, name), *wording.audit_after_build(found, name)):
        ctx.progress.note(line)
    severities = [one.severity for one in found.findings]
    failures = [one for one in found.findings if one.severity == "fail"]
    audited = Audited(
        binaries=found.binaries,
        fail=len(failures),
        warn=severities.count("warn"),
        note=severities.count("note"),
        failures=tuple(f"{one.package} {one.file}".rstrip() + f": {one.what}" for one in failures),
    )
    return msgspec.structs.replace(report, contracts=contracts, audit=audited)


def raise_if_broken(report: BuildReport) -> None:
    """Raises AuditError for an image in which something cannot be loaded or run. It stays where it is."""
    if report.audit is None or not report.audit.fail:
        return
    raise AuditError(
        f"{report.name}:{report.tag} was built, and cannot work as a whole: {report.audit.failures[0]}",
        cause=f"{report.audit.fail} of the audit's findings are failures.",
        next_step=f"./build.py check {report.image} --only binaries    says what breaks and how to fix it",
    )
