"""Files as projects have them: each line ends as the table beside it says, and nothing else is in the image."""

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.requirements import own_packages, own_typed
from graphcrate.compat.requirements.expected import compared, refuse_others
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.lock import decode_lock
from graphcrate.resolve.sources import further
from tests import ROOT, corpus
from tools import requirement_files

LOCKS = {
    lock.cuda: lock
    for path in (ROOT / "images/pyg").glob("*/*.lock.json")
    for lock in [decode_lock(path.read_bytes())]
    if lock.recipe == "pyg"
}


def outcome(path, case):
    """Return wishes of the index, what is compared, and notes, for an image of PyG. Raises GraphcrateError."""
    lock, asked = LOCKS[case.settings.get("cuda", "11.8")], case.settings.get("asked", "")
    found = own_typed.given([], [path.with_name(path.name + asked)])
    refuse_others(found.expected, lock, " ".join)
    wanted = {plain(package, path.parent) for package in (*found.packages, *found.constraints)}
    stacks = {plain(f"{one.name}{one.specifier}", path.parent) for one in found.expected}
    return wanted, stacks, [*found.notes, *compared(found.expected, lock), *further.lines(found.channels, ())]


def plain(package, folder):
    """A requirement without the spaces that one may have or not; a path from the folder of the file."""
    package = package.replace(f"{folder}/", "./")
    return package if own_packages.is_local(package) or package.startswith("./") else str(Requirement(package))


def is_there(what, lock):
    """Return whether a stack has a package, or Python and CUDA, in a version that is asked for."""
    requirement = Requirement(what)
    have = {"python": lock.python, "cuda": lock.cuda} | {one.name: one.version for one in lock.packages}
    version = have.get(str(canonicalize_name(requirement.name)), "")
    return bool(version) and requirement.specifier.contains(version.partition("+")[0], prereleases=True)


@pytest.mark.parametrize("case", corpus.cases("requirements", "environments", "pyproject", "locks"))
def test_lines_of_a_file_end_as_the_table_beside_it_says(case, tmp_path):
    lock, refused = LOCKS[case.settings.get("cuda", "11.8")], case.of("refused")
    if refused:
        with pytest.raises(GraphcrateError) as caught:
            outcome(case.copy(tmp_path), case)
        said = f"{caught.value}\n{caught.value.cause}\n{caught.value.next_step}"
        for row in refused:
            assert row.what in said
            assert not row.lines or f":{row.lines[0]}" in said, said
        if not case.of("taken", "there", "passed"):
            return
    wanted, stacks, notes = outcome(case.copy(tmp_path, {line for row in refused for line in row.lines}), case)
    there = {row.what for row in case.of("there")}
    assert [what for what in there if not is_there(what, lock)] == []
    assert wanted - there == {row.what for row in case.of("taken")}
    assert there <= wanted | stacks, notes
    assert [row.what for row in case.of("passed") if not any(row.what in note for note in notes)] == [], notes


@pytest.mark.parametrize("case", corpus.cases(*(path.name for path in sorted(corpus.FILES.iterdir()) if path.is_dir())))
def test_table_of_a_file_says_something_of_each_line(case):
    assert corpus.unlisted(case) == []
    count = len(case.path.read_text(encoding="utf-8").splitlines())
    assert [row for row in case.rows if row.lines and row.lines[-1] > count] == []


def test_each_table_of_the_corpus_has_its_file():
    tables = {f"{path.relative_to(corpus.TABLES).with_suffix('')}" for path in corpus.TABLES.rglob("*.expected")}
    paths = (case.values[0].path for kind in corpus.FILES.iterdir() for case in corpus.cases(kind.name))
    assert tables == {str(path.relative_to(corpus.FILES)) for path in paths}


def test_table_of_the_manual_has_the_files_that_the_corpus_proves_to_be_taken():
    files = [one.values[0] for one in corpus.cases("requirements", "environments", "pyproject", "locks")]
    proved = {case.name for case in files if case.of("taken")}
    assert {name for names, _ in requirement_files.ROWS for name in names} == proved
