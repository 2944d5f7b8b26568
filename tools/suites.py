"""Renew the dates of graphcrate/compat/data/suites.toml from the list that Debian's package distro-info-data has.

    apt-get download distro-info-data && dpkg-deb --extract distro-info-data_*.deb .     (of sid: the newest)
    python -m tools.suites usr/share/distro-info/debian.csv VERSION

VERSION is the package's. What the list does not have (`archived`, `known`, what a base has) stays as it is.
"""

import argparse
import csv
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from graphcrate.model.errors import GraphcrateError, UsageError
from tools.generate import ROOT

SUITES = ROOT / "graphcrate" / "compat" / "data" / "suites.toml"
#: of a suite → the list's column; dates are the last day of what they end
COLUMNS = {"release": "version", "released": "release", "security_until": "eol", "lts_until": "eol-lts"}
_FIELD = re.compile(rf"(?:{'|'.join(COLUMNS)}) = .*\n")


def rows_of(text: str) -> dict[str, dict[str, str]]:
    """The list's rows by suite. Raises UsageError for another list."""
    table = csv.DictReader(text.splitlines())
    missing = {"series", *COLUMNS.values()} - set(table.fieldnames or ())
    if missing:
        raise UsageError(
            f"the list has no column {', '.join(sorted(missing))}",
            next_step="python -m tools.suites usr/share/distro-info/debian.csv VERSION    (ubuntu.csv is another)",
        )
    return {row["series"]: row for row in table}


def renewed(text: str, rows: Mapping[str, Mapping[str, str]], version: str) -> str:
    """The text of suites.toml with the list's dates. Raises UsageError where a suite is not in the list."""
    source = f'source = "distro-info-data {version} of Debian sid, debian.csv"'
    parts = re.split(r"^(\[suites\.\w+\]\n)", re.sub(r"^source = .*$", source, text, flags=re.MULTILINE), flags=re.M)
    for at in range(1, len(parts), 2):
        name = parts[at].strip("[]\n").partition(".")[2]
        if re.match(r"distribution = ", parts[at + 1]):  # of another one, which the list does not have
            continue
        if name not in rows:
            raise UsageError(f"the list has no suite {name}", next_step=f"correct its name in {SUITES.name}")
        own, bracket, rest = parts[at + 1].partition("\n[")  # what follows is another table's
        parts[at + 1] = "".join(_fields(rows[name])) + _FIELD.sub("", own) + bracket + rest
    return "".join(parts)


def _fields(row: Mapping[str, str]) -> Iterator[str]:
    for field, column in COLUMNS.items():
        if value := row.get(column):
            yield f'{field} = "{value}"\n' if field == "release" else f"{field} = {value}\n"


def unlisted(text: str, rows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Suites that were released after the first one of suites.toml, and that it lacks."""
    known = re.findall(r"^\[suites\.(\w+)\]$", text, re.MULTILINE)
    first = rows[known[0]]["release"]
    return [name for name, row in rows.items() if (row["release"] or "") > first and name not in known]


def main() -> None:
    """Rewrite suites.toml."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path, help="debian.csv")
    parser.add_argument("version", help="of the package that has it")
    asked = parser.parse_args()
    try:
        text, rows = SUITES.read_text(encoding="utf-8"), rows_of(asked.list.read_text(encoding="utf-8"))
        SUITES.write_text(renewed(text, rows, asked.version), encoding="utf-8")
    except GraphcrateError as error:
        sys.exit(str(error))
    for name in unlisted(text, rows):
        print(f"{name} was released: add [suites.{name}] to {SUITES.relative_to(ROOT)}, and run this again")


if __name__ == "__main__":
    main()
