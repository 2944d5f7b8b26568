"""Draws a training curve: SVG in plain Python, PNG where matplotlib is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WIDTH, HEIGHT, MARGIN = 640, 360, 48
COLOURS = {"loss": "#888888", "train": "#1b6ca8", "validation": "#d1822a", "test": "#2a8a4a"}


class Point:
    """One evaluation: `loss` of the epoch's step, accuracies between 0 and 1."""

    def __init__(self, epoch: int, loss: float, train: float, validation: float, test: float) -> None:
        self.epoch, self.loss = epoch, loss
        self.train, self.validation, self.test = train, validation, test

    def as_list(self) -> list[float]:
        return [self.epoch, self.loss, self.train, self.validation, self.test]


def draw(points: Sequence[Point], title: str, path: Path) -> None:
    """Write the curve as SVG or PNG, by the path's ending. Raises Fault when the path ends otherwise or cannot be."""
    check(path)
    if path.suffix == ".svg":
        path.write_text(svg(points, title), encoding="utf-8")
    else:
        _png(points, title, path)


def check(path: Path) -> None:
    """Find out before the training whether the curve can be drawn. Raises Fault."""
    if path.suffix not in (".svg", ".png"):
        raise Fault(Layer.DATA, f"--curve {path}: the name must end in .svg or .png")
    if path.suffix == ".png":
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise Fault(
                Layer.DATA, f"--curve {path}: a PNG needs matplotlib, which is absent ({error}); take a name in .svg"
            ) from error
    if not path.absolute().parent.is_dir():
        raise Fault(Layer.DATA, f"--curve {path}: there is no folder {path.absolute().parent}")


def svg(points: Sequence[Point], title: str) -> str:
    """The curve as an SVG document: accuracies on the left axis, loss on the right."""
    last = max((point.epoch for point in points), default=1)
    top = max((point.loss for point in points), default=1.0) or 1.0
    inner = (WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN)

    def across(epoch: float) -> float:
        return MARGIN + inner[0] * epoch / last

    def up(share: float) -> float:
        return HEIGHT - MARGIN - inner[1] * share

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>',
    ]
    for tick in range(6):
        share, epoch = tick / 5, round(last * tick / 5)
        parts += [
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{up(share):.1f}" y2="{up(share):.1f}" stroke="#dddddd"/>',
            f'<text x="{MARGIN - 6}" y="{up(share) + 4:.1f}" text-anchor="end">{share:.1f}</text>',
            f'<text x="{WIDTH - MARGIN + 6}" y="{up(share) + 4:.1f}" fill="{COLOURS["loss"]}">{top * share:.2f}</text>',
            f'<text x="{across(epoch):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{epoch}</text>',
        ]
    height_of: dict[str, Callable[[Point], float]] = {
        "loss": lambda point: point.loss / top,
        "train": lambda point: point.train,
        "validation": lambda point: point.validation,
        "test": lambda point: point.test,
    }
    for place, (name, height) in enumerate(height_of.items()):
        line = " ".join(f"{across(point.epoch):.1f},{up(height(point)):.1f}" for point in points)
        x, y = MARGIN + 16 + 120 * place, HEIGHT - 10
        parts += [
            f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>',
            f'<line x1="{x}" x2="{x + 20}" y1="{y - 4}" y2="{y - 4}" stroke="{COLOURS[name]}" stroke-width="2"/>',
            f'<text x="{x + 26}" y="{y}">{name}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _png(points: Sequence[Point], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, left = pyplot.subplots(figsize=(8, 4.5))
    right = left.twinx()
    epochs = [point.epoch for point in points]
    for name in ("train", "validation", "test"):
        left.plot(epochs, [getattr(point, name) for point in points], color=COLOURS[name], label=name)
    right.plot(epochs, [point.loss for point in points], color=COLOURS["loss"], label="loss")
    left.set(title=title, xlabel="epoch", ylabel="accuracy", ylim=(0, 1))
    right.set_ylabel("loss")
    left.legend(loc="lower right")
    figure.savefig(path, dpi=120)
