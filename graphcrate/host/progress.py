"""What a person sees on stderr while work goes on: bars with rate and time left on a terminal, else plain lines."""

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn, TaskID

PLAIN_INTERVAL = 5.0  #: seconds between two plain lines of one task


class Task:
    """A running piece of work; this one reports nothing."""

    def advance(self, amount: int) -> None:
        """Count so many more bytes, or units, as done. Safe from any thread."""


class Progress:
    """Where stages report to; this one reports nothing."""

    def note(self, message: str) -> None:
        """Print one line."""

    @contextlib.contextmanager
    def task(self, description: str, total: int, unit: str = "") -> Iterator[Task]:
        """A task of `total` bytes, or of what `unit` names ("files"); entering shows it, leaving ends it."""
        yield Task()


class Stderr(Progress):
    """Draws on stderr, lines as `typed` has them. Loads rich at its first use: an unchanged image does without."""

    def __init__(self, typed: "Callable[[str], str]" = str) -> None:
        self._typed = typed
        self._lock = threading.RLock()  #: what follows is changed by threads: a base is made beside downloads
        self._terminal: Console | None = None
        self._bars: Bars | None = None
        self._open = 0  #: tasks that have a bar

    @functools.cached_property
    def _console(self) -> "Console":
        from rich.console import Console

        with self._lock:  # the property of Python 3.12 has none
            self._terminal = self._terminal or Console(stderr=True)
            return self._terminal

    def note(self, message: str) -> None:
        self._console.print(self._typed(message), highlight=False, soft_wrap=True, markup=False)

    @contextlib.contextmanager
    def task(self, description: str, total: int, unit: str = "") -> Iterator[Task]:
        start = time.monotonic()
        if self._console.is_terminal:
            with self._bar(description, total, unit) as bar:
                yield bar
        else:
            yield _Lines(self, description, total, unit)
        seconds = time.monotonic() - start
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
                text, times = progress.TextColumn("{task.description}"), progress.TimeRemainingColumn()
                columns = text, progress.BarColumn(), *_amounts(), times
                self._bars = progress.Progress(*columns, console=self._console, transient=True)
                self._bars.start()
            bars, self._open = self._bars, self._open + 1
            number = bars.add_task(description, total=total, unit=unit)
        try:
            yield _Bar(bars, number)
        finally:
            with self._lock:
                bars.remove_task(number)
                self._open -= 1
                if self._open == 0:
                    bars.stop()
                    self._bars = None


def _amounts() -> "tuple[ProgressColumn, ProgressColumn]":
    """Columns of how much is done and how fast: of bytes, or of a task's units, which have no rate."""
    from rich import progress
    from rich.text import Text

    class Amount(progress.DownloadColumn):
        def render(self, task: progress.Task) -> Text:
            unit = task.fields["unit"]
            return Text(f"{task.completed:.0f} of {task.total:.0f} {unit}") if unit else super().render(task)

    class Rate(progress.TransferSpeedColumn):
        def render(self, task: progress.Task) -> Text:
            return Text() if task.fields["unit"] else super().render(task)

    return Amount(), Rate()


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
        self._done = 0
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
        if self._done * 100 >= self._total:  # before, the rate is that of the beginning and says nothing
            rate = self._done / (now - self._start)
            line += f", {rate / 1e6:.0f} MB/s, {max(self._total - self._done, 0) / rate:.0f} s left"
        self._progress.note(line)
