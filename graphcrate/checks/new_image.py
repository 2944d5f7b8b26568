"""Checks of a new image before anything runs in it: contracts of runtimes, the audit of its libraries."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.checks import wording
from graphcrate.checks.audit import names as naming
from graphcrate.checks.audit import run as auditing
from graphcrate.checks.audit.packages import Packages
from graphcrate.checks.contracts import run as checking
from graphcrate.checks.reading import CheckedImage
from graphcrate.compat.facts.gpu_table import gpu_models
from graphcrate.host import settings, trace
from graphcrate.host.context import Context
from graphcrate.host.disk import documents
from graphcrate.host.disk.atomic import write_file
from graphcrate.model.audit import Audit, AuditFinding
from graphcrate.model.command import IMAGE_AGAIN, command, setting
from graphcrate.model.contract import Host
from graphcrate.model.errors import AuditError, RecipeError
from graphcrate.model.lock import encode
from graphcrate.model.report import Audited, BuildReport
from graphcrate.model.words import listed, printable

AUDIT = "audit.json"  #: beside report.json


class Vetted(NamedTuple):
    """The report of a new image with what was found, and the image as it was seen."""

    report: BuildReport
    seen: auditing.Seen


@trace.span("check the image")
def vet(
    report: BuildReport,
    image: CheckedImage,
    folder: Path,
    ctx: Context,
    gpu: str | None,
    advise: Callable[[Audit, Context], Audit] = lambda audit, _: audit,
) -> Vetted:
    """Add what was found to the report, and report what warns; write the whole audit to the image's folder.

    What fails is counted here, and raised by `raise_if_broken`. `image`: as it was read; `advise` adds which packages
    of the system bring the libraries that are missing.
    """
    gpus, check = gpu_models(gpu) if gpu else (), functools.partial(command, "check", report.image)
    look = auditing.look(image.contents)
    judged = advise(auditing.judge(image.contents, gpus) if gpus else look.audit, ctx)
    audit = msgspec.structs.replace(judged, subject=report.image, digest=report.digest)
    write_file(folder / AUDIT, encode(audit))
    with trace.span("contracts"):
        contracts = checking.judge(image.view, Host(gpus=gpus, today=settings.today()), checking.targets(image.view))
    kept = "all kept that can be judged without the host"
    sound = f"{audit.binaries} programs and libraries, nothing that cannot be loaded or run"
    answers = wording.contracts(contracts, everything=False), wording.audit(audit, everything=False)
    texts = (
        wording.after_build("contracts", answers[0], kept, str(check())),
        wording.after_build("audit", answers[1], sound, str(check(only="binaries")), counted=("fail",)),
    )
    for answer, lines in zip(answers, texts, strict=True):
        for line in lines:
            (ctx.progress.warn if answer.sections[0].entries else ctx.progress.note)(line)
    counts = Counter(finding.severity for finding in audit.findings)
    broken = [finding for finding in audit.findings if finding.severity == "fail"]
    broken.sort(key=lambda finding: not finding.missing)  # what others cannot be loaded for comes first
    audited = Audited(
        binaries=audit.binaries,
        fail=counts["fail"],
        warn=counts["warn"],
        note=counts["note"],
        failures=tuple(map(wording.sentence, broken)),
        packages=tuple(sorted({name for finding in broken for name in finding.packages})),
        allowed=tuple(
            f"{wording.sentence(finding)} (allowed: {finding.allowed})" for finding in audit.findings if finding.allowed
        ),
        gpus={name: finding.status for name, finding in auditing.by_capability(image.contents).items()},
    )
    vetted = msgspec.structs.replace(
        report,
        contracts=contracts,
        audit=audited,
        starts=naming.starts(image.contents, Packages(image.contents)),
        beside=naming.beside(image.contents),
    )
    return Vetted(vetted, auditing.Seen(image, look))


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
