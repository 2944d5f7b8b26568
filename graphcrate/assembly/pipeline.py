"""The story of an image, one call per stage: recipe → lock → plan → layers → layout → smoke test → report."""

import contextlib
import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from graphcrate.artifacts import names
from graphcrate.artifacts.reports import read_report
from graphcrate.assembly import extensions, summary, with_engine
from graphcrate.checks import new_image
from graphcrate.compat import explain, own, planning, rules, slim
from graphcrate.compat.addresses import cuda_label
from graphcrate.compat.catalog import lock_path, read_lock
from graphcrate.compat.expected import compared, refuse_others
from graphcrate.compat.programs import examples
from graphcrate.compat.request import BuildRequest
from graphcrate.engines import run_suites, table
from graphcrate.engines.backend import Engine
from graphcrate.host import documents, settings
from graphcrate.host.atomic import check_link, link, make_folder, write_file
from graphcrate.host.context import Context
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.command import IMAGE_AGAIN, command, setting
from graphcrate.model.errors import BuildError, HostError, LockedError, NetworkError, UsageError
from graphcrate.model.lock import Lock, encode
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Additions, Candidate, Recipe, Variant
from graphcrate.model.report import Artifact, BuildReport, CandidateOutcome, LayerRecord, OwnTests, PackageLine
from graphcrate.model.trial import TrialOrder
from graphcrate.model.words import listed
from graphcrate.oci.layout import read_layout
from graphcrate.resolve import additions, base, foreseen, libraries
from graphcrate.resolve.candidates import choose
from graphcrate.resolve.locks import Resolution, ResolveContext
from graphcrate.resolve.offers import Sources
from graphcrate.smoke import memory

if TYPE_CHECKING:
    from graphcrate.assembly import room

_MOST_RENEWALS = 3  #: of a base in one build


def build_image(request: BuildRequest, ctx: Context) -> BuildReport:
    """Build, test and report one image; an image that is there unchanged is reported as it is.

    Raises any GraphcrateError; SmokeError after the image was written with a report that says `failed`.
    """
    if request.engine != "auto":
        if request.slim != "no" and request.engine != with_engine.EMBEDDED.name:
            raise UsageError(
                f"{request.engine} installs wheels as they are: it cuts nothing",
                next_step="leave ENGINE out where SLIM is wanted; engines take the image that comes out",
            )
        return _build_and_test(_start(request, ctx, table.engine(request.engine)))
    job = _start(request, ctx, with_engine.EMBEDDED)
    try:
        return _build_and_test(job)
    except HostError as error:
        if request.slim != "no" or (engine := with_engine.first_that_answers(ctx)) is None:
            raise
        ctx.progress.warn(f"{error.what}; building with {engine.name} instead")
        try:
            return _build_and_test(dataclasses.replace(job, engine=engine))
        except (HostError, BuildError, NetworkError) as second:
            # The engine is the second choice: what keeps the first one from working may be the easier to mend.
            why = f"{error.what} ({error.cause.rstrip('.')})" if error.cause else error.what
            tried = f"{engine.name} was tried because the embedded builder could not: {why}."
            second.cause = f"{tried} {second.cause}".rstrip()
            second.next_step = f"{error.next_step}; or, for {engine.name}: {second.next_step}"
            raise


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One image on its way: what was asked for and what that amounts to, by which engine, since when."""

    request: BuildRequest
    ctx: Context
    recipe: Recipe
    variant: Variant
    usable: tuple[Candidate, ...]  #: of the variant, on the machine that the image is for
    out: tuple[CandidateOutcome, ...]
    engine: Engine
    start: float
    said: set[tuple[str, str]] = field(default_factory=set)  #: image and line of plans that were told
    made: set[str] = field(default_factory=set)  #: tags of images that were built

    def folder(self, name: str, tag: str) -> Path:
        """Where the image's files lie."""
        return self.engine.folder(self.request.output / name / tag)

    def seconds(self) -> float:
        """Since it began."""
        return round(settings.now() - self.start, 3)


