"""Tell which GPU runs which CUDA version of a recipe, for `list`, the catalogue and README's picture.

One answer for all of them, by the verdicts of `explain`. It is about the image that `make image CUDA=…` makes; one
that runs only where GPU= names the model has a mark of its own.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from graphcrate.compat.facts import driver_table, gpu_table
from graphcrate.compat.facts.facts import numbers
from graphcrate.compat.variants.explain import Judgements, candidates_of, judge_target
from graphcrate.compat.variants.targets import Target
from graphcrate.model.command import setting
from graphcrate.model.recipe import Candidate, Recipe, Variant

#: `rules.Status` of the image that is built for no GPU in particular; `built`: it runs where it was built for this one
Mark = Literal["native", "jit", "built", "unknown", "rejected"]
#: in one character and in words, the best first
MARKS: dict[Mark, tuple[str, str]] = {
    "native": ("●", "runs"),
    "jit": ("◐", "runs, slow first start (PTX)"),
    "built": ("○", f"runs when built for it: {setting(gpu='…')}"),
    "unknown": ("?", "not known"),
    "rejected": ("·", "does not run"),
}


class SupportCell(NamedTuple):
    """The best mark of a variant's candidates on a GPU, why where it is not native, and which candidates it is of."""

    mark: Mark
    torch: str
    why: str = ""
    ways: tuple[str, ...] = ()  #: candidates that run, built for that GPU where none does else

    @property
    def runs(self) -> bool:
        """Return whether the image for no GPU in particular does."""
        return self.mark in ("native", "jit")


class GpuRow(NamedTuple):
    """GPU models of one compute capability ("7.0"), with a cell for each CUDA version."""

    capability: str
    models: tuple[str, ...]
    cells: Mapping[str, SupportCell]


class Support(NamedTuple):
    """A recipe's CUDA versions, the newest first, each with the oldest driver ("450.80.02"), and the GPUs."""

    recipe: str
    drivers: Mapping[str, str]
    rows: tuple[GpuRow, ...]

    def with_mark(self, cuda: str, *marks: Mark) -> list[str]:
        """Compute capabilities that a CUDA version has one of these marks for."""
        return [row.capability for row in self.rows if row.cells[cuda].mark in marks]


def support(recipe: Recipe) -> Support:
    """Judge every CUDA variant of a recipe on every GPU that lists name."""
    variants = sorted(
        (variant for variant in recipe.variants if variant.cuda != "cpu"), key=lambda variant: numbers(variant.cuda)
    )
    rows = []
    for capability, names in gpu_table.models_by_capability().items():
        cells = {variant.cuda: _cell(recipe, variant, names[0]) for variant in reversed(variants)}
        rows.append(GpuRow(capability, names, cells))
    return Support(
        recipe.name,
        {variant.cuda: driver_table.oldest_driver(variant.cuda) for variant in reversed(variants)},
        tuple(rows),
    )


def _cell(recipe: Recipe, variant: Variant, model: str) -> SupportCell:
    judged = {
        candidate: judge_target(recipe, variant, candidate, Target(gpus=(model,)))
        for candidate in candidates_of(variant)
    }
    marks = {candidate: _mark(verdicts) for candidate, verdicts in judged.items()}
    best = min(judged, key=lambda candidate: [*MARKS].index(marks[candidate]))
    reasons = judged[best].plain.reasons
    why = reasons[0].what if reasons and marks[best] != "native" else ""
    alike = ("native", "jit") if marks[best] != "built" else ("built",)
    return SupportCell(
        marks[best], best.torch, why, tuple(candidate.name for candidate, mark in marks.items() if mark in alike)
    )


def _mark(judged: Judgements) -> Mark:
    return "built" if judged.is_only_built else judged.plain.status


def models_with(recipe: Recipe, variant: Variant, candidate: Candidate, *marks: Mark) -> list[str]:
    """GPU models that lists name with one of these marks; none for the CPU."""
    by_capability = gpu_table.models_by_capability().values() if variant.cuda != "cpu" else ()
    return [
        model
        for models in by_capability
        if _mark(judge_target(recipe, variant, candidate, Target(gpus=models[:1]))) in marks
        for model in models
    ]
