"""Upstream's suites: the list of what may fail, judging of JUnit XML, sources of tests, the ledger and its table."""

import contextlib
import io
import re
import subprocess
import tarfile
from pathlib import Path

import msgspec
import pytest

from graphcrate.artifacts.reports import read_upstream
from graphcrate.model.errors import IntegrityError, NetworkError, RecipeError, SmokeError, UsageError
from graphcrate.model.lock import decode_lock
from graphcrate.model.report import PackageLine
from tests import ROOT
from tests.unit import small_layouts
from tools import upstream_junit as junit
from tools import upstream_ledger as ledger
from tools import upstream_list as listed
from tools import upstream_run as running
from tools import upstream_sources as sources
from tools import upstream_suites as runner
from tools.upstream_junit import Case
from tools.upstream_ledger import Entry, SuiteResult
from tools.upstream_list import Expected, Suite

LISTED = listed.read_list()
NEAREST = "test/test_nearest.py::test_nearest[dtype0-device0]"


def suite(*expected, **more):
    values = {
        "name": "cluster",
        "title": "torch_cluster",
        "package": "torch-cluster",
        "repository": "x/pytorch_cluster",
    }
    return Suite(**{**values, "expected": expected, **more})


def row(*tests, **more):
    return Expected(**{"tests": tests, "kind": "upstream", "reason": "half on the CPU", **more})


# --- the list ---------------------------------------------------------------------------------------------------------


def test_suites_of_the_list_have_unique_names_and_existing_folders():
    names = [each.name for each in LISTED.suite]
    assert len(set(names)) == len(names)
    assert [each.ours for each in LISTED.suite if each.ours and not (ROOT / each.ours).is_dir()] == []
    assert {"torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv", "pyg-lib", "torch-geometric"} <= {
        each.package for each in LISTED.suite
    }


def test_rows_of_the_list_have_reasons_that_say_more_than_a_word():
    rows = [(each.name, row) for each in LISTED.suite for row in (*each.expected, *each.ignored)]
    assert [f"{name}: {row.reason}" for name, row in rows if len(row.reason.split()) < 5] == []
    assert [f"{each.name}: {row.tests}" for each in LISTED.suite for row in each.expected if "*" in row.tests] == []


def test_every_field_of_the_list_is_in_its_head():
    head = (ROOT / "tools/upstream_suites.toml").read_text(encoding="utf-8").partition("[[")[0]
    fields = {field for kind in (Suite, Expected, listed.Ignored) for field in kind.__struct_fields__}
    assert sorted(fields - {*re.findall(r"\w+", head)}) == []


@pytest.mark.parametrize("holds", ["torch <2", "torch[x]<2", "torch<2;python_version<'3'", "torch @ file:///x", "<2"])
def test_versions_that_are_no_requirements_are_refused(holds):
    with pytest.raises(ValueError, match="is not a"):
        row("a", holds=holds)


def test_expected_failure_without_a_reason_is_refused(tmp_path):
    path = tmp_path / "list.toml"
    head = '[[suite]]\nname = "a"\ntitle = "a"\npackage = "a"\nrepository = "a/a"\n[[suite.expected]]\n'
    path.write_text(f'{head}tests = ["a"]\nkind = "upstream"\nreason = " "\n', encoding="utf-8")
    with pytest.raises(RecipeError, match="has tests and a reason"):
        listed.read_list(path)
    path.write_text(f'{head}tests = ["a"]\nkind = "other"\nreason = "b"\n', encoding="utf-8")
    with pytest.raises(RecipeError, match="other"):
        listed.read_list(path)


@pytest.mark.parametrize(
    ("holds", "applies"),
    [
        ("", True),
        ("torch<2.1", True),
        ("torch<2.1 python>=3.11", True),
        ("torch<2.1 python<3.11", False),
        ("torch>=2.1", False),
        ("torch==2.0.1", True),  # the image has 2.0.1+cu118
        ("scikit-learn>=1.8", False),  # which it does not have
        ("Torch_Geometric==2.3.1", True),
    ],
)
def test_expected_failure_holds_for_its_versions_only(holds, applies):
    versions = {"torch": "2.0.1+cu118", "torch-geometric": "2.3.1", "python": "3.11.2"}
    assert row("a", holds=holds).applies(versions) is applies


