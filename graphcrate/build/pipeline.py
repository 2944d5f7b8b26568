"""The story of an image, one call per stage: recipe → lock → plan → layers → layout → smoke test → report."""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from graphcrate.artifacts.locate import read_report
from graphcrate.build import extensions
from graphcrate.compat import fallback, planning
from graphcrate.compat.catalog import examples, find_variant, lock_path
from graphcrate.compat.request import BuildRequest
from graphcrate.host import process, settings
from graphcrate.host.atomic import check_link, link, make_folder, write_file
from graphcrate.host.context import Context
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.lock import decode_lock, encode
from graphcrate.model.plan import Plan, content_id
from graphcrate.model.recipe import Channel, Recipe, Variant
from graphcrate.model.report import Artifact, BuildReport, LayerRecord, PackageLine

if TYPE_CHECKING:
    from graphcrate.oci.layout import Layout
    from graphcrate.resolve.locks import Resolution

_MOST_DIGITS = 11  #: of Unix seconds: to the year 5138


def build_image(request: BuildRequest, ctx: Context) -> BuildReport:
    """Build, test and report one image; an image that is there unchanged is reported as it is.

    Raises any GraphcrateError; SmokeError after the image was written with a report that says `failed`.
    """
    request = _settled(request, ctx)
    if request.engine not in ("auto", "embedded"):
        return _proven(request, ctx, request.engine)
    try:
        return _proven(request, ctx, "embedded")
    except HostError as error:
        from graphcrate.build import with_engine

        if request.engine == "embedded" or (name := with_engine.first_that_answers(ctx)) is None:
            raise
        ctx.progress.note(f"{error.what}; building with {name} instead")
        return _proven(request, ctx, name)


def _settled(request: BuildRequest, ctx: Context) -> BuildRequest:
    """The request with the CUDA version and the GPUs that it amounts to."""
    from graphcrate.compat import explain

    cuda, gpu = explain.settle(ctx, request.name, request.cuda, request.said)
    return replace(request, cuda=cuda, gpu=gpu)


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One image on its way: what was asked for, by which engine, since when."""

    request: BuildRequest
    ctx: Context
    recipe: Recipe
    variant: Variant
    engine: str
    start: float

    def folder(self, name: str, tag: str) -> Path:
        """Where the image's files lie; those of an engine apart from the embedded builder's."""
        folder = self.request.output / name / tag
        return folder if self.engine == "embedded" else folder / self.engine

    def seconds(self) -> float:
        """Since it began."""
        return round(settings.now() - self.start, 3)


def _proven(request: BuildRequest, ctx: Context, engine: str) -> BuildReport:
    start = settings.now()
    assert request.cuda is not None
    recipe, variant = find_variant(ctx, request.name, request.cuda)
    if engine != "embedded":
        from graphcrate.build import with_engine

        ctx.progress.note(f"engine: {with_engine.check(engine, ctx)}")
    job = _Job(request=request, ctx=ctx, recipe=recipe, variant=variant, engine=engine, start=start)
    report = _made(job, _resolve(request, ctx, recipe, variant))
    if not request.smoke:
        return _sound(report)
    from graphcrate.engines import run_suites
    from graphcrate.smoke import memory

    folder = job.folder(report.name, report.tag)
    passes = memory.Memory(request.output / report.name / report.tag / memory.FOLDER, request.rerun)
    proven = run_suites.prove(report, job.variant.smoke or job.recipe.smoke, folder, ctx, request.device, passes)
    if proven is report:
        return _sound(report)
    proven = msgspec.structs.replace(proven, seconds=job.seconds())
    write_value(folder / "report.json", proven)
    run_suites.raise_if_failed(proven, folder)
    return _sound(proven)


def _sound(report: BuildReport) -> BuildReport:
    """The report, if its audit found nothing that breaks. Raises AuditError."""
    from graphcrate.checks import new_image

    new_image.raise_if_broken(report)
    return report


def _made(job: _Job, resolution: "Resolution") -> BuildReport:
    """The image's report: of the one that is there, if nothing changed, else of the one built now."""
    from graphcrate.inputs.bases import BaseDriftError
    from graphcrate.resolve.base import replace_base, replace_compiler, with_living_base

    ctx = job.ctx
    resolution = with_living_base(ctx, resolution)
    plan = _plan(job, resolution)
    folder = job.folder(plan.name, plan.tag)
    key = _build_key(job, plan)
    if report := _unchanged(job, folder, key):
        # What is out is out for the reasons of today.
        report = msgspec.structs.replace(report, outcomes=resolution.outcomes)
        return _vetted(job, plan, report) if report.audit is None else report
    _make_output(job.request)
    _check_names(job, plan)
    for line in _plan_lines(
        ctx, f"{plan.name}:{plan.tag}", resolution, job.engine, extensions.built(resolution.lock, ctx)
    ):
        ctx.progress.note(line)
    try:
        artifact, layers = _build(job, plan, resolution)
    except BaseDriftError as drift:
        is_compiler = job.request.devel or isinstance(drift, extensions.CompilerDriftError)
        replace = replace_compiler if is_compiler else replace_base
        if not replace(ctx, job.variant, resolution.lock):
            raise
        ctx.progress.note(f"{drift.what}; taking the packages of today instead")
        return _made(job, resolution)
    report = _report(artifact, layers, plan, resolution)
    report = msgspec.structs.replace(
        report,
        fallback=fallback.of(job.variant, resolution.candidate),
        build_key=key,
        seconds=job.seconds(),
        asked=job.request.asked(report),
    )
    write_value(folder / "lock.json", resolution.lock)
    report = _vetted(job, plan, report)
    _name(job, plan)
    return report


