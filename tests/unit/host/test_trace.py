"""The trace of a command (`host.trace`), and the drawing of it (`pages.timeline`)."""

import json
import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.host import settings, trace
from graphcrate.host.parallel import parallel
from graphcrate.host.progress import Stderr
from graphcrate.host.workers import Pool
from graphcrate.model.errors import UsageError
from graphcrate.pages import timeline


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "trace.json"
    trace.begin({trace.VARIABLE: str(path)}, ["image", "pyg", "--mirror", "https://me:hunter2@mirror.example"])
    yield path
    trace.end()


def events(path):
    return {event["name"]: event for event in json.loads(path.read_text())}


def test_spans_of_threads_tasks_and_notes_are_one_json_array(file):
    with trace.span("outer") as span:
        span.bytes = 5
        thread = threading.Thread(target=lambda: trace.note("from a thread"))
        thread.start()
        thread.join()
        with Stderr(quiet=True).task("unpacking", 7):
            pass
    trace.end()
    found = events(file)
    outer, inner = found["outer"], found["unpacking"]
    assert (outer["ph"], outer["args"]["bytes"], inner["args"]["bytes"]) == ("X", 5, 7)
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    assert found["from a thread"]["tid"] != outer["tid"]
    assert found["all"]["args"]["processor_seconds"] > 0
    assert "hunter2" not in file.read_text()


def test_span_counts_the_processor_seconds_of_its_threads(file):
    def work(_, advance):
        before = time.thread_time()
        while time.thread_time() - before < 0.05:
            pass

    with trace.span("outer"), trace.span("inner"):
        parallel(work, range(3), threads=3)
    with trace.span("after"):
        pass
    trace.end()
    taken = {name: events(file)[name]["args"]["processor_seconds"] for name in ("inner", "after")}
    assert 0.15 <= taken["inner"] < 1
    assert taken["after"] < 0.05


def test_span_that_an_error_ends_is_traced(file):
    with pytest.raises(KeyError), trace.span("fails"):
        raise KeyError
    trace.end()
    assert "fails" in events(file)


def test_killed_command_leaves_lines_that_are_whole(file):
    with trace.span("first"):
        pass
    *lines, last = file.read_text().split("\n")
    assert (lines[0], last) == ("[", "")
    assert [json.loads(line.rstrip(",")) for line in lines[1:]]
    assert json.loads(trace.so_far())[-1]["name"] == "first"


def test_without_the_variable_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trace.begin({}, ["list"])
    with trace.span("a"):
        trace.note("b")
    trace.end()
    assert (list(tmp_path.iterdir()), trace.so_far()) == ([], b"")


def test_commands_that_this_one_starts_do_not_begin_the_file_again(tmp_path, monkeypatch):
    monkeypatch.setenv(trace.VARIABLE, str(tmp_path / "trace.json"))
    trace.begin(settings.environment(), ["update"])
    trace.end()
    assert trace.VARIABLE not in settings.environment()


def test_file_that_cannot_be_written_is_refused_with_its_path(tmp_path):
    with pytest.raises(UsageError, match=r"absent/t\.json: No such file") as caught:
        trace.begin({trace.VARIABLE: str(tmp_path / "absent" / "t.json")}, [])
    assert "unset GRAPHCRATE_TRACE" in caught.value.next_step
    assert trace.path() is None


def test_trace_that_vanishes_ends_no_command(file, capsys):
    file.unlink()
    with trace.span("a"):
        pass
    with trace.span("b"):
        pass
    assert capsys.readouterr().err.count("is not continued: No such file") == 1


def test_work_that_a_pool_does_in_this_process_is_done_without_a_worker(file):
    with Pool(0) as pool:
        pool.submit(1, lambda advance: 3, of="x")
        assert list(pool.results()) == [("x", 3)]


def test_processor_seconds_of_a_running_process_are_read_and_of_none_are_zero():
    assert trace.processor_seconds(os.getpid()) > 0
    assert trace.processor_seconds(1 << 30) == 0


def line(name, ts, dur, pid=1, tid=1, **args):
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
    return json.dumps(event).encode() + b","


def test_bars_lie_in_lanes_of_threads_within_what_they_are_part_of():
    made = timeline.read(
        b"\n".join(
            [
                b"[",
                line("inner", 250, 500, processor_seconds=0.1, bytes=9),
                line("outer", 0, 1000),
                line("beside", 500, 500, tid=2),
                line("too short", 0, 1),
                b'{"ph": "M", "name": "process_name"},',
                b"]",
            ]
        )
    )
    assert [(bar.name, bar.x, bar.width, bar.row) for bar in made.bars] == [
        ("outer", 0, 1000, 0),
        ("inner", 250, 500, 1),
        ("beside", 500, 500, 2),
    ]
    assert (made.rows, made.seconds, made.bars[1].bytes) == (3, 0.001, 9)


@pytest.mark.parametrize(
    "data", [b"", b"[\n]", b"not json", line("a", 0, 0), line("a", -1, 5), b'{"ph":"X","name":"a","ts":1e999}']
)
def test_trace_without_work_is_not_drawn(data):
    assert timeline.read(data) is None


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 3)), max_size=60))
def test_bars_of_any_spans_stay_in_the_drawing(spans):
    made = timeline.read(b"\n".join(line("x", ts, dur, tid=tid) for ts, dur, tid in spans))
    for bar in made.bars if made else ():
        assert 0 <= bar.x <= bar.x + bar.width <= 1000.001
        assert 0 <= bar.row < made.rows


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data):
    timeline.read(data)
