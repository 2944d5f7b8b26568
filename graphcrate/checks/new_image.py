"""What a new image is held against before anything runs in it: contracts of runtimes, the audit of its libraries."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from graphcrate.checks import wording
from graphcrate.checks.audit import run as auditing
from graphcrate.checks.contracts import run as checking
from graphcrate.checks.reading import read_image
from graphcrate.compat.facts import gpu_models
from graphcrate.host import documents, settings
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.model.audit import Audit, AuditFinding
from graphcrate.model.command import IMAGE_AGAIN, command, setting
from graphcrate.model.contract import Host
from graphcrate.model.errors import AuditError, RecipeError
from graphcrate.model.lock import encode
from graphcrate.model.report import Audited, BuildReport
from graphcrate.model.words import listed, printable

AUDIT = "audit.json"  #: beside report.json


def vet(
    report: BuildReport,
    folder: Path,
    ctx: Context,
    gpu: str | None,
    advise: Callable[[Audit, Context], Audit] = lambda found, _: found,
) -> BuildReport:
    """Add what was found to the report, and tell what warns; write the whole audit to the image's folder.

    What fails is counted here, and said by `raise_if_broken`. `advise` adds which packages of the system bring the
    libraries that are missing.
    """
    gpus, check = gpu_models(gpu) if gpu else (), functools.partial(command, "check", report.image)
    image = read_image(report.artifact.location, ctx)
    judged = advise(auditing.judge(image.contents, gpus), ctx)
    found = msgspec.structs.replace(judged, subject=report.image, digest=report.digest)
    write_file(folder / AUDIT, encode(found))
    contracts = checking.judge(image.view, Host(gpus=gpus, today=settings.today()), checking.targets(image.view))
    kept = "all kept that can be judged without the host"
    sound = f"{found.binaries} programs and libraries, nothing that cannot be loaded or run"
    told = wording.contracts(contracts, everything=False), wording.audit(found, everything=False)
    said = (
        wording.after_build("contracts", told[0], kept, str(check())),
        wording.after_build("audit", told[1], sound, str(check(only="binaries")), counted=("fail",)),
    )
    for answer, lines in zip(told, said, strict=True):
        for line in lines:
            (ctx.progress.warn if answer.sections[0].entries else ctx.progress.note)(line)
    counts = Counter(one.severity for one in found.findings)
    broken = [one for one in found.findings if one.severity == "fail"]
    broken.sort(key=lambda one: not one.missing)  # what others cannot be loaded for comes first
    audited = Audited(
        binaries=found.binaries,
        fail=counts["fail"],
        warn=counts["warn"],
        note=counts["note"],
        failures=tuple(map(wording.told, broken)),
        packages=tuple(sorted({name for one in broken for name in one.packages})),
        allowed=tuple(f"{wording.told(one)} (allowed: {one.allowed})" for one in found.findings if one.allowed),
        gpus={name: one.status for name, one in auditing.by_capability(image.contents).items()},
    )
    return msgspec.structs.replace(report, contracts=contracts, audit=audited)


def failures(report: BuildReport, folder: Path) -> list[str]:
    """Say what cannot be loaded or run in an image, by package, each with what to do. `folder`: of the image."""
    if report.audit is None or not report.audit.fail:
        return []
    with contextlib.suppress(RecipeError):
        found = documents.read(folder / AUDIT, Audit, "the audit of an image", IMAGE_AGAIN)
        if found is not None and found.digest == report.digest:
            broken = sorted(
                (one for one in found.findings if one.severity == "fail"),
                key=lambda one: (one.package, not one.missing),  # what others cannot be loaded for comes first
            )
            return [printable(f"  {_told(one)}") for one in broken]
    return [printable(f"  {one}") for one in report.audit.failures]


def _told(one: AuditFinding) -> str:
    """Word a finding, with what to do."""
    fix = one.fix or f"another release of {one.package}, or an image without it"
    return f"{wording.told(one)}; fix: {fix}"


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
        step = f"{again(report.audit.packages)}    (with the libraries that are missing); {step}"
    raise AuditError(
        "\n".join((f"{report.name}:{report.tag} was built, and cannot work as a whole: see {packages}", *lines)),
        next_step=step,
    )
