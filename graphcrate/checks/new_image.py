"""Checks of a new image before anything runs in it: contracts of runtimes, the audit of its libraries."""

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.checks import wording
from graphcrate.checks.audit import names as naming
from graphcrate.checks.audit import run as auditing
from graphcrate.checks.audit.packages import Packages
from graphcrate.checks.broken import AUDIT
from graphcrate.checks.contracts import run as checking
from graphcrate.checks.reading import CheckedImage
from graphcrate.compat.facts.gpu_table import gpu_models
from graphcrate.host import settings, trace
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.model.audit import Audit
from graphcrate.model.command import command
from graphcrate.model.contract import Host
from graphcrate.model.lock import encode
from graphcrate.model.report import Audited, BuildReport


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

    What fails is counted here, and raised by `broken.raise_if_broken`. `image`: as it was read; `advise` adds which
    packages of the system bring the libraries that are missing.
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
