"""Show trials: a table that fills on a terminal, a line for each change elsewhere, a table at the end."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from graphcrate.host import streams
from graphcrate.model.report import SmokeReport
from graphcrate.model.trial import MatrixCell, State

_COLOURS = {State.PASSED: "green", State.FAILED: "red", State.LOST: "yellow", State.RUNNING: "cyan"}


Show = Callable[[Sequence[MatrixCell]], None]


@contextlib.contextmanager
def shown(note: Callable[[str], None]) -> Iterator[Show]:
    """Give a function that shows the cells: as a table on a terminal, else it notes each change."""
    console = streams.console(stderr=True)
    if not console.is_terminal:
        yield changes(note)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda cells: live.update(table(cells), refresh=True)


def changes(note: Callable[[str], None]) -> Show:
    """Return a function that notes a line for each cell that changed since its last call."""
    before: dict[int, str] = {}

    def show(cells: Sequence[MatrixCell]) -> None:
        for number, cell in enumerate(cells):
            if cell.state is not State.NEW and before.get(number) != line(cell):
                before[number] = line(cell)
                note(line(cell))

    return show


def line(cell: MatrixCell) -> str:
    """Describe a cell: `pyg:… on a100: queued as job 12_0: Resources`."""
    job = f" as job {cell.job}" if cell.job and cell.state.is_open else ""
    node = f" on {cell.node}" if cell.node and cell.state is State.RUNNING else ""
    why = f": {cell.why}" if cell.why else ""
    return f"{cell.order.reference} on {_where(cell)}: {cell.state}{job}{node}{why}"


def table(cells: Sequence[MatrixCell]) -> Table:
    """Make a table with a row for each cell and counts as its title."""
    numbers = {state: sum(cell.state is state for cell in cells) for state in State}
    counts = ", ".join(f"{number} {state}" for state, number in numbers.items() if number)  # `3 passed, 1 running`
    made = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, title=counts, title_justify="left")
    for name in ("image", "partition", "state", "job", "node", "device", "driver", "runtime", "seconds", ""):
        made.add_column(name, overflow="fold", justify="right" if name == "seconds" else "left")
    for cell in cells:
        first = next(iter(cell.suites), None)
        state = Text(cell.state, style=_COLOURS.get(cell.state, ""))
        node = [first.device, first.driver, _runtime(first)] if first else ["", "", ""]
        seconds = f"{sum(suite.seconds for suite in cell.suites):.0f}" if cell.suites else ""
        # a reason has brackets, which are no markup
        made.add_row(cell.order.reference, _where(cell), state, cell.job, cell.node, *node, seconds, Text(cell.why))
    return made


def suites_lines(suites: Sequence[SmokeReport]) -> list[str]:
    """Describe each suite: `dna: passed on Tesla V100 in 41 s (driver 535.54.03, apptainer 1.4.5)`."""
    lines = []
    for suite in suites:
        device = f" on {suite.device}" if suite.device not in ("", "none") else ""  # it may end before it has one
        job = f"job {suite.job} on {suite.node}, partition {suite.partition}" if suite.job else ""
        driver = f"driver {suite.driver}" if suite.driver else ""
        details = ", ".join(part for part in (driver, _runtime(suite), job) if part)
        end = f": {suite.reason}" if suite.reason else ""
        if suite.remembered:
            end = f", on {suite.remembered[:10]}; not run again, --rerun runs it"
        lines.append(f"{suite.suite}: {suite.status}{device} in {suite.seconds:.0f} s ({details}){end}")
    return lines


def text(cells: Sequence[MatrixCell]) -> str:
    """Print the table into a text."""
    console = streams.console(width=160, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(table(cells))
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines()) + "\n"


def _where(cell: MatrixCell) -> str:
    return f"{cell.resources.partition} {cell.resources.gres}".strip()


def _runtime(suite: SmokeReport) -> str:
    return f"{suite.runtime} {suite.runtime_version}".strip()
