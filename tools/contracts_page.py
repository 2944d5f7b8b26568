"""Writes the table of docs/contracts.md from the checks in graphcrate/contracts.

`python -m tools.contracts_page` rewrites it; a unit test fails when it is stale.
"""

from graphcrate.contracts import CHECKS
from tools.readme_tables import ROOT, table

PAGE = ROOT / "docs" / "contracts.md"
BEGIN, END = "<!-- contracts, from tools/contracts_page.py -->", "<!-- end of contracts -->"


def checks() -> str:
    """One row per check."""
    rows = [
        (f"`{check.id}`", check.title, ", ".join(check.runtimes), _cell(check.reason), _cell(check.source))
        for check in CHECKS
    ]
    return table(("check", "what it wants", "runtimes", "reason", "source"), rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def rendered(text: str) -> str:
    """The page's text with a fresh table between its markers."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{checks()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
