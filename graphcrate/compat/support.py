"""Which GPUs run which CUDA versions of a recipe: the verdicts of `compat.explain` side by side."""

from collections.abc import Mapping
from typing import NamedTuple

from graphcrate.compat import explain, facts
from graphcrate.compat.targets import Said
from graphcrate.model.recipe import Recipe
from graphcrate.model.target import STATUSES, Row, Status, Target

#: of a verdict, in one character and in words
MARKS: dict[Status, tuple[str, str]] = {
    "native": ("●", "runs"),
    "jit": ("◐", "runs, slow first start: the driver compiles PTX"),
    "unknown": ("?", "not known"),
    "rejected": ("·", "does not run"),
}


class Cell(NamedTuple):
    """The best verdict of a variant's candidates on a GPU, why where it is not native, and which candidates run."""

    status: Status
    torch: str
    why: str = ""
    ways: tuple[str, ...] = ()  #: candidates


class GpuRow(NamedTuple):
    """GPU models of one compute capability ("7.0"), with a cell for each CUDA version."""

    capability: str
    models: tuple[str, ...]
    cells: Mapping[str, Cell]


class Support(NamedTuple):
    """A recipe's CUDA versions, the newest first, each with the oldest driver ("450.80.02"), and the GPUs."""

    recipe: str
    drivers: Mapping[str, str]
    rows: tuple[GpuRow, ...]


def support(recipe: Recipe) -> Support:
    """Judge every CUDA variant of a recipe on every GPU that lists name. Extensions count as compiled for that GPU."""
    models: dict[str, list[str]] = {}
    for model, capability in facts.gpus().items():
        models.setdefault(capability, []).append(model)
    cudas = sorted((one.cuda for one in recipe.variants if one.cuda != "cpu"), key=facts.numbers, reverse=True)
    rows = []
    for capability, names in models.items():
        judged = explain.explain(recipe, Target(gpus=(names[0],)), Said(gpu=names[0])).rows
        cells = {cuda: _best([row for row in judged if row.cuda == cuda]) for cuda in cudas}
        rows.append(GpuRow(capability, tuple(names), cells))
    return Support(recipe.name, {cuda: facts.oldest_driver(cuda) for cuda in cudas}, tuple(rows))


def _best(rows: list[Row]) -> Cell:
    row = min(rows, key=lambda row: STATUSES.index(row.verdict.status))
    why = row.verdict.reasons[0].what if row.verdict.reasons and row.verdict.status != "native" else ""
    ways = tuple(one.candidate for one in rows if one.verdict.status in ("native", "jit"))
    return Cell(row.verdict.status, row.torch, why, ways)
