"""The story of an image, one call per stage: recipe → lock → plan → layers → layout → smoke test → report."""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from graphcrate import planning, recipes
from graphcrate.compat import facts
from graphcrate.errors import ResolutionError, SmokeError, UsageError
from graphcrate.host import settings
from graphcrate.host.cache import Cache, default_root
from graphcrate.host.progress import Progress, to_stderr
from graphcrate.model.lock import DebianBase, Lock, RegistryBase, decode_lock, encode
from graphcrate.model.plan import Plan, content_id
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import BuildReport, Outcome, PackageLine, SmokeReport

if TYPE_CHECKING:
    from graphcrate.bases import Base
    from graphcrate.oci.layout import Layout
    from graphcrate.resolve.candidates import Resolution


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


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where work happens: the project's folder, the cache, the environment, the person's eyes."""

    root: Path
    environment: Mapping[str, str]
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def here(cls) -> "Workplace":
        """The project that this package lies in, with this process's environment."""
        return cls(root=Path(__file__).resolve().parent.parent, environment=settings.environment())

    @property
    def cache(self) -> Cache:
        """The cache, opened at first use. Raises CacheError."""
        if "cache" not in self._made:
            self._made["cache"] = Cache(default_root(self.environment))
        cache: Cache = self._made["cache"]
        return cache

    @property
    def progress(self) -> Progress:
        """Reports to stderr."""
        if "progress" not in self._made:
            self._made["progress"] = to_stderr()
        progress: Progress = self._made["progress"]
        return progress


def build_image(request: Request, place: Workplace) -> BuildReport:
    """Build, test and report one image; an image that is there unchanged is reported as it is.

    Raises any GraphcrateError; SmokeError after the image was written with a report that says `failed`.
    """
    start = settings.now()
    recipe, variant = find_variant(place, request.name, request.cuda)
    resolution = _resolve(request, place, recipe, variant)
    lock, plan = resolution.lock, _plan(place, recipe, resolution)
    folder = request.output / plan.name / plan.tag
    key = _build_key(plan)
    report = _unchanged(folder, key, request)
    if report is None:
        _show_plan(place, plan, resolution)
        layout = _build(request, place, plan, resolution)
        report = _report(layout, plan, resolution, key, settings.now() - start)
        _write_report(folder, report)
        msgspec_write(folder / "lock.json", lock)
    if request.smoke and report.smoke is None:
        report = _prove(place, recipe, variant, folder, report, start)
    return report


def find_variant(place: Workplace, name: str, cuda: str) -> tuple[Recipe, Variant]:
    """The recipe and its variant. Raises UsageError with the nearest that exist."""
    names = sorted(path.stem for path in (place.root / "recipes").glob("*.toml"))
    if name not in names:
        near = difflib.get_close_matches(name, names, n=2, cutoff=0.3)
        raise UsageError(
            f"there is no recipe {name!r}" + (f"; the nearest is {', '.join(near)}" if near else ""),
            next_step="./build.py list",
        )
    recipe = recipes.load(place.root / "recipes" / f"{name}.toml")
    variant = recipe.variant(cuda)
    if variant is None:
        near = _nearest_cuda(cuda, [variant.cuda for variant in recipe.variants])
        raise UsageError(
            f"recipe {name} has no variant for CUDA {cuda!r}; the nearest {'are' if len(near) > 1 else 'is'} "
            f"{' and '.join(near)}",
            next_step=f"make image STACK={name} CUDA={near[0]}    (./build.py list shows all)",
        )
    return recipe, variant


def all_recipes(place: Workplace) -> list[Recipe]:
    """Every recipe, by name. Raises RecipeError."""
    return [recipes.load(path) for path in sorted((place.root / "recipes").glob("*.toml"))]


def committed(place: Workplace) -> set[tuple[str, str, str]]:
    """(recipe, CUDA, candidate) of the committed locks."""
    found = set()
    for path in (place.root / "images").glob("*/*/*.lock.json"):
        lock = decode_lock(path.read_bytes())
        found.add((lock.recipe, lock.cuda, lock.candidate))
    return found


