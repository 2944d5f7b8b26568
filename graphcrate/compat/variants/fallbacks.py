"""A `-compat` image, whose torch was built for another CUDA version than its variant is for: what that costs. Pure."""

from collections.abc import Iterator

from graphcrate.compat.facts import driver_table, facts, gpu_table
from graphcrate.compat.facts.facts import numbers
from graphcrate.model.recipe import Candidate, Variant
from graphcrate.model.report import Fallback
from graphcrate.model.words import listed


def fallback(variant: Variant, candidate: Candidate) -> Fallback | None:
    """Describe the cost of this candidate; None where its torch was built for the variant's CUDA version."""
    if candidate.torch_cuda == variant.cuda:
        return None
    preferred = next((other for other in variant.candidates if other.torch_cuda == variant.cuda), None)
    no_code = _without_code(candidate.torch, candidate.torch_cuda)
    return Fallback(
        meaning=candidate.meaning,
        limits=fallback_limits(candidate.torch, candidate.torch_cuda, variant.cuda),
        no_code=no_code,
        preferred=preferred.name if preferred else "",
        torch=preferred.torch if preferred else "",
        channel=preferred.channels[0].value if preferred else "",
        gains=tuple(gpu for gpu in no_code if preferred and gpu in gpu_table.gpu_names(preferred)),
    )


def fallback_limits(torch: str, torch_cuda: str, cuda: str) -> tuple[str, ...]:
    """Return where an image for CUDA `cuda` runs whose torch was built for another, as clauses that begin with a verb.

    GPUs that its torch has no code for are named, as the table of GPUs has them.
    """
    clauses = [*_driver_limits(torch_cuda, cuda, driver_table.drivers_of(torch, torch_cuda))]
    if torch_cuda != cuda and (models := _without_code(torch, torch_cuda)):
        clauses.append(f"has no code for {gpu_table.models_named(models)}")
    return tuple(clauses)


def fallback_code(torch: str, torch_cuda: str, cuda: str) -> tuple[str, ...]:
    """Return the clauses of `fallback_limits` without names of GPUs, for texts that outlive the table of GPUs."""
    oldest, build = driver_table.oldest_driver(torch_cuda), facts.torch_build(torch, torch_cuda)
    clauses = [*_driver_limits(torch_cuda, cuda, f"{oldest} or newer" if oldest else "")]
    if torch_cuda != cuda and build is not None and build.ptx is not None:
        code = listed([f"sm_{capability.replace('.', '')}" for capability in build.sm])
        ptx = listed([f"sm_{capability.replace('.', '')}" for capability in build.ptx])
        more = f", and PTX of {ptx} for newer GPUs" if ptx else " alone, and no PTX for newer GPUs"
        clauses.append(f"has code for {code}{more}")
    return tuple(clauses)


def _driver_limits(torch_cuda: str, cuda: str, needed: str) -> Iterator[str]:
    if torch_cuda == cuda:
        return
    if needed:
        yield f"needs driver {needed}"
    made, own = driver_table.own_driver(torch_cuda), driver_table.own_driver(cuda)
    if made and own and numbers(made) > numbers(own):
        yield f"needs driver {made} or newer for what CUDA {torch_cuda} makes as PTX (CUDA {cuda}: {own})"


def _without_code(torch: str, cuda: str) -> tuple[str, ...]:
    """GPU models of lists that this torch has neither machine code nor PTX for; none if its code is unknown."""
    build = facts.torch_build(torch, cuda)
    if build is None or build.ptx is None:
        return ()
    return tuple(
        name
        for name, capability in gpu_table.gpus().items()
        if not facts.has_code(build.sm, capability)
        and not any(facts.compiles_for(ptx, capability) for ptx in build.ptx)
    )