def _start(request: BuildRequest, ctx: Context, engine: Engine) -> _Job:
    """Find the recipe's variant, and the CUDA version and the GPUs that the request amounts to."""
    start = settings.now()
    recipe, variant, gpu, usable, out = explain.select_variant(request, ctx)
    machine = msgspec.structs.replace(request.machine, gpu=gpu)
    request = msgspec.structs.replace(request, cuda=variant.cuda, machine=machine)
    return _Job(
        request=request, ctx=ctx, recipe=recipe, variant=variant, usable=usable, out=out, engine=engine, start=start
    )


def _build_and_test(job: _Job) -> BuildReport:
    if version := job.engine.check(job.ctx.environment):
        job.ctx.progress.note(f"engine: {version}")
    resolution = _resolve(job)
    stack, additions = _for_gpus(job, resolution), job.request.additions
    if not additions:
        return _finish(job, stack)
    added = _for_gpus(job, _add(job, resolution))
    if not own.changes(additions, added.lock.additions.packages):
        for note in added.lock.notes[len(stack.lock.notes) :]:
            job.ctx.progress.note(note)
        return _finish(dataclasses.replace(job, request=job.request.of_stack), stack)
    may_be_on_top = job.engine is with_engine.EMBEDDED and _may_be_on_top(added.lock, additions)
    below = _below(job, stack, added) if job.request.suites.run and may_be_on_top else None
    return _finish(job, added, below)


def plan_image(request: BuildRequest, ctx: Context) -> tuple[list[str], Plan]:
    """What `build_image` would make and from what, in words and as a value. Resolves, and makes nothing."""
    engine = with_engine.EMBEDDED if request.engine == "auto" else table.engine(request.engine)
    job = _start(request, ctx, engine)
    resolution = _resolve_all(job)
    if not request.sources.locked:
        resolution = base.with_living_base(ctx, resolution)
    plan = _plan(job, resolution)
    return _plan_lines(job, f"{plan.name}:{plan.tag}", resolution, plan), plan


def render_own(request: BuildRequest, ctx: Context, output: Path) -> Path:
    """Write what engines build an image with additions from, and its local wheels, to `output`/NAME/cu118; its path."""
    from graphcrate.engines.render import files

    job = _start(request, ctx, with_engine.EMBEDDED)
    resolution = _resolve_all(job)
    plan = _plan(job, resolution)
    folder = output / plan.name / cuda_label(resolution.lock.cuda)
    files.write(folder, files.of_plan(plan))
    for wheel in with_engine.local_files(resolution.lock, request.own_sources, ctx).values():
        write_file(folder / "wheels" / wheel.name, wheel.read_bytes())
    return folder


def _resolve_all(job: _Job) -> Resolution:
    """Resolve the stack and what a person adds to it."""
    resolution = _resolve(job)
    return _for_gpus(job, _add(job, resolution) if job.request.additions else resolution)


def _below(job: _Job, stack: Resolution, added: Resolution) -> BuildReport | None:
    """Return the report of the stack's own image, tested: its results count for images on top of it.

    It is made where it is not there, and the plan of what was asked for is told before that. Nothing is compiled in
    it, and what is built from source is often tried once: for that it is not made, and the suites run in the image.
    """
    plain = dataclasses.replace(job, request=job.request.of_stack)
    _, plan, there = _looked_up(plain, stack)
    proven = there is not None and there.passed
    on_top = added.lock.additions.packages
    if not proven and any(one.is_sdist for one in added.lock.packages if one.name in on_top):
        return None
    if there is None:
        resolution, wanted, image = _looked_up(job, added)
        if image is None:
            _tell(job, wanted, resolution)
        title = f"{plan.name}:{plan.tag}"
        job.ctx.progress.note(f"first the stack itself, {title}: its tests count for images on top of it")
        job.said.update((title, line) for line in _plan_lines(plain, title, stack, plan))
    return _finish(plain, stack)


def _finish(job: _Job, resolution: Resolution, below: BuildReport | None = None) -> BuildReport:
    """Make the image of a resolution and prove it; only then it gets its further names. `below`: the image under it."""
    try:
        plan, report = _proven(job, resolution, below)
    except BaseException:
        with contextlib.suppress(HostError):  # what was here before may have had the name
            names.tidy(job.request.output / (job.request.additions.name or job.recipe.name))
        raise
    for path in _aliases(job, plan):
        link(path, Path(plan.tag))
    names.give(job.request.output, report)
    return report


