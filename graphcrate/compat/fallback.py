"""What a `-compat` image cannot do: its torch was built for another CUDA version than its variant is for. Pure."""

from collections.abc import Iterable, Iterator

from graphcrate.compat import facts, rules
from graphcrate.compat.facts import numbers
from graphcrate.model.recipe import Candidate, Variant
from graphcrate.model.report import BuildReport, Fallback


def of(variant: Variant, candidate: Candidate) -> Fallback | None:
    """What choosing this candidate costs; None where its torch was built for the variant's CUDA version."""
    if candidate.torch_cuda == variant.cuda:
        return None
    preferred = next((other for other in variant.candidates if other.torch_cuda == variant.cuda), None)
    no_code = _without_code(candidate.torch, candidate.torch_cuda)
    return Fallback(
        meaning=candidate.meaning,
        limits=limits(candidate.torch, candidate.torch_cuda, variant.cuda),
        no_code=no_code,
        preferred=preferred.name if preferred else "",
        torch=preferred.torch if preferred else "",
        channel=preferred.channels[0].value if preferred else "",
        gains=tuple(gpu for gpu in no_code if preferred and gpu in facts.gpu_names(preferred)),
    )


def limits(torch: str, torch_cuda: str, cuda: str) -> tuple[str, ...]:
    """Where an image for CUDA `cuda` runs whose torch was built for another, as clauses that begin with a verb."""
    if torch_cuda == cuda:
        return ()
    clauses = []
    if oldest := facts.oldest_driver(torch_cuda):
        clauses.append(f"needs driver {oldest} or newer")
    made, own = facts.own_driver(torch_cuda), facts.own_driver(cuda)
    if made and own and numbers(made) > numbers(own):
        clauses.append(f"needs driver {made} or newer for what CUDA {torch_cuda} makes as PTX (CUDA {cuda}: {own})")
    if models := _without_code(torch, torch_cuda):
        clauses.append(f"has no code for {_named(models)}")
    return tuple(clauses)


def closing(report: BuildReport, insist: str) -> Iterator[str]:
    """What a build says last; nothing of an image that is no fall-back. `insist`: the command that takes none."""
    known = report.fallback
    if known is None:
        return
    yield f"{report.name}:{report.tag} is a fall-back: {known.meaning}"
    yield from (f"  it {limit}" for limit in known.limits)
    if not known.torch:
        return
    out = next((outcome for outcome in report.outcomes if outcome.candidate == known.preferred), None)
    if out is not None:
        yield f"  torch {known.torch} is out: {out.constraint}" + (f" ({out.fix})" if out.fix else "")
    more = f", which has code for {_named(known.gains)}" if known.gains else ""
    yield f"  insist on torch {known.torch}{more}: {insist}"


def _without_code(torch: str, cuda: str) -> tuple[str, ...]:
    """GPU models of lists that this torch has neither machine code nor PTX for; none where nobody knows."""
    build = facts.torch_build(torch, cuda)
    if build is None or build.ptx is None:
        return ()
    return tuple(
        name
        for name, capability in facts.gpus().items()
        if not facts.has_code(build.sm, capability)
        and not any(facts.compiles_for(ptx, capability) for ptx in build.ptx)
    )


def _named(models: Iterable[str]) -> str:
    """ "H100, H200 (sm_90), B300 (sm_103)"."""
    alike: dict[str, list[str]] = {}
    for model in models:
        alike.setdefault(facts.compute_capability(model), []).append(model)
    return ", ".join(rules.capability_name(*names) for names in alike.values())
