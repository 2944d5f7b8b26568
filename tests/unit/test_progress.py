"""Progress in logs and pipes: a line now and then."""

import io

from rich.console import Console

from graphcrate.host import progress
from tests.unit.conftest import Recorder

MB = 1_000_000


def test_lines_every_few_seconds_with_rate_and_time_left_once_they_mean_something(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    seen = Recorder()
    lines = progress._Lines(seen, "fetching", 100 * MB)
    for seconds, amount in ((4, MB // 2), (6, 0), (8, 49 * MB), (11, MB // 2), (20, 60 * MB)):
        now[0] = float(seconds)
        lines.advance(amount)
    assert seen.lines == [
        "fetching: 0 of 100 MB",
        "fetching: 50 of 100 MB, 5 MB/s, 11 s left",
        "fetching: 110 of 100 MB, 6 MB/s, 0 s left",
    ]


def test_what_is_not_bytes_is_counted_in_its_unit(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Stderr().task("looking", 300, "files") as task:
        now[0] = 6.0
        task.advance(200)
    assert capsys.readouterr().err.splitlines() == ["looking: 200 of 300 files", "looking: 300 files in 6.0 s"]


def test_bars_of_bytes_and_of_units_stand_side_by_side(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, _environ={"TERM": "xterm"})
    monkeypatch.setitem(vars(seen := progress.Stderr()), "_console", screen)
    with seen.task("looking", 300, "files") as task, seen.task("fetching", 2 * MB):
        task.advance(200)
        seen._bars.refresh()
    assert "200 of 300 files" in screen.file.getvalue()
    assert "0.0/2.0 MB" in screen.file.getvalue()