def _proven(job: _Job, resolution: Resolution, below: BuildReport | None) -> tuple[Plan, BuildReport]:
    """Build or reuse, test and judge the image of a resolution."""
    plan, report = _reuse_or_build(job, resolution)
    if not job.request.suites.keep_going:
        _refuse_broken(job, report)  # what cannot work is not tested for minutes
    for line in new_image.failures(report, job.folder(report.name, report.tag)):
        job.ctx.progress.warn(line)
    if job.request.suites.run:
        report = _test(job, report, below)
    _refuse_broken(job, report)
    _draw(job, report)
    return plan, report


def _refuse_broken(job: _Job, report: BuildReport) -> None:
    """Raises AuditError for an image in which something cannot be loaded; its page says what, too."""
    if report.audit is not None and report.audit.fail:
        _draw(job, report)
        new_image.raise_if_broken(report, job.folder(report.name, report.tag), job.request.command_with_apt)


def _draw(job: _Job, report: BuildReport) -> None:
    """Write the page of an image beside its report, where that is newer."""
    folder = job.folder(report.name, report.tag)
    written = folder / "report.json"
    page = folder / "report.html"
    if not report.layout or (page.is_file() and page.stat().st_mtime_ns >= written.stat().st_mtime_ns):
        return
    from graphcrate.pages import report as pages

    silent = dataclasses.replace(job.ctx, quiet=True)  # what it reads was read for the checks
    write_file(page, pages.html(pages.read(report.layout, silent, job.request.output)).encode())


def _may_be_on_top(lock: Lock, additions: Additions) -> bool:
    """Whether additions are layers above the stack's image that change nothing of it, as far as a request shows that.

    If so the stack's image is built and tested first; `credit.objection` judges by the layers.
    """
    return not (lock.additions.moved or additions.apt or additions.environment or additions.files)


def _add(job: _Job, resolution: Resolution, *, fresh: bool = False) -> Resolution:
    """Resolve a person's additions; a recipe of their own has its lock beside it."""
    request, ctx = job.request, job.ctx
    context = ResolveContext(
        recipe=job.recipe, variant=job.variant, request=request.own_sources, ctx=ctx, typed=request
    )
    path = own_lock(request.recipe, resolution.lock) if request.recipe else None
    renew = command("lock", request.recipe or request.name, cuda=job.variant.cuda)
    committed = documents.read_lock(path, renew) if path and not fresh else None
    refuse_others(request.additions.expected, resolution.lock, request.command_with)
    added = additions.add(context, resolution, request.additions, committed, fresh=fresh)
    if path and added.lock != committed and not request.sources.locked:
        write_file(path, encode(added.lock))
        ctx.progress.note(f"locked in {path}")
    return added


def own_lock(recipe: Path, stack: Lock) -> Path:
    """Where the lock of a person's own recipe lies: beside it, one for each CUDA version and candidate."""
    return recipe.with_suffix(f".{cuda_label(stack.cuda)}.{stack.candidate}.lock.json")


def _objection(below: BuildReport, report: BuildReport) -> str:
    """Say why results of the stack's image do not hold for this one; empty where they do."""
    if any(suite.image == below.artifact.digest for suite in report.suites):
        return ""  # judged when this very image was tested first
    from graphcrate.assembly import credit  # reads layers: not for an image that is there unchanged

    return credit.objection(read_layout(Path(below.layout)), read_layout(Path(report.layout)), report.python)