#: a test → versions in whose sources the reason is true, and in which it is not: read at PyG's tags
READ = {
    "test/test_inspector.py::test_type_repr": (("2.5.3", "2.6.0", "2.6.1"), ("2.7.0", "2.8.0")),
    "test_glt_examples.py::test_example_ends[hetero/train_hgt_mag*]": (("2.4.0", "2.5.3"), ("2.3.1",)),
}


@pytest.mark.parametrize("test", READ)
def test_bounds_of_a_reason_are_those_of_the_releases_that_have_its_cause(test):
    (found,) = (each for suite in LISTED.suite for each in suite.expected if test in each.tests)
    for versions, holds in zip(READ[test], (True, False), strict=True):
        for version in versions:
            installed = {"torch": "2.6.0", "torch-geometric": version, "python": "3.11.2"}
            assert found.applies(installed) is holds, version


def test_failure_for_want_of_a_package_is_not_expected_where_the_image_has_it():
    needs = row("a", lacks="Torch_Cluster")
    assert [needs.applies(have) for have in ({}, {"torch-cluster": "1.6.3"})] == [True, False]
    gnnff = "test/nn/models/test_gnnff.py::test_gnnff"
    rows = [each for suite in LISTED.suite for each in suite.expected if gnnff in each.tests]
    assert [each.lacks for each in rows] == ["torch-cluster", "torch-cluster"]


def test_brackets_of_a_pattern_are_literal_and_a_star_is_anything():
    assert row(NEAREST).matches(NEAREST)
    assert not row(NEAREST).matches(NEAREST.replace("dtype0", "d"))
    assert row("test/test_nearest.py::*[dtype0-*]").matches(NEAREST)
    assert not row("test/test_nearest.py").matches(NEAREST)


# --- judging ----------------------------------------------------------------------------------------------------------

HEAD = '<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" tests="{tests}">'
TAIL = "</testsuite></testsuites>"


def xml(tmp_path, *cases, tests=None, head=HEAD):
    path = tmp_path / "junit.xml"
    count = len(cases) if tests is None else tests
    path.write_text(head.format(tests=count) + "".join(cases) + TAIL, encoding="utf-8")
    return path


def case(name, inner="", file="test/test_nearest.py", dotted="test.test_nearest"):
    return f'<testcase classname="{dotted}" name="{name}" file="{file}" time="0.1">{inner}</testcase>'


def test_results_are_read_by_the_ids_that_pytest_prints(tmp_path):
    path = xml(
        tmp_path,
        case("test_a"),
        case("test_b[x]", '<failure message="assert 1">text</failure>'),
        case("test_c", '<skipped type="pytest.skip" message="No GPU">text</skipped>', dotted="test.test_nearest.TestX"),
        '<testcase classname="" name="test.test_broken"><error message="collection failure">x</error></testcase>',
    )
    assert junit.read_cases(path) == [
        Case(test="test/test_nearest.py::test_a", outcome="passed"),
        Case(test="test/test_nearest.py::test_b[x]", outcome="failed", message="assert 1"),
        Case(test="test/test_nearest.py::TestX::test_c", outcome="skipped", message="No GPU"),
        Case(test="test.test_broken", outcome="failed", message="collection failure"),
    ]


def test_test_that_passes_and_fails_in_its_tear_down_failed_once(tmp_path):
    path = xml(tmp_path, case("test_a"), case("test_a", '<error message="left open">x</error>'))
    assert [(each.outcome, each.message) for each in junit.read_cases(path)] == [("failed", "left open")]


