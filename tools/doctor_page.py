"""Writes the table of docs/doctor.md from the errors that doctor/ knows.

`python -m tools.doctor_page` rewrites it; a unit test fails when it is stale.
"""

from doctor.explain import PATTERNS
from tools.generate import ROOT, table

PAGE = ROOT / "docs" / "doctor.md"
BEGIN, END = "<!-- patterns, from tools/doctor_page.py -->", "<!-- end of patterns -->"


def patterns() -> str:
    """How many there are, and one row for each."""
    rows = [(f"`{each.id}`", _cell(each.cause), _cell(each.source)) for each in PATTERNS]
    return f"It knows {len(PATTERNS)} errors:\n\n{table(('error', 'cause', 'where it was met'), rows)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("{", "*").replace("}", "*")


def rendered(text: str) -> str:
    """The page's text with a fresh table between its markers."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{patterns()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
