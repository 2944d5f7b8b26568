"""Recipes for other platforms than the default one, and what of a request works there. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from graphcrate.compat.facts import facts, toolkits
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.model.command import Command, command, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import Candidate, Recipe, Variant
from graphcrate.model.report import CandidateOutcome
from graphcrate.model.words import listed


class Ported(NamedTuple):
    """A variant on a platform's base: of its candidates those whose torch has CUDA there, and what put others out."""

    variant: Variant
    usable: tuple[Candidate, ...]
    out: tuple[CandidateOutcome, ...]


def port(
    recipe: Recipe, variant: Variant, candidates: Sequence[Candidate], platform: Platform, request: BuildRequest
) -> Ported:
    """The variant for a platform. Raises UsageError for what there is not, with what there is."""
    plain = _plain(request, variant, platform)
    for what, instead in _not_ported(request):
        raise UsageError(f"images for {platform.title} are made without {what}", next_step=f"{plain}    ({instead})")
    usable = tuple(candidate for candidate in candidates if _has_build(candidate, platform))
    if not usable:
        absent = listed(dict.fromkeys(f"torch {each.torch} for CUDA {each.torch_cuda}" for each in candidates))
        there = [other for other in recipe.variants if any(_has_build(each, platform) for each in other.candidates)]
        raise UsageError(
            f"CUDA {variant.cuda} of {recipe.name} is not made for {platform.title}",
            cause=f"No build of {absent} for {platform.title} was measured; the package index has such builds with "
            "CUDA from torch 2.11 on.",
            next_step=str(_plain(request, there[0], platform))
            if there
            else f"{command('list')}    (nothing of {recipe.name} is made for {platform.title})",
        )
    out = tuple(
        CandidateOutcome(
            candidate=candidate.name,
            chosen=False,
            constraint=f"no build of torch {candidate.torch} for {platform.title} is known",
        )
        for candidate in candidates
        if candidate not in usable
    )
    return Ported(on_platform(variant, platform), usable, out)


def on_platform(variant: Variant, platform: Platform) -> Variant:
    """The variant on a platform's base, with extensions for the GPUs of its machines.

    Itself for the default platform, of which the base says nothing.
    """
    if platform == DEFAULT:
        return variant
    base = msgspec.structs.replace(variant.base, platform=platform.name)
    architectures = toolkits.of_machines(variant.architectures, platform)
    return msgspec.structs.replace(variant, base=base, architectures=architectures)


def _plain(request: BuildRequest, variant: Variant, platform: Platform) -> Command:
    """The command for what there is of a variant on a platform, without all that is not made there."""
    return BuildRequest(name=request.name, cuda=variant.cuda, platform=platform.name, verb=request.verb).command()


def _has_build(candidate: Candidate, platform: Platform) -> bool:
    return facts.torch_build(candidate.torch, candidate.torch_cuda, platform) is not None


def _not_ported(request: BuildRequest) -> Iterator[tuple[str, str]]:
    """Yield parts of a request that do not work on another platform yet, and what does."""
    if request.engine not in ("auto", "embedded"):
        yield request.engine, f"our own builder makes them; {request.engine} takes the image that comes out"
    if request.sources.devel:
        yield f"compiler and toolkit ({setting(flavour='devel').both()})", "the stack itself"
    if request.slim != "no":
        yield f"{setting(slim='yes').both()}", "with code for all GPUs"
