"""Writes the tables of README.md from their sources: recipes/*.toml and graphcrate/errors.py.

`python -m tools.readme_tables` rewrites them; a unit test fails when they are stale.
"""

import inspect
import re
from pathlib import Path

from graphcrate import errors, recipes
from graphcrate.model.recipe import Variant

ROOT = Path(__file__).resolve().parent.parent
#: codes that no error class stands for
OTHER_CODES = {0: "done", 1: "a fault of graphcrate itself, with a traceback", 130: "interrupted (Ctrl-C)"}


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


def rendered(text: str) -> str:
    """README.md's text with fresh tables between its markers."""
    for name, content in (("variants", variants()), ("exit codes", exit_codes()), ("settings", settings())):
        begin, end = f"<!-- {name}, from tools/readme_tables.py -->", f"<!-- end of {name} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{content}\n{end}{tail}"
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(rendered(readme.read_text(encoding="utf-8")), encoding="utf-8")
