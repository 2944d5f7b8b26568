"""PyG's compiled extensions: each a wheel for this torch and CUDA, or source to compile, or named as missing."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat import packages
from graphcrate.compat.addresses import cuda_label
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import MissingPackage
from graphcrate.model.recipe import Channel, Variant
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
    variant: Variant, channels: Sequence[Channel], target: "Target", offers: Offers, obstacle: Callable[[], str]
) -> tuple[list[Offer], list[MissingPackage]]:
    """Find a wheel or an sdist for each of the variant's extensions, as the request wants, or why there is neither.

    `obstacle()`: why nothing can be compiled; empty: it can. Raises ResolutionError for a recipe that lacks a need.
    """
    listed = names_of(variant.extensions)
    for name, needed in NEEDS.items():
        if name in listed and needed not in listed:
            raise ResolutionError(
                f"{name} cannot be imported without {needed}, which this recipe does not list",
                cause=f"{name} imports it first thing; its metadata does not say so.",
                next_step=f'add "{needed.replace("-", "_")}" to the variant\'s extensions',
            )
    found: dict[str, Offer] = {}
    missing: dict[str, MissingPackage] = {}
    for wanted in map(Requirement, variant.extensions):
        name, result = canonicalize_name(wanted.name), _find(wanted, channels, target, offers, obstacle)
        if isinstance(result, Offer):
            found[name] = result
        else:
            missing[name] = result
    for name, needed in NEEDS.items():
        if needed in missing and name in found:
            del found[name]
            reason = f"it cannot be imported without {needed}, which is missing"
            missing[name] = MissingPackage(name=name, reason=reason, unreachable=missing[needed].unreachable)
    for name, package in missing.items():
        lost = packages.lost(name, variant.torch_geometric or _SOME_PYG, found)
        other, comfort = STANDS_IN.get(name, ("", ""))
        cost = f"{lost} ({comfort})" if other in found else lost
        missing[name] = msgspec.structs.replace(package, cost=cost)
    return [*found.values()], [missing[name] for name in listed if name in missing]


def _find(
    wanted: Requirement, channels: Sequence[Channel], target: "Target", offers: Offers, obstacle: Callable[[], str]
) -> Offer | MissingPackage:
    name, mode = canonicalize_name(wanted.name), offers.sources.request.extensions
    if mode == "none":
        return MissingPackage(name=name, reason="left out on request (EXTENSIONS=none)")
    built_for = f"pt{''.join(offers.torch.split('.')[:2])}{cuda_label(offers.torch_cuda)}"

    def allowed(version: Version) -> bool:
        """Whether the recipe does; local labels are not looked at."""
        return wanted.specifier.contains(version.public, prereleases=True)

    def fits(version: Version) -> bool:
        """Whether the local label says this torch. Wheels for torch 1.11 and older have none."""
        return allowed(version) and version.local in (None, built_for)

    reasons = ["wheels are not asked for (EXTENSIONS=source)"] if mode == "source" else []
    silent: tuple[Channel, ...] = ()
    for channel in channels if mode != "source" else ():
        if channel in BUILT_FOR_TORCH:
            try:
                return offers.newest(channel, name, target, fits, f"{name} for torch {offers.torch}")
            except UnavailableError as error:
                reasons.append(error.what)
                silent += (channel,) * error.unreachable
    sdist = offers.newest_sdist(name, allowed, silent) if mode != "wheels" else None
    if sdist is not None and not obstacle():
        return sdist
    reasons.append(_at_the_index(name, offers))
    if sdist is not None:
        reasons.append(f"it cannot be compiled: {obstacle()}")
    return MissingPackage(name=name, reason="; ".join(reasons), unreachable=silent)


def _at_the_index(name: str, offers: Offers) -> str:
    """What the package index has of it: wheels there do not say for which torch they were built."""
    for links in offers.listed(Channel.PYPI, name):
        if any(link.name.endswith(".whl") for link in links):
            return "the package index does not say for which torch its wheels were built"
        if links:
            return "the package index has source only"
    return "the package index does not have it"
