"""Choose the variant of a recipe that a request amounts to.

`make image` without CUDA takes what `explain` calls chosen, and refuses by the same verdicts what cannot run.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from graphcrate.compat.facts import gpu_table
from graphcrate.compat.facts.facts import numbers
from graphcrate.compat.variants import catalog, ported
from graphcrate.compat.variants.explain import (
    USUAL,
    USUAL_CUDA,
    Explanation,
    chosen_row,
    details_of,
    explain,
    machine_of,
    nothing_runs,
    step_where_none_runs,
)
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host.context import Context
from graphcrate.model.command import setting
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import CandidateOutcome


class VariantChoice(NamedTuple):
    """The result of choosing: the variant's candidates that run on the machine, and those that are out."""

    recipe: Recipe
    variant: Variant
    gpu: str  #: "v100,a100"; empty: no GPU, or none was named
    usable: tuple[Candidate, ...]
    out: tuple[CandidateOutcome, ...] = ()


def select_variant(request: BuildRequest, ctx: Context) -> VariantChoice:
    """Choose what a request amounts to, for its platform. Raises UsageError, RecipeError, ResolutionError."""
    chosen = _for_machine(request, ctx)
    platform = _platform_of(request, chosen.gpu)
    if platform == DEFAULT:
        return chosen
    variant, usable, out = ported.port(chosen.recipe, chosen.variant, chosen.usable, platform, request)
    return chosen._replace(variant=variant, usable=usable, out=(*chosen.out, *out))


def _platform_of(request: BuildRequest, gpus: str) -> Platform:
    """Return the platform of an image: as asked for, else of the machines of its GPUs. Raises UsageError."""
    models = gpu_table.gpu_models(gpus) if gpus else ()
    platform = platform_named(request.platform) if request.platform else gpu_table.machine_platform(models)
    others = [model for model in models if (gpu_table.host_platform(model) or platform) != platform]
    if platform is None or others:
        each = ", ".join(f"{model}: {other.name}" for model in models if (other := gpu_table.host_platform(model)))
        raise UsageError(
            f"no image is for {' and '.join(models)}"
            + (f" and for {platform.name}" if platform else "")
            + f": machines with them are of another kind ({each})",
            next_step=_of_each_kind(request, models),
        )
    return platform


def _of_each_kind(request: BuildRequest, models: Sequence[str]) -> str:
    """Say what to type for GPUs whose machines are of several platforms: an image for each."""
    if not request.machine.gpu:
        return "a target whose GPUs are in machines of one kind    (targets/)"
    kinds = dict[Platform, list[str]]()
    for model in models:
        if host := gpu_table.host_platform(model):
            kinds.setdefault(host, []).append(model.lower())
    machines = (msgspec.structs.replace(request.machine, gpu=",".join(gpus)) for gpus in kinds.values())
    alone = (msgspec.structs.replace(request, machine=machine, platform="") for machine in machines)
    several = "    (one tag of a registry can have both)" if len(kinds) > 1 else ""
    return "; then ".join(str(each.command()) for each in alone) + several


def _for_machine(request: BuildRequest, ctx: Context) -> VariantChoice:
    """Choose the CUDA version, the GPUs and the candidates of a request, with a note of what was chosen.

    Raises UsageError, RecipeError, ResolutionError where nothing runs.
    """
    cuda, machine = request.cuda, request.machine
    again = lambda cuda: msgspec.structs.replace(request, cuda=cuda).command()  # noqa: E731
    if machine == MachineRequest():
        if cuda is None:
            ctx.progress.note(
                f"CUDA {USUAL_CUDA}: {USUAL}; {setting(gpu='…')} or {setting(target='…')} takes the newest that runs "
                "there"
            )
        recipe, variant = catalog.find_variant(ctx, request.name, cuda or USUAL_CUDA, again, request.recipe)
        return VariantChoice(recipe, variant, "", variant.candidates)
    recipe = catalog.find_recipe(ctx, request.name, request.recipe)
    explanation = explain(recipe, catalog.find_target(ctx, machine), machine, own=request.recipe)
    if was_chosen := cuda is None:
        row = chosen_row(explanation)
        if row is None:
            raise nothing_runs(explanation)
        cuda = row.cuda
        ctx.progress.note(f"CUDA {cuda} for {machine_of(explanation)}: the newest of {row.recipe} that runs there")
        for line in details_of(row, row.cuda, explanation.target.gpus or ()):
            ctx.progress.note(f"  {line}")
    recipe, variant = catalog.find_variant(ctx, request.name, cuda, again, request.recipe)
    usable, out = _usable(variant, explanation)
    if not was_chosen:
        verdicts = {row.candidate: row.verdict for row in explanation.rows if row.cuda == cuda}
        for line in verdicts[usable[0].name].lost:
            ctx.progress.note(line)
    return VariantChoice(recipe, variant, ",".join(explanation.target.gpus or ()).lower(), usable, out)


def _usable(variant: Variant, explanation: Explanation) -> tuple[tuple[Candidate, ...], tuple[CandidateOutcome, ...]]:
    """The variant's candidates that run on that machine, and what became of the others. Raises UsageError for none."""
    verdicts = {row.candidate: row.verdict for row in explanation.rows if row.cuda == variant.cuda}
    out = tuple(
        CandidateOutcome(
            candidate=candidate.name, chosen=False, constraint=verdict.reasons[0].what, fix=verdict.reasons[0].fix
        )
        for candidate in variant.candidates
        if not (verdict := verdicts[candidate.name]).accepted
    )
    if fitting := tuple(candidate for candidate in variant.candidates if verdicts[candidate.name].accepted):
        return fitting, out
    row = chosen_row(explanation)
    accepted = dict.fromkeys(row.cuda for row in explanation.rows if row.verdict.accepted)
    others = f"    (what runs there: {', '.join(sorted(accepted, key=numbers))})"
    first = next(iter(verdicts.values()))
    raise UsageError(
        f"CUDA {variant.cuda} of {explanation.rows[0].recipe} does not run on {machine_of(explanation)}",
        cause="; ".join(dict.fromkeys(outcome.constraint for outcome in out)),
        next_step=row.command + others if row else step_where_none_runs(explanation.target, first),
    )
