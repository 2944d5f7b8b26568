"""Print answers: text for people, JSON for programs. Decides nothing."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphcrate.compat import facts
from graphcrate.compat.support import MARKS, Support
from graphcrate.model.answer import Answer
from graphcrate.model.lock import encode
from graphcrate.model.recipe import Recipe
from graphcrate.model.report import BuildReport, LayerRecord
from graphcrate.model.words import size

_MARK_STYLES = {"native": "green", "jit": "yellow", "unknown": "dim", "rejected": "dim"}
_HEADS = ("stack", "CUDA", "torch", "PyG", "Python", "GPUs", "driver from", "lock")


def variants(recipes: Sequence[Recipe], locked: set[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a line for each variant, at most 80 wide. `locked`: (recipe, CUDA, candidate) with a committed lock."""
    rows: list[tuple[str, ...]] = [_HEADS]
    for recipe in recipes:
        for variant in recipe.variants:
            if variant.unavailable is not None:
                rows.append((recipe.name, variant.cuda, "not available: ./build.py image explains", *[""] * 5))
                continue
            first = variant.candidates[0]
            capabilities = [facts.compute_capability(model).replace(".", "") for model in facts.gpu_names(first)]
            rows.append(
                (
                    recipe.name,
                    variant.cuda,
                    "of a folder" if first.torch == "*" else first.torch,
                    variant.torch_geometric or "-",
                    variant.python,
                    f"sm_{capabilities[0]} to sm_{capabilities[-1]}" if capabilities else "-",
                    facts.oldest_driver(variant.cuda) or "-",
                    "yes" if any(cuda == variant.cuda for name, cuda, _ in locked if name == recipe.name) else "no",
                )
            )
    widths = [max(len(row[column]) for row in rows if row[-1]) for column in range(len(_HEADS))]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


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


def layers_table(layers: Sequence[LayerRecord]) -> Table:
    """Layers by size with their largest owners."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, title="layers, largest first", title_justify="left")
    table.add_column("", width=20)
    table.add_column("compressed", justify="right")
    table.add_column("unpacked", justify="right")
    table.add_column("layer")
    table.add_column("owners", overflow="fold")
    largest_layer = max((layer.size for layer in layers), default=1) or 1
    for layer in sorted(layers, key=lambda layer: -layer.size):
        largest = sorted(layer.owners, key=lambda owner: -owner.bytes)
        owners = ", ".join(
            f"{owner.name} {owner.version} {size(owner.bytes)}".replace("  ", " ") for owner in largest[:5]
        )
        more = f" and {len(largest) - 5} more" if len(largest) > 5 else ""
        bar = "█" * round(20 * layer.size / largest_layer) or "▏"
        table.add_row(bar, size(layer.size), size(layer.unpacked_size), layer.title, owners + more)
    return table


def write(value: Any, answer: Answer, *, as_json: bool) -> None:  # noqa: ANN401 (what msgspec encodes)
    """Write a command's answer to stdout: as JSON, or as text, on a terminal in its width and with colours."""
    if as_json:
        sys.stdout.write(encode(value).decode())
        return
    console = Console(soft_wrap=True)
    for line, style in answer.lines(console.width if sys.stdout.isatty() else 0):
        console.print(Text(line, style))


def inspect(console: Console, report: BuildReport, environment: Sequence[str]) -> None:
    """Print an image: identity, layers, environment, packages."""
    console.print(f"{report.name}:{report.tag}@{report.digest}", soft_wrap=True, highlight=False)
    console.print(f"{size(report.bytes)} compressed in {len(report.layers)} layers, {report.layout}", soft_wrap=True)
    console.print()
    console.print(layers_table(report.layers))
    console.print("\nenvironment")
    for line in environment:
        console.print(f"  {line}", soft_wrap=True, highlight=False, markup=False)
    if report.packages:
        console.print("\npackages")
        for package in report.packages:
            console.print(f"  {package.name} {package.version} ({package.channel})", highlight=False)
    if report.fallback:
        console.print(f"\nfall-back: {report.fallback.meaning}", highlight=False, markup=False, soft_wrap=True)
        for limit in report.fallback.limits:
            console.print(f"  it {limit}", highlight=False, markup=False, soft_wrap=True)
    for missing in report.missing:
        console.print(f"  missing: {missing}", highlight=False, markup=False, soft_wrap=True)
    for suite in report.suites:
        console.print(
            f"\nsmoke {suite.suite}: {suite.status} on {suite.device} in {suite.seconds:.0f} s", highlight=False
        )
