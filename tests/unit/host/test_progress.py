"""Progress in logs and pipes: a line now and then."""

import io
import itertools

import pytest
from rich.console import Console

from graphcrate.host import progress
from tests.unit.conftest import Recorder

MB = 1_000_000


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_progress_prints_a_line_each_30_s_with_rate_and_time_left(now):
    seen = Recorder()
    lines = progress._Lines(seen, "fetching", 100 * MB)
    for seconds, amount in ((10, MB // 2), (31, 9 * MB), (45, 10 * MB), (62, MB // 2), (93, 30 * MB), (125, 50 * MB)):
        now[0] = float(seconds)
        lines.advance(amount)
    assert seen.lines == [
        "fetching: 10 of 100 MB",
        "fetching: 20 of 100 MB, 0 MB/s, 248 s left",
        "fetching: 50 of 100 MB, 1 MB/s, 68 s left",
        "fetching: 100 of 100 MB, 1 MB/s, 0 s left",
    ]


@pytest.mark.parametrize(("done", "known"), [(0, False), (9, False), (10, True), (100, True)])
def test_time_left_is_unknown_before_a_tenth_is_done(now, done, known):
    pace = progress.Rate(100)
    now[0] = 5.0
    assert (pace.left(done) is not None) is known


def test_pause_in_progress_keeps_time_left_steady(now):
    pace, left = progress.Rate(1000), []
    for second in range(1, 41):
        now[0] = float(second)
        left.append(pace.left(min(second, 20) * 20 + max(second - 30, 0) * 20))  # a pause from 20 to 30
    known = [one for one in left if one is not None]
    assert known[0] == pytest.approx(45)
    assert max(known[20:]) < 2 * known[19]
    assert all(abs(one - two) < 10 for one, two in itertools.pairwise(known))


def test_progress_counts_files_in_their_unit(now, capsys):
    with progress.Stderr().task("looking", 300, "files") as task:
        now[0] = 31.0
        task.advance(200)
    assert capsys.readouterr().err.splitlines() == ["looking: 200 of 300 files", "looking: 300 files in 31.0 s"]


def test_quiet_progress_prints_warnings_and_brief_tasks_only_if_slow(now, capsys):
    for seen in (progress.Stderr(), progress.Stderr(quiet=True)):
        with seen.task("reading", 300, brief=not seen._quiet):
            pass
        with seen.task("reading", 300, brief=True) as task:
            now[0] += 31.0
            task.advance(200)
        seen.note("a note")
        seen.warn("a warning")
    assert capsys.readouterr().err.splitlines() == [
        "reading: 0 of 0 MB, 0 MB/s, 16 s left",
        "a note",
        "a warning",
        "a warning",
    ]


def test_progress_bars_of_bytes_and_files_are_drawn_together(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, _environ={"TERM": "xterm"})
    monkeypatch.setitem(vars(seen := progress.Stderr()), "_console", screen)
    with seen.task("looking", 300, "files") as task, seen.task("fetching", 2 * MB):
        task.advance(200)
        seen._bars.refresh()
    assert "200 of 300 files" in screen.file.getvalue()
    assert "0.0/2.0 MB" in screen.file.getvalue()
