"""From a resolution to an image with its report: the one that is there unchanged, or a new one."""

import contextlib
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.artifacts.reports import read_report
from graphcrate.assembly import extensions, planned, summary, with_engine
from graphcrate.assembly.job import BuildJob
from graphcrate.checks import new_image
from graphcrate.compat import own, planning, rules, slim
from graphcrate.engines.backend import Built
from graphcrate.host.atomic import check_link, make_folder, write_file
from graphcrate.host.context import Context
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.command import ETC, command, setting
from graphcrate.model.errors import HostError, LockedError, UsageError
from graphcrate.model.lock import Lock, encode
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Additions
from graphcrate.model.report import BuildReport, OwnTests, PackageLine
from graphcrate.model.words import listed
from graphcrate.resolve import base, libraries
from graphcrate.resolve.locks import Resolution

_MOST_RENEWALS = 3  #: of a base in one build


class LookUp(NamedTuple):
    """What is to be built, with the bases that stand in for those that are gone; the image if it is there and whole."""

    resolution: Resolution
    plan: Plan
    report: BuildReport | None


class MadeImage(NamedTuple):
    """An image, and whether this build has made it."""

    plan: Plan
    report: BuildReport
    is_new: bool


def look_up(job: BuildJob, resolved: Resolution, ctx: Context, known: LookUp | None = None) -> LookUp:
    """Plan the image of a resolution and see whether it is there. `known`: from before, which holds for its bases."""
    resolution = resolved if job.request.sources.locked else base.with_living_base(ctx, resolved)
    if known is not None and known.resolution == resolution:
        return known
    plan = planned.make_plan(job, resolution, ctx)
    return LookUp(resolution, plan, _reusable(job, plan, resolution, ctx))


def make(job: BuildJob, resolved: Resolution, ctx: Context, known: LookUp | None = None) -> MadeImage:
    """Take the image that is there, where nothing changed, else build it.

    A base with packages that no mirror has is built with those of today, which is said; each turn takes newer ones.
    """
    renewals, sources = 0, job.request.sources
    while True:
        resolution, plan, report = look_up(job, resolved, ctx, known)
        if report is not None:
            return MadeImage(plan, report, is_new=False)
        try:
            return MadeImage(plan, _build(job, plan, resolution, ctx), is_new=True)
        except BaseDriftError as drift:
            if sources.locked:
                raise LockedError(drift.what, cause=drift.cause) from drift
            is_compiler = sources.devel or isinstance(drift, extensions.CompilerDriftError)
            renewals += 1
            if renewals > _MOST_RENEWALS:  # mirrors of different ages could take turns for ever
                raise
            variant = own.with_apt(job.choice.variant, job.request.additions)
            if not base.renew_base(ctx, variant, resolved.lock, resolution.lock, compiler=is_compiler):
                raise
            ctx.progress.warn(
                f"{drift.what}; taking the packages of today instead ({setting(locked=True)} refuses that)"
            )


def _reusable(job: BuildJob, plan: Plan, resolution: Resolution, ctx: Context) -> BuildReport | None:
    """Return the report of an image that was built from the same plan and is whole."""
    engine, folder = job.engine, job.images.folder(plan)
    report = read_report(folder / "report.json", ctx.progress.warn)
    if report is None or report.build_key != engine.key(plan) or not engine.exists(report, folder, ctx.environment):
        return None
    short = planning.short_name(plan, resolution.candidate)
    if report.short != short:  # of an older version
        report = msgspec.structs.replace(report, short=short)
        write_file(folder / "report.json", encode(report))
    # What is out is out for the reasons of today; tests are no part of a plan.
    tests = _own_tests(resolution.lock, job.request.additions)
    report = msgspec.structs.replace(report, outcomes=resolution.outcomes, own=tests)
    return _check(report, folder, job.choice.gpu, ctx) if report.audit is None else report


