"""Charts as numbers for SVG: rectangles of a treemap, points of a curve. Pure.

Libraries were weighed: matplotlib and plotly weigh more than an image's page a thousand times over, pygal brings a
script from elsewhere, squarify is the forty lines below.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import ValidationError, convert

#: what suites print of an epoch
_EPOCH = re.compile(r"Epoch: (\d+), Loss: ([\d.]+)(?:, Train: [\d.]+, Val: [\d.]+, Test: ([\d.]+))?")
_STEP = re.compile(r"Step: (\d+), Loss: ([\d.]+)")


class Box(NamedTuple):
    """A rectangle of a treemap, in the chart's own units."""

    label: str
    value: int
    x: float
    y: float
    width: float
    height: float


def treemap(values: Sequence[tuple[str, int]], width: float, height: float) -> list[Box]:
    """Lay out positive values as rectangles of proportional areas, nearly square (Bruls, Huizing, van Wijk 2000)."""
    todo = sorted(((label, value) for label, value in values if value > 0), key=lambda item: (-item[1], item[0]))
    total = sum(value for _, value in todo)
    if not total:
        return []
    scale = width * height / total
    boxes: list[Box] = []
    x = y = 0.0
    while todo:
        side = min(width, height)
        row = [todo[0]]
        for item in todo[1:]:
            if _worst([*row, item], side, scale) > _worst(row, side, scale):
                break
            row.append(item)
        todo = todo[len(row) :]
        whole = sum(value for _, value in row)
        thick = min(whole * scale / side, max(width, height))  # not outside by rounding
        at = 0.0
        for label, value in row:
            length = value / whole * side
            if width >= height:
                boxes.append(Box(label, value, x, y + at, thick, length))
            else:
                boxes.append(Box(label, value, x + at, y, length, thick))
            at += length
        if width >= height:
            x, width = x + thick, width - thick
        else:
            y, height = y + thick, height - thick
    return boxes


def _worst(row: Sequence[tuple[str, int]], side: float, scale: float) -> float:
    """Largest ratio of sides in a row along this side."""
    areas = [value * scale for _, value in row]
    thick = sum(areas) / side
    return max(max(thick * thick / area, area / (thick * thick)) for area in areas)


class Curve(NamedTuple):
    """A training: (epoch, loss) and (epoch, accuracy), as polylines of SVG in a field of 0 to 100 each way."""

    loss: str
    accuracy: str
    epochs: int
    highest: float  #: loss, which is 100


def curve(lines: Iterable[str]) -> Curve | None:
    """Read what a suite printed of its training; None where that is fewer than three points."""
    points = list(_points(lines))
    if len(points) < 3:
        return None
    last = max(at for at, _, _ in points)
    highest = max(loss for _, loss, _ in points) or 1.0
    loss = " ".join(f"{at / last * 100:.1f},{100 - value / highest * 100:.1f}" for at, value, _ in points)
    accuracy = " ".join(
        f"{at / last * 100:.1f},{100 - value * 100:.1f}" for at, _, value in points if value is not None
    )
    return Curve(loss, accuracy, last, highest)


def _points(lines: Iterable[str]) -> Iterator[tuple[int, float, float | None]]:
    for line in lines:
        if match := _EPOCH.search(line) or _STEP.search(line):
            accuracy = match[3] if match.re is _EPOCH else None
            at = int(match[1])
            if at > 0:
                yield at, float(match[2]), float(accuracy) if accuracy else None


class Bandwidth(NamedTuple):
    """A size of an operation between processes: bandwidths in GB/s."""

    operation: str
    bytes: int
    microseconds: float
    algorithm: float
    bus: float


class Rates(NamedTuple):
    """Bus bandwidth over the logarithm of size: a polyline for each operation in a field of 0 to 100 each way."""

    lines: Sequence[tuple[str, str]]
    rows: Sequence[Bandwidth]
    highest: float  #: GB/s, which is 100
    ports: float  #: GB/s that the network's ports carry; 0: not known


def rates(metrics: Mapping[str, object]) -> Rates | None:
    """Read what the suite `nccl` measured; None where it is not in its form."""
    try:
        measured = convert(metrics.get("rates", {}), dict[str, list[tuple[int, float, float, float, int]]])
        ports = convert(metrics.get("ports_gb_s", 0.0), float)
    except ValidationError:
        return None
    rows = [Bandwidth(name, *numbers[:4]) for name, sizes in measured.items() for numbers in sizes if numbers[0] > 0]
    if len({row.bytes for row in rows}) < 2:
        return None
    low, high = (math.log2(edge(row.bytes for row in rows)) for edge in (min, max))
    highest = max([ports, *(row.bus for row in rows)]) or 1.0
    lines = [
        (
            name,
            " ".join(
                f"{(math.log2(row.bytes) - low) / (high - low) * 100:.1f},{100 - row.bus / highest * 100:.1f}"
                for row in rows
                if row.operation == name
            ),
        )
        for name in measured
    ]
    return Rates(lines, rows, highest, ports)
