"""The files that projectfiles' tests have, each with a table of what has to become of every line in an image.

`KIND/TITLE.NAME` is read as NAME (`gnn.requirements.txt` as requirements.txt), a folder `TITLE` beside it has what it
refers to, and `tests/files/KIND/TITLE.NAME.expected` has rows of three columns with tabs between: line (`7`, `3-5`,
`-` of the file itself), end, what. A line with several requirements or commands has a row for each.
"""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT

FILES = ROOT / "packages/projectfiles/tests/test-data"
TABLES = ROOT / "tests" / "files"
#: what becomes of a line, and what the third column says of it
ENDS = {
    "taken": "the requirement, command or setting as it comes into the image or its recipe",
    "there": "what the stack has for it already",
    "passed": "words of the note that says it",
    "refused": "words of the message, which names the line",
    "form": "nothing: a heading, a bracket, a name of the file's own",
}
#: of the file, in rows whose line is `-`: the extras that are asked for with it, the CUDA of the stack
SETTINGS = ("asked", "cuda")


class Row(NamedTuple):
    """A row of a table: the end of these lines; no lines: of the file itself."""

    lines: range
    end: str
    what: str


class Case(NamedTuple):
    """A file with its table."""

    path: Path
    rows: tuple[Row, ...]
    settings: dict[str, str]

    @property
    def title(self):
        return self.path.name.partition(".")[0]

    @property
    def name(self):
        return self.path.name.partition(".")[2]

    def of(self, *ends):
        return [row for row in self.rows if row.end in ends]

    def copy(self, folder, without=()):
        """Put the file with what it refers to into a folder, these lines empty. Return its path there."""
        beside = self.path.with_name(self.title)
        if beside.is_dir():
            shutil.copytree(beside, folder, dirs_exist_ok=True)
        lines = self.path.read_text(encoding="utf-8").split("\n")
        kept = ["" if number in without else line for number, line in enumerate(lines, 1)]
        (folder / self.name).write_text("\n".join(kept), encoding="utf-8")
        return folder / self.name


def read(path):
    """Read a file's table. Raises ValueError for a row that is none."""
    rows, settings = [], {}
    for text in (TABLES / path.parent.name / f"{path.name}.expected").read_text(encoding="utf-8").splitlines():
        if not text or text.startswith("#"):
            continue
        line, end, what = text.split("\t") if text.count("\t") == 2 else (*text.split("\t"), "")
        if end in SETTINGS:
            settings[end] = what
            continue
        if end not in ENDS or bool(what) is (end == "form"):
            raise ValueError(f"{path.name}.expected: {text!r}")
        first, _, last = line.partition("-")
        rows.append(Row(range(int(first), int(last or first) + 1) if first else range(0), end, what))
    return Case(path, tuple(rows), settings)


def cases(*kinds):
    """Every file of these kinds, as parameters of a test."""
    paths = (path for kind in kinds for path in sorted((FILES / kind).iterdir()))
    files = [path for path in paths if path.is_file() and not path.name.endswith(".read.json")]
    return [pytest.param(read(path), id=f"{path.parent.name}/{path.name}") for path in files]


def unlisted(case):
    """Return the numbers of lines with more than a comment that no row is about."""
    listed = {number for row in case.rows for number in row.lines}
    lines = case.path.read_text(encoding="utf-8").split("\n")
    filled = {number for number, line in enumerate(lines, 1) if line.strip() and not re.match(r"\s*(#|;|//)", line)}
    return sorted(filled - listed)
