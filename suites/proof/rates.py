"""Rates of collectives as nccl-tests has them: their sizes, a table, a drawing. Pure.

`doc/PERFORMANCE.md` of nccl-tests: the algorithm's bandwidth is size over time, the bus bandwidth is that times a
factor of the number of ranks, so that it can be compared with what the wire carries, for any number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
SMALLEST, LARGEST = 8, 1 << 30  #: bytes
FACTOR = 4  #: between two sizes
ITEM = 4  #: bytes of a number, float32
GIGA = 1e9
WIDTH, HEIGHT, MARGIN = 640, 360, 48
COLOURS = {"all_reduce": "#1b6ca8", "all_gather": "#d1822a", "reduce_scatter": "#2a8a4a"}
_UNITS = ("B", "KiB", "MiB", "GiB")


class Row(NamedTuple):
    """One size of one operation. `size` is of what each rank has after all_gather, and before reduce_scatter."""

    operation: str
    size: int  #: bytes
    seconds: float  #: of one call, mean of all ranks
    repeats: int
    world: int

    @property
    def algorithm(self) -> float:
        """Bytes per second as a program sees them."""
        return self.size / self.seconds if self.seconds > 0 else 0.0

    @property
    def bus(self) -> float:
        """Bytes per second as the slowest link carries them; 0 for one process, which sends nothing."""
        return self.algorithm * factor(self.operation, self.world)

    def as_list(self) -> list[float]:
        """Return bytes, microseconds, both bandwidths in GB/s, repeats."""
        microseconds = round(self.seconds * 1e6, 2)
        return [self.size, microseconds, _figures(self.algorithm / GIGA), _figures(self.bus / GIGA), self.repeats]


def factor(operation: str, world: int) -> float:
    """Return what the bus bandwidth is of the algorithm's."""
    return (2.0 if operation == "all_reduce" else 1.0) * (world - 1) / world


def sizes(largest: int, world: int, smallest: int = SMALLEST) -> list[int]:
    """Return the sizes to measure, in bytes: each has a number for each rank at least, and a multiple of that."""
    step = ITEM * world
    found, size = [], smallest
    while size < largest:
        found.append(size)
        size *= FACTOR
    rounded = [max(size // step, 1) * step for size in (*found, largest)]
    return sorted(set(rounded))


def human(size: float) -> str:
    """Return a size in its unit: 8 B, 512 KiB, 1 GiB."""
    power = min(int(math.log2(size) // 10), len(_UNITS) - 1) if size >= 1 else 0
    return f"{size / 1024**power:.4g} {_UNITS[power]}"


def table(rows: Sequence[Row]) -> list[str]:
    """Return the rows as lines of text."""
    lines = [f"{'operation':<15}{'size':>10}{'time':>13}{'algorithm':>13}{'bus':>12}{'repeats':>9}"]
    lines += [
        f"{row.operation:<15}{human(row.size):>10}{row.seconds * 1e6:>10.1f} us{row.algorithm / GIGA:>8.3f} GB/s"
        f"{row.bus / GIGA:>7.3f} GB/s{row.repeats:>9}"
        for row in rows
    ]
    return lines


def of(rows: Sequence[Row], operation: str) -> list[Row]:
    """Return the rows of one operation."""
    return [row for row in rows if row.operation == operation]


def svg(rows: Sequence[Row], title: str, wire: float = 0.0) -> str:
    """Draw bus bandwidth over size. `wire`: bytes per second that the ports carry, a dashed line; 0: not known."""
    low = math.log2(min((row.size for row in rows), default=SMALLEST))
    high = max(math.log2(max((row.size for row in rows), default=LARGEST)), low + 1)
    top = max([*(row.bus for row in rows), wire, 1.0])

    def across(size: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (math.log2(size) - low) / (high - low)

    def up(rate: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * rate / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>',
        f'<text x="{MARGIN - 6}" y="{MARGIN - 12}" text-anchor="end">GB/s</text>',
    ]
    for tick in range(6):
        rate, size = top * tick / 5, 2 ** round(low + (high - low) * tick / 5)
        parts += [
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{up(rate):.1f}" y2="{up(rate):.1f}" stroke="#dddddd"/>',
            f'<text x="{MARGIN - 6}" y="{up(rate) + 4:.1f}" text-anchor="end">{rate / GIGA:.3g}</text>',
            f'<text x="{across(size):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{human(size)}</text>',
        ]
    if wire:
        parts += [
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{up(wire):.1f}" y2="{up(wire):.1f}" stroke="#888888" '
            'stroke-dasharray="6 4"/>',
            f'<text x="{WIDTH - MARGIN}" y="{up(wire) - 5:.1f}" text-anchor="end" fill="#666666">ports</text>',
        ]
    for number, (operation, colour) in enumerate(COLOURS.items()):
        line = " ".join(f"{across(row.size):.1f},{up(row.bus):.1f}" for row in of(rows, operation))
        x, y = MARGIN + 16 + 160 * number, HEIGHT - 10
        parts += [
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<line x1="{x}" x2="{x + 20}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{x + 26}" y="{y}">{operation}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _figures(value: float) -> float:
    """Round to four figures."""
    return float(f"{value:.4g}")
