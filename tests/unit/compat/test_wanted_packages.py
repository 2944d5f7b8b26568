"""The list of packages to try, its use of messages and results, and the tables of docs/packages.md."""

import pytest

from graphcrate.compat.variants import recipes
from graphcrate.model.lock import decode_lock
from tests import ROOT
from tools import wanted_packages as trying
from tools.typed import Message, Typed, advised
from tools.wanted_packages import Listed, Package, Project, Result

LISTED = trying.read_list()
RDKIT = Package(name="rdkit", use="import rdkit")


def test_wanted_packages_have_tries_and_all_others_a_reason():
    first, names = trying.wanted(LISTED), [one.name for one in LISTED.package]
    assert len(first) == trying.WANTED
    assert [name for name in first if name not in names] == []
    assert len(set(names)) == len(names)
    assert {one.name for one in LISTED.package if not one.why} == set(first)
    known = {variant.cuda for variant in recipes.load(ROOT / "recipes" / "pyg.toml").variants}
    assert {typed.cuda for one in LISTED.package for typed in one.tries} <= known
    for one in LISTED.package:
        compile(one.use, one.name, "exec")


def test_packages_listed_as_there_are_in_the_lock():
    lock = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
    assert set(LISTED.there.split()) <= {package.name for package in lock.packages}


def test_surveyed_projects_are_unique_and_have_a_commit():
    assert len({one.repository for one in LISTED.project}) == len(LISTED.project)
    assert [one.repository for one in LISTED.project if len(one.commit) != 40] == []
    assert [one.repository for one in LISTED.project if len(one.names.split()) != len(set(one.names.split()))] == []


def test_ledger_has_results_of_listed_packages_only():
    assert set(trying.read_ledger()) <= {one.name for one in LISTED.package}


def test_counts_are_sorted_by_number_then_pyg_then_name():
    def project(names):
        return Project(repository="a/b", file="setup.py", commit="0" * 40, names=names)

    listed = Listed(there="numpy", project=(project("z numpy"), project("a b"), project("b numpy")), package=())
    assert trying.counts(listed) == {"b": 2, "z": 1, "a": 1}


ERROR = """plan for pyg:1
audit: 3 fail
graphcrate: pyg:1 cannot work: rdkit needs libX11.so.6
cause: 3 of the audit's findings are failures.
next:  {step}
"""


@pytest.mark.parametrize(
    ("step", "more"),
    [
        ('APT="libx11-6 libxext6"    has them', {"apt": "libx11-6 libxext6"}),
        ("make image CUDA=11.8 WITH=rdkit 'APT=libx11-6 libxext6'", {"apt": "libx11-6 libxext6"}),
        ("./build.py image pyg --cuda 12.6 --with rdkit --apt 'a b' --output x    (…)", {"cuda": "12.6", "apt": "a b"}),
        ("make image CUDA=12.6 WITH=rdkit    takes numpy 2", {"cuda": "12.6"}),
        ("WITH='rdkit torchdata<0.10'", {"with_": "rdkit torchdata<0.10"}),
        ("WITH=rdkit<2026", {"with_": "rdkit<2026"}),
        ('APT="…"', {}),
        ("make image CUDA=11.8 WITH=…", {}),
        ("./build.py check pyg:1", {}),
    ],
)
def test_next_step_of_an_error_message_becomes_the_next_try(step, more):
    said = trying.message(Typed(with_="rdkit"), 15, ERROR.format(step=step))
    assert said.what == "pyg:1 cannot work: rdkit needs libX11.so.6; 3 of the audit's findings are failures"
    assert said.next_step == " ".join(step.replace(" --output x", "").split())
    assert advised(said, "pyg") == Typed(**{"with_": "rdkit", **more})


def test_output_without_an_error_line_gives_its_last_line_as_message():
    assert trying.message(Typed(), 1, "Traceback\n  x\nKeyError: 1\n").what == "KeyError: 1"


def says(step):
    return lambda typed: Message(typed=typed, exit_code=4, what="no", next_step=step)


def passes(typed):
    return Result(package="rdkit", typed=typed, digest="sha256:1")


def attempts(*outcomes):
    """An attempt with these outcomes in turn, and what was typed."""
    typed, left = [], list(outcomes)

    def attempt(one):
        typed.append(one)
        return left.pop(0)(one)

    return attempt, typed


def test_failed_try_is_repeated_as_advised_and_its_message_kept():
    attempt, typed = attempts(says("APT=libx11-6"), passes)
    result = trying.tried(RDKIT, attempt)
    assert result.passed
    assert typed == [Typed(with_="rdkit"), Typed(with_="rdkit", apt="libx11-6")]
    assert [one.typed for one in result.messages] == typed[:1]


def test_failed_try_without_advice_goes_on_with_the_next_cuda():
    package = Package(name="rdkit", use="", tries=(Typed(), Typed(cuda="12.6")))
    attempt, typed = attempts(says(""), passes)
    assert trying.tried(package, attempt).typed.cuda == "12.6"
    assert len(typed) == 2


def test_tries_end_after_two_advices_that_do_not_help(monkeypatch):
    monkeypatch.setattr(trying.settings, "now_utc", lambda: "2026-11-26T00:00:00Z")
    attempt, typed = attempts(says("APT=a"), says("APT=b"), says("APT=c"))
    result = trying.tried(RDKIT, attempt)
    assert not result.passed
    assert [one.apt for one in typed] == ["", "a", "a b"]
    assert len(result.messages) == 3


def test_version_is_that_of_the_package_or_of_its_other_distribution():
    versions = {"openbabel-wheel": "3.1", "rdkit": "2026.9.1"}
    assert trying.version_of(RDKIT, Typed(with_="rdkit>2020"), versions) == "2026.9.1"
    babel = Package(name="openbabel", use="")
    assert trying.version_of(babel, Typed(with_="openbabel-wheel<4"), versions) == "3.1"


def test_table_row_of_a_package_has_its_command_or_its_error(monkeypatch):
    good = Result(
        package="rdkit", typed=Typed(with_="rdkit", apt="libx11-6"), digest="sha256:1", version="1.0", added=31_800_000
    )
    bad = Result(package="x", typed=Typed(), messages=(says("A|B")(Typed(with_="x")),), date="2026-11-26")
    rows = trying._table(
        [("rdkit", "9"), ("x", "2"), ("y", "1"), ("z", "1")], "named by", {"rdkit": good, "x": bad}, {"z": "hours"}
    ).splitlines()
    assert rows[2:] == [
        "| rdkit | 9 | 11.8 | `WITH=rdkit APT=libx11-6` | 1.0 | 31.8 MB |",
        "| x | 2 | 11.8 | **no**: no; A\\|B |  |  |",
        "| y | 1 |  | not tried yet |  |  |",
        "| z | 1 |  | not tried: hours |  |  |",
    ]
