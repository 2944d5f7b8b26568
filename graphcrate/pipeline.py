"""The story of an image, one call per stage: recipe → lock → plan → layers → layout → smoke test → report."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from graphcrate import planning
from graphcrate.catalogue import examples, find_variant, for_gpu, lock_path
from graphcrate.errors import HostError, SmokeError
from graphcrate.host import process, settings
from graphcrate.host.replace import write_file
from graphcrate.host.workplace import Workplace
from graphcrate.model.lock import Lock, decode_lock, encode
from graphcrate.model.plan import Plan, content_id
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant
from graphcrate.model.report import Artifact, BuildReport, LayerRecord, PackageLine, SmokeReport

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from graphcrate.oci.layout import Layout
    from graphcrate.resolve.candidates import Resolution
    from graphcrate.resolve.channels import Request as Sources
    from graphcrate.smoke import Inside


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asked for. `wheels` is a folder for the local channel."""

    name: str
    cuda: str
    gpu: str | None = None
    channel: str | None = None
    mirror: str | None = None
    wheels: Path | None = None
    output: Path = Path("dist")
    smoke: bool = True
    device: Literal["auto", "cpu", "cuda"] = "auto"  #: of the smoke test
    engine: str = "auto"  #: `auto`: the embedded builder, and where it cannot work the first engine that answers


def build_image(request: Request, place: Workplace) -> BuildReport:
    """Build, test and report one image; an image that is there unchanged is reported as it is.

    Raises any GraphcrateError; SmokeError after the image was written with a report that says `failed`.
    """
    if request.engine not in ("auto", "embedded"):
        return _proven(request, place, request.engine)
    try:
        return _proven(request, place, "embedded")
    except HostError as error:
        from graphcrate import engines

        if request.engine == "embedded" or (name := engines.first_that_answers(place)) is None:
            raise
        place.progress.note(f"{error.what}; building with {name} instead")
        return _proven(request, place, name)


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One image on its way: what was asked for, by which engine, since when."""

    request: Request
    place: Workplace
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


def _proven(request: Request, place: Workplace, engine: str) -> BuildReport:
    start = settings.now()
    recipe, variant = find_variant(place, request.name, request.cuda)
    if engine != "embedded":
        from graphcrate import engines

        place.progress.note(f"engine: {engines.check(engine, place)}")
    job = _Job(request=request, place=place, recipe=recipe, variant=variant, engine=engine, start=start)
    report = _made(job, _resolve(request, place, recipe, variant))
    return _prove(job, report) if request.smoke and report.smoke is None else report


def _made(job: _Job, resolution: "Resolution") -> BuildReport:
    """The image's report: of the one that is there, if nothing changed, else of the one built now."""
    from graphcrate.bases import BaseDriftError
    from graphcrate.resolve.base import replace_base, with_living_base

    place = job.place
    resolution = with_living_base(place, resolution)
    plan = _plan(place, job.recipe, resolution)
    folder = job.folder(plan.name, plan.tag)
    key = _build_key(job, plan)
    if report := _unchanged(job, folder, key):
        return report
    for line in _plan_lines(place, f"{plan.name}:{plan.tag}", resolution, job.engine):
        place.progress.note(line)
    try:
        artifact, layers = _build(job, plan, resolution)
    except BaseDriftError as drift:
        place.progress.note(f"{drift.what}; taking the packages of today instead")
        replace_base(place, job.variant, resolution.lock)
        return _made(job, resolution)
    report = _report(artifact, layers, plan, resolution)
    report = msgspec.structs.replace(report, build_key=key, seconds=job.seconds())
    write_value(folder / "lock.json", resolution.lock)
    write_value(folder / "report.json", report)
    return report


def write_lock(request: Request, place: Workplace) -> Path:
    """Resolve anew, ignoring locks; write the chosen candidate's lock where it is committed."""
    recipe, variant = find_variant(place, request.name, request.cuda)
    resolution = _resolve(request, place, recipe, variant, fresh=True)
    path = lock_path(place, recipe, variant, resolution.candidate)
    write_value(path, resolution.lock)
    for line in _plan_lines(place, f"{recipe.name} CUDA {variant.cuda}", resolution, "embedded"):
        place.progress.note(line)
    return path.relative_to(place.root)


def run_inside(layout: "Layout", command: Sequence[str], place: Workplace, say: Callable[[str], None]) -> int:
    """Run a command in the image with the working directory at /work; returns its exit code."""
    from graphcrate.host.sandbox import Bind
    from graphcrate.runners import embedded

    completed = embedded.run(
        layout,
        list(command),
        cache=place.cache,
        progress=place.progress,
        binds=(Bind(source=Path.cwd(), target="/work", read_only=False),),
        working_folder="/work",
        on_line=say,
        gpu=True,
    )
    return completed.returncode


def _resolve(
    request: Request, place: Workplace, recipe: Recipe, variant: Variant, *, fresh: bool = False
) -> "Resolution":
    from graphcrate.resolve import candidates
    from graphcrate.resolve.base import lock_base

    def read(candidate: Candidate) -> Lock | None:
        path = lock_path(place, recipe, variant, candidate)
        return decode_lock(path.read_bytes()) if path.is_file() and not fresh else None

    usable, out = for_gpu(recipe, variant, request.gpu)
    resolution = candidates.choose(
        recipe,
        msgspec.structs.replace(variant, candidates=usable),
        lock_base=lambda: lock_base(place, variant),
        request=_sources(request),
        committed=read,
        fresh=fresh,
        cache=place.cache,
        environment=place.environment,
        progress=place.progress,
    )
    return msgspec.structs.replace(resolution, outcomes=(*out, *resolution.outcomes))