@pytest.mark.parametrize(
    ("head", "cases", "tests", "said"),
    [
        (HEAD, [case("test_a")], 2, "announces 2 results and has 1"),  # cut off
        (HEAD, [], 0, "announces 0 results"),
        (HEAD, ["<testcase>"], 1, "is not what pytest writes"),
        ('<!DOCTYPE a [<!ENTITY b "c">]>' + HEAD.partition("?>")[2], [case("test_a")], 1, "declares a document type"),
        (HEAD.replace("{tests}", "many"), [case("test_a")], 1, "is not what pytest writes"),
    ],
)
def test_result_that_pytest_did_not_write_is_refused(tmp_path, head, cases, tests, said):
    with pytest.raises(IntegrityError, match=said):
        junit.read_cases(xml(tmp_path, *cases, tests=tests, head=head))


def test_result_that_is_too_large_or_absent_is_refused(tmp_path, monkeypatch):
    path = xml(tmp_path, case("test_a"))
    monkeypatch.setattr(junit, "MOST", 20)
    with pytest.raises(IntegrityError, match="larger than 20 bytes"):
        junit.read_cases(path)
    with pytest.raises(IntegrityError, match="is not there"):
        junit.read_cases(tmp_path / "absent.xml")


def judged(*rows, cases, **more):
    return junit.judge(suite(*rows, **more), cases, {"torch": "2.0.1", "python": "3.11.2"})


def failing(test=NEAREST):
    return Case(test=test, outcome="failed", message="TypeError: half\n  at 0x7f01")


def test_failure_on_the_list_is_expected_with_its_reason():
    verdict = judged(row(NEAREST), cases=[failing(), Case(test="a", outcome="passed")])
    assert (verdict.passed, verdict.failed, verdict.is_good) == (1, (), True)
    assert [(each.kind, each.reason, each.message) for each in verdict.expected] == [
        ("upstream", "half on the CPU", "TypeError: half at 0x…")
    ]


def test_failure_that_no_row_has_fails_the_suite():
    for rows in ((), (row("other"),), (row(NEAREST, holds="torch>=2.1"),)):
        verdict = judged(*rows, cases=[failing(), Case(test="a", outcome="passed")])
        assert [each.test for each in verdict.failed] == [NEAREST]
        assert not verdict.is_good


def test_expected_test_that_fails_in_another_way_fails_the_suite():
    cases = [failing(), Case(test="a", outcome="passed")]
    assert judged(row(NEAREST, says="TypeError: half"), cases=cases).is_good
    verdict = judged(row(NEAREST, says="URLError"), cases=cases)
    assert [each.test for each in verdict.failed] == [NEAREST]
    rows = row(NEAREST, says="URLError"), row(NEAREST, says="half", reason="b")
    assert [each.reason for each in judged(*rows, cases=cases).expected] == ["b"]


def test_expected_failure_that_passes_fails_a_strict_row_only():
    passing = [Case(test=NEAREST, outcome="passed")]
    verdict = judged(row(NEAREST), cases=passing)
    assert (verdict.better, verdict.outdated, verdict.is_good) == ((NEAREST,), (), True)
    verdict = judged(row(NEAREST, strict=True), cases=passing)
    assert (verdict.outdated, verdict.is_good) == ((NEAREST,), False)


def test_suite_that_is_all_skipped_is_no_success():
    verdict = judged(cases=[Case(test="a", outcome="skipped", message="No GPU")] * 3)
    assert verdict.problem == "0 passed, and at least 1 have to"
    assert verdict.skips == (("No GPU", 3),)
    assert not verdict.is_good


# --- sources ----------------------------------------------------------------------------------------------------------


def folder(path, **files):
    for name, text in files.items():
        target = path / name.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def given(tmp_path):
    (made := tmp_path / "given").mkdir()
    return made


def taken(given, tmp_path, **more):
    into = tmp_path / "tests"
    return into, sources.Sources(given, tmp_path / "kept").take(suite(**more), "1.6.3", into)


def test_tests_of_a_plain_folder_are_taken_without_its_package(given, tmp_path):
    folder(given / "pytorch_cluster", test__test_a="a", torch_cluster__init="b")
    into, commit = taken(given, tmp_path)
    assert [str(path.relative_to(into)) for path in sorted(into.rglob("*"))] == ["test", "test/test_a"]
    assert commit.startswith("sha256:")


