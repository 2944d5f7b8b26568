"""What people see of trials: a table that fills on a terminal, a line for each change elsewhere, a table at the end."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from graphcrate.engines.trials import matrix
from graphcrate.model.report import SmokeReport
from graphcrate.model.trial import Cell, State

_COLOURS = {State.PASSED: "green", State.FAILED: "red", State.LOST: "yellow", State.RUNNING: "cyan"}
_WIDTH = 160  #: where no terminal has one


class Board:
    """The matrix on stderr."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._said: dict[str, tuple[State, str]] = {}

    @contextlib.contextmanager
    def shown(self) -> Iterator["Board"]:
        """While the block lasts, a terminal has the table at its end."""
        if not self._console.is_terminal:
            yield self
            return
        with Live(console=self._console, auto_refresh=False) as live:
            self._live = live
            try:
                yield self
            finally:
                self._live = None

    def show(self, cells: Sequence[Cell]) -> None:
        """The cells as they stand."""
        if self._live is not None:
            self._live.update(table(cells), refresh=True)
            return
        for cell in cells:
            now = (cell.state, cell.why)
            if cell.state is not State.NEW and self._said.get(cell.key) != now:
                self._said[cell.key] = now
                self._console.print(line(cell), highlight=False, markup=False, soft_wrap=True)


def line(cell: Cell) -> str:
    """`pyg:… on a100: queued as job 12_0: Resources`."""
    job = f" as job {cell.job}" if cell.job and cell.state.is_open else ""
    node = f" on {cell.node}" if cell.node and cell.state is State.RUNNING else ""
    why = f": {cell.why}" if cell.why else ""
    return f"{cell.reference} on {_where(cell)}: {cell.state}{job}{node}{why}"


def table(cells: Sequence[Cell]) -> Table:
    """One row a cell; the title counts."""
    found = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, title=matrix.counts(cells), title_justify="left")
    for name in ("image", "partition", "state", "job", "node", "device", "driver", "runtime", "seconds"):
        found.add_column(name, overflow="fold", justify="right" if name == "seconds" else "left")
    found.add_column("", overflow="fold")
    for cell in cells:
        first = next(iter(cell.suites), None)
        state = f"[{_COLOURS[cell.state]}]{cell.state}[/]" if cell.state in _COLOURS else str(cell.state)
        observed = [first.device, first.driver, _runtime(first)] if first else ["", "", ""]
        seconds = f"{sum(suite.seconds for suite in cell.suites):.0f}" if cell.suites else ""
        found.add_row(cell.reference, _where(cell), state, cell.job, cell.node, *observed, seconds, _plain(cell.why))
    return found


def suites_lines(suites: Sequence[SmokeReport]) -> list[str]:
    """A line for each suite: `dna: passed on Tesla V100 in 41 s (driver 535.54.03, apptainer 1.4.5)`."""
    lines = []
    for suite in suites:
        place = f"job {suite.job} on {suite.node}, partition {suite.partition}" if suite.job else ""
        driver = f"driver {suite.driver}" if suite.driver else ""
        told = ", ".join(part for part in (driver, _runtime(suite), place) if part)
        end = f": {suite.reason}" if suite.reason else ""
        if suite.remembered:
            end = f", on {suite.remembered[:10]}; not run again, --rerun runs it"
        lines.append(f"{suite.suite}: {suite.status} on {suite.device} in {suite.seconds:.0f} s ({told}){end}")
    return lines


def text(cells: Sequence[Cell], width: int = _WIDTH) -> str:
    """The table as text."""
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(table(cells))
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines()) + "\n"


def _where(cell: Cell) -> str:
    return f"{cell.resources.partition} {cell.resources.gres}".strip()


def _runtime(suite: SmokeReport) -> str:
    return f"{suite.runtime} {suite.runtime_version}".strip()


def _plain(words: str) -> Any:  # noqa: ANN401
    """Without markup: reasons have brackets."""
    from rich.text import Text

    return Text(words)
