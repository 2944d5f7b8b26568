"""Progress on stderr: bars with rate and time left on a terminal, else plain lines.

Quiet, warnings alone.
"""

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from graphcrate.host import streams, trace
from graphcrate.model.words import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn, TaskID

PLAIN_INTERVAL = 30.0  #: seconds between two plain lines of one task
_SMOOTHING = 30.0  #: seconds after which what a rate was counts for a third
_FIRST_TENTH = 10  #: a time left is shown from this part of the work on: before, the rate is that of the beginning


class Task:
    """A running piece of work; this one reports nothing."""

    def advance(self, amount: int) -> None:
        """Count so many more bytes, or units, as done. Safe from any thread."""


class Progress:
    """The receiver of stages' reports; this one shows nothing."""

    @property
    def width(self) -> int:
        """The columns of the terminal that shows them; 0 where there is none."""
        return 0

    def note(self, message: str) -> None:
        """Print one line."""

    def warn(self, message: str) -> None:
        """Print one line that the user should know of, when all went well too."""
        self.note(message)

    @contextlib.contextmanager
    def task(self, description: str, total: int, unit: str = "", *, brief: bool = False) -> Iterator[Task]:
        """A task of `total` bytes, or of what `unit` names ("files"); entering shows it, leaving ends it.

        `brief`: its time is not shown.
        """
        yield Task()


class Stderr(Progress):
    """Draws on stderr; `quiet`: warnings alone; `shown`: words a line for its reader.

    Loads rich at its first use: an unchanged image does without.
    """

    def __init__(self, *, quiet: bool = False, shown: Callable[[str], str] = str) -> None:
        self._quiet, self._shown = quiet, shown
        self._lock = threading.RLock()  #: what follows is changed by threads: a base is made beside downloads
        self._terminal: Console | None = None
        self._bars: Bars | None = None
        self._open = 0  #: tasks that have a bar

    @functools.cached_property
    def _console(self) -> "Console":
        with self._lock:  # the property of Python 3.12 has none
            self._terminal = self._terminal or streams.console(stderr=True)
            return self._terminal

    @property
    def width(self) -> int:
        return self._console.width if self._console.is_terminal else 0

    def note(self, message: str) -> None:
        if not self._quiet:
            self.warn(message)
        else:
            trace.note(message)

    def warn(self, message: str) -> None:
        trace.note(message)
        self._console.print(visible(self._shown(message)), highlight=False, soft_wrap=True, markup=False)

    @contextlib.contextmanager
    def task(self, description: str, total: int, unit: str = "", *, brief: bool = False) -> Iterator[Task]:
        start = time.monotonic()
        with trace.span(description) as span:
            span.bytes = 0 if unit else total
            if self._quiet:
                yield Task()
            elif self._console.is_terminal:
                with self._bar(description, total, unit) as bar:
                    yield bar
            else:
                yield _Lines(self, description, total, unit)
        seconds = time.monotonic() - start
        if brief or self._quiet:
            return
        if unit:
            self.note(f"{description}: {total} {unit} in {seconds:.1f} s")
            return
        rate = f", {total / 1e6 / seconds:.0f} MB/s" if seconds > 0.5 else ""
        self.note(f"{description}: {total / 1e6:.1f} MB in {seconds:.1f} s{rate}")

    @contextlib.contextmanager
    def _bar(self, description: str, total: int, unit: str) -> Iterator[Task]:
        """A bar among those of other tasks that run: a terminal has room for one group of bars."""
        from rich import progress

        with self._lock:
            if self._bars is None:
                columns = progress.TextColumn("{task.description}"), progress.BarColumn(), *_amounts()
                self._bars = progress.Progress(*columns, console=self._console, transient=True)
                self._bars.start()
            bars, self._open = self._bars, self._open + 1
            number = bars.add_task(visible(description), total=total, unit=unit, pace=Rate(total))
        try:
            yield _Bar(bars, number)
        finally:
            with self._lock:
                bars.remove_task(number)
                self._open -= 1
                if self._open == 0:
                    bars.stop()
                    self._bars = None


class Rate:
    """The smoothed speed of a task: downloads and layers come in fits and starts."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._start = self._seen = time.monotonic()
        self._rate = 0.0

    def left(self, done: int) -> float | None:
        """Seconds until all is done; None before a tenth is, and where nothing goes on."""
        now = time.monotonic()
        passed, since = now - self._start, now - self._seen
        if done * _FIRST_TENTH < self._total or not passed:
            return None
        if not self._rate:
            self._rate = done / passed
        elif since:
            recent = max(done - self._done, 0) / since
            self._rate += (recent - self._rate) * -math.expm1(-since / _SMOOTHING)
        self._done, self._seen = done, now
        return max(self._total - done, 0) / self._rate if self._rate else None


def _amounts() -> "tuple[ProgressColumn, ProgressColumn, ProgressColumn]":
    """Columns of how much is done, how fast and how long still: of bytes, or of units, which have no rate."""
    from rich import progress
    from rich.text import Text

    class Amount(progress.DownloadColumn):
        def render(self, task: progress.Task) -> Text:
            unit = task.fields["unit"]
            return Text(f"{task.completed:.0f} of {task.total:.0f} {unit}") if unit else super().render(task)

    class Rate(progress.TransferSpeedColumn):
        def render(self, task: progress.Task) -> Text:
            return Text() if task.fields["unit"] else super().render(task)

    class Left(progress.ProgressColumn):
        max_refresh = 0.5

        def render(self, task: progress.Task) -> Text:
            seconds = task.fields["pace"].left(int(task.completed))
            return Text(
                "" if seconds is None else f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"
            )

    return Amount(), Rate(), Left()


class _Bar(Task):
    def __init__(self, bars: "Bars", number: "TaskID") -> None:
        self._bars, self._number = bars, number

    def advance(self, amount: int) -> None:
        self._bars.advance(self._number, amount)


class _Lines(Task):
    """One line now and then, for logs and pipes."""

    def __init__(self, progress: Progress, description: str, total: int, unit: str = "") -> None:
        self._progress, self._description, self._total, self._unit = progress, description, total, unit
        self._start = self._last = time.monotonic()
        self._done, self._pace = 0, Rate(total)
        self._lock = threading.Lock()

    def advance(self, amount: int) -> None:
        with self._lock:
            self._advance(amount)

    def _advance(self, amount: int) -> None:
        self._done += amount
        now = time.monotonic()
        if now - self._last < PLAIN_INTERVAL or not self._total:
            return
        self._last = now
        if self._unit:
            self._progress.note(f"{self._description}: {self._done} of {self._total} {self._unit}")
            return
        line = f"{self._description}: {self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB"
        if (left := self._pace.left(self._done)) is not None:
            line += f", {self._done / 1e6 / (now - self._start):.0f} MB/s, {left:.0f} s left"
        self._progress.note(line)
