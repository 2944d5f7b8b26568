"""The benches' pure parts, on values made up here: the audit against real imports, and sections of docs."""

import msgspec
import pytest

from bench import audit_imports, container_cost, steps
from bench.audit_record import (
    Finding,
    Idle,
    Observation,
    Outcome,
    Prediction,
    cause,
    compare,
    merged,
    needs_driver,
    summary,
)
from bench.page import PAGE, Section

FINE = Outcome(ok=True, package="torchvision")
BROKEN = Outcome(ok=False, error="/x/_C.so: undefined symbol: _ZN5torch3jit6ScriptE", package="torchvision")
EXTENSION, BUNDLED = "torchvision/_C.so", "torchvision.libs/libpng16.so"
FAIL = Finding(check="symbols", severity="fail", package="torchvision", file=EXTENSION)


def observation(files=None, imports=None):
    return Observation(
        torch="2.3.1", packages=("torchvision==0.16.2",), about="for torch 2.1", suite="bookworm", python="3.11.2",
        glibc="2.36", installed={"torch": "2.3.1", "torchvision": "0.16.2"},
        imports=imports if imports is not None else {"torchvision": Outcome(ok=True)},
        files={EXTENSION: BROKEN, BUNDLED: FINE} if files is None else files,
    )  # fmt: skip


def test_bench_import_errors_are_classified():
    for error, told in {
        "/lib/libm.so.6: version `GLIBC_2.35' not found (required by a.so)": ("version not found", "GLIBC_2.35"),
        "ModuleNotFoundError: No module named 'torch_sparse'": ("missing module", "torch_sparse"),
        "ended by SIGSEGV": ("crash", "SIGSEGV"),
        # the loader is what a chain of errors is about
        "no | from OSError: liba.so.5: cannot open shared object file: …": ("missing library", "liba.so.5"),
        "AttributeError: no 'x'\n more": ("Python code", "AttributeError: no 'x'"),
    }.items():
        assert cause(Outcome(ok=False, error=error)) == told


LACKS = Outcome(ok=False, error="libpng16.so: cannot open shared object file: …", package="torchvision")
MORE = "torchvision/more.so"
NO_MODULE, IN_PYTHON, NOT_LOADED = (
    {"torchvision": Outcome(ok=False, error=error)}
    for error in ("ModuleNotFoundError: No module named 'torch_sparse'", "AttributeError: no 'x'", BROKEN.error)
)
NOTE = msgspec.structs.replace(FAIL, severity="note", check="libraries")
IDLE = Idle(package="torchvision", files=r"_C\.so$", why="it does without")
WITH_MORE = {EXTENSION: BROKEN, BUNDLED: FINE, MORE: LACKS}


@pytest.mark.parametrize(
    ("seen", "findings", "idle", "missed", "cried"),
    [
        ({}, [FAIL], [], (), ()),
        ({}, [], [], (EXTENSION,), ()),
        ({}, [(FAIL, {"file": BUNDLED})], [], (EXTENSION,), (BUNDLED,)),
        ({}, [(FAIL, {"severity": "warn"})], [], (EXTENSION,), ()),  # a warning predicts nothing
        # a plugin for what is absent is noted, and nothing else counts as that
        ({}, [NOTE], [IDLE], (), ()),
        ({}, [], [IDLE], (EXTENSION,), ()),
        ({}, [(NOTE, {"check": "space"})], [IDLE], (EXTENSION,), ()),
        ({"files": {EXTENSION: FINE}}, [NOTE], [IDLE], (), (EXTENSION,)),
        ({"files": {EXTENSION: FINE}}, [FAIL], [], (), (EXTENSION,)),
        # a library is loaded after another of its package where the import fails, or where it is idle
        ({"files": WITH_MORE, "imports": NOT_LOADED}, [FAIL], [], (), ()),
        ({"files": WITH_MORE}, [FAIL], [], (MORE,), ()),
        ({"files": WITH_MORE}, [FAIL], [Idle(package="torchvision", files="more", why="")], (), ()),
    ],
)
def test_bench_compares_prediction_and_observation_by_file(seen, findings, idle, missed, cried):
    made = [msgspec.structs.replace(one[0], **one[1]) if isinstance(one, tuple) else one for one in findings]
    found = compare(observation(**seen), Prediction(findings=tuple(made)), idle)
    assert (found.missed, found.cried) == (missed, cried)
    assert found.false_fine == bool(missed)
    assert found.false_alarm == bool(cried)