def archive(path, **members):
    with tarfile.open(path, "w:gz") as made:
        for name, text in members.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            made.addfile(info, io.BytesIO(text.encode()))


def test_tests_of_an_archive_are_those_below_its_only_folder(given, tmp_path):
    archive(given / "pytorch_cluster.tar.gz", x__test__test_a="a", x__torch_cluster__init="b")
    into, commit = taken(given, tmp_path)
    assert (into / "test" / "test_a").read_text() == "a"
    assert not (into / "torch_cluster").exists()
    folder(given / "other" / "pytorch_cluster", test__test_a="a")
    assert taken(given / "other", tmp_path / "again")[1] == commit


def member(name, kind=tarfile.REGTYPE, leads_to=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, leads_to
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("x/test/../../../evil")],
        [member("x/test/a", tarfile.SYMTYPE, "../../evil")],
        [member("x/test/a", tarfile.SYMTYPE, "/etc/passwd")],
        [member("x/test/a", tarfile.LNKTYPE, "/etc/passwd")],
        [member("x/test/a", tarfile.CHRTYPE)],
        [member("x/test/a", tarfile.SYMTYPE, "b/../../evil"), member("x/test/b", tarfile.SYMTYPE, "..")],
    ],
    ids=["dots", "link-out", "link-absolute", "hard-link", "device", "link-by-link"],
)
def test_archive_that_leaves_its_folder_is_refused(given, tmp_path, members):
    with tarfile.open(given / "pytorch_cluster.tar.gz", "w:gz") as made:
        for one in members:
            made.addfile(one)
    with pytest.raises(IntegrityError, match="cannot be read"):
        taken(given, tmp_path)


def test_link_inside_an_archive_is_kept(given, tmp_path):
    with tarfile.open(given / "pytorch_cluster.tar.gz", "w:gz") as made:
        made.addfile(member("x/test", tarfile.DIRTYPE))
        made.addfile(member("x/test/a", tarfile.SYMTYPE, "../test/b"))
        made.addfile(member("x/test/b"))
    into, _ = taken(given, tmp_path)
    assert (into / "test" / "a").resolve() == (into / "test" / "b").resolve()


def test_archive_that_is_none_is_refused(given, tmp_path):
    (given / "pytorch_cluster.tar.gz").write_bytes(b"\x1f\x8b none")
    with pytest.raises(IntegrityError, match="cannot be read"):
        taken(given, tmp_path)


def test_folder_without_the_repository_or_its_tests_is_named(given, tmp_path):
    with pytest.raises(UsageError, match="has no pytorch_cluster") as caught:
        taken(given, tmp_path)
    assert "git clone --bare https://github.com/x/pytorch_cluster" in caught.value.next_step
    folder(given / "pytorch_cluster", torch_cluster__init="b")
    with pytest.raises(UsageError, match="has no test"):
        taken(given, tmp_path)


def git(monkeypatch, answers):
    """A git that answers by its first word; returns the calls."""
    calls = []

    def run(words, **_):
        calls.append(words)
        name = next(word for word in words[1:] if not word.startswith("-"))
        code, out = answers[name]
        if name == "archive":
            target = next(word.partition("=")[2] for word in words if word.startswith("--output="))
            archive(Path(target), test__test_a="a")
        return subprocess.CompletedProcess(words, code, out, b"fatal: Could not resolve host\n")

    monkeypatch.setattr(sources.subprocess, "run", run)
    return calls


@pytest.mark.parametrize("name", ["pytorch_cluster", "pytorch_cluster.git", "pytorch_cluster/.git"])
def test_tests_of_a_repository_are_those_of_the_tag(given, tmp_path, monkeypatch, name):
    (given / name / "objects").mkdir(parents=True)
    (given / name / "HEAD").touch()
    calls = git(monkeypatch, {"rev-parse": (0, b"c0ffee\n"), "archive": (0, b"")})
    into, commit = taken(given, tmp_path, tag="v{version}")
    assert (commit, (into / "test" / "test_a").read_text()) == ("c0ffee", "a")
    assert calls[0][1:] == [
        f"--git-dir={given / name}",
        *("rev-parse", "--verify", "--quiet", "refs/tags/v1.6.3^{commit}"),
    ]
    assert calls[1][-3:] == ["c0ffee", "--", "test"]


