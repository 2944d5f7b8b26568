"""Tables on the sandbox: steps and walls from the code, what attackers got from tests/engines/escapes.json."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcrate.host.sandbox.steps import Step
from nsbox.walls import WALLS

RESULTS = Path(__file__).resolve().parent.parent / "tests" / "engines" / "escapes.json"
#: column → where it was tried
PLACES = {
    "source archive": ("sdist", "setup.py", "CMakeLists.txt", "meson.build"),
    "maintainer script": ("script",),
    "smoke test": ("smoke",),
    "`run --no-network`": ("run alone",),
    "`run`": ("run",),
}

Row = tuple[str, ...]


def steps() -> tuple[Row, list[Row]]:
    """One row for each step, and what it gets."""
    yes = {True: "yes", False: ""}
    rows: list[Row] = []
    for step in Step:
        needs = step.value
        capabilities = ", ".join(f"`{name}`" for name in needs.capabilities) or "none"
        root = "its own tree" if needs.changes_root else "no"
        rows.append((needs.who, capabilities, yes[needs.internet], yes[needs.tracing], root))
    return ("step", "capabilities", "TCP and UDP sockets", "may trace its own processes", "writes the image"), rows


def walls() -> tuple[Row, list[Row]]:
    """One row for each wall that a kernel may lack."""
    return ("wall", "since Linux", "keeps out"), [(wall.name, wall.since, wall.keeps) for wall in WALLS]


def escapes() -> tuple[Row, list[Row]]:
    """One row for each attempt."""
    known = json.loads(RESULTS.read_text(encoding="utf-8"))
    results: Mapping[str, Mapping[str, Mapping[str, str]]] = known["results"]
    rows = []
    for name, wish in known["wishes"].items():
        cells = [_cell([results[place] for place in places], name) for places in PLACES.values()]
        rows.append((name, wish, *cells))
    return ("attempt", "what for", *PLACES), rows


def _cell(tried: Sequence[Mapping[str, Mapping[str, str]]], name: str) -> str:
    """Root's answer, then the plain user's, then others of the same column."""
    words = [_word(users[user][name]) for users in tried for user in ("root", "user") if user in users]
    return " / ".join(dict.fromkeys(words))


def _word(answer: str) -> str:
    return "**given**" if answer.startswith("OUT") else answer
