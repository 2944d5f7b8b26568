"""The bench that holds the audit against real imports: its pure parts, on observations made up here."""

import msgspec
import pytest

from bench import audit_imports
from bench.audit_record import (
    Finding,
    Group,
    Idle,
    Observation,
    Outcome,
    Pair,
    Prediction,
    cause,
    compare,
    merged,
    needs_driver,
    summary,
)

FINE = Outcome(ok=True, package="torchvision")
BROKEN = Outcome(ok=False, error="/x/_C.so: undefined symbol: _ZN5torch3jit6ScriptE", package="torchvision")
EXTENSION, BUNDLED = "torchvision/_C.so", "torchvision.libs/libpng16.so"
FAIL = Finding(check="symbols", severity="fail", package="torchvision", file=EXTENSION)


def observation(files=None, imports=None, packages=("torchvision==0.16.2",)):
    return Observation(
        torch="2.3.1",
        packages=packages,
        about="for torch 2.1",
        suite="bookworm",
        python="3.11.2",
        glibc="2.36",
        installed={"torch": "2.3.1", "torchvision": "0.16.2"},
        imports=imports if imports is not None else {"torchvision": Outcome(ok=True)},
        files={EXTENSION: BROKEN, BUNDLED: FINE} if files is None else files,
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("/site/_C.so: undefined symbol: _ZN2at4_ops, version X", ("undefined symbol", "_ZN2at4_ops,")),
        ("libcudart.so.12: cannot open shared object file: No such file", ("missing library", "libcudart.so.12")),
        ("/lib/libm.so.6: version `GLIBC_2.35' not found (required by a.so)", ("version not found", "GLIBC_2.35")),
        ("ModuleNotFoundError: No module named 'torch_sparse'", ("missing module", "torch_sparse")),
        ("ended by SIGSEGV", ("crash", "SIGSEGV")),
        ("AttributeError: module 'torch' has no attribute 'x'\n more", ("Python code", None)),
    ],
)
def test_errors_are_told_apart(error, expected):
    kind, name = cause(Outcome(ok=False, error=error))
    assert kind == expected[0]
    assert name == (expected[1] or error.partition("\n")[0])


def test_the_loader_is_what_a_chain_of_errors_is_about():
    chained = "RuntimeError: cannot load | from OSError: libavutil.so.59: cannot open shared object file: …"
    assert cause(Outcome(ok=False, error=chained)) == ("missing library", "libavutil.so.59")


def test_a_right_prediction_agrees():
    found = compare(observation(), Prediction(findings=(FAIL,)))
    assert (found.false_fine, found.false_alarm) == (False, False)
    assert found.observed_broken
    assert found.predicted_broken


def test_a_broken_library_that_was_not_named_is_a_false_fine():
    found = compare(observation(), Prediction())
    assert found.missed == (EXTENSION,)
    assert found.false_fine


def test_a_finding_about_another_file_does_not_make_up_for_the_broken_one():
    found = compare(observation(), Prediction(findings=(msgspec.structs.replace(FAIL, file=BUNDLED),)))
    assert (found.missed, found.cried) == ((EXTENSION,), (BUNDLED,))
    assert found.false_fine
    assert found.false_alarm


def test_warnings_predict_nothing():
    found = compare(observation(), Prediction(findings=(msgspec.structs.replace(FAIL, severity="warn"),)))
    assert found.false_fine


def test_a_plugin_for_what_is_not_there_breaks_nothing():
    idle = [Idle(package="torchvision", files=r"_C\.so$", why="it does without")]
    note = msgspec.structs.replace(FAIL, severity="note", check="libraries")
    noted, failed = Prediction(findings=(note,)), Prediction(findings=(FAIL,))
    agreed = compare(observation(), noted, idle)
    assert (agreed.observed_broken, agreed.false_fine, agreed.false_alarm) == (False, False, False)
    assert compare(observation(), Prediction(), idle).missed == (EXTENSION,), "it does not load, and that is to be said"
    assert compare(observation(), failed, idle).false_alarm, "nobody has to mind"
    assert compare(observation(), noted).false_fine, "a note is too little where the package cannot do without"
    assert compare(observation({EXTENSION: FINE}), noted, idle).cried == (EXTENSION,)
    other = msgspec.structs.replace(note, check="space")
    assert compare(observation(), Prediction(findings=(other,)), idle).false_fine
    assert len(summary({"one": msgspec.structs.replace(observation(), predicted=noted)}, idle)) == 2