def test_repository_without_the_tag_is_named(given, tmp_path, monkeypatch):
    (given / "pytorch_cluster" / "objects").mkdir(parents=True)
    (given / "pytorch_cluster" / "HEAD").touch()
    git(monkeypatch, {"rev-parse": (1, b"")})
    with pytest.raises(UsageError, match=r"has no tag 1\.6\.3") as caught:
        taken(given, tmp_path)
    assert "fetch --tags" in caught.value.next_step


def test_unreachable_github_is_a_network_error_that_names_the_folder(tmp_path, monkeypatch):
    calls = git(monkeypatch, {"clone": (128, b"")})
    with pytest.raises(NetworkError, match="cannot be fetched") as caught:
        taken(None, tmp_path)
    assert caught.value.cause == "git clone: fatal: Could not resolve host"
    assert caught.value.next_step.endswith("then UPSTREAM=FOLDER")
    assert calls[0][-4:-1] == ["--branch", "1.6.3", "https://github.com/x/pytorch_cluster.git"]


# --- the command ------------------------------------------------------------------------------------------------------


def test_unknown_suite_is_named_with_those_there_are():
    with pytest.raises(UsageError, match="there is no suite 'scater'") as caught:
        runner.chosen("cluster,scater", LISTED.suite)
    assert "scatter" in caught.value.next_step
    assert [each.name for each in runner.chosen("pyg, scatter", LISTED.suite)] == ["pyg", "scatter"]
    assert runner.chosen("", LISTED.suite) == list(LISTED.suite)


def test_folder_of_upstream_that_is_absent_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        runner.folder_of(str(tmp_path / "absent"))
    assert runner.folder_of("") is None


@pytest.mark.parametrize(
    ("word", "name"),
    [("./pyg_lib-0.2.0-cp311-linux_x86_64.whl", "pyg-lib"), ("PyG_lib>=0.2", "pyg-lib"), ("rdkit", "rdkit")],
)
def test_package_of_a_requirement_or_a_wheel(word, name):
    assert runner.named(word) == name


def test_command_has_limits_paths_and_what_is_ignored():
    limited = suite(seconds=60, ignored=(listed.Ignored(path="test/contrib", reason="x"),))
    words = running.command(limited, limited.what_pytest_gets())
    assert words[-3:] == ("--timeout=60", "test", "--ignore=test/contrib")
    assert "junit_family=xunit1" in words


def result(verdict=None, error=None):
    return running.Result(suite(), "1.6.3", "c0ffee", 17, verdict, error)


GOOD = judged(row(NEAREST), cases=[failing(), Case(test="a", outcome="passed")])
BAD = judged(cases=[failing(), Case(test="a", outcome="passed")])


def test_exit_code_is_1_for_a_failure_and_the_errors_own_where_tests_are_nowhere():
    absent = NetworkError("not reached", next_step="x")
    assert runner.exit_code([result(GOOD)]) == 0
    assert runner.exit_code([result(GOOD), result(error=absent)]) == NetworkError.exit_code
    assert runner.exit_code([result(error=absent), result(BAD)]) == 1


def test_table_and_details_name_what_failed_and_why():
    skipped = msgspec.structs.replace(GOOD, skipped=3, skips=(("No | GPU", 2), ("x", 1)))
    lines = runner.table([result(skipped), result(error=NetworkError("not reached", next_step="x"))])
    assert lines[2] == "| torch_cluster | 1.6.3 | 1 | 1 | 1 | 3: No \\| GPU (2); x (1) | 17 |"
    assert lines[3] == "| torch_cluster | 1.6.3 |  | not run: not reached |  |  |  |"
    assert runner.details([result(GOOD), result(BAD)]) == [
        "expected  torch_cluster: 1 of upstream: half on the CPU",
        f"FAILS     torch_cluster: {NEAREST}: TypeError: half at 0x…",
    ]