def _test(job: _Job, report: BuildReport, below: BuildReport | None) -> BuildReport:
    """Run the recipe's suites, but for those that the image has passed. Raises SmokeError, after writing the report."""
    folder, request = job.folder(report.name, report.tag), job.request
    if report.tag in job.made and not report.suites:
        job.ctx.progress.note(summary.step(4, f"test it by {listed(job.variant.smoke or job.recipe.smoke)}"))
    order = TrialOrder(
        artifact=report.artifact,
        suites=job.variant.smoke or job.recipe.smoke,
        device=request.suites.device,
        folder=str(folder),
        passes=str(request.output / report.name / report.tag / memory.FOLDER),
        packages=tuple(package.name for package in report.packages),
        layout=report.digest if report.layout else "",
        rerun=request.suites.rerun,
        own=report.own,
    )
    if below is not None and run_suites.has_passed(order, job.ctx):  # better than what the image below it shows
        below = None
    if below is not None and (why := _objection(below, report)):
        job.ctx.progress.note(f"the stack's suites run in {report.name}:{report.tag} itself: {why}")
        below = None
    if below is not None:
        order = msgspec.structs.replace(order, suites=())
    tested = run_suites.prove(report, order, job.ctx, below=below)
    if tested is report:
        return report
    tested = msgspec.structs.replace(tested, seconds=job.seconds())
    write_file(folder / "report.json", encode(tested))
    title = f"{tested.name}:{tested.tag}"
    run_suites.raise_if_failed(
        title,
        tested.suites,
        order.folder,
        again=lambda package: request.command_with([package]),
        with_apt=lambda package: request.command_with_apt([package]),
    )
    return tested


def _looked_up(job: _Job, wanted: Resolution) -> tuple[Resolution, Plan, BuildReport | None]:
    """Return what is to be built, with the bases that stand in for those that are gone, and the image if it is there.

    That is one which was built from the same plan and is whole.
    """
    resolution = wanted if job.request.sources.locked else base.with_living_base(job.ctx, wanted)
    plan = _plan(job, resolution)
    return resolution, plan, _reuse(job, plan, resolution)


def _reuse_or_build(job: _Job, wanted: Resolution) -> tuple[Plan, BuildReport]:
    """Return the report of the image that is there, where nothing changed, else build it.

    A base with packages that no place has is built with those of today, which is said; each turn takes newer ones.
    """
    renewals, sources = 0, job.request.sources
    while True:
        resolution, plan, report = _looked_up(job, wanted)
        if report is not None:
            return plan, report
        try:
            return plan, _build(job, plan, resolution)
        except BaseDriftError as drift:
            if sources.locked:
                raise LockedError(drift.what, cause=drift.cause) from drift
            is_compiler = sources.devel or isinstance(drift, extensions.CompilerDriftError)
            # Mirrors of different ages could take turns for ever.
            renewals += 1
            arguments = (job.ctx, own.with_apt(job.variant, job.request.additions), wanted.lock, resolution.lock)
            if renewals > _MOST_RENEWALS or not base.renew_base(*arguments, compiler=is_compiler):
                raise
            job.ctx.progress.warn(
                f"{drift.what}; taking the packages of today instead ({setting(locked=True)} refuses that)"
            )


def _reuse(job: _Job, plan: Plan, resolution: Resolution) -> BuildReport | None:
    """Return the report of an image that was built from the same plan and is whole."""
    folder = job.folder(plan.name, plan.tag)
    report = read_report(folder / "report.json", job.ctx.progress.warn)
    if (
        report is None
        or report.build_key != job.engine.key(plan)
        or not job.engine.exists(report, folder, job.ctx.environment)
    ):
        return None
    # What is out is out for the reasons of today; tests are no part of a plan.
    own, short = _own_tests(resolution.lock, job.request.additions), planning.short_name(plan, resolution.candidate)
    if report.short != short:  # of an older version
        report = msgspec.structs.replace(report, short=short)
        write_file(folder / "report.json", encode(report))
    report = msgspec.structs.replace(report, outcomes=resolution.outcomes, own=own)
    return _check(job, plan, report) if report.audit is None else report


def _build(job: _Job, plan: Plan, resolution: Resolution) -> BuildReport:
    """Build the image, check it, and write lock and report beside it."""
    ctx, folder, lock = job.ctx, job.folder(plan.name, plan.tag), resolution.lock
    _check_output(job, plan)
    _tell(job, plan, resolution)
    if (needed := _room(job, plan, lock, _to_fetch(job, lock))) is not None:
        needed.require(f"{plan.name}:{plan.tag}", job.request, ctx.cache)
    try:
        artifact, layers = with_engine.build(job.engine, plan, lock, job.request.own_sources, folder, ctx)
    except BaseException:
        with contextlib.suppress(OSError):  # empty: the first image of this name
            folder.parent.rmdir()
        raise
    job.made.add(plan.tag)
    report = _report(job, plan, resolution, artifact, layers)
    write_file(folder / "lock.json", encode(lock))
    ctx.progress.note(summary.step(3, "check the image"))
    return _check(job, plan, report)