def test_what_a_failed_import_would_have_loaded_is_not_held_against_the_audit():
    lacks = Outcome(ok=False, error="libpng16.so: cannot open shared object file: …", package="torchvision")
    files = {EXTENSION: BROKEN, BUNDLED: FINE, "torchvision/more.so": lacks}
    failed = {"torchvision": Outcome(ok=False, error=BROKEN.error)}
    predicted = Prediction(findings=(FAIL,))
    assert compare(observation(files, failed), predicted).missed == ()
    assert compare(observation(files), predicted).missed == ("torchvision/more.so",), "its import did not fail"
    idle = [Idle(package="torchvision", files="more", why="who wants it loads both")]
    assert compare(observation(files), predicted, idle).missed == ()
    broken = {**files, BUNDLED: BROKEN}
    assert "torchvision/more.so" in compare(observation(broken, failed), predicted).missed, "it does not load itself"


def test_idle_libraries_may_go_by_the_torch_at_hand():
    idle = Idle(package="dgl", files=r"_pytorch_(?!{torch}\.so)", why="one for each torch")
    outcome = Outcome(ok=False, package="dgl")
    assert idle.has("dgl/libdgl_sparse_pytorch_2.1.0.so", outcome, "2.0.1")
    assert not idle.has("dgl/libdgl_sparse_pytorch_2.0.1.so", outcome, "2.0.1")
    assert not idle.has("dgl/libdgl_sparse_pytorch_2.0.1.so", outcome, "2.0.1+cu118")
    assert not idle.has(
        "dgl/libdgl_sparse_pytorch_2.1.0.so", msgspec.structs.replace(outcome, package="torch"), "2.0.1"
    )


def test_a_finding_about_a_library_that_loads_is_a_false_alarm():
    found = compare(observation({EXTENSION: FINE}), Prediction(findings=(FAIL,)))
    assert found.cried == (EXTENSION,)
    assert found.false_alarm
    assert not found.false_fine


def test_findings_about_files_of_torch_do_not_count_for_another_pair():
    torch = Finding(check="libraries", severity="fail", package="torch", file="torch/lib/libtorch_cuda.so")
    found = compare(observation({EXTENSION: FINE}), Prediction(findings=(torch,)))
    assert not found.false_alarm


def test_a_missing_requirement_must_be_predicted_by_any_finding_about_the_package():
    failed = {"torchvision": Outcome(ok=False, error="ModuleNotFoundError: No module named 'torch_sparse'")}
    seen = observation({EXTENSION: FINE}, failed)
    hidden = Finding(check="metadata", severity="fail", package="TorchVision")
    assert compare(seen, Prediction()).false_fine
    found = compare(seen, Prediction(findings=(hidden,)))
    assert not found.false_fine
    assert not found.false_alarm


def test_what_breaks_in_python_alone_is_beyond_an_audit_of_binaries():
    failed = {"torchvision": Outcome(ok=False, error="AttributeError: module 'torch' has no attribute 'x'")}
    found = compare(observation({EXTENSION: FINE}, failed), Prediction())
    assert found.beyond
    assert not found.false_fine
    assert not compare(observation({EXTENSION: BROKEN}, failed), Prediction()).beyond


def test_what_wants_the_driver_is_known_by_its_error_and_replaced_by_the_second_try():
    first = {
        "a.so": Outcome(ok=False, error="libcuda.so.1: cannot open shared object file: No such file"),
        "b.so": FINE,
    }
    assert needs_driver(first) == ["a.so"]
    second = {"a.so": Outcome(ok=False, error="undefined symbol: cuNew")}
    both = merged(first, second)
    assert both["a.so"] == Outcome(ok=False, error="undefined symbol: cuNew", driver=True)
    assert both["b.so"] is FINE
    assert needs_driver({"c.so": Outcome(ok=False, error="libcuda.so.12: cannot open shared object file")}) == []


