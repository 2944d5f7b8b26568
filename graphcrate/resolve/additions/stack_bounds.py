"""Bounds of a stack on packages, each with its reason: what is locked and stays, what recipe and torch allow."""

from collections.abc import Mapping
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import sonames
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import Recipe, Variant
from graphcrate.resolve.stack.pinning import bounds_of

_ONE_FOLDER = "both have the same files, and torch needs its own"
STAYS = "torch, CUDA and what is compiled for them stay as they are"


class StackBound(NamedTuple):
    """A stack's bound on a package: "torch 2.0.1" or "numpy<2". `why`: a clause; `version`: empty for a bound."""

    text: str
    why: str
    version: str = ""
    bound: SpecifierSet = SpecifierSet()


def bounds_of_stack(recipe: Recipe, variant: Variant, staying: Mapping[str, LockedPackage]) -> dict[str, StackBound]:
    """Map normalised names to what a stack fixes. `staying`: packages of its lock that do not move."""
    asked = f"the recipe {recipe.name} asks for it at CUDA {variant.cuda}"
    of_recipe = [(line, asked) for line in (*recipe.requirements, *variant.requirements)]
    bounds = {}
    for line, why in (*of_recipe, *bounds_of(staying["torch"].version)):
        bound = Requirement(line)
        if bound.specifier:
            bounds[str(canonicalize_name(bound.name))] = StackBound(line, why, bound=bound.specifier)
    for other, package in of_other_cuda(staying).items():
        bounds[other] = StackBound(f"{package.name} {package.version}", _ONE_FOLDER, bound=SpecifierSet("<0"))
    return bounds | {
        name: StackBound(f"{name} {package.version}", STAYS, version=package.version)
        for name, package in staying.items()
    }


def of_other_cuda(staying: Mapping[str, LockedPackage]) -> dict[str, LockedPackage]:
    """Map names of libraries for another CUDA to the stack's own that have the same files."""
    return {other: package for name, package in staying.items() for other in sonames.of_other_cuda(name)}
