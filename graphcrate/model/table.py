"""The answer of a command as tables: a terminal shows them (`cli.tables`), scripts read them as plain lines. Pure."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from graphcrate.model.words import printable


class Column(NamedTuple):
    """A column. `ratio`: of the terminal's width, None for what the cells need. `only`: where it is written."""

    head: str
    ratio: int | None = None
    only: Literal["", "terminal", "lines"] = ""


class Row(NamedTuple):
    """A row with a cell for each column. `style`: rich's words for the table's styled cell."""

    cells: tuple[str, ...]
    style: str = ""


class Table(NamedTuple):
    """Rows below heads. `styled`: the column that shows each row's style."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    styled: int = 0


class Answer(NamedTuple):
    """Lines, tables and a summary, `last` for scripts. `aligned`: scripts' rows have the last cell below the others."""

    tables: tuple[Table, ...]
    opening: tuple[str, ...] = ()
    summary: str = ""
    last: str = ""
    aligned: bool = False

    def lines(self) -> Iterator[str]:
        """Write one line for each row, its fields apart by tabs, or aligned."""
        yield from self.opening
        if self.opening:
            yield ""
        for table in self.tables:
            shown = [index for index, column in enumerate(table.columns) if column.only != "terminal"]
            rows = [[row.cells[index] for index in shown] for row in table.rows]
            width = max((len(first) for first, *_ in rows), default=0)
            for first, *others in rows:
                if self.aligned:
                    yield f"{first:{width}}  {'  '.join(others[:-1])}"
                    yield from (f"{'':{width}}  {line}" for line in others[-1].splitlines())
                else:
                    yield "\t".join(map(printable, (first, *others))).rstrip("\t")
        if self.last:
            yield self.last