def test_bench_compares_prediction_and_observation_by_package():
    """A note is too little where a package needs the library, a failure too much where it does not."""
    assert compare(observation(), Prediction(findings=(NOTE,))).false_fine
    assert compare(observation(), Prediction(findings=(FAIL,)), [IDLE]).false_alarm
    torch = Finding(check="libraries", severity="fail", package="torch", file="torch/lib/libtorch_cuda.so")
    assert not compare(observation({EXTENSION: FINE}), Prediction(findings=(torch,))).false_alarm
    hidden = Prediction(findings=(Finding(check="metadata", severity="fail", package="TorchVision"),))
    missing = observation({EXTENSION: FINE}, NO_MODULE)
    assert compare(missing, Prediction()).false_fine
    assert not compare(missing, hidden).false_fine
    beyond = compare(observation({EXTENSION: FINE}, IN_PYTHON), Prediction())
    assert (beyond.beyond, beyond.false_fine) == (True, False)
    assert not compare(observation({EXTENSION: BROKEN}, IN_PYTHON), Prediction()).beyond


def test_idle_library_pattern_excludes_the_torch_version():
    idle, outcome = Idle(package="dgl", files=r"_pytorch_(?!{torch}\.so)", why=""), Outcome(ok=False, package="dgl")
    ours, other = (f"dgl/libdgl_sparse_pytorch_{version}.so" for version in ("2.0.1", "2.1.0"))
    assert [idle.has(other, outcome, "2.0.1"), idle.has(ours, outcome, "2.0.1+cu118")] == [True, False]
    assert not idle.has(other, msgspec.structs.replace(outcome, package="torch"), "2.0.1")


def test_libcuda_error_needs_the_driver_and_takes_the_second_outcome():
    wants, other = (f"libcuda.so.{n}: cannot open shared object file: No such file" for n in (1, 12))
    first = {"a.so": Outcome(ok=False, error=wants), "b.so": FINE, "c.so": Outcome(ok=False, error=other)}
    assert needs_driver(first) == ["a.so"]
    second = Outcome(ok=False, error="undefined symbol: cuNew")
    assert merged(first, {"a.so": second}) == {**first, "a.so": msgspec.structs.replace(second, driver=True)}


def test_bench_summary_names_differing_pairs_and_totals():
    right = msgspec.structs.replace(observation(), predicted=Prediction(findings=(FAIL,)))
    wrong = msgspec.structs.replace(observation(), predicted=Prediction())
    alarm = msgspec.structs.replace(observation({EXTENSION: FINE}), predicted=Prediction(findings=(FAIL,)))
    silent = msgspec.structs.replace(observation(), predicted=Prediction(error="exit code 1"))  # has judged nothing
    assert summary({"right": right, "wrong": wrong, "alarm": alarm, "open": observation(), "silent": silent}) == [
        "wrong: missed: torchvision/_C.so (undefined symbol _ZN5torch3jit6ScriptE)",
        "alarm: false alarm: torchvision/_C.so",
        "3 pairs, of which 2 break; 5 libraries, of which 2 do not load.",
        "False “fine”: 1 pairs, 1 libraries. False alarms: 1 pairs (100.0 % of those that work), 1 libraries (33.3 %).",
    ]