RUN = running.Run(
    digest="sha256:1", suite="a", version="1", commit="c0ffee", command=("pytest",), environment={}, ours="1"
)


def test_kept_result_counts_for_the_same_image_tests_and_command_only(tmp_path):
    kept = running.Kept(run=RUN, seconds=1, date="2026-11-26T00:00:00Z")
    (tmp_path / running.RUN).write_bytes(msgspec.json.encode(kept))
    assert running.kept_result(tmp_path, RUN) is None  # no results
    (tmp_path / running.XML).touch()
    assert running.kept_result(tmp_path, RUN) == kept
    for change in ({"digest": "sha256:2"}, {"commit": "beef"}, {"command": ("pytest", "-x")}, {"ours": "2"}):
        assert running.kept_result(tmp_path, msgspec.structs.replace(RUN, **change)) is None
    (tmp_path / running.RUN).write_text("{")
    assert running.kept_result(tmp_path, RUN) is None


class Answering(running.Running):
    """A suite whose pytest writes what it is told to, by the seed."""

    def pytest(self, words, log, **variables):
        log.write_text("[ 50%]\n1 failed\n")
        seed = variables.get("UPSTREAM_SEED", "")
        calls.append((seed, words[-1]))
        self.tests.mkdir(exist_ok=True)
        xml(self.tests, *answers[seed])
        return 1


calls, answers = [], {}


@pytest.fixture
def answering(tmp_path):
    """The suite, with pytest's answers by the seed: passing in all."""
    calls.clear()
    answers.update({seed: [case(NEAREST.rpartition(":")[2])] for seed in ("", *running.SEEDS)})
    return Answering(suite(), None, tmp_path)


def test_failure_that_passes_with_other_random_numbers_is_unstable_and_good(answering):
    first = judged(cases=[failing(), Case(test="a", outcome="passed")])
    assert answering.unstable(RUN, first) == {NEAREST}
    assert calls == [(seed, NEAREST) for seed in running.SEEDS]
    verdict = junit.judge(suite(), [failing(), Case(test="a", outcome="passed")], {}, answering.unstable(RUN, first))
    assert len(calls) == len(running.SEEDS), "known from before"
    assert (verdict.passed, verdict.unstable, verdict.failed, verdict.is_good) == (2, (NEAREST,), (), True)
    assert runner.details([result(verdict)]) == [
        f"unstable  torch_cluster: {NEAREST}: passes with other random numbers"
    ]


def test_failure_with_any_other_random_numbers_stays_a_failure(answering):
    answers["2"] = [case(NEAREST.rpartition(":")[2], '<failure message="x"/>')]
    assert answering.unstable(RUN, judged(cases=[failing()])) == set()
    answers["2"] = [case("another")]
    assert answering.unstable(msgspec.structs.replace(RUN, commit="2"), judged(cases=[failing()])) == set()


def test_many_failures_are_not_tried_again(answering):
    many = [failing(f"test/test_a.py::test_{number}") for number in range(running.MOST_AGAIN + 1)]
    assert answering.unstable(RUN, judged(cases=many)) == set()
    assert calls == []


def test_run_without_results_is_an_error_with_the_last_line_of_its_log(answering, tmp_path, monkeypatch):
    monkeypatch.setattr(Answering, "pytest", lambda _, words, log: log.write_text("x\nMemoryError\n\n") and 3)
    with pytest.raises(SmokeError, match=r"torch_cluster 1 came to no result: pytest ended with 3") as caught:
        answering.first(RUN)
    assert caught.value.cause == "MemoryError"
    assert not (tmp_path / running.RUN).exists()


def test_run_with_results_is_kept(answering, tmp_path):
    kept = answering.first(RUN)
    assert running.kept_result(tmp_path, RUN) == kept
    assert running.share_of(tmp_path / running.LOG) == "50 %"


