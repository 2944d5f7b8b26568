"""A build over time, drawn from its trace: bars, a lane for each process and thread. Pure."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE

FILE = "trace.json"  #: beside report.json, where the image was built with GRAPHCRATE_TRACE
LIMIT = 16 << 20  #: bytes of a trace that is read: what a build of hours writes is 2 MB
_SHORTEST = 0.002  #: of the whole; what took less is not drawn
_MOST_BARS = 400
_DEEPEST = 6  #: bars on top of each other in one lane


class Bar(NamedTuple):
    """A stretch of work. `x`, `width` in thousandths of the whole; `row` from the top."""

    name: str
    x: float
    width: float
    row: int
    seconds: float
    processor_seconds: float
    bytes: int


class Timeline(NamedTuple):
    """All bars, and how long the whole took."""

    bars: tuple[Bar, ...]
    rows: int
    seconds: float


class _Figures(msgspec.Struct, frozen=True):
    processor_seconds: float = 0.0
    bytes: int = 0


class _Event(msgspec.Struct, frozen=True):
    """A complete event of the Trace Event Format: `ts` and `dur` in microseconds."""

    ph: str
    name: str
    pid: int
    tid: int
    ts: float
    dur: float
    args: _Figures = _Figures()


def read(data: bytes) -> Timeline | None:
    """Lay out a trace; None for one without events. Lines that are no such event are left out."""
    events = list(_events(data[:LIMIT].splitlines()))
    if not events:
        return None
    start = min(event.ts for event in events)
    whole = max(event.ts + event.dur for event in events) - start
    long = [event for event in events if whole and event.dur >= whole * _SHORTEST]
    long = sorted(long, key=lambda event: -event.dur)[:_MOST_BARS]
    bars: list[Bar] = []
    row = 0
    for lane in _lanes(long):
        deepest = 0
        for event, depth in _nested(lane):
            deepest = max(deepest, depth + 1)
            x, width = (event.ts - start) / whole * 1000, event.dur / whole * 1000
            figures = event.args
            bar = Bar(event.name, x, width, row + depth, event.dur / 1e6, figures.processor_seconds, figures.bytes)
            bars.append(bar)
        row += deepest
    return Timeline(tuple(bars), row, whole / 1e6) if bars else None


def _events(lines: Iterable[bytes]) -> Iterator[_Event]:
    for line in lines:
        try:
            event = codec.decode(line.strip().rstrip(b","), _Event)
        except UNREADABLE:
            continue
        if event.ph != "X":
            continue
        numbers = (event.ts, event.dur, event.args.processor_seconds)
        if all(math.isfinite(number) and number >= 0 for number in numbers) and event.args.bytes >= 0:
            yield event


def _lanes(events: Iterable[_Event]) -> list[list[_Event]]:
    """The events of each thread, by when it began first."""
    lanes: dict[tuple[int, int], list[_Event]] = {}
    for event in sorted(events, key=lambda event: (event.ts, -event.dur)):
        lanes.setdefault((event.pid, event.tid), []).append(event)
    return list(lanes.values())


def _nested(lane: Iterable[_Event]) -> Iterator[tuple[_Event, int]]:
    """Each event of a lane with its depth within others; too deep ones are left out."""
    open_until: list[float] = []
    for event in lane:
        while open_until and open_until[-1] <= event.ts:
            open_until.pop()
        if len(open_until) < _DEEPEST:
            yield event, len(open_until)
        open_until.append(event.ts + event.dur)
