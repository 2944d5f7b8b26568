"""The list of faults that tests must notice: it fits today's code, and trying them gives true results."""

from pathlib import Path

import pytest

from tests import ROOT
from tools import mutations
from tools.mutations import Mutation

ROWS = mutations.read(ROOT / mutations.ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_mutation_row_matches_its_file(row):
    assert mutations.fault(row, ROOT) == ""
    text = (ROOT / row.file).read_text(encoding="utf-8")
    compile(mutations.mutated(text, row), row.file, "exec")


def test_mutation_ids_are_unique_and_files_are_of_graphcrate_or_packages():
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert {Path(row.file).parts[0] for row in ROWS} == {"graphcrate", "packages"}


@pytest.fixture
def checkout(tmp_path):
    """A program of one line, and its test."""
    (tmp_path / "code.py").write_text("print(1)\nx = 2\n")
    (tmp_path / "test_code.py").write_text("def test_it():\n    pass\n")
    return tmp_path


def row(**changes):
    values = {"id": "X1", "what": "nothing is right", "file": "code.py", "old": "x = 2", "new": "x = 3"}
    return Mutation(**{**values, "tests": ("test_code.py::test_it",), **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"tests": ("test_code.py::test_it[first]",)}, ""),
        ({"old": "x = 4"}, "is 0 times in code.py"),
        ({"old": "\n"}, "is 2 times in code.py"),
        ({"file": "gone.py"}, "is 0 times in gone.py"),
        ({"new": "x = 2"}, "its new text is the old one"),
        ({"tests": ("test_code.py::test_it", "test_code.py::test_i")}, "no test test_code.py::test_i"),
        ({"tests": ("test_gone.py::test_it",)}, "no test test_gone.py::test_it"),
    ],
)
def test_invalid_mutation_row_is_a_fault(checkout, changes, words):
    found = mutations.fault(row(**changes), checkout)
    assert (words in found, bool(found)) == (True, bool(words))


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ((1, 1), ""),
        ((0, 1), "X1 SURVIVES: a passes although nothing is right"),
        ((1, 0), "X1 SURVIVES: b passes"),
        ((2, 1), "could not run a (exit code 2)"),
        ((1, 5), "could not run b (exit code 5)"),
    ],
)
def test_mutation_is_caught_if_all_its_tests_fail_and_the_file_is_restored(checkout, codes, words):
    before, seen = (checkout / "code.py").read_text(), []

    def run(root, tests):
        seen.append((root / "code.py").read_text())
        return codes[len(seen) - 1], "the last words"

    found = mutations.judge(row(tests=("a", "b")), checkout, run)
    assert (words in found, bool(found)) == (True, bool(words))
    assert set(seen) == {"print(1)\nx = 3\n"}
    assert (checkout / "code.py").read_text() == before


def test_interrupted_mutation_restores_the_file(checkout):
    def run(root, tests):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mutations.judge(row(), checkout, run)
    assert "x = 2" in (checkout / "code.py").read_text()
