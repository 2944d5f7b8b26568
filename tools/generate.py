"""Writes what is generated: tables of README.md and docs/contracts.md, and the JSON schema of recipes.

`make generate` (`python -m tools.generate`) rewrites them; a unit test fails when one is stale.
"""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

from graphcrate import errors, recipes
from graphcrate.contracts import CHECKS
from graphcrate.model.recipe import Variant

ROOT = Path(__file__).resolve().parent.parent
#: codes that no error class stands for
OTHER_CODES = {0: "done", 1: "a fault of graphcrate itself, with a traceback", 130: "interrupted (Ctrl-C)"}


def files() -> Iterator[tuple[Path, str]]:
    """Each generated file, or file with generated parts, and its text."""
    readme = {"variants": variants(), "exit codes": exit_codes(), "settings": settings()}
    for name, tables in (("README.md", readme), ("docs/contracts.md", {"contracts": contracts()})):
        yield ROOT / name, filled((ROOT / name).read_text(encoding="utf-8"), tables)
    yield ROOT / "recipes" / "recipe.schema.json", json.dumps(recipes.schema(), indent=2) + "\n"


def filled(page: str, tables: dict[str, str]) -> str:
    """A page with fresh tables between their markers."""
    for name, content in tables.items():
        marked = re.compile(rf"(<!-- {name}, generated -->\n).*?(\n<!-- end of {name} -->)", re.DOTALL)
        assert marked.search(page), name
        page = marked.sub(lambda match: match[1] + content + match[2], page)  # noqa: B023  called at once
    return page


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def variants() -> str:
    """One row per CUDA version, for all stacks."""
    rows = []
    for path in sorted((ROOT / "recipes").glob("*.toml")):
        recipe = recipes.load(path)
        rows += [(f"`{recipe.name}`", *_variant(variant)) for variant in recipe.variants]
    return table(("STACK", "CUDA", "torch", "PyG", "Python", "base", "candidates, in order"), rows)


def _variant(variant: Variant) -> tuple[str, ...]:
    if variant.unavailable is not None:
        return (variant.cuda, "", "", variant.python, "", f"cannot be had: {variant.unavailable.why}")
    first = variant.candidates[0]
    torch = "what the folder has" if first.torch == "*" else first.torch
    base = variant.base.reference or f"Debian {variant.base.suite}"
    ways = "; ".join(f"{way.name} ({', '.join(way.channels)})" for way in variant.candidates)
    return (variant.cuda, torch, variant.torch_geometric or "", variant.python, base, ways)


def exit_codes() -> str:
    """One row per exit code."""
    kinds = [
        kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.GraphcrateError)
    ]
    meanings = {kind.exit_code: (inspect.getdoc(kind) or "").split("\n")[0].rstrip(".") for kind in kinds}
    meanings |= OTHER_CODES
    return table(("code", "what happened"), [(str(code), meanings[code]) for code in sorted(meanings)])


def settings() -> str:
    """What make passes on, from the Makefile's own comment."""
    line = re.search(r"^# Settings: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line is not None
    return f"`{line[1]}`"


def contracts() -> str:
    """One row per check."""
    rows = [
        (f"`{check.id}`", check.title, ", ".join(check.runtimes), cell(check.reason), cell(check.source))
        for check in CHECKS
    ]
    return table(("check", "what it wants", "runtimes", "reason", "source"), rows)


def cell(text: str) -> str:
    """Text for a table: a bar would end the cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
