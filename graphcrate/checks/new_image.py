"""What a new image is held against before anything runs in it: contracts of runtimes, the audit of its libraries."""

from collections import Counter
from pathlib import Path

import msgspec

from graphcrate.checks import wording
from graphcrate.checks.audit import run as auditing
from graphcrate.checks.contracts import run as checking
from graphcrate.checks.reading import read_image
from graphcrate.compat.facts import gpu_models
from graphcrate.host import settings
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.model.contract import Host
from graphcrate.model.errors import AuditError
from graphcrate.model.lock import encode
from graphcrate.model.report import Audited, BuildReport

AUDIT = "audit.json"  #: beside report.json


def vet(report: BuildReport, folder: Path, ctx: Context, gpu: str | None) -> BuildReport:
    """Add what was found to the report, and tell what fails or warns; write the whole audit to the image's folder."""
    gpus, command = gpu_models(gpu) if gpu else (), f"./build.py check {report.image}"
    image = read_image(report.artifact.location, ctx)
    found = msgspec.structs.replace(auditing.judge(image.contents, gpus), subject=report.image, digest=report.digest)
    write_file(folder / AUDIT, encode(found))
    contracts = checking.judge(image.view, Host(gpus=gpus, today=settings.today()), checking.targets(image.view))
    kept = "all kept that can be judged without the host"
    sound = f"{found.binaries} programs and libraries, nothing that cannot be loaded or run"
    told = wording.contracts(contracts, everything=False), wording.audit(found, everything=False)
    for line in (
        *wording.after_build("contracts", told[0], kept, command),
        *wording.after_build("audit", told[1], sound, f"{command} --only binaries"),
    ):
        ctx.progress.note(line)
    counts = Counter(one.severity for one in found.findings)
    broken = [one for one in found.findings if one.severity == "fail"]
    failures = tuple(f"{one.package} {one.file}".rstrip() + f": {one.what}" for one in broken)
    audited = Audited(
        binaries=found.binaries,
        fail=counts["fail"],
        warn=counts["warn"],
        note=counts["note"],
        failures=failures,
        gpus={name: one.status for name, one in auditing.by_capability(image.contents).items()},
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
