"""The story of an image, one call per stage: recipe → lock → plan → layers → layout → smoke test → report."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from graphcrate.artifacts import names
from graphcrate.assembly import locking, planned, proving, with_engine
from graphcrate.assembly.job import BuildJob
from graphcrate.assembly.making import LookUp
from graphcrate.assembly.output import ImageFolders
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.requirements import own_packages
from graphcrate.compat.variants.catalog import lock_path
from graphcrate.compat.variants.choice import select_variant
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.engines import table
from graphcrate.engines.backend import Engine
from graphcrate.engines.embedded import unpacked_images
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import link, write_file
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.inputs import extensions as wheelhouse
from graphcrate.inputs.shared.named import shared_cache
from graphcrate.model.command import without
from graphcrate.model.errors import BuildError, GraphcrateError, HostError, NetworkError, UsageError
from graphcrate.model.plan import CompileStep, Plan
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Channel
from graphcrate.model.report import BuildReport
from graphcrate.oci import layer_files
from graphcrate.resolve.sources.failures import UNGIVEN
from graphcrate.resolve.stack import base
from graphcrate.resolve.stack.locks import Resolution

if TYPE_CHECKING:
    from graphcrate.inputs.shared.site_cache import SiteCache


def build_image(request: BuildRequest, ctx: Context) -> BuildReport:
    """Build, test and report one image; an image that is there unchanged is reported as it is.

    Raises any GraphcrateError; SmokeError after the image was written with a report that says `failed`.
    """
    engine = _engine(request.engine)
    if request.slim != "no" and engine is not with_engine.EMBEDDED:
        raise UsageError(
            f"{request.engine} installs wheels as they are: it cuts nothing",
            next_step=f"{without('engine')}    (engines take the image that comes out)",
        )
    shared = shared_cache(request.sources, ctx)
    job = BuildJob(typed=request, choice=select_variant(request, ctx), engine=engine, shared=shared)
    try:
        return _build_and_test(job, ctx)
    except HostError as error:
        is_ported = job.choice.variant.base.runs_on != DEFAULT  # others would build for this machine
        if request.engine != "auto" or request.slim != "no" or is_ported or isinstance(error, MachineError):
            raise
        if (other := with_engine.first_that_answers(ctx)) is None:
            raise
        ctx.progress.warn(f"{error.what}; building with {other.name} instead")
        return _build_instead(job.by(other), error, ctx)


def _engine(name: str) -> Engine:
    """The engine of this name; `auto`: the embedded builder, before others. Raises UsageError."""
    return with_engine.EMBEDDED if name == "auto" else table.engine(name)


def _build_instead(job: BuildJob, error: HostError, ctx: Context) -> BuildReport:
    """Build by an engine that is the second choice, because of this error of the embedded builder."""
    try:
        return _build_and_test(job, ctx)
    except (HostError, BuildError, NetworkError) as second:
        # What keeps the first one from working may be the easier to mend.
        why = f"{error.what} ({error.cause.rstrip('.')})" if error.cause else error.what
        tried = f"{job.engine.name} was tried because the embedded builder could not: {why}."
        second.cause = f"{tried} {second.cause}".rstrip()
        second.next_step = f"{error.next_step}; or, for {job.engine.name}: {second.next_step}"
        raise


def plan_image(request: BuildRequest, ctx: Context) -> tuple[list[str], Plan]:
    """Plan what `build_image` would make, in words and as a value. Resolves, and builds nothing."""
    shared, engine = shared_cache(request.sources, ctx, gives=False), _engine(request.engine)
    job = BuildJob(typed=request, choice=select_variant(request, ctx), engine=engine, shared=shared)
    resolution = lock_all(job, ctx)
    if not request.sources.locked:
        resolution = base.with_living_base(ctx, resolution)
    plan = planned.make_plan(job.contents, resolution, ctx)
    job.images.refuse_anothers(plan.name)
    lines = job.forecast.lines(f"{plan.name}:{plan.tag}", resolution, ctx, plan)
    return [*lines, *job.maker.of_site_lines(plan)], plan


def render_own(request: BuildRequest, ctx: Context, output: Path) -> Path:
    """Write what engines build an image with additions from, and its local wheels, to `output`/NAME/cu118; its path."""
    from graphcrate.render import files

    job = BuildJob(typed=request, choice=select_variant(request, ctx), engine=with_engine.EMBEDDED)
    resolution = lock_all(job, ctx)
    plan = planned.make_plan(job.contents, resolution, ctx)
    folder = output / plan.name / cuda_label(resolution.lock.cuda)
    files.write(folder, files.of_plan(plan))
    for wheel in with_engine.local_files(resolution.lock, request.own_sources, ctx).values():
        write_file(folder / "wheels" / wheel.name, wheel.read_bytes())
    return folder


def write_lock(request: BuildRequest, ctx: Context) -> Path:
    """Resolve again, ignoring locks; write the chosen candidate's lock where it is committed."""
    if request.recipe is None:
        ctx.require_checkout("its recipes' locks")
    job = BuildJob(typed=request, choice=select_variant(request, ctx), engine=with_engine.EMBEDDED)
    choice = job.choice
    resolution = locking.lock_stack(choice, request.sources, ctx, fresh=request.recipe is None)
    if request.recipe is not None:
        locking.lock_additions(choice, resolution, job.added, ctx, fresh=True)
        return locking.own_lock(request.recipe, resolution.lock)
    path = lock_path(ctx, choice.recipe, choice.variant, resolution.candidate)
    locking.write_lock(path, resolution.lock, ctx)
    for line in job.forecast.lines(f"{choice.recipe.name} CUDA {choice.variant.cuda}", resolution, ctx):
        ctx.progress.note(line)
    return path.relative_to(ctx.root)


