"""The story of an image, one call per stage: recipe → lock → plan → layers → layout → smoke test → report."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from graphcrate.artifacts.locate import read_report
from graphcrate.build import extensions
from graphcrate.compat import fallback, planning
from graphcrate.compat.catalog import examples, find_variant, lock_path
from graphcrate.compat.request import BuildRequest
from graphcrate.host import settings
from graphcrate.host.atomic import check_link, link, make_folder, write_file
from graphcrate.host.context import Context
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.lock import decode_lock, encode
from graphcrate.model.plan import Plan
from graphcrate.model.recipe import Recipe, Variant
from graphcrate.model.report import Artifact, BuildReport, LayerRecord, PackageLine

if TYPE_CHECKING:
    from graphcrate.build.with_engine import Engine
    from graphcrate.oci.layout import Layout
    from graphcrate.resolve.locks import Resolution

_MOST_DIGITS = 11  #: of Unix seconds: to the year 5138


def build_image(request: BuildRequest, ctx: Context) -> BuildReport:
    """Build, test and report one image; an image that is there unchanged is reported as it is.

    Raises any GraphcrateError; SmokeError after the image was written with a report that says `failed`.
    """
    from graphcrate.build import with_engine

    request = _settled(request, ctx)
    if request.engine != "auto":
        return _proven(request, ctx, with_engine.find(request.engine))
    try:
        return _proven(request, ctx, with_engine.EMBEDDED)
    except HostError as error:
        if (engine := with_engine.first_that_answers(ctx)) is None:
            raise
        ctx.progress.note(f"{error.what}; building with {engine.name} instead")
        return _proven(request, ctx, engine)


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
    engine: "Engine"
    start: float

    def folder(self, name: str, tag: str) -> Path:
        """Where the image's files lie."""
        return self.engine.folder(self.request.output / name / tag)

    def seconds(self) -> float:
        """Since it began."""
        return round(settings.now() - self.start, 3)


def _proven(request: BuildRequest, ctx: Context, engine: "Engine") -> BuildReport:
    start = settings.now()
    assert request.cuda is not None
    recipe, variant = find_variant(ctx, request.name, request.cuda)
    if version := engine.check(ctx):
        ctx.progress.note(f"engine: {version}")
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
    key = job.engine.key(plan)
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
        artifact, layers = job.engine.build(plan, resolution.lock, job.request.sources, folder, ctx)
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
    from graphcrate.build import with_engine

    request = _settled(request, ctx)
    assert request.cuda is not None
    recipe, variant = find_variant(ctx, request.name, request.cuda)
    resolution = _resolve(request, ctx, recipe, variant, fresh=True)
    path = lock_path(ctx, recipe, variant, resolution.candidate)
    write_value(path, resolution.lock)
    for line in _plan_lines(ctx, f"{recipe.name} CUDA {variant.cuda}", resolution, with_engine.EMBEDDED):
        ctx.progress.note(line)
    return path.relative_to(ctx.root)


def run_inside(layout: "Layout", command: Sequence[str], ctx: Context) -> int:
    """Run a command in the image, with this terminal and the working directory at /work; returns its exit code."""
    from graphcrate.engines.runners import embedded
    from graphcrate.host.sandbox import Bind, Exec

    here = Exec(
        command,
        environment={name: ctx.environment[name] for name in ("TERM",) if name in ctx.environment},
        binds=(Bind(source=Path.cwd(), target="/work", read_only=False),),
        cwd="/work",
        gpu=True,
        attached=True,
    )
    with embedded.unpacked(layout, cache=ctx.cache, progress=ctx.progress) as inside:
        completed = inside.run(here)
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


def _unchanged(job: _Job, folder: Path, key: str) -> BuildReport | None:
    """The report of an image that was built from the same plan and is whole."""
    report = read_report(folder / "report.json")
    return report if report and report.build_key == key and job.engine.exists(report, folder, job.ctx) else None


def _plan_lines(
    ctx: Context, title: str, resolution: "Resolution", engine: "Engine", built: Collection[str] = ()
) -> list[str]:
    from graphcrate.build.plan_lines import plan_lines

    lock = resolution.lock
    missing = engine.bytes_to_fetch(lock, ctx, built)
    return plan_lines(title, lock, resolution.outcomes, resolution.candidate.meaning, missing)


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
        layout=artifact.layout,
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
