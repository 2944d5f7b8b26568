"""What people see of values: tables for stderr and for `list` and `inspect`. Takes values, prints, decides nothing."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphcrate.checks.audit import wording as audit_wording
from graphcrate.checks.contracts import wording
from graphcrate.compat import explain, facts
from graphcrate.model.audit import SEVERITIES, Audit
from graphcrate.model.contract import Inspection, Status
from graphcrate.model.recipe import BaseSpec, Recipe
from graphcrate.model.report import BuildReport, LayerRecord
from graphcrate.model.target import Explanation
from graphcrate.model.target import Status as Verdict
from graphcrate.model.words import size

_ORDER: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")
_STYLES: dict[Status, str] = {"fail": "bold red", "warn": "yellow", "unknown": "dim", "pass": "green"}

_SEVERITIES = dict(zip(SEVERITIES, ("bold red", "yellow", "dim"), strict=True))
_VERDICTS: dict[Verdict, str] = {"rejected": "red", "unknown": "dim", "jit": "yellow", "native": "green"}


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
                base, why = base_line(variant.base), f"cannot be had: {variant.unavailable.why}"
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


def findings(inspection: Inspection, console: Console | None = None) -> None:
    """A table of what contracts found, the worst first, and what was not known of the host."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head, ratio in (("status", None), ("check", 3), ("seen", 4), ("why", 5), ("fix", 4)):
        table.add_column(head, ratio=ratio, overflow="fold")
    for finding in sorted(inspection.findings, key=lambda finding: _ORDER.index(finding.status)):
        style = _STYLES[finding.status]
        title = f"{finding.title} ({', '.join(finding.runtimes)})"
        cells = (Text(text) for text in (title, finding.seen, finding.why, finding.fix))
        table.add_row(Text(finding.status, style=style), *cells)
    told = console or Console()
    told.print(table)
    told.print(Text(wording.summary(inspection.findings)))


def audit(found: Audit, console: Console | None = None) -> None:
    """A table of what an audit found, the worst first, and for which GPUs each package has code."""
    told = console or Console()
    if found.findings:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for head, ratio in (("", None), ("package", 2), ("file", 3), ("what", 5), ("breaks", 3), ("fix", 3)):
            table.add_column(head, ratio=ratio, overflow="fold")
        for finding in found.findings:
            cells = (finding.package, finding.file, finding.what, finding.breaks, finding.fix)
            table.add_row(Text(finding.severity, style=_SEVERITIES[finding.severity]), *map(Text, cells))
        told.print(table)
    if found.code:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for head in ("package", "version", "GPU code"):
            table.add_column(head, overflow="fold")
        for package in found.code:
            table.add_row(Text(package.package), Text(package.version), Text(audit_wording.code(package)))
        told.print(table)
    told.print(Text(audit_wording.summary(found)))


def explanation(found: Explanation, console: Console | None = None) -> None:
    """A table of every candidate on a machine, the newest first."""
    told = console or Console()
    for line in explain.opening(found):
        told.print(Text(line))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head, ratio in (("candidate", 3), ("there it", 4), ("fix, source, conditions", 6)):
        table.add_column(head, ratio=ratio, overflow="fold")
    for row in found.rows:
        style = "bold green" if row.chosen else _VERDICTS[row.verdict.status]
        cells = (Text(explain.label(row)), Text(explain.headline(row, found.target), style=style))
        table.add_row(*cells, Text("\n".join(explain.details(row))))
    told.print(table)


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