def test_the_summary_names_each_pair_that_differs_and_sums_all_up():
    right = msgspec.structs.replace(observation(), predicted=Prediction(findings=(FAIL,)))
    wrong = msgspec.structs.replace(observation(), predicted=Prediction())
    alarm = msgspec.structs.replace(observation({EXTENSION: FINE}), predicted=Prediction(findings=(FAIL,)))
    assert summary({"right": right, "wrong": wrong, "alarm": alarm, "open": observation()}) == [
        "wrong: missed: torchvision/_C.so (undefined symbol _ZN5torch3jit6ScriptE)",
        "alarm: false alarm: torchvision/_C.so",
        "3 pairs, of which 2 break; 5 libraries, of which 2 do not load.",
        "False “fine”: 1 pairs, 1 libraries. False alarms: 1 pairs (100.0 % of those that work), 1 libraries (33.3 %).",
    ]


def test_a_summary_of_nothing_is_empty():
    assert summary({"open": observation()})[-2].startswith("0 pairs")


def test_an_audit_that_gives_no_answer_has_judged_nothing():
    seen = msgspec.structs.replace(observation(), predicted=Prediction(error="exit code 1"))
    assert not seen.judged
    assert summary({"one": seen})[-2].startswith("0 pairs")


def test_the_committed_pairs_are_enough_and_each_is_there_once():
    groups = audit_imports.pairs().groups
    names = [group.name(pair) for group in groups for pair in group.pairs]
    assert len(names) == len(set(names)) >= 48
    assert {group.python for group in groups} <= audit_imports.SUITES.keys()
    assert [group.torch for group in groups if group.pairs[0].packages] == [""], "each torch is looked at alone first"
    assert all("==" in package for group in groups for pair in group.pairs for package in pair.packages)


def test_packages_are_imported_by_their_names_unless_told_otherwise():
    assert audit_imports.imports_of(Pair(packages=("torch-xla==2.1.0",))) == ["torch_xla"]
    assert audit_imports.imports_of(Pair(packages=("fbgemm-gpu-cpu==1.1.0",), imports=("fbgemm_gpu",))) == [
        "fbgemm_gpu"
    ]
    assert audit_imports.imports_of(Pair(packages=())) == ["torch"]


def test_a_pair_is_named_by_all_that_makes_it():
    group = Group(torch="2.6.0", python="3.11")
    pair = Pair(packages=(), without=("nvidia-cudnn-cu12",), requirements=("numpy",))
    assert group.name(pair) == "torch 2.6.0, without nvidia-cudnn-cu12, beside numpy (Python 3.11)"
    assert Group(python="3.9").name(Pair(packages=("dgl==1.0.1",))) == "no torch, dgl==1.0.1 (Python 3.9)"


def test_a_distribution_is_looked_at_once_beside_a_torch_but_the_pairs_own_always():
    group, pair = Group(torch="2.3.1", python="3.11"), Pair(packages=("torchvision==0.16.2",))
    done = {"other": observation(), group.name(pair): msgspec.structs.replace(observation(), installed={"numpy": "1"})}
    assert audit_imports.looked_at(group, pair, done) == {("torch", "2.3.1")}
    assert audit_imports.looked_at(group, Pair(packages=()), done) == set()
    assert audit_imports.looked_at(Group(torch="2.3.1", python="3.9"), pair, done) == set()
    assert audit_imports.looked_at(Group(torch="2.4.1", python="3.11"), pair, done) == set()


def test_observations_are_read_back_as_they_were_written(tmp_path):
    seen = {"one": msgspec.structs.replace(observation(), predicted=Prediction(findings=(FAIL,), seconds=3.1))}
    path = tmp_path / "found.json"
    assert audit_imports.read(path) == {}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(seen)))
    assert audit_imports.read(path) == seen
