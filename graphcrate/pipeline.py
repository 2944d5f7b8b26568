"""The story of an image, one call per stage: recipe → lock → plan → layers → layout → smoke test → report."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from graphcrate import planning
from graphcrate.catalogue import examples, find_variant, for_gpu, lock_path
from graphcrate.errors import SmokeError
from graphcrate.host import process, settings
from graphcrate.host.replace import write_file
from graphcrate.host.workplace import Workplace
from graphcrate.model.lock import Lock, decode_lock, encode
from graphcrate.model.plan import Plan, content_id
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import BuildReport, PackageLine, SmokeReport

if TYPE_CHECKING:
    from graphcrate.oci.layout import Layout
    from graphcrate.resolve.candidates import Resolution
    from graphcrate.resolve.channels import Request as Sources


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


def build_image(request: Request, place: Workplace) -> BuildReport:
    """Build, test and report one image; an image that is there unchanged is reported as it is.

    Raises any GraphcrateError; SmokeError after the image was written with a report that says `failed`.
    """
    start = settings.now()
    recipe, variant = find_variant(place, request.name, request.cuda)
    resolution = _resolve(request, place, recipe, variant)
    report = _made(request, place, recipe, variant, resolution, start)
    folder = request.output / report.name / report.tag
    if request.smoke and report.smoke is None:
        report = _prove(request, place, recipe, variant, folder, report, start)
    return report


def _made(
    request: Request, place: Workplace, recipe: Recipe, variant: Variant, resolution: "Resolution", start: float
) -> BuildReport:
    """The image's report: of the one that is there, if nothing changed, else of the one built now."""
    from graphcrate.bases import BaseDriftError
    from graphcrate.resolve.base import replace_base, with_living_base

    resolution = with_living_base(place, resolution)
    plan = _plan(place, recipe, resolution)
    folder = request.output / plan.name / plan.tag
    key = _build_key(plan)
    if report := _unchanged(folder, key, request):
        return report
    _show_plan(place, plan, resolution)
    try:
        layout = _build(request, place, plan, resolution)
    except BaseDriftError as drift:
        place.progress.note(f"{drift.what}; taking the packages of today instead")
        replace_base(place, variant, resolution.lock)
        return _made(request, place, recipe, variant, resolution, start)
    report = _report(layout, plan, resolution, key, settings.now() - start)
    write_value(folder / "lock.json", resolution.lock)
    write_value(folder / "report.json", report)
    return report


def write_lock(request: Request, place: Workplace) -> Path:
    """Resolve anew, ignoring locks; write the chosen candidate's lock where it is committed."""
    recipe, variant = find_variant(place, request.name, request.cuda)
    resolution = _resolve(request, place, recipe, variant, fresh=True)
    path = lock_path(place, recipe, variant, resolution.candidate)
    write_value(path, resolution.lock)
    for line in _plan_lines(place, f"{recipe.name} CUDA {variant.cuda}", resolution):
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


def _build_key(plan: Plan) -> str:
    from graphcrate.builders.form import LAYER_FORMAT

    return f"{content_id(plan)}-{LAYER_FORMAT}"


def _unchanged(folder: Path, key: str, request: Request) -> BuildReport | None:
    """The report of an image that was built from the same plan, is whole, and did not fail its smoke test."""
    from graphcrate.oci.layout import is_whole

    try:
        report = msgspec.json.decode((folder / "report.json").read_bytes(), type=BuildReport)
    except (OSError, msgspec.DecodeError):
        return None
    if report.build_key != key or not is_whole(folder / "oci", report.digest):
        return None
    if report.smoke is not None and report.smoke.status == "failed" and request.smoke:
        return msgspec.structs.replace(report, smoke=None, suites=())
    return report


def _plan_lines(place: Workplace, title: str, resolution: "Resolution") -> list[str]:
    from graphcrate import views
    from graphcrate.resolve.fetch import bytes_to_fetch

    missing = bytes_to_fetch(resolution.lock, place.cache)
    return views.plan_lines(title, resolution.lock, resolution.outcomes, resolution.candidate.meaning, missing)


def _show_plan(place: Workplace, plan: Plan, resolution: "Resolution") -> None:
    for line in _plan_lines(place, f"{plan.name}:{plan.tag}", resolution):
        place.progress.note(line)


def _build(request: Request, place: Workplace, plan: Plan, resolution: "Resolution") -> "Layout":
    from graphcrate.builders import embedded
    from graphcrate.resolve.base import prepare_base
    from graphcrate.resolve.fetch import fetch

    with ThreadPoolExecutor(1) as side:
        # The base is made by Debian's tools while wheels arrive.
        base = side.submit(prepare_base, place, resolution.lock.base)
        try:
            # What the machine lacks for the base shows at once: say it before gigabytes are on their way.
            wait([base], timeout=1.0)
            if base.done():
                base.result()
            files = fetch(resolution.lock, _sources(request), place.cache, place.environment, place.progress)
            prepared = base.result()
        except BaseException:
            process.end_all()
            raise
    return embedded.build(
        plan,
        prepared,
        files,
        destination=request.output / plan.name / plan.tag / "oci",
        cache=place.cache,
        environment=place.environment,
        progress=place.progress,
    )


def _report(layout: "Layout", plan: Plan, resolution: "Resolution", key: str, seconds: float) -> BuildReport:
    lock = resolution.lock
    packages = tuple(
        PackageLine(name=package.name, version=package.version, channel=package.channel.value)
        for package in lock.packages
    )
    torch = lock.package("torch")
    return BuildReport(
        name=plan.name,
        tag=plan.tag,
        digest=layout.digest,
        layout=str(layout.path),
        bytes=sum(layer.size for layer in layout.layers),
        candidate=resolution.candidate.name,
        torch=torch.version if torch else "",
        torch_cuda=lock.torch_cuda,
        cuda=lock.cuda,
        python=lock.python,
        packages=packages,
        smoke=None,
        seconds=round(seconds, 3),
        outcomes=resolution.outcomes,
        missing=tuple(f"{missing.name}: {missing.reason}" for missing in lock.missing),
        notes=lock.notes,
        layers=layout.records,
        lock_sha256=lock.sha256,
        build_key=key,
    )


def _prove(
    request: Request,
    place: Workplace,
    recipe: Recipe,
    variant: Variant,
    folder: Path,
    report: BuildReport,
    start: float,
) -> BuildReport:
    """Run the recipe's suites inside the image and write them into the report. Raises SmokeError when one fails."""
    from graphcrate import smoke
    from graphcrate.oci.layout import read_layout
    from graphcrate.runners import embedded

    layout = read_layout(folder / "oci")
    results: list[SmokeReport] = []
    with embedded.opened(layout, cache=place.cache, progress=place.progress) as inside:
        for name in variant.smoke or recipe.smoke:
            results.append(smoke.run_suite(name, inside, folder, say=place.progress.note, device=request.device))
    seconds = round(settings.now() - start, 3)
    report = msgspec.structs.replace(report, smoke=results[0], suites=tuple(results), seconds=seconds)
    write_value(folder / "report.json", report)
    for failed in (result for result in results if result.status == "failed"):
        raise SmokeError(
            f"smoke test {failed.suite} failed in {report.name}:{report.tag}: {failed.reason}",
            next_step=f"./build.py run {report.name}:{report.tag} -- pip list    looks inside; "
            f"{folder / 'report.json'} has the details",
        )
    return report


def write_value(path: Path, value: msgspec.Struct) -> None:
    """Write a value's canonical JSON, whole or not at all."""
    write_file(path, encode(value))