def _make_output(request: BuildRequest) -> None:
    """Say before gigabytes are on their way that the image cannot be written. No engine would help: a UsageError."""
    try:
        make_folder(request.output / request.name)
    except HostError as error:
        step = f"./build.py image {request.name} … --output FOLDER    (one that you can write to)"
        raise UsageError(error.what, cause=error.cause, next_step=step) from error


def _check_names(job: _Job, plan: Plan) -> None:
    """Say before the build that a further tag cannot be set."""
    for path in _names(job, plan):
        try:
            check_link(path)
        except HostError as error:
            raise UsageError(error.what, next_step=error.next_step) from error


def _vetted(job: _Job, plan: Plan, report: BuildReport) -> BuildReport:
    """The report with what contracts and audit find, written."""
    from graphcrate.checks import new_image

    folder = job.folder(plan.name, plan.tag)
    report = new_image.vet(report, plan, folder, job.ctx, job.request.gpu)
    write_value(folder / "report.json", report)
    return report


def _name(job: _Job, plan: Plan) -> None:
    """Set the image's further tags."""
    for path in _names(job, plan):
        link(path, Path(plan.tag))


def _names(job: _Job, plan: Plan) -> list[Path]:
    """Where the image's further tags are: links beside its folder."""
    return [job.request.output / plan.name / alias for alias in plan.aliases]


def write_lock(request: BuildRequest, ctx: Context) -> Path:
    """Resolve anew, ignoring locks; write the chosen candidate's lock where it is committed."""
    request = _settled(request, ctx)
    assert request.cuda is not None
    recipe, variant = find_variant(ctx, request.name, request.cuda)
    resolution = _resolve(request, ctx, recipe, variant, fresh=True)
    path = lock_path(ctx, recipe, variant, resolution.candidate)
    write_value(path, resolution.lock)
    for line in _plan_lines(ctx, f"{recipe.name} CUDA {variant.cuda}", resolution, "embedded"):
        ctx.progress.note(line)
    return path.relative_to(ctx.root)


def run_inside(layout: "Layout", command: Sequence[str], ctx: Context) -> int:
    """Run a command in the image, with this terminal and the working directory at /work; returns its exit code."""
    from graphcrate.engines.runners import embedded
    from graphcrate.host.sandbox import Bind

    completed = embedded.run(
        layout,
        list(command),
        cache=ctx.cache,
        progress=ctx.progress,
        environment={name: ctx.environment[name] for name in ("TERM",) if name in ctx.environment},
        binds=(Bind(source=Path.cwd(), target="/work", read_only=False),),
        working_folder="/work",
        gpu=True,
        attached=True,
    )
    code = completed.returncode
    return code if code >= 0 else 128 - code


def _resolve(
    request: BuildRequest, ctx: Context, recipe: Recipe, variant: Variant, *, fresh: bool = False
) -> "Resolution":
    from graphcrate.compat import explain
    from graphcrate.resolve.candidates import choose
    from graphcrate.resolve.locks import ResolveContext

    usable, out = explain.usable(ctx, recipe, variant, request.said)
    paths = {} if fresh else {one.name: lock_path(ctx, recipe, variant, one) for one in usable}
    context = ResolveContext(
        recipe=recipe,
        variant=msgspec.structs.replace(variant, candidates=usable),
        request=request.sources,
        ctx=ctx,
        built=lambda lock: extensions.built(extensions.for_gpus(lock, request.gpu), ctx),
    )
    committed = {name: decode_lock(path.read_bytes()) for name, path in paths.items() if path.is_file()}
    resolution = choose(context, committed, fresh=fresh)
    lock = extensions.for_gpus(resolution.lock, request.gpu)
    return msgspec.structs.replace(resolution, lock=lock, outcomes=(*out, *resolution.outcomes))


def _plan(job: _Job, resolution: "Resolution") -> Plan:
    return planning.make_plan(
        job.recipe,
        resolution.lock,
        resolution.candidate,
        examples=examples(job.ctx),
        created=_created(job.ctx.environment.get("SOURCE_DATE_EPOCH", "")),
        devel=job.request.devel,
    )


