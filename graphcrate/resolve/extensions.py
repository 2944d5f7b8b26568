"""PyG's compiled extensions: each a wheel for this torch and CUDA, or source to compile, or named as missing."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat import packages
from graphcrate.compat.addresses import cuda_label
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import MissingPackage
from graphcrate.model.recipe import Candidate, Channel, Variant
from graphcrate.resolve.channels import names_of
from graphcrate.resolve.offers import Offer, Offers, UnavailableError

if TYPE_CHECKING:
    from graphcrate.resolve.target import Target

#: the note on one in a lock that has the other
STANDS_IN = {
    "pyg-lib": ("torch-sparse", "NeighborLoader falls back to torch_sparse"),
    "torch-sparse": ("pyg-lib", "NeighborLoader takes pyg_lib"),
}
#: where a recipe names no release of PyG
_SOME_PYG = "2.3.1"
#: What an extension imports first and does not say in its metadata (`torch_sparse/reduce.py` and others, 0.6.18).
NEEDS = {"torch-sparse": "torch-scatter"}
#: only these say in their names for which torch a wheel was built; a package index does not
BUILT_FOR_TORCH = (Channel.PYG, Channel.LOCAL)


def find_extensions(
    variant: Variant, candidate: Candidate, torch: str, target: "Target", offers: Offers, obstacle: Callable[[], str]
) -> tuple[list[Offer], list[MissingPackage]]:
    """Find a wheel or an sdist for each of the variant's extensions, as the request wants, or why there is neither.

    `obstacle()`: why nothing can be compiled; empty: it can. Raises ResolutionError for a recipe that lacks a need.
    """
    _refuse_incomplete(variant)
    mode = offers.market.request.extensions

    def find(wanted: Requirement) -> Offer | MissingPackage:
        name = canonicalize_name(wanted.name)
        if mode == "none":
            return MissingPackage(name=name, reason="left out on request (EXTENSIONS=none)")
        reasons = ["wheels are not asked for (EXTENSIONS=source)"]
        silent: tuple[Channel, ...] = ()
        if mode != "source":
            wheel, reasons, silent = _find_wheel(wanted, candidate, torch, target, offers)
            if wheel is not None:
                return wheel
        sdist = offers.newest_sdist(name, _pinned(wanted), silent) if mode != "wheels" else None
        if sdist is not None and not obstacle():
            return sdist
        reasons.append(_at_the_index(name, offers))
        if sdist is not None:
            reasons.append(f"it cannot be compiled: {obstacle()}")
        return MissingPackage(name=name, reason="; ".join(reasons), unreachable=silent)

    results = {str(canonicalize_name(wanted.name)): find(wanted) for wanted in map(Requirement, variant.extensions)}
    for name, needed in NEEDS.items():
        lacked = results.get(needed)
        if isinstance(results.get(name), Offer) and isinstance(lacked, MissingPackage):
            reason = f"it cannot be imported without {needed}, which is missing"
            results[name] = MissingPackage(name=name, reason=reason, unreachable=lacked.unreachable)
    there = {name for name, result in results.items() if isinstance(result, Offer)}
    missing = [
        msgspec.structs.replace(result, cost=_cost(result.name, variant, there))
        for result in results.values()
        if isinstance(result, MissingPackage)
    ]
    return [result for result in results.values() if isinstance(result, Offer)], missing


def _find_wheel(
    wanted: Requirement, candidate: Candidate, torch: str, target: "Target", offers: Offers
) -> tuple[Offer | None, list[str], tuple[Channel, ...]]:
    """Find a wheel in the candidate's channels, or (None, why each has none, those that did not answer)."""
    reasons: list[str] = []
    silent: tuple[Channel, ...] = ()
    name, pinned = canonicalize_name(wanted.name), _pinned(wanted)
    for channel in candidate.channels:
        if channel not in BUILT_FOR_TORCH:
            continue
        try:
            offer = offers.newest(
                channel,
                name,
                target,
                lambda version: pinned(version) and _built_for(version, torch, candidate.torch_cuda),
                f"{name} for torch {torch}",
            )
        except UnavailableError as error:
            reasons.append(error.what)
            silent += (channel,) * error.unreachable
        else:
            return offer, [], ()
    return None, reasons, silent


def _refuse_incomplete(variant: Variant) -> None:
    listed = set(names_of(variant.extensions))
    for name, needed in NEEDS.items():
        if name in listed and needed not in listed:
            raise ResolutionError(
                f"{name} cannot be imported without {needed}, which this recipe does not list",
                cause=f"{name} imports it first thing; its metadata does not say so.",
                next_step=f'add "{needed.replace("-", "_")}" to the variant\'s extensions',
            )


def _pinned(wanted: Requirement) -> Callable[[Version], bool]:
    """Whether a version is one that the recipe allows; local labels (`+pt20cu118`) are not looked at."""
    return lambda version: wanted.specifier.contains(version.public, prereleases=True)


def _built_for(version: Version, torch: str, torch_cuda: str) -> bool:
    """Whether the local label (`pt20cu118`) says this torch. Wheels for torch 1.11 and older have none."""
    if version.local is None:
        return True
    major, minor = torch.split(".")[:2]
    return version.local == f"pt{major}{minor}{cuda_label(torch_cuda)}"


def _cost(name: str, variant: Variant, there: set[str]) -> str:
    """What the user loses."""
    lost = packages.lost(name, variant.torch_geometric or _SOME_PYG, there)
    other, comfort = STANDS_IN.get(name, ("", ""))
    return f"{lost} ({comfort})" if other in there else lost


def _at_the_index(name: str, offers: Offers) -> str:
    """What the package index has of it: wheels there do not say for which torch they were built."""
    for links in offers.listed(Channel.PYPI, name):
        if any(link.name.endswith(".whl") for link in links):
            return "the package index does not say for which torch its wheels were built"
        if links:
            return "the package index has source only"
    return "the package index does not have it"
