"""PyG's compiled extensions: each found as a wheel for this torch and CUDA, as source to compile, or named as missing.

Which of the two comes first, and whether both will do, is the request's `Extensions`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.addresses import cuda_tag
from graphcrate.errors import NetworkError
from graphcrate.model.lock import MissingPackage
from graphcrate.model.recipe import Candidate, Channel, Variant
from graphcrate.resolve.channels import Extensions, extensions_of, names_of
from graphcrate.resolve.offers import Offer, Offers, UnavailableError

if TYPE_CHECKING:
    from graphcrate.resolve.target import Target

#: what PyG cannot do without an extension (PyG's installation page and import guards)
COSTS = {
    "pyg-lib": "neighbour sampling unless torch_sparse is there, weighted and temporal sampling, distributed training",
    "torch-scatter": "segment()",
    "torch-sparse": "SparseTensor, HGTLoader, ShaDowKHopSampler; neighbour sampling unless pyg_lib is there",
    "torch-cluster": "fps, knn, radius, nearest, graclus, voxel_grid, random walks",
    "torch-spline-conv": "SplineConv",
}
#: from PyG 2.8 on pyg_lib does what torch_cluster and torch_spline_conv did
COSTS_FROM_2_8 = COSTS | {"pyg-lib": f"{COSTS['pyg-lib']}, fps, knn, radius, nearest, graclus, voxel_grid, SplineConv"}
#: what is said of one in a lock that has the other
STANDS_IN = {
    "pyg-lib": (
        "torch-sparse",
        "neighbour sampling unless torch_sparse is there",
        "NeighborLoader falls back to torch_sparse",
    ),
    "torch-sparse": ("pyg-lib", "neighbour sampling unless pyg_lib is there", "NeighborLoader takes pyg_lib"),
}
#: only these say in their names for which torch a wheel was built; a package index does not
BUILT_FOR_TORCH = (Channel.PYG, Channel.LOCAL)
#: torch_sparse's setup.py takes METIS in only where it is asked to and finds the library
NO_METIS = "torch_sparse is compiled without METIS, which ClusterData needs where pyg_lib does not bring it"


class Source(msgspec.Struct, frozen=True):
    """An sdist that is to be compiled. `unreachable`: channels that may have a wheel and did not answer."""

    offer: Offer
    unreachable: tuple[Channel, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a variant's extensions."""

    wheels: tuple[Offer, ...] = ()
    sources: tuple[Source, ...] = ()
    missing: tuple[MissingPackage, ...] = ()
    notes: tuple[str, ...] = ()


class _Search(msgspec.Struct, frozen=True, kw_only=True):
    """For one torch, on one target, in the candidate's channels."""

    candidate: Candidate
    torch: str
    target: "Target"
    offers: Offers
    mode: Extensions
    obstacle: Callable[[], str]

    def wheel(self, wanted: Requirement) -> tuple[Offer | None, list[str], list[Channel]]:
        """The wheel of an extension, or (None, why each channel has none, those that did not answer)."""
        if self.mode is Extensions.SOURCE:
            return None, ["wheels are not asked for (EXTENSIONS=source)"], []
        reasons: list[str] = []
        silent: list[Channel] = []
        name = canonicalize_name(wanted.name)
        for channel in self.candidate.channels:
            if channel not in BUILT_FOR_TORCH:
                continue
            what = f"{name} for torch {self.torch}"
            try:
                return self.offers.newest(channel, name, self.target, self._fits(wanted), what), [], []
            except UnavailableError as error:
                reasons.append(error.constraint)
                silent += [channel] if error.unreachable else []
        return None, reasons, silent

    def source(self, wanted: Requirement) -> Offer | None:
        """The sdist of an extension."""
        return self.offers.newest_sdist(canonicalize_name(wanted.name), _pinned(wanted))

    def _fits(self, wanted: Requirement) -> Callable[[Version], bool]:
        pinned = _pinned(wanted)
        return lambda version: pinned(version) and _built_for(version, self.torch, self.candidate.torch_cuda)