def _sources(request: Request) -> "Sources":
    from graphcrate.resolve.channels import Request as Sources

    return Sources(channel=request.channel, mirror=request.mirror, wheels=request.wheels)


def _plan(place: Workplace, recipe: Recipe, resolution: "Resolution") -> Plan:
    epoch = place.environment.get("SOURCE_DATE_EPOCH")
    created = int(epoch) if epoch else None
    return planning.make_plan(recipe, resolution.lock, resolution.candidate, examples=examples(place), created=created)


def _build_key(job: _Job, plan: Plan) -> str:
    if job.engine != "embedded":
        from graphcrate import engines

        return engines.key(job.engine, plan)
    from graphcrate.builders.form import LAYER_FORMAT

    return f"{content_id(plan)}-{LAYER_FORMAT}"


def _unchanged(job: _Job, folder: Path, key: str) -> BuildReport | None:
    """The report of an image that was built from the same plan, is whole, and did not fail its smoke test."""
    try:
        report = msgspec.json.decode((folder / "report.json").read_bytes(), type=BuildReport)
    except (OSError, msgspec.DecodeError):
        return None
    if report.build_key != key or not _is_whole(job, folder, report):
        return None
    if report.smoke is not None and report.smoke.status == "failed" and job.request.smoke:
        return msgspec.structs.replace(report, smoke=None, suites=())
    return report


def _is_whole(job: _Job, folder: Path, report: BuildReport) -> bool:
    if report.artifact.kind != "layout":
        from graphcrate import engines

        return engines.is_there(report.artifact, job.place)
    from graphcrate.oci.layout import is_whole

    return is_whole(folder / "oci", report.digest)


def _plan_lines(place: Workplace, title: str, resolution: "Resolution", engine: str) -> list[str]:
    from graphcrate import views
    from graphcrate.resolve.fetch import bytes_to_fetch

    lock = resolution.lock
    if engine == "embedded":
        missing = bytes_to_fetch(lock, place.cache)
    else:  # it fetches by itself, into a cache of its own or none
        missing = sum(package.file.size for package in lock.packages if package.channel is not Channel.LOCAL)
    return views.plan_lines(title, lock, resolution.outcomes, resolution.candidate.meaning, missing)


def _build(job: _Job, plan: Plan, resolution: "Resolution") -> tuple[Artifact, tuple[LayerRecord, ...]]:
    """The image, and its layers where the embedded builder made them."""
    if job.engine != "embedded":
        from graphcrate import engines

        folder = job.folder(plan.name, plan.tag)
        return engines.build(job.engine, plan, resolution.lock, _sources(job.request), folder, job.place), ()
    from graphcrate.builders import embedded

    layout = _build_here(job, plan, resolution)
    return embedded.artifact(layout), layout.records


def _build_here(job: _Job, plan: Plan, resolution: "Resolution") -> "Layout":
    from graphcrate.builders import Order, embedded
    from graphcrate.resolve.base import prepare_base
    from graphcrate.resolve.fetch import fetch

    place = job.place
    with ThreadPoolExecutor(1) as side:
        # The base is made by Debian's tools while wheels arrive.
        base = side.submit(prepare_base, place, resolution.lock.base)
        try:
            # What the machine lacks for the base shows at once: say it before gigabytes are on their way.
            wait([base], timeout=1.0)
            if base.done():
                base.result()
            files = fetch(resolution.lock, _sources(job.request), place.cache, place.environment, place.progress)
            prepared = base.result()
        except BaseException:
            process.end_all()
            raise
    order = Order(
        plan=plan,
        folder=job.folder(plan.name, plan.tag),
        base=prepared,
        files=files,
        arguments={},
        certificates=None,
        cache=place.cache,
        environment=place.environment,
        progress=place.progress,
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


def _prove(job: _Job, report: BuildReport) -> BuildReport:
    """Run the recipe's suites inside the image and write them into the report. Raises SmokeError when one fails."""
    from graphcrate import smoke

    folder = job.folder(report.name, report.tag)
    results: list[SmokeReport] = []
    with _opened(job.place, folder, report) as inside:
        for name in job.variant.smoke or job.recipe.smoke:
            say = job.place.progress.note
            results.append(smoke.run_suite(name, inside, folder, say=say, device=job.request.device))
    report = msgspec.structs.replace(report, smoke=results[0], suites=tuple(results), seconds=job.seconds())
    write_value(folder / "report.json", report)
    for failed in (result for result in results if result.status == "failed"):
        raise SmokeError(
            f"smoke test {failed.suite} failed in {report.name}:{report.tag}: {failed.reason}",
            next_step=f"{_look_inside(report)}    looks inside; {folder / 'report.json'} has the details",
        )
    return report


def _look_inside(report: BuildReport) -> str:
    artifact = report.artifact
    if artifact.kind == "layout":
        return f"./build.py run {report.name}:{report.tag} -- pip list"
    if artifact.kind == "sif":
        return f"{artifact.engine} exec {artifact.reference} pip list"
    return f"{artifact.engine} run --rm {artifact.reference} pip list"


def _opened(place: Workplace, folder: Path, report: BuildReport) -> "AbstractContextManager[Inside]":
    """The image, to run commands in."""
    if report.artifact.kind != "layout":
        from graphcrate import engines

        return engines.opened(report.artifact, place)
    from graphcrate.oci.layout import read_layout
    from graphcrate.runners import embedded

    return embedded.opened(read_layout(folder / "oci"), cache=place.cache, progress=place.progress)


def write_value(path: Path, value: msgspec.Struct) -> None:
    """Write a value's canonical JSON, whole or not at all."""
    write_file(path, encode(value))