def test_results_go_beside_the_report_of_the_image_that_was_tested(tmp_path, monkeypatch):
    layouts = {name: small_layouts.layout(tmp_path / "pyg" / name, [], tag=name) for name in ("plain", "pytest")}
    stack, report = (small_layouts.report(layout, name="pyg") for layout in layouts.values())
    taken = running.Image("pyg:pytest", report, stack, {})
    drawn = []
    monkeypatch.setattr(runner, "ours", lambda words, **_: drawn.append(words[1]) or contextlib.nullcontext(Drawing))
    runner.show([result(GOOD), result(error=NetworkError("x", next_step="y"))], taken, tmp_path, above=False)
    runner.show([result(GOOD)], taken, tmp_path, above=True)
    again = msgspec.structs.replace(GOOD, passed=2)
    named = [runner.Result(suite(title="PyG", what=what), "2.3.1", "c", 17, again) for what in ("tests", "examples")]
    runner.show(named, taken, tmp_path, above=False)
    assert drawn == ["pyg:plain", "pyg:pytest", "pyg:plain"]
    kept = {name: read_upstream(tmp_path / "pyg" / name, made) for name, made in (("plain", stack), ("pytest", report))}
    assert [each.sentence for each in kept["plain"].suites] == [
        "torch_cluster 1.6.3: 1 of 2 of its own tests",
        "PyG 2.3.1: 2 of 3 of its own tests",
        "PyG 2.3.1: 2 of 3 of its own examples",
    ]
    assert len(kept["pytest"].suites) == 1


@pytest.mark.parametrize(
    ("outcome", "code", "noted"),
    [
        ({"verdict": GOOD}, 0, True),
        ({"verdict": BAD}, 1, True),
        ({"error": NetworkError("not reached", next_step="x")}, 5, False),
    ],
)
def test_command_notes_what_ran_and_ends_with_its_code(tmp_path, monkeypatch, capsys, outcome, code, noted):
    layout = small_layouts.layout(tmp_path / "pyg" / "plain", [], tag="plain")
    report = small_layouts.report(layout, name="pyg", lock_sha256="1" * 64)
    taken = running.Image("pyg:pytest", report, report, {"torch-cluster": "1.6.3"})
    requests, entries = [], []
    monkeypatch.setattr(runner, "image", lambda request, *_: requests.append(request) or taken)
    monkeypatch.setattr(runner, "run", lambda *_, **__: result(**outcome))
    monkeypatch.setattr(runner, "show", lambda *_, **__: None)
    monkeypatch.setattr(runner.upstream_ledger, "lock_of", lambda *_: "1" * 64)
    monkeypatch.setattr(runner.upstream_ledger, "add", entries.append)
    assert runner.main(["pyg", "--cuda", "11.8", "--output", str(tmp_path)]) == code
    assert requests == [["pyg", "--cuda", "11.8"]]
    assert [entry.digest for entry in entries] == [report.digest] * noted
    runner.main(["pyg", "--gpu", "v100", "--output", str(tmp_path)])
    assert len(entries) == noted, "the image for one GPU is not that of the lock"
    said = capsys.readouterr()
    assert "| torch_cluster | 1.6.3 |" in said.out
    assert "PyG: the image has no torch-geometric" in said.err


def test_image_of_another_lock_is_not_noted(tmp_path, monkeypatch):
    report = small_layouts.report(
        small_layouts.layout(tmp_path / "pyg" / "plain", [], tag="plain"), lock_sha256="1" * 64
    )
    taken = running.Image("pyg:pytest", report, report, {})
    monkeypatch.setattr(runner.upstream_ledger, "lock_of", lambda *_: "2" * 64)
    assert "not that of a committed lock" in runner.note([result(GOOD)], taken, (), plain=True)