def _build(job: BuildJob, plan: Plan, resolution: Resolution, ctx: Context) -> BuildReport:
    """Build the image, check it, and write lock and report beside it."""
    folder, lock, engine = job.images.folder(plan), resolution.lock, job.engine
    check_output(job.request.output / plan.name, job.images.aliases(plan))
    say_plan(job, plan, resolution, ctx)
    needed = planned.needed_room(job, plan, lock, planned.size_to_fetch(job, lock, ctx), ctx)
    if needed is not None:
        needed.require(f"{plan.name}:{plan.tag}", ctx.cache)
    try:
        built = with_engine.build(engine, plan, lock, job.request.own_sources, folder, ctx)
    except BaseException:
        with contextlib.suppress(OSError):  # empty: the first image of this name
            folder.parent.rmdir()
        raise
    report = _report(job, plan, resolution, built, ctx)
    write_file(folder / "lock.json", encode(lock))
    ctx.progress.note(summary.step(3, "check the image"))
    return _check(report, folder, job.choice.gpu, ctx)


def say_plan(job: BuildJob, plan: Plan, resolution: Resolution, ctx: Context) -> None:
    """Say what is built and from what; of a plan that was said already what is new in it."""
    title = f"{plan.name}:{plan.tag}"
    for line in job.journal.new(title, planned.lines(job, title, resolution, ctx, plan)):
        ctx.progress.note(line)


def check_output(folder: Path, aliases: list[Path]) -> None:
    """Check before gigabytes are on their way that image and tags can be written: no engine would help (UsageError)."""
    next_step = f"{command('image', ETC, output='FOLDER')}    (one that you can write to)"
    try:
        make_folder(folder)
        next_step = ""
        for path in aliases:
            check_link(path)
    except HostError as error:
        raise UsageError(error.what, cause=error.cause, next_step=next_step or error.next_step) from error


def _check(report: BuildReport, folder: Path, gpus: str, ctx: Context) -> BuildReport:
    """Add what contracts and audit find to the report, and write it."""
    report = new_image.vet(report, folder, ctx, gpus, libraries.advised)
    write_file(folder / "report.json", encode(report))
    return report


def _own_tests(lock: Lock, additions: Additions) -> OwnTests:
    return OwnTests(imports=lock.additions.asked, commands=additions.smoke, minutes=additions.smoke_minutes)


def _report(job: BuildJob, plan: Plan, resolution: Resolution, built: Built, ctx: Context) -> BuildReport:
    """Report what was built. What stands in place of another file is a warning."""
    lock, artifact, layers = resolution.lock, built.artifact, built.layers
    packages = tuple(
        PackageLine(name=package.name, version=package.version, channel=package.channel.value)
        for package in lock.packages
    )
    saved = slim.saved(layers)
    replacing = [f"files of the recipe stand in place of {listed(each.replaces)}" for each in layers if each.replaces]
    for note in replacing:
        ctx.progress.warn(note)
    if saved:
        ctx.progress.note(saved)
    report = BuildReport(
        name=plan.name,
        tag=plan.tag,
        digest=artifact.digest,
        artifact=artifact,
        layout=artifact.layout,
        bytes=artifact.bytes,
        candidate=resolution.candidate.name,
        torch=plan.stack.torch,
        torch_cuda=lock.torch_cuda,
        cuda=lock.cuda,
        python=lock.python,
        packages=packages,
        smoke=None,
        seconds=job.journal.seconds(),
        outcomes=resolution.outcomes,
        missing=tuple(missing.told for missing in lock.missing),
        notes=(*lock.notes, *artifact.notes, *replacing, *([saved] if saved else [])),
        layers=layers,
        lock_sha256=lock.sha256,
        drift=lock.drifted,
        fallback=rules.fallback(job.choice.variant, resolution.candidate),
        build_key=job.engine.key(plan),
        short=planning.short_name(plan, resolution.candidate),
        own=_own_tests(lock, job.request.additions),
    )
    return msgspec.structs.replace(report, asked=job.request.asked(report))