def find_extensions(
    variant: Variant, candidate: Candidate, torch: str, target: "Target", offers: Offers, obstacle: Callable[[], str]
) -> Found:
    """A wheel or an sdist for each of the variant's extensions, as the request wants, or the reason why there is none.

    `obstacle` tells why nothing can be compiled for this candidate (empty: it can); asked only where it matters.
    """
    mode = extensions_of(offers.market.request)
    search = _Search(candidate=candidate, torch=torch, target=target, offers=offers, mode=mode, obstacle=obstacle)
    wheels: list[Offer] = []
    sources: list[Source] = []
    missing: list[MissingPackage] = []
    for text in dict.fromkeys(variant.extensions):
        got = _find(Requirement(text), search)
        if isinstance(got, Offer):
            wheels.append(got)
        elif isinstance(got, Source):
            sources.append(got)
        else:
            missing.append(got)
    there = set(names_of(variant.extensions)) - {package.name for package in missing}
    costs = _costs(variant, there)
    priced = tuple(msgspec.structs.replace(package, cost=costs.get(package.name, "")) for package in missing)
    compiled = {canonicalize_name(_project(source.offer)) for source in sources}
    notes = (NO_METIS,) if "torch-sparse" in compiled else ()
    return Found(wheels=tuple(wheels), sources=tuple(sources), missing=priced, notes=notes)


def _find(wanted: Requirement, search: _Search) -> Offer | Source | MissingPackage:
    name = canonicalize_name(wanted.name)
    if search.mode is Extensions.NONE:
        return MissingPackage(name=name, reason="left out on request (EXTENSIONS=none)")
    wheel, reasons, silent = search.wheel(wanted)
    if wheel is not None:
        return wheel
    sdist = search.source(wanted) if search.mode is not Extensions.WHEELS else None
    if sdist is not None and not search.obstacle():
        return Source(sdist, tuple(silent))
    reasons.append(_at_the_index(name, search.offers))
    if sdist is not None:
        reasons.append(f"it cannot be compiled: {search.obstacle()}")
    return MissingPackage(name=name, reason="; ".join(reasons), unreachable=tuple(silent))


def _project(offer: Offer) -> str:
    return offer.link.name.rpartition("-")[0]


def _pinned(wanted: Requirement) -> Callable[[Version], bool]:
    """Whether a version is one that the recipe allows; local labels (`+pt20cu118`) are not looked at."""
    return lambda version: wanted.specifier.contains(version.public, prereleases=True)


def _built_for(version: Version, torch: str, torch_cuda: str) -> bool:
    """Whether the local label (`pt20cu118`) says this torch. Wheels for torch 1.11 and older have none."""
    if version.local is None:
        return True
    major, minor = torch.split(".")[:2]
    return version.local == f"pt{major}{minor}{cuda_tag(torch, torch_cuda)}"


def _costs(variant: Variant, there: set[str]) -> dict[str, str]:
    costs = COSTS_FROM_2_8 if _at_least(variant.torch_geometric, (2, 8)) else COSTS
    for name, (other, condition, comfort) in STANDS_IN.items():
        if other in there:
            rest = costs[name].replace(condition, "").strip(",; ")
            costs = costs | {name: f"{rest} ({comfort})"}
    return costs


def _at_least(version: str, release: tuple[int, int]) -> bool:
    return bool(version) and Version(version).release[:2] >= release


def _at_the_index(name: str, offers: Offers) -> str:
    """What the package index has of it: wheels there do not say for which torch they were built."""
    for place in offers.sources(Channel.PYPI):
        try:
            links = offers.market.listings.project(place, name)
        except NetworkError:
            continue
        if any(link.name.endswith(".whl") for link in links):
            return "the package index does not say for which torch its wheels were built"
        if links:
            return "the package index has source only"
    return "the package index does not have it"