def _tell(job: _Job, plan: Plan, resolution: Resolution) -> None:
    """Say what is built and from what; of a plan that was told already what is new in it."""
    title = f"{plan.name}:{plan.tag}"
    for line in _plan_lines(job, title, resolution, plan):
        if (title, line) not in job.said:
            job.said.add((title, line))
            job.ctx.progress.note(line)


def _check_output(job: _Job, plan: Plan) -> None:
    """Check before gigabytes are on their way that image and tags can be written: no engine would help (UsageError)."""
    next_step = f"{command('image', '…', output='FOLDER')}    (one that you can write to)"
    try:
        make_folder(job.request.output / plan.name)
        next_step = ""
        for path in _aliases(job, plan):
            check_link(path)
    except HostError as error:
        raise UsageError(error.what, cause=error.cause, next_step=next_step or error.next_step) from error


def _check(job: _Job, plan: Plan, report: BuildReport) -> BuildReport:
    """Add what contracts and audit find to the report, and write it."""
    folder = job.folder(plan.name, plan.tag)
    report = new_image.vet(report, folder, job.ctx, job.request.machine.gpu, libraries.advised)
    write_file(folder / "report.json", encode(report))
    return report


def _aliases(job: _Job, plan: Plan) -> list[Path]:
    """List the image's further tags: links beside its folder."""
    return [job.request.output / plan.name / alias for alias in plan.aliases]


def write_lock(request: BuildRequest, ctx: Context) -> Path:
    """Resolve again, ignoring locks; write the chosen candidate's lock where it is committed."""
    if request.recipe is None:
        ctx.require_checkout("its recipes' locks")
    job = _start(request, ctx, with_engine.EMBEDDED)
    resolution = _resolve(job, fresh=request.recipe is None)
    if request.recipe is not None:
        _add(job, resolution, fresh=True)
        return own_lock(request.recipe, resolution.lock)
    path = lock_path(ctx, job.recipe, job.variant, resolution.candidate)
    write_file(path, encode(resolution.lock))
    for line in _plan_lines(job, f"{job.recipe.name} CUDA {job.variant.cuda}", resolution):
        ctx.progress.note(line)
    return path.relative_to(ctx.root)


def _resolve(job: _Job, *, fresh: bool = False) -> Resolution:
    """Choose the first candidate that is available, by its lock where it has one. `fresh`: locks are ignored."""
    ctx, recipe, variant, request = job.ctx, job.recipe, job.variant, job.request
    context = ResolveContext(
        recipe=recipe,
        variant=msgspec.structs.replace(variant, candidates=job.usable),
        request=request.sources,
        ctx=ctx,
        built=lambda lock: extensions.built(extensions.for_gpus(lock, request.machine.gpu), ctx),
    )
    found = {} if fresh else {one.name: read_lock(ctx, recipe, variant, one) for one in job.usable}
    committed = {name: lock for name, lock in found.items() if lock is not None}
    resolution = choose(context, committed, fresh=fresh)
    return msgspec.structs.replace(resolution, outcomes=(*job.out, *resolution.outcomes))


def _for_gpus(job: _Job, resolution: Resolution) -> Resolution:
    return msgspec.structs.replace(resolution, lock=extensions.for_gpus(resolution.lock, job.request.machine.gpu))


def _plan(job: _Job, resolution: Resolution) -> Plan:
    return planning.make_plan(
        job.recipe,
        resolution.lock,
        resolution.candidate,
        examples=examples(job.ctx),
        created=_created(job.ctx.environment.get("SOURCE_DATE_EPOCH", "")),
        devel=job.request.sources.devel,
        additions=job.request.additions,
        slim=slim.wanted(job.request.slim, job.request.machine.gpu, resolution.lock),
    )