def test_image_with_pyg_lib_beyond_its_lock_is_noted_as_such(tmp_path, monkeypatch):
    """Its sources are of who builds, so no committed lock has it."""
    lock = decode_lock((ROOT / "images/pyg/cu118/compatible.lock.json").read_bytes())
    packages = [PackageLine(name=each.name, version=each.version, channel="pypi") for each in lock.packages]
    packages = [each for each in packages if each.name != "pyg-lib"]
    layout = small_layouts.layout(tmp_path / "pyg" / "plain", [], tag="plain")
    stack = {"name": "pyg", "cuda": "11.8", "candidate": "compatible", "lock_sha256": "1" * 64}
    entries = []
    monkeypatch.setattr(runner.upstream_ledger, "add", entries.append)
    for more in (("pyg-lib", "0.2.0"), ("rdkit", "1")):
        line = PackageLine(name=more[0], version=more[1], channel="local")
        report = small_layouts.report(layout, **{**stack, "packages": (*packages, line)})
        taken = running.Image("pyg:pytest", report, report, {more[0]: more[1]})
        runner.note([result(GOOD)], taken, (), plain=True)
    assert [entry.added for entry in entries] == [("pyg-lib 0.2.0",)]
    assert entries[0].lock_sha256 == ledger.lock_of("pyg", "11.8", "compatible")


class Drawing:
    """A command that has ended."""

    wait = staticmethod(lambda: 0)


# --- the ledger -------------------------------------------------------------------------------------------------------


def entry(*results, **more):
    values = {"stack": "pyg", "cuda": "11.8", "candidate": "compatible", "lock_sha256": "1", "digest": "sha256:1"}
    return Entry(**{**values, "device": "cpu x", "suites": results, **more})


def counted(name="pyg", verdict=GOOD, date="2026-11-26T00:00:00Z"):
    known = {"version": "2.3.1", "commit": "c0ffee", "seconds": 17, "date": date}
    return SuiteResult.of(suite(name=name), verdict, **known)


def test_sentence_of_the_catalogue_has_what_passed_of_all_that_ran():
    counts = msgspec.structs.replace(counted(), passed=3649, expected={"network": 15, "upstream": 1})
    assert ledger.sentence(suite(title="PyG"), counts) == "PyG 2.3.1: 3,649 of 3,665 of its own tests"
    assert (counted().ran, counted(verdict=BAD).ran, counted(verdict=BAD).failed) == (2, 2, 1)


def test_suites_that_did_not_run_again_stay_for_the_same_image_only(tmp_path):
    path = tmp_path / "ledger.json"
    ledger.add(entry(counted("scatter"), counted("pyg")), path)
    ledger.add(entry(counted("pyg", BAD)), path)
    (known,) = ledger.read_ledger(path).values()
    assert [(each.suite, each.failed) for each in known.suites] == [("scatter", 0), ("pyg", 1)]
    ledger.add(entry(counted("pyg"), digest="sha256:2"), path)
    (known,) = ledger.read_ledger(path).values()
    assert [each.suite for each in known.suites] == ["pyg"]
    ledger.add(entry(counted("pyg"), added=("pyg-lib 0.2.0",)), path)
    assert len(ledger.read_ledger(path)) == 2


def test_catalogue_row_says_why_others_fail_and_that_a_lock_changed(monkeypatch):
    bad = msgspec.structs.replace(counted(verdict=BAD), expected={"network": 15})
    known = {1: entry(bad), 2: entry(counted(), added=("pyg-lib 0.2.0",), lock_sha256="2")}
    monkeypatch.setattr(ledger, "read_ledger", lambda: known)
    monkeypatch.setattr(ledger, "lock_of", lambda *_: "1")
    assert ledger.table().splitlines()[2:] == [
        "| `pyg` | 11.8 | PyG 2.3.1: 1 of 17 of its own tests | 15 asks for the internet; **1 not explained** |"
        " 2026-11-26, CPU |",
        "| `pyg` with pyg-lib 0.2.0 | 11.8 | PyG 2.3.1: 1 of 2 of its own tests | 1 upstream's own fault |"
        " 2026-11-26, CPU, of an earlier lock |",
    ]


def test_ledger_is_of_listed_suites_and_committed_locks():
    names = {each.name for each in LISTED.suite}
    for known in ledger.read_ledger().values():
        assert {each.suite for each in known.suites} <= names
        assert ledger.lock_of(known.stack, known.cuda, known.candidate)
