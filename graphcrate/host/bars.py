"""Progress on stderr: rich bars on a terminal, plain lines elsewhere."""

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bars

from graphcrate.host.progress import Progress, Task

PLAIN_INTERVAL = 5.0  #: seconds between two plain lines of one task


class _Notes:
    def __init__(self, console: Console) -> None:
        self._console = console

    def note(self, message: str) -> None:
        self._console.print(message, highlight=False, soft_wrap=True, markup=False)


class Terminal(_Notes):
    """Rich bars. `console` must write to stderr."""

    _bars: Bars | None = None
    _open = 0

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        if self._bars is None:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        bars, self._open = self._bars, self._open + 1
        number = bars.add_task(description, total=total)
        start = time.monotonic()
        try:
            yield _Bar(bars, number)
        finally:
            bars.remove_task(number)
            self._open -= 1
            if self._open == 0:
                bars.stop()
                self._bars = None
        self.note(_finished(description, total, time.monotonic() - start))


class _Bar:
    def __init__(self, bars: Bars, number: object) -> None:
        self._bars, self._number = bars, number

    def advance(self, amount: int) -> None:
        self._bars.advance(self._number, amount)  # type: ignore[arg-type]


class Plain(_Notes):
    """One line now and then, for logs and pipes."""

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        task = _Lines(self, description, total)
        yield task
        self.note(_finished(description, total, time.monotonic() - task.start))


class _Lines:
    def __init__(self, progress: Plain, description: str, total: int) -> None:
        self._progress, self._description, self._total = progress, description, total
        self.start = self._said = time.monotonic()
        self._done = 0

    def advance(self, amount: int) -> None:
        self._done += amount
        now = time.monotonic()
        if now - self._said < PLAIN_INTERVAL or not self._total:
            return
        self._said = now
        rate = self._done / (now - self.start)
        left = max(self._total - self._done, 0) / rate if rate else 0.0
        self._progress.note(
            f"{self._description}: {self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB, "
            f"{rate / 1e6:.0f} MB/s, {left:.0f} s left"
        )


def _finished(description: str, total: int, seconds: float) -> str:
    rate = f", {total / 1e6 / seconds:.0f} MB/s" if seconds > 0.5 else ""
    return f"{description}: {total / 1e6:.1f} MB in {seconds:.1f} s{rate}"


def to_stderr() -> Progress:
    """Bars when stderr is a terminal, plain lines otherwise."""
    console = Console(stderr=True)
    return Terminal(console) if console.is_terminal else Plain(console)