def _created(epoch: str) -> int | None:
    """The image's time, in Unix seconds, if one is asked for. Raises UsageError."""
    if epoch and not re.fullmatch("[0-9]{1,11}", epoch):  # to the year 5138
        raise UsageError(
            f"invalid time: SOURCE_DATE_EPOCH={epoch}",
            cause="It is the image's time, in seconds since 1970.",
            next_step=f"SOURCE_DATE_EPOCH=$(date +%s) {IMAGE_AGAIN}    (or leave it out, for the lock's time)",
        )
    return int(epoch) if epoch else None


def _plan_lines(job: _Job, title: str, resolution: Resolution, plan: Plan | None = None) -> list[str]:
    lock = resolution.lock
    to_fetch = _to_fetch(job, lock)
    machine = explain.find_target(job.ctx, job.request.machine)
    upkeep = summary.upkeep_of(lock, job.recipe, job.request, machine, settings.today())
    fallback = rules.fallback(job.variant, resolution.candidate)
    insisting = job.request.from_channel(fallback.channel if fallback else None)
    needed = _room(job, plan, lock, to_fetch) if plan else None
    aside = summary.Aside(
        insist=summary.insistence(fallback, insisting.command()),
        disk=needed.line() if needed else "",
        compiling=extensions.time_lines(lock, job.ctx),
        notes=_asked_lines(job, lock),
    )
    outcomes, meaning = resolution.outcomes, resolution.candidate.meaning
    lines = summary.plan_lines(title, lock, outcomes, meaning, to_fetch, plan, upkeep, aside)
    return [*lines, *foreseen.lines(lock, job.request, job.ctx)] if lock.additions.packages else lines


def _to_fetch(job: _Job, lock: Lock) -> int:
    """Bytes that the lock names and that are not here, beside what was compiled before."""
    return with_engine.size_to_fetch(job.engine, lock, job.ctx, extensions.built(lock, job.ctx))


def _room(job: _Job, plan: Plan, lock: Lock, to_fetch: int) -> "room.Room | None":
    """Count what a build needs of the disk, `to_fetch` bytes of it downloads; None of an engine with its own place."""
    if job.engine is not with_engine.EMBEDDED:
        return None
    from graphcrate.assembly import room as rooms  # reads layers' records: not for an image that is there unchanged

    return rooms.of_build(plan, lock, to_fetch, job.request, job.ctx)


def _asked_lines(job: _Job, lock: Lock) -> list[str]:
    """What of a person's requirements was passed over, is another in the stack, or comes from where they say."""
    additions = job.request.additions
    sources = Sources(job.request.own_sources, job.ctx.cache, job.ctx.environment)
    return [*additions.notes, *compared(additions.expected, lock), *sources.further_lines()]


def _own_tests(lock: Lock, additions: Additions) -> OwnTests:
    return OwnTests(imports=lock.additions.asked, commands=additions.smoke, minutes=additions.smoke_minutes)


def _report(
    job: _Job, plan: Plan, resolution: Resolution, artifact: Artifact, layers: tuple[LayerRecord, ...]
) -> BuildReport:
    lock = resolution.lock
    packages = tuple(
        PackageLine(name=package.name, version=package.version, channel=package.channel.value)
        for package in lock.packages
    )
    saved = slim.saved(layers)
    replacing = [f"files of the recipe stand in place of {listed(one.replaces)}" for one in layers if one.replaces]
    for note in replacing:
        job.ctx.progress.warn(note)
    if saved:
        job.ctx.progress.note(saved)
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
        seconds=job.seconds(),
        outcomes=resolution.outcomes,
        missing=tuple(missing.told for missing in lock.missing),
        notes=(*lock.notes, *artifact.notes, *replacing, *([saved] if saved else [])),
        layers=layers,
        lock_sha256=lock.sha256,
        drift=lock.drifted,
        fallback=rules.fallback(job.variant, resolution.candidate),
        build_key=job.engine.key(plan),
        short=planning.short_name(plan, resolution.candidate),
        own=_own_tests(lock, job.request.additions),
    )
    return msgspec.structs.replace(report, asked=job.request.asked(report))
