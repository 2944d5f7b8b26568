"""An answer as tables and as lines, from the same rows."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from graphcrate.cli.tables import show
from graphcrate.model.table import Answer, Column, Row, Table

COLUMNS = (Column("status"), Column("id", only="lines"), Column("title", 3, "terminal"), Column("why", 4))
ROWS = (Row(("fail", "glibc", "The [glibc]", "too old"), "bold red"), Row(("pass", "shell", "A shell", "")))
ANSWER = Answer((Table(COLUMNS, ROWS),), opening=("asked",), summary="1 fail", last="done\t1 fail")


def test_a_terminal_has_heads_and_titles_and_scripts_have_ids():
    console = Console(file=io.StringIO(), width=80)
    show(ANSWER, console)
    shown = console.file.getvalue()
    assert [word in shown for word in ("asked", "status", "The [glibc]", "too old", "1 fail")] == [True] * 5
    assert [word in shown for word in ("shell ", "done")] == [True, False]
    assert list(ANSWER.lines()) == ["asked", "", "fail\tglibc\ttoo old", "pass\tshell", "done\t1 fail"]


def test_aligned_lines_have_the_last_cell_below():
    rows = (Row(("CUDA 11.8", "chosen", "fix: a\nsource: b")), Row(("cpu", "runs too", "")))
    answer = Answer((Table((Column("a"), Column("b"), Column("c")), rows),), aligned=True)
    assert list(answer.lines()) == [
        "CUDA 11.8  chosen",
        "           fix: a",
        "           source: b",
        "cpu        runs too",
    ]


@given(st.lists(st.tuples(st.text(), st.text(), st.text(), st.text(min_size=1)), max_size=5))
def test_whatever_an_image_is_named_each_finding_is_one_line_of_as_many_fields(cells):
    lines = list(Answer((Table(COLUMNS, tuple(map(Row, cells))),)).lines())
    assert [line.count("\t") for line in lines] == [2] * len(cells)
    assert all(character.isprintable() or character == "\t" for line in lines for character in line)
