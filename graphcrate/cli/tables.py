"""Print answers: text for people, JSON for programs. Decides nothing."""

import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphcrate.compat import facts
from graphcrate.model.answer import Answer
from graphcrate.model.lock import encode
from graphcrate.model.recipe import BaseSpec, Recipe
from graphcrate.model.report import BuildReport, LayerRecord
from graphcrate.model.words import size


def base_line(base: BaseSpec) -> str:
    """`Debian bookworm` or the registry reference."""
    return base.reference if base.provider == "registry" else f"Debian {base.suite}"


def variants_table(recipes: Sequence[Recipe], locked: set[tuple[str, str, str]]) -> Table:
    """Every recipe's variants. `locked`: (recipe, CUDA, candidate) that have a committed lock."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for column in ("recipe", "CUDA", "torch", "PyG", "Python", "base", "candidate", "locked", "GPUs"):
        table.add_column(column, overflow="fold")
    for recipe in recipes:
        for variant in recipe.variants:
            if variant.unavailable is not None:
                base, why = base_line(variant.base), f"not available: {variant.unavailable.why}"
                table.add_row(recipe.name, variant.cuda, "-", "-", variant.python, base, why, "no", "-")
            for candidate in variant.candidates:
                yes = (recipe.name, variant.cuda, candidate.name) in locked
                table.add_row(
                    recipe.name,
                    variant.cuda,
                    "newest in the folder" if candidate.torch == "*" else candidate.torch,
                    variant.torch_geometric or "-",
                    variant.python,
                    base_line(variant.base),
                    candidate.name,
                    "yes" if yes else "no",
                    ", ".join(facts.gpu_names(candidate)) or "-",
                )
    return table


def layers_table(layers: Sequence[LayerRecord]) -> Table:
    """Layers by size with their largest owners."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, title="layers, largest first", title_justify="left")
    table.add_column("compressed", justify="right")
    table.add_column("unpacked", justify="right")
    table.add_column("layer")
    table.add_column("owners", overflow="fold")
    for layer in sorted(layers, key=lambda layer: -layer.size):
        largest = sorted(layer.owners, key=lambda owner: -owner.bytes)
        owners = ", ".join(
            f"{owner.name} {owner.version} {size(owner.bytes)}".replace("  ", " ") for owner in largest[:5]
        )
        more = f" and {len(largest) - 5} more" if len(largest) > 5 else ""
        table.add_row(size(layer.size), size(layer.unpacked_size), layer.title, owners + more)
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
