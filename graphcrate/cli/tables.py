"""Print answers: text for people, JSON for programs. Decides nothing."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from graphcrate.build.matrix import Result
from graphcrate.cli import options
from graphcrate.compat import facts, planning
from graphcrate.compat.catalog import lock_path
from graphcrate.compat.explain import MARKS, Support
from graphcrate.host.context import Context
from graphcrate.model.answer import Answer, Entry, Section
from graphcrate.model.lock_proof import LockProof
from graphcrate.model.recipe import Recipe
from graphcrate.model.report import BuildReport, LayerRecord
from graphcrate.model.words import joined, size

_MARK_STYLES = {"native": "green", "jit": "yellow", "unknown": "dim", "rejected": "dim"}
_HEADS = ("stack", "CUDA", "torch", "PyG", "Python", "GPUs", "driver from", "lock")


def variants(ctx: Context, recipes: Sequence[Recipe]) -> Iterator[str]:
    """Yield a line for each variant, at most 80 wide."""
    rows: list[tuple[str, ...]] = [_HEADS]
    for recipe in recipes:
        for variant in recipe.variants:
            if variant.unavailable is not None:
                rows.append((recipe.name, variant.cuda, "not available: ./build.py image explains", *[""] * 5))
                continue
            first = variant.candidates[0]
            capabilities = [facts.compute_capability(model).replace(".", "") for model in facts.gpu_names(first)]
            is_locked = any(lock_path(ctx, recipe, variant, one).is_file() for one in variant.candidates)
            rows.append(
                (
                    recipe.name,
                    variant.cuda,
                    "of a folder" if first.torch == "*" else first.torch,
                    variant.torch_geometric or "-",
                    variant.python,
                    f"sm_{capabilities[0]} to sm_{capabilities[-1]}" if capabilities else "-",
                    facts.oldest_driver(variant.cuda) or "-",
                    "yes" if is_locked else "no",
                )
            )
    widths = [max(len(row[column]) for row in rows if row[-1]) for column in range(len(_HEADS))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def proofs(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line for each image of the matrix: what was proved of it, or why it was not."""
    rows: list[tuple[str, ...]] = [("image", "state", "digest", "bytes", "seconds", "suites", "GPUs by audit")]
    for one in results:
        name = f"{one.recipe} {one.cuda} {one.candidate}"
        if (proof := one.proof) is None:
            rows.append((name, one.state, one.error.partition("\n")[0], "", "", "", ""))
            continue
        suites = ",".join(suite.suite for suite in proof.suites)
        cells = (proof.digest[:19], size(proof.bytes), f"{proof.seconds:.0f}", suites, " ".join(gpus_of(proof)))
        rows.append((name, one.state, *cells))
    widths = [max(len(row[column]) for row in rows if row[-1]) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def gpus_of(proof: LockProof) -> list[str]:
    """Compute capabilities that an image runs on by its audit, as people call them: sm_70; with + those by PTX."""
    works = {name: "+" if how == "jit" else "" for name, how in proof.gpus.items() if how != "fails"}
    return [f"sm_{name.replace('.', '')}{mark}" for name, mark in works.items()]


def heat_map(found: Support) -> Text:
    """Draw which GPUs run which CUDA versions, with colours where the terminal has them."""
    names = [
        f"{', '.join(row.models[:3])}{' …' if row.models[3:] else ''} (sm_{row.capability.replace('.', '')})"
        for row in found.rows
    ]
    width = max(map(len, names))
    drawn = Text(f"{found.recipe:{width}}" + "".join(f"{cuda:>6}" for cuda in found.drivers) + "\n", "bold")
    drawn.append(f"{'driver from':{width}}" + "".join(f"{one.partition('.')[0]:>6}" for one in found.drivers.values()))
    for name, row in zip(names, found.rows, strict=True):
        drawn.append(f"\n{name:{width}}")
        for cuda in found.drivers:
            status = row.cells[cuda].status
            drawn.append(f"{MARKS[status][0]:>6}", _MARK_STYLES[status])
    return drawn


def write(value: Any, answer: Answer, *, as_json: bool) -> None:  # noqa: ANN401 (what msgspec encodes)
    """Write a command's answer to stdout: as JSON, or as text, on a terminal in its width and with colours."""
    if as_json:
        options.write(value, "", as_json=True)
        return
    console = Console(soft_wrap=True)
    for line, style in answer.lines(console.width if sys.stdout.isatty() else 0):
        console.print(Text(line, style))


def inspect(report: BuildReport, environment: Mapping[str, str]) -> Answer:
    """An image: identity, layers with their largest owners, environment, packages."""
    sections = {
        "layers, largest first": [_layer(layer) for layer in sorted(report.layers, key=lambda layer: -layer.size)],
        "environment": [Entry(name, value) for name, value in environment.items()],
        "packages": [Entry(one.name, f"{one.version} ({one.channel})") for one in report.packages],
        "missing": [Entry("", missing) for missing in report.missing],
        "smoke": [Entry(one.suite, f"{one.status} on {one.device} in {one.seconds:.0f} s") for one in report.suites],
    }
    if report.drift:
        sections["drift"] = [Entry("", planning.drift_line(report.drift))]
    if report.fallback:
        limits = tuple(f"it {limit}" for limit in report.fallback.limits)
        sections["fall-back"] = [Entry("", report.fallback.meaning, limits)]
    opening = (
        f"{report.name}:{report.tag}@{report.digest}",
        f"{size(report.bytes)} compressed in {len(report.layers)} layers, {report.layout}",
    )
    return Answer(tuple(Section(tuple(entries), heading) for heading, entries in sections.items()), opening)


def _layer(layer: LayerRecord) -> Entry:
    largest = sorted(layer.owners, key=lambda owner: -owner.bytes)
    owners = [f"{one.name} {one.version} {size(one.bytes)}".replace("  ", " ") for one in largest]
    details = (joined(owners, 5),) if owners else ()
    return Entry(size(layer.size), f"{layer.title}, {size(layer.unpacked_size)} unpacked", details)