def describe(found: Sequence[Recipe], locked: set[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """`list --json`: one object per variant and candidate."""
    return [
        {
            "recipe": recipe.name,
            "cuda": variant.cuda,
            "torch": candidate.torch,
            "torch_cuda": candidate.torch_cuda,
            "torch_geometric": variant.torch_geometric or None,
            "python": variant.python,
            "base": msgspec.to_builtins(variant.base),
            "candidate": candidate.name,
            "channels": [channel.value for channel in candidate.channels],
            "locked": (recipe.name, variant.cuda, candidate.name) in locked,
            "gpus": list(facts.gpu_names(candidate)),
        }
        for recipe in found
        for variant in recipe.variants
        for candidate in variant.candidates
    ]


def write_lock(request: Request, place: Workplace) -> Path:
    """Resolve anew, ignoring locks; write the chosen candidate's lock where it is committed."""
    recipe, variant = find_variant(place, request.name, request.cuda)
    resolution = _resolve(request, place, recipe, variant, fresh=True)
    path = _lock_path(place, recipe, variant, resolution.candidate)
    msgspec_write(path, resolution.lock)
    for line in _plan_lines(place, f"{recipe.name} CUDA {variant.cuda}", resolution):
        place.progress.note(line)
    return path.relative_to(place.root)


def find_image(ref: str, output: Path) -> tuple["Layout", BuildReport]:
    """A layout by NAME:TAG (below `output`) or path, with its report. Raises UsageError, LayoutError."""
    from graphcrate.oci.layout import read_layout

    path = Path(ref)
    if not (path / "index.json").is_file():
        path = output / ref.partition("@")[0].replace(":", "/") / "oci"
    if not (path / "index.json").is_file():
        present = [f"{p.parent.parent.parent.name}:{p.parent.parent.name}" for p in output.glob("*/*/oci/index.json")]
        near = difflib.get_close_matches(ref, present, n=3, cutoff=0.3) or present[:3]
        raise UsageError(
            f"there is no image {ref!r}" + (f"; there are {', '.join(near)}" if near else f" in {output}/"),
            next_step="make image CUDA=11.8    builds one; a path to an OCI layout works too",
        )
    layout = read_layout(path)
    report_path = path.parent / "report.json"
    if report_path.is_file():
        report = msgspec.json.decode(report_path.read_bytes(), type=BuildReport)
        if report.digest == layout.digest:
            return layout, report
    return layout, _foreign_report(layout)


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


def msgspec_write(path: Path, value: msgspec.Struct) -> None:
    """Write a value's canonical JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(encode(value))
    temporary.replace(path)


def _nearest_cuda(cuda: str, known: list[str]) -> list[str]:
    numbers = [version for version in known if version != "cpu"]
    try:
        wanted = float(cuda)
    except ValueError:
        return difflib.get_close_matches(cuda, known, n=2, cutoff=0.4) or ["11.8"]
    return sorted(numbers, key=lambda version: abs(float(version) - wanted))[:2]


def _lock_path(place: Workplace, recipe: Recipe, variant: Variant, candidate: Candidate) -> Path:
    label = planning.cuda_label(variant.cuda)
    return place.root / "images" / recipe.name / label / f"{candidate.name}.lock.json"


def _resolve(
    request: Request, place: Workplace, recipe: Recipe, variant: Variant, *, fresh: bool = False
) -> "Resolution":
    from graphcrate.resolve import candidates

    def read(candidate: Candidate) -> Lock | None:
        path = _lock_path(place, recipe, variant, candidate)
        return decode_lock(path.read_bytes()) if path.is_file() and not fresh else None

    usable, out = _for_gpu(recipe, variant, request.gpu)
    resolution = candidates.choose(
        recipe,
        msgspec.structs.replace(variant, candidates=usable),
        lock_base=lambda: _lock_base(place, variant),
        request=candidates.Request(channel=request.channel, mirror=request.mirror, wheels=request.wheels),
        committed=read,
        fresh=fresh,
        cache=place.cache,
        environment=place.environment,
        progress=place.progress,
    )
    return msgspec.structs.replace(resolution, outcomes=(*out, *resolution.outcomes))


def _for_gpu(recipe: Recipe, variant: Variant, gpu: str | None) -> tuple[tuple[Candidate, ...], tuple[Outcome, ...]]:
    """The candidates whose torch has code for this GPU, and what became of the others. Raises UsageError if none."""
    if gpu is None:
        return variant.candidates, ()
    capability = facts.compute_capability(gpu)
    sm = "sm_" + capability.replace(".", "")
    usable = tuple(candidate for candidate in variant.candidates if facts.runs_on(candidate, capability) is not False)
    out = tuple(
        Outcome(candidate=candidate.name, chosen=False, constraint=f"torch {candidate.torch} has no code for {sm}")
        for candidate in variant.candidates
        if candidate not in usable
    )
    if not usable:
        others = [
            other.cuda
            for other in recipe.variants
            if any(facts.runs_on(candidate, capability) for candidate in other.candidates)
        ]
        near = _nearest_cuda(variant.cuda, others)
        raise UsageError(
            f"no torch of the CUDA {variant.cuda} variant runs on a {gpu} ({sm})",
            cause="; ".join(outcome.constraint for outcome in out),
            next_step=f"make image CUDA={near[0]} GPU={gpu}    (variants for it: {', '.join(others)})",
        )
    return usable, out


def _lock_base(place: Workplace, variant: Variant) -> DebianBase | RegistryBase:
    from graphcrate.bases import PROVIDERS

    provider = PROVIDERS[variant.base.provider]()
    return provider.lock(variant.base, variant.python, place.cache, place.environment, place.progress)


def _prepare_base(place: Workplace, base: DebianBase | RegistryBase) -> "Base":
    from graphcrate.bases import PROVIDERS

    provider = PROVIDERS["debian" if isinstance(base, DebianBase) else "registry"]()
    return provider.prepare(base, place.cache, place.environment, place.progress)


def _plan(place: Workplace, recipe: Recipe, resolution: "Resolution") -> Plan:
    examples = {
        path.relative_to(place.root / "examples").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((place.root / "examples").rglob("*"))
        if path.suffix in (".py", ".md")
    }
    epoch = place.environment.get("SOURCE_DATE_EPOCH")
    created = int(epoch) if epoch else None
    return planning.make_plan(recipe, resolution.lock, resolution.candidate, examples=examples, created=created)


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
    from graphcrate.resolve.fetch import fetch

    sources = dict(channel=request.channel, mirror=request.mirror, wheels=request.wheels)
    with ThreadPoolExecutor(1) as side:
        # The base is made by Debian's tools while wheels arrive.
        base = side.submit(_prepare_base, place, plan.base)
        try:
            files = fetch(resolution, sources, place.cache, place.environment, place.progress)
        except BaseException:
            base.cancel()
            raise
        prepared = base.result()
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


def _foreign_report(layout: "Layout") -> BuildReport:
    """What a layout without our report says of itself."""
    labels = layout.labels
    name = labels.get("org.opencontainers.image.title", layout.path.name)
    return BuildReport(
        name=name,
        tag=layout.tag or "",
        digest=layout.digest,
        layout=str(layout.path),
        bytes=sum(layer.size for layer in layout.layers),
        candidate=labels.get("graphcrate.candidate", ""),
        torch=labels.get("graphcrate.torch", ""),
        torch_cuda=labels.get("graphcrate.torch.cuda", ""),
        cuda=labels.get("graphcrate.cuda", ""),
        python=labels.get("graphcrate.python", ""),
        packages=(),
        smoke=None,
        seconds=0.0,
        layers=layout.records,
        lock_sha256=labels.get("graphcrate.lock.sha256", ""),
    )


def _prove(
    place: Workplace, recipe: Recipe, variant: Variant, folder: Path, report: BuildReport, start: float
) -> BuildReport:
    """Run the recipe's suites inside the image and write them into the report. Raises SmokeError when one fails."""
    from graphcrate import smoke
    from graphcrate.oci.layout import read_layout
    from graphcrate.runners import embedded

    layout = read_layout(folder / "oci")
    results: list[SmokeReport] = []
    with embedded.opened(layout, cache=place.cache, progress=place.progress) as inside:
        for name in variant.smoke or recipe.smoke:
            results.append(smoke.run_suite(name, inside, folder, say=place.progress.note))
    seconds = round(settings.now() - start, 3)
    report = msgspec.structs.replace(report, smoke=results[0], suites=tuple(results), seconds=seconds)
    _write_report(folder, report)
    for failed in (result for result in results if result.status == "failed"):
        raise SmokeError(
            f"smoke test {failed.suite} failed in {report.name}:{report.tag}: {failed.reason}",
            next_step=f"./build.py run {report.name}:{report.tag} -- bash    looks around inside; "
            f"{folder / 'report.json'} has the details",
        )
    return report


def _write_report(folder: Path, report: BuildReport) -> None:
    msgspec_write(folder / "report.json", report)


def describe_json(value: msgspec.Struct) -> str:
    """A value as indented JSON."""
    return json.dumps(msgspec.to_builtins(value), indent=2)


__all__ = ["Request", "ResolutionError", "Workplace", "build_image"]
