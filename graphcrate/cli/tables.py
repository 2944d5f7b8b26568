"""Print answers: text for people, JSON for programs. Decides nothing."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from graphcrate.cli import options, retyped
from graphcrate.compat.facts import driver_table, gpu_table
from graphcrate.compat.plan import base_lines
from graphcrate.compat.proofs import Word, standings
from graphcrate.compat.variants import catalog, newer
from graphcrate.compat.variants.catalog import lock_path, locked_platforms
from graphcrate.compat.variants.ported import on_platform
from graphcrate.compat.variants.support import MARKS, Mark, Support, models_with, support
from graphcrate.host import streams
from graphcrate.host.context import Context
from graphcrate.model.answer import Answer, AnswerLine, Section
from graphcrate.model.command import command, setting
from graphcrate.model.lock_proof import LockProof
from graphcrate.model.platform import DEFAULT, SUPPORTED
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import BuildReport, LayerRecord, SmokeReport
from graphcrate.model.words import joined, number_of, printable, size
from ocilayout import spec

if TYPE_CHECKING:
    from graphcrate.assembly.images import KnownImage, Removal
    from graphcrate.assembly.matrix import Result
    from graphcrate.inputs.shared.stock import StockLine
    from graphcrate.publish.destinations.bases import SharedBase

_MARK_STYLES: dict[Mark, str] = {
    "native": "green", "jit": "yellow", "built": "cyan", "unknown": "dim", "rejected": "dim",
}  # fmt: skip
_PLAIN_SIGNS: dict[Mark, str] = {"native": "#", "jit": "+", "built": "o", "unknown": "?", "rejected": "."}
_HEADS = ("stack", "CUDA", "torch", "PyG", "Python", "GPUs", "driver ≥", "lock")


def variants(ctx: Context, recipes: Sequence[Recipe]) -> Iterator[str]:
    """Yield a line for each variant, at most 80 wide, and one below on GPUs that an image has to be built for."""
    rows: list[tuple[str, ...]] = [_HEADS]
    built: set[str] = set()
    moved: dict[tuple[str, str], None] = {}
    for recipe in recipes:
        on_gpus = support(recipe)
        for variant in recipe.variants:
            if variant.unavailable is not None:
                rows.append((recipe.name, variant.cuda, f"not available: {command('explain', recipe.name)}", *[""] * 5))
                continue
            first = variant.candidates[0]
            runs, apart = ([], []) if variant.cuda == "cpu" else _gpus_of(on_gpus, variant.cuda)
            built.update(apart)
            locks = (catalog.read_lock(ctx, recipe, variant, candidate) for candidate in variant.candidates)
            lock = next(filter(None, locks), None)
            lost = catalog.moved(variant, lock)
            moved.update({lost: None} if lost[0] else {})
            rows.append(
                (
                    recipe.name,
                    variant.cuda,
                    "of a folder" if first.torch == "*" else first.torch,
                    f"{variant.torch_geometric or '-'}{'†' if lost[0] else ''}",
                    variant.python,
                    f"{runs[0]} to {runs[-1]}{' *' if apart else ''}" if runs else "-",
                    driver_table.oldest_driver(variant.cuda) or "-",
                    newer.age(lock.created) if lock else "no",
                )
            )
    widths = [max(len(row[column]) for row in rows if row[-1]) for column in range(len(_HEADS))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
    yield from _on_other_platforms(ctx, recipes)
    yield from _without_a_proof(ctx, recipes)
    if built:
        names = joined(sorted(built))
        yield f"* {names} too, when built for it: {setting(gpu='…')} ({command('list', gpus=True)})"
    for names, extension in moved:
        yield f"† without {extension}, so without {joined(names.split(', '), 3)}: docs/extensions.md"
    if news := newer.sentences(ctx, recipes):
        yield from news
        if ctx.is_checkout:
            yield f"{command('update')} takes them"


def _on_other_platforms(ctx: Context, recipes: Sequence[Recipe]) -> Iterator[str]:
    """Yield a line for each platform beside the default one: what is locked for it, and how old that is."""
    for platform in (row for row in SUPPORTED if row != DEFAULT):
        locks = [
            (recipe.name, variant.cuda, lock)
            for recipe in recipes
            for variant in recipe.variants
            for candidate in variant.candidates
            if (lock := catalog.read_lock(ctx, recipe, on_platform(variant, platform), candidate))
        ]
        if locks:
            each = joined(f"{recipe} {cuda} ({newer.age(lock.created)})" for recipe, cuda, lock in locks)
            yield f"{platform.name}: {each}; {setting(platform=platform.name).both()}"


def _without_a_proof(ctx: Context, recipes: Sequence[Recipe]) -> Iterator[str]:
    """Yield a line for the locks with a stale proof, and one for those without any; none of an installed package."""
    if not ctx.is_checkout:
        return
    titles: dict[Word, list[str]] = {}
    for standing in standings(ctx, recipes):
        titles.setdefault(standing.word, []).append(standing.title)
    for word in ("stale", "unproved"):
        if names := titles.get(word):
            yield f"{word}: {joined(names)}; {command('matrix')} builds and tests them (docs/proof.md)"


def _without(ctx: Context, recipe: Recipe, variant: Variant, candidate: Candidate) -> dict[str, Any] | None:
    """Name what this PyG lacks with the extension that its lock is without; None where it lacks nothing."""
    features, extension = catalog.moved(variant, catalog.read_lock(ctx, recipe, variant, candidate))
    return {"extension": extension, "features": features.split(", ")} if features else None


def _gpus_of(on_gpus: Support, cuda: str) -> tuple[list[str], list[str]]:
    """GPUs that the image of a CUDA version runs on, and those that it has to be built for: sm_70, sm_75."""
    runs, built = on_gpus.with_mark(cuda, "native", "jit"), on_gpus.with_mark(cuda, "built")
    return [f"sm_{capability.replace('.', '')}" for capability in runs], [
        f"sm_{capability.replace('.', '')}" for capability in built
    ]


def described(ctx: Context, recipes: Sequence[Recipe]) -> list[dict[str, Any]]:
    """`list --json`: one object per variant and candidate; so none for an unavailable variant."""
    news = newer.recalled(ctx)
    words = {
        (standing.recipe.name, standing.variant.cuda, standing.candidate.name): standing.word
        for standing in standings(ctx, recipes)
        if standing.variant.base.runs_on == DEFAULT
    }
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
            "meaning": candidate.meaning or None,
            "channels": [channel.value for channel in candidate.channels],
            "tag": catalog.short_tag(variant, candidate),
            "locked": lock_path(ctx, recipe, variant, candidate).is_file(),
            "proof": words.get((recipe.name, variant.cuda, candidate.name)),
            "locked_for": [platform.name for platform in locked_platforms(ctx, recipe, variant, candidate)],
            "newer": _newer(news, recipe, variant),
            "without": _without(ctx, recipe, variant, candidate),
            "gpus": models_with(recipe, variant, candidate, "native", "jit"),
            "gpus_when_built_for": models_with(recipe, variant, candidate, "built"),
        }
        for recipe in recipes
        for variant in recipe.variants
        for candidate in variant.candidates
    ]


def _newer(news: Mapping[str, newer.KnownNews], recipe: Recipe, variant: Variant) -> dict[str, str] | None:
    """Return the newer release that the last update found for a variant, and when; None without one."""
    known = news.get(recipe.name)
    torch, geometric = known.newer.get(variant.cuda, ("", "")) if known else ("", "")
    return {"torch": torch, "torch_geometric": geometric, "known": known.day} if known and torch else None


def proofs(results: "Sequence[Result]") -> Iterator[str]:
    """Yield a line for each image of the matrix: what was proved of it, or why it was not."""
    rows: list[tuple[str, ...]] = [("image", "state", "digest", "bytes", "seconds", "suites", "GPUs by audit")]
    for result in results:
        name = result.title
        if (proof := result.proof) is None:
            rows.append((name, result.state, result.error.partition("\n")[0], "", "", "", ""))
            continue
        passed = ",".join(suite.suite for suite in proof.suites)
        cells = (proof.digest[:19], size(proof.bytes), f"{proof.seconds:.0f}", passed, " ".join(gpus_of(proof)))
        rows.append((name, result.state, *cells))
    widths = [max(len(row[column]) for row in rows if row[-1]) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def images(known: "Sequence[KnownImage]") -> Iterator[str]:
    """Yield a line for each image: what it takes, what others share with it, its age, when it ran last."""
    rows: list[tuple[str, ...]] = [("image", "alone", "shared", "unpacked", "made", "last run", "short name", "in")]
    for image in known:
        name = image.name or f"(gone) {image.digest[:19]}"
        sizes = (size(image.alone), size(image.shared), size(image.unpacked) if image.unpacked else "-")
        times = [newer.age(int(time)) if time else "-" for time in (image.made, image.used)]
        rows.append((name, *sizes, *times, min(image.names, key=len, default="-"), image.place or "the cache"))
    yield from _columns(rows)


def removals(gone: "Sequence[Removal]") -> Iterator[str]:
    """Yield a line for each image or tree that goes: its bytes, why, and other files of its folder."""
    for removal in gone:
        files = f"; with it {joined(removal.files)}" if removal.files else ""
        yield f"{removal.image.name or removal.image.digest}  {size(removal.bytes)}  {removal.why}{files}"


def stock(entries: "Sequence[StockLine]") -> Iterator[str]:
    """Yield a line for each entry of a shared cache: what it is, who made it when, why it is not taken."""
    rows = [(line.title or line.tag, size(line.bytes), line.made, line.maker, line.place, line.why) for line in entries]
    yield from _columns(rows) if rows else ()


def bases(known: "Sequence[SharedBase]", fate: str = "prunable") -> Iterator[str]:
    """Yield a line for each SIF that deltas go over, and for those that none does, with the fate of these."""
    for base in known:
        state = base.path and f"{size(base.bytes)}  {base.path}"
        needed = (
            f"{number_of(len(base.deltas), 'delta')}: {joined([printable(name) for name in base.deltas])}"
            if base.deltas
            else "no delta"
        )
        yield f"{base.name}  {state or 'missing'}  {needed}{f'  ({fate})' if base.prunable else ''}"


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def gpus_of(proof: LockProof) -> list[str]:
    """Compute capabilities that an image runs on by its audit, as people call them: sm_70; with + those by PTX."""
    works = {name: "+" if how == "jit" else "" for name, how in proof.gpus.items() if how != "fails"}
    return [f"sm_{name.replace('.', '')}{mark}" for name, mark in works.items()]


def heat_map(on_gpus: Support) -> Text:
    """Draw which GPUs run which CUDA versions, with colours where the terminal has them."""
    names = [
        f"{', '.join(row.models[:3])}{' …' if row.models[3:] else ''} (sm_{row.capability.replace('.', '')})"
        for row in on_gpus.rows
    ]
    width = max(map(len, names))
    drawn = Text(f"{on_gpus.recipe:{width}}" + "".join(f"{cuda:>6}" for cuda in on_gpus.drivers) + "\n", "bold")
    drawn.append(
        f"{'driver from':{width}}" + "".join(f"{driver.partition('.')[0]:>6}" for driver in on_gpus.drivers.values())
    )
    for name, row in zip(names, on_gpus.rows, strict=True):
        drawn.append(f"\n{name:{width}}")
        for cuda in on_gpus.drivers:
            mark = row.cells[cuda].mark
            drawn.append(f"{_sign(mark):>6}", _MARK_STYLES[mark])
    return drawn


def legend() -> str:
    """Return the marks of `heat_map` with their meanings, in a line."""
    return "   ".join(f"{_sign(mark)} {meaning}" for mark, (_, meaning) in MARKS.items())


def _sign(mark: Mark) -> str:
    """Return a mark in a character that stdout can write: each its own in ASCII, too."""
    sign = MARKS[mark][0]
    try:
        sign.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return _PLAIN_SIGNS[mark]
    return sign


def other_machines() -> Iterator[str]:
    """Yield a line for each other platform whose machines have GPUs of their own, for which marks do not hold."""
    for platform in SUPPORTED:
        if platform != DEFAULT and (gpus := gpu_table.hosted_gpus(platform)):
            explained = command("explain", gpu=gpus[0].lower())
            yield f"{joined(gpus)}: in machines for {platform.title}, where these marks do not hold: {explained}"


def write(value: Any, answer: Answer, *, as_json: bool) -> None:  # noqa: ANN401 (what msgspec encodes)
    """Write a command's answer to stdout: as JSON, or as text, on a terminal in its width and with colours."""
    if as_json:
        options.write(value, "", as_json=True)
        return
    console = streams.console(soft_wrap=True)
    shown = answer.worded(lambda text: retyped.whole(text, options.request_of_image))
    for line, style in shown.lines(console.width if sys.stdout.isatty() else 0):
        console.print(Text(line, style))


