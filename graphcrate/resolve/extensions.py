"""PyG's compiled extensions: each built for one torch and CUDA version, found as a wheel or named as missing."""

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.addresses import cuda_tag
from graphcrate.errors import NetworkError
from graphcrate.model.lock import MissingPackage
from graphcrate.model.recipe import Candidate, Channel, Variant
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
#: only these say in their names for which torch a wheel was built; a package index does not
BUILT_FOR_TORCH = (Channel.PYG, Channel.LOCAL)


def find_extensions(
    variant: Variant, candidate: Candidate, torch: str, target: "Target", offers: Offers
) -> tuple[list[Offer], list[MissingPackage]]:
    """A wheel for each of the variant's extensions from the candidate's channels, or the reason why there is none."""
    found: list[Offer] = []
    missing: list[MissingPackage] = []
    costs = COSTS_FROM_2_8 if _at_least(variant.torch_geometric, (2, 8)) else COSTS
    for name in dict.fromkeys(map(canonicalize_name, variant.extensions)):
        reasons: list[str] = []
        silent: list[Channel] = []
        for channel in candidate.channels:
            if channel not in BUILT_FOR_TORCH:
                continue
            what = f"{name} for torch {torch}"
            try:
                found.append(
                    offers.newest(
                        channel, name, target, lambda version: _built_for(version, torch, candidate.torch_cuda), what
                    )
                )
                break
            except UnavailableError as error:
                reasons.append(error.constraint)
                silent += [channel] if error.unreachable else []
        else:
            reasons.append(_at_the_index(name, offers))
            missing.append(
                MissingPackage(
                    name=name, reason="; ".join(reasons), cost=costs.get(name, ""), unreachable=tuple(silent)
                )
            )
    return found, missing


def _built_for(version: Version, torch: str, torch_cuda: str) -> bool:
    """Whether the local label (`pt20cu118`) says this torch. Wheels for torch 1.11 and older have none."""
    if version.local is None:
        return True
    major, minor = torch.split(".")[:2]
    return version.local == f"pt{major}{minor}{cuda_tag(torch, torch_cuda)}"


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
