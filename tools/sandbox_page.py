"""The tables of docs/sandbox.md: steps and walls from the code, what attackers got from tests/engines/escapes.json."""

import json
from collections.abc import Mapping
from pathlib import Path

from graphcrate.host.steps import Step
from graphcrate.host.walls import WALLS

RESULTS = Path(__file__).resolve().parent.parent / "tests" / "engines" / "escapes.json"
PLACES = {"sdist": "source archive", "script": "maintainer script", "smoke": "smoke test"}
PLACES |= {"run alone": "`run --no-network`", "run": "`run`"}

Row = tuple[str, ...]


def steps() -> tuple[Row, list[Row]]:
    """One row for each step, and what it gets."""
    yes = {True: "yes", False: ""}
    rows = []
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
    head = ("attempt", "what for", *PLACES.values())
    rows = []
    for name, wish in known["wishes"].items():
        cells = [_cell({user: found[name] for user, found in known["results"][place].items()}) for place in PLACES]
        rows.append((name, wish, *cells))
    return head, rows


def _cell(answers: Mapping[str, str]) -> str:
    words = dict.fromkeys(_word(answers[user]) for user in ("root", "user") if user in answers)
    return " / ".join(words)


def _word(answer: str) -> str:
    return "**given**" if answer.startswith("OUT") else answer