def _smoke(suite: SmokeReport, report: BuildReport) -> AnswerLine:
    where = f" in the image below it, {suite.image}" if report.is_from_below(suite) else ""
    return AnswerLine(suite.suite, f"{suite.status} on {suite.device} in {suite.seconds:.0f} s{where}")


def inspect(report: BuildReport, environment: Mapping[str, str], place: str) -> Answer:
    """An image: identity, where it is, layers with their largest owners, environment, packages."""
    sections = {
        "layers, largest first": [_layer(layer) for layer in sorted(report.layers, key=lambda layer: -layer.size)],
        "environment": [AnswerLine(name, value) for name, value in environment.items()],
        "packages": [AnswerLine(package.name, f"{package.version} ({package.channel})") for package in report.packages],
        "missing": [AnswerLine("", missing) for missing in report.missing],
        "smoke": [_smoke(suite, report) for suite in report.suites],
    }
    if report.drift:
        sections["drift"] = [AnswerLine("", base_lines.drift_line(report.drift))]
    if report.unfixed:
        sections["fixes"] = [AnswerLine("", base_lines.unfixed_line(report.unfixed))]
    if report.fallback:
        limits = tuple(f"it {limit}" for limit in report.fallback.limits)
        sections["fall-back"] = [AnswerLine("", report.fallback.meaning, limits)]
    compressed = "" if any(layer.media_type == spec.LAYER_TAR for layer in report.layers) else " compressed"
    opening = (
        f"{report.name}{f':{report.tag}' if report.tag else ''}@{report.digest}",
        f"{size(report.bytes)}{compressed} in {number_of(len(report.layers), 'layer')}, {place}",
    )
    return Answer(tuple(Section(tuple(entries), heading) for heading, entries in sections.items()), opening)


def _layer(layer: LayerRecord) -> AnswerLine:
    largest = sorted(layer.owners, key=lambda owner: -owner.bytes)
    owners = [f"{owner.name} {owner.version} {size(owner.bytes)}".replace("  ", " ") for owner in largest]
    details = (joined(owners, 5),) if owners else ()
    unpacked = f", {size(layer.unpacked_size)} unpacked" if layer.unpacked_size else ""  # of others' layouts: not known
    return AnswerLine(size(layer.size), f"{layer.title}{unpacked}", details)