def test_committed_bench_pairs_are_unique_and_at_least_48():
    groups = audit_imports.pairs().groups
    names = [group.name(pair) for group in groups for pair in group.pairs]
    assert len(names) == len(set(names)) >= 48
    assert {group.python for group in groups} <= audit_imports.SUITES.keys()
    assert [group.torch for group in groups if group.pairs[0].packages] == [""], "each torch is looked at alone first"
    assert all("==" in package for group in groups for pair in group.pairs for package in pair.packages)


# The benches that write sections of docs/performance.md


def test_bench_section_replaces_the_old_one():
    one = Section("one", "bench/one.py")
    page = f"# Title\n{one.begin}old\n{one.end}\n## Next\n"
    assert one.put(page, "new\n") == page.replace("old", "new")
    for broken in ("", page.replace(one.begin, ""), page.replace(one.end, "")):
        with pytest.raises(ValueError, match="no place for the section: <!-- one: written by bench/one"):
            one.put(broken, "new\n")
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(container_cost.SECTION.begin) == text.count(container_cost.SECTION.end) == 1


def test_container_cost_is_compared_round_by_round():
    outside = [container_cost.Figure(1.0, 4.0, 20.0), container_cost.Figure(2.0, 5.0, 30.0)]
    inside = [container_cost.Figure(1.1, 6.0, 21.0), container_cost.Figure(1.8, 7.0, 31.0)]
    lines = container_cost.section({"outside": outside, "docker 28": inside}, "here").splitlines()
    assert lines[0] == "here."
    assert lines[-2:] == [
        "| outside | 1.500 |  | 4.5 | 25.0 |",
        "| docker 28 | 1.450 | 1.000 (0.900 … 1.100) | 6.5 | 26.0 |",
    ]
    assert container_cost.seconds("1m2.50s") == 62.5


def test_bench_of_steps_counts_each_event_once_and_what_no_step_has():
    def event(name, seconds):
        return {"ph": "X", "name": name, "args": {"processor_seconds": seconds}}

    events = [{"ph": "M", "name": "process_name", "args": {"name": "graphcrate"}}]
    events += [event("fetch a.whl", 1.0), event("fetch b.whl", 2.0), event("fetching 2 files", 9.0)]
    events += [event("sandbox: python -s worker.py", 600.0), event("unpack_wheel", 20.5), event("all", 700.0)]
    found = steps.costs(events)
    assert (found["downloads"], found[steps.COMPILERS], found[steps.REST]) == (3.0, 600.0, 76.5)
    lines = steps.table({"old": found, "new": {**found, steps.ALL: 690.0}}).splitlines()
    assert lines[0] == "| processor seconds | old | new |"
    assert lines[-1] == "| **all but the compilers** (goal: 200) | **100** | **90** |"
    assert len({line.count("|") for line in lines}) == 1


def test_bench_of_steps_shows_what_it_measured_beside_the_goals():
    old = dict.fromkeys(steps.GOALS, 400.0) | {steps.MOST: 9.04e9, steps.AGAIN: 0.3}
    lines = steps.goals({"old": old, "new": {**old, steps.FIRST: 200.0}}).splitlines()
    assert lines[0].endswith("| goal | old | new | new to old |")
    assert f"| {steps.FIRST} | 340 s | 400 s | 200 s | 0.50 |" in lines
    assert f"| {steps.MOST} | 8.0 GB | 9.0 GB | 9.0 GB | 1.00 |" in lines
    assert f"| {steps.AGAIN} | 0.20 s | 0.30 s | 0.30 s | 1.00 |" in lines
    assert len({line.count("|") for line in lines}) == 1
    assert "new to" not in steps.goals({"new": old})


def test_bench_of_steps_counts_what_was_downloaded_once():
    names = {"fetching 54 files": 2000, "fetch a.whl": 1500, "Debian bookworm: 115 packages": 40}
    names |= {"fetching 8 files to compile with": 20, "installing 115 packages of Debian bookworm": 40}
    events = [{"ph": "X", "name": name, "args": {"bytes": size}} for name, size in names.items()]
    assert steps.downloads([*events, {"ph": "M", "name": "fetching 1 files", "args": {}}]) == 2060
