"""Progress in logs and pipes: a line now and then."""

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