def _build_and_test(job: BuildJob, ctx: Context) -> BuildReport:
    """Lock the stack and build it; where no source gives a locked file, with another file or the next candidate."""
    if version := job.engine.check(ctx.environment):
        ctx.progress.note(f"engine: {version}")
    ungiven: dict[str, GraphcrateError] = {}
    while True:
        locked = locking.lock_stack(job.choice, job.typed.sources, ctx, ungiven=ungiven)
        try:
            return _build_locked(job, locked, ctx)
        except UNGIVEN as error:
            known = [each.file.name for each in locked.lock.packages if each.channel is not Channel.LOCAL]
            if job.typed.sources.locked or error.file in ungiven or error.file not in known:
                raise
            ungiven[error.file] = error
            ctx.progress.warn(f"{error.brief}; looking for another file, or another candidate")


def _build_locked(job: BuildJob, locked: Resolution, ctx: Context) -> BuildReport:
    """Lock what is added to the stack, then make the image, on top of the stack's own where that may be."""
    engine, choice, additions = job.engine, job.choice, job.typed.additions
    stack = locking.for_gpus(locked, choice.gpu)
    if not additions:
        return _finish(job, stack, ctx, is_last=True)
    added = locking.for_gpus(locking.lock_additions(choice, locked, job.added, ctx), choice.gpu)
    if not own_packages.changes(additions, added.lock.additions.packages):
        for note in added.lock.notes[len(stack.lock.notes) :]:
            ctx.progress.note(note)
        return _finish(job.of_stack(), stack, ctx, is_last=True)
    known = job.maker.look_up(added, ctx) if job.shared else None
    if known and known.report:
        return _finish(job, added, ctx, known=known)
    may_be_on_top = engine is with_engine.EMBEDDED and proving.may_be_on_top(added.lock, additions)
    if not (job.typed.suites.run and may_be_on_top):
        return _finish(job, added, ctx, known=known)
    below, known = _stack_below(job, stack, added, known, ctx)
    return _finish(job, added, ctx, known=known, below=below)


def lock_all(job: BuildJob, ctx: Context) -> Resolution:
    """Lock the stack and what the user adds to it."""
    resolution = locking.lock_stack(job.choice, job.typed.sources, ctx)
    if job.typed.additions:
        resolution = locking.lock_additions(job.choice, resolution, job.added, ctx)
    return locking.for_gpus(resolution, job.choice.gpu)


def _stack_below(
    job: BuildJob, stack: Resolution, added: Resolution, known: LookUp | None, ctx: Context
) -> tuple[BuildReport | None, LookUp | None]:
    """Return the report of the stack's own image, tested: its results count for images on top of it.

    It is made where it is not there, and the plan of what was asked for is said before that: its look-up comes beside.
    Nothing is compiled in it, and what is built from source is often tried once: for that it is not made, and the
    suites run in the image itself.
    """
    plain = job.of_stack()
    below = plain.maker.look_up(stack, ctx)
    proven = below.report is not None and below.report.passed
    on_top = added.lock.additions.packages
    if not proven and any(package.is_sdist for package in added.lock.packages if package.name in on_top):
        return None, known
    if below.report is None:
        known = known or job.maker.look_up(added, ctx)
        if known.report is None:
            job.maker.say_plan(known.plan, known.resolution, ctx)
        title = f"{below.plan.name}:{below.plan.tag}"
        ctx.progress.note(f"first the stack itself, {title}: its tests count for images on top of it")
        job.journal.new(title, plain.forecast.lines(title, stack, ctx, below.plan))
    return _finish(plain, stack, ctx, known=below), known


def _finish(
    job: BuildJob,
    resolution: Resolution,
    ctx: Context,
    *,
    known: LookUp | None = None,
    below: BuildReport | None = None,
    is_last: bool = False,
) -> BuildReport:
    """Make the image of a resolution and prove it; only then it gets its further names. `below`: the image under it.

    `is_last`: nothing is put on top of it soon, so the tree that its suites ran in goes.
    """
    output = job.images.output
    try:
        made = job.maker.make(resolution, ctx, known)
        with unpacked_images.removed_after(made.report.digest, ctx.cache) if is_last else contextlib.nullcontext():
            report = job.prover.prove(made, below, ctx)
        if job.shared is not None and report.passed and job.shared.writes_to:
            _give(job.shared, made.plan, report, job.images, ctx)
    except BaseException:
        with contextlib.suppress(HostError):  # what was here before may have had the name
            names.tidy(output / (job.typed.additions.name or job.choice.recipe.name))
        raise
    finally:
        layer_files.drop(ctx.cache)
    for path in job.images.aliases(made.plan):
        link(path, Path(made.plan.tag))
    names.give(output, report)
    return report


def _give(shared: "SiteCache", plan: Plan, report: BuildReport, images: ImageFolders, ctx: Context) -> None:
    """Give to a shared cache what was made for an image that passed its tests, and the image."""
    for step in plan.of(CompileStep):
        shared.give(wheelhouse.cached(step, ctx.cache).values())
    if images.engine is with_engine.EMBEDDED:
        from graphcrate.assembly import site_images, site_parts

        site_images.give(shared, report, images, ctx)
        site_parts.give(shared, plan, report, ctx)