def _created(epoch: str) -> int | None:
    """The image's time, in Unix seconds, if one is asked for. Raises UsageError."""
    if epoch and not (epoch.isascii() and epoch.isdecimal() and len(epoch) <= _MOST_DIGITS):
        raise UsageError(
            f"SOURCE_DATE_EPOCH={epoch} is no time",
            cause="It is the image's time, in seconds since 1970.",
            next_step="SOURCE_DATE_EPOCH=$(date +%s) make image …    (or leave it out, for the lock's time)",
        )
    return int(epoch) if epoch else None


def _build_key(job: _Job, plan: Plan) -> str:
    if job.engine != "embedded":
        from graphcrate.build import with_engine

        return with_engine.key(job.engine, plan)
    from graphcrate.engines.builders.form import LAYER_FORMAT

    return f"{content_id(plan)}-{LAYER_FORMAT}"


def _unchanged(job: _Job, folder: Path, key: str) -> BuildReport | None:
    """The report of an image that was built from the same plan and is whole."""
    report = read_report(folder / "report.json")
    return report if report and report.build_key == key and _is_whole(job, folder, report) else None


def _is_whole(job: _Job, folder: Path, report: BuildReport) -> bool:
    if report.artifact.kind != "layout":
        from graphcrate.build import with_engine

        return with_engine.exists(report.artifact, job.ctx)
    from graphcrate.oci.layout import is_whole

    return is_whole(folder / "oci", report.digest)


def _plan_lines(
    ctx: Context, title: str, resolution: "Resolution", engine: str, built: Collection[str] = ()
) -> list[str]:
    from graphcrate.build.plan_lines import plan_lines
    from graphcrate.resolve.fetch import bytes_to_fetch

    lock = resolution.lock
    if engine == "embedded":
        missing = bytes_to_fetch(lock, ctx.cache, built)
    else:  # it fetches by itself, into a cache of its own or none
        missing = sum(package.file.size for package in lock.packages if package.channel is not Channel.LOCAL)
    return plan_lines(title, lock, resolution.outcomes, resolution.candidate.meaning, missing)


def _build(job: _Job, plan: Plan, resolution: "Resolution") -> tuple[Artifact, tuple[LayerRecord, ...]]:
    """The image, and its layers where the embedded builder made them."""
    if job.engine != "embedded":
        from graphcrate.build import with_engine

        folder = job.folder(plan.name, plan.tag)
        return with_engine.build(job.engine, plan, resolution.lock, job.request.sources, folder, job.ctx), ()
    from graphcrate.engines.builders import embedded

    layout = _build_here(job, plan, resolution)
    return embedded.artifact(layout), layout.records


def _build_here(job: _Job, plan: Plan, resolution: "Resolution") -> "Layout":
    from graphcrate.engines.builders import Order, embedded
    from graphcrate.resolve.base import planned_base, prepare_base
    from graphcrate.resolve.fetch import fetch

    ctx, sources = job.ctx, job.request.sources
    with ThreadPoolExecutor(2) as side:
        # Bases are made by Debian's tools while wheels arrive.
        base = side.submit(prepare_base, ctx, planned_base(plan))
        side.submit(extensions.prepare, plan, resolution.lock, ctx)
        try:
            # What the machine lacks for the base shows at once: say it before gigabytes are on their way.
            wait([base], timeout=1.0)
            if base.done():
                base.result()
            bring = extensions.files if job.request.devel else fetch
            files = bring(resolution.lock, sources, ctx.cache, ctx.environment, ctx.progress)
            prepared = base.result()
        except BaseException:
            process.end_all()
            raise
    folder = job.folder(plan.name, plan.tag)
    order = Order(
        plan=plan,
        folder=folder,
        base=prepared,
        files=files,
        compiled=extensions.wheels(plan, resolution.lock, prepared, sources, folder, ctx),
        toolkit=extensions.toolkit(plan, resolution.lock, prepared, sources, ctx),
        arguments={},
        certificates=None,
        cache=ctx.cache,
        environment=ctx.environment,
        progress=ctx.progress,
    )
    return embedded.build_layout(order)


def _report(artifact: Artifact, layers: tuple[LayerRecord, ...], plan: Plan, resolution: "Resolution") -> BuildReport:
    lock = resolution.lock
    packages = tuple(
        PackageLine(name=package.name, version=package.version, channel=package.channel.value)
        for package in lock.packages
    )
    return BuildReport(
        name=plan.name,
        tag=plan.tag,
        digest=artifact.digest,
        artifact=artifact,
        layout=artifact.reference if artifact.kind == "layout" else "",
        bytes=artifact.bytes,
        candidate=resolution.candidate.name,
        torch=plan.stack.torch,
        torch_cuda=lock.torch_cuda,
        cuda=lock.cuda,
        python=lock.python,
        packages=packages,
        smoke=None,
        seconds=0.0,
        outcomes=resolution.outcomes,
        missing=tuple(f"{missing.name}: {missing.reason}" for missing in lock.missing),
        notes=(*lock.notes, *artifact.notes),
        layers=layers,
        lock_sha256=lock.sha256,
    )


def write_value(path: Path, value: msgspec.Struct) -> None:
    """Write a value's canonical JSON, whole or not at all."""
    write_file(path, encode(value))
