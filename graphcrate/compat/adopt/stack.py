"""The stack that a base image and torch's lines ask for: the nearest variant, and what differs. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from graphcrate.compat.adopt.draft import StackSigns
from graphcrate.compat.facts.addresses import labelled_cuda
from graphcrate.compat.requirements.translated import is_stacks
from graphcrate.model.command import setting
from graphcrate.model.recipe import Recipe, Variant
from graphcrate.model.words import listed

_PAGE = re.compile(r"torch-(\d+\.\d+(?:\.\d+)?)(?:(?:\+|%2B)(cu\d+|cpu))?")
_PYG = re.compile(r"torch-geometric|pyg-lib|torch-(scatter|sparse|cluster|spline-conv)|pyg")
_GLT = re.compile(r"graphlearn-torch|glt")


class Choice(NamedTuple):
    """A stack's name, its CUDA version, and sentences on what differs."""

    recipe: str
    cuda: str
    differs: tuple[str, ...]


def note_package(evidence: StackSigns, text: str, line: int) -> None:
    """Note what a requirement on a package of the stack says of torch and CUDA."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return
    name = str(canonicalize_name(requirement.name))
    evidence.lines.append(line)
    evidence.has_pyg |= _PYG.fullmatch(name) is not None
    evidence.has_glt |= _GLT.fullmatch(name) is not None
    exact = next((part.version for part in requirement.specifier if part.operator in ("==", "===", "~=")), "")
    public, _, local = exact.partition("+")
    if name == "torch-geometric" and public:
        evidence.pyg = public.removesuffix(".*")
    if name == "torch" and public:
        evidence.torch = public.removesuffix(".*")
    elif name == "torch":
        bounds = [part.version for part in requirement.specifier if part.operator in (">", ">=")]
        evidence.least = max([evidence.least, *bounds], key=_number)
    note_label(evidence, local)


def note_label(evidence: StackSigns, text: str) -> None:
    """Note the CUDA that a label names: cu118, cpu; in an address, too."""
    evidence.cuda = labelled_cuda(text) or evidence.cuda


def note_page(evidence: StackSigns, address: str) -> None:
    """Note what an address of PyTorch's or PyG's page says."""
    if match := _PAGE.search(address):
        evidence.torch = evidence.torch or match[1]
    note_label(evidence, address)


def is_known(name: str) -> bool:
    """Return whether a package is the stack's, or names one."""
    plain = str(canonicalize_name(name))
    return is_stacks(plain) or _GLT.fullmatch(plain) is not None


def choose(recipes: Sequence[Recipe], evidence: StackSigns) -> Choice:
    """Return the nearest variant: of the same torch, then of the same CUDA."""
    name = "glt" if evidence.has_glt else "pyg" if evidence.has_pyg else "torch"
    by_name = {recipe.name: recipe for recipe in recipes}
    recipe = by_name.get(name) or recipes[0]
    offered = [variant for variant in recipe.variants if variant.candidates and variant.unavailable is None]
    known = [variant for variant in offered if (variant.cuda == "cpu") == (evidence.cuda == "cpu")] or offered
    if not evidence.torch and evidence.least:
        known = [variant for variant in known if _number(_torch(variant)) >= _number(evidence.least)] or known
    if not evidence.torch and not evidence.cuda:
        other = known[0 if evidence.least else -1]
        usual = next((variant for variant in known if variant.cuda == "11.8"), other)
        unsaid = "no line says which torch or CUDA: another is `cuda`"
        return Choice(recipe.name, usual.cuda, (unsaid, *_differences(usual, evidence)))
    chosen = min(known, key=lambda variant: _distance(variant, evidence))
    return Choice(recipe.name, chosen.cuda, tuple(_differences(chosen, evidence)))


def _distance(variant: Variant, evidence: StackSigns) -> tuple[float, float, float]:
    torch = abs(_number(_torch(variant)) - _number(evidence.torch)) if evidence.torch else 0
    cuda = abs(_number(variant.cuda) - _number(evidence.cuda)) if evidence.cuda else 0
    return torch, cuda, _number(variant.cuda)


def _number(version: str) -> float:
    """Return major and minor as a number that grows with them; 0 for none."""
    try:
        release = (*Version(version).release, 0)
    except InvalidVersion:
        return 0
    return release[0] * 100 + min(release[1], 99)


def _torch(variant: Variant) -> str:
    return next((step.torch.partition("+")[0] for step in variant.candidates if step.torch != "*"), "")


def _differences(variant: Variant, evidence: StackSigns) -> list[str]:
    asked = [
        (f"{title} {needed}", f"{title} {have}")
        for title, needed, have in (
            ("torch", evidence.torch, _torch(variant)),
            ("CUDA", evidence.cuda, variant.cuda),
            ("Python", evidence.python, variant.python),
            ("PyG", evidence.pyg, variant.torch_geometric),
        )
        if needed and have and not f"{have}.".startswith(f"{needed}.")
    ]
    made = [f"{listed(was for was, _ in asked)} became {listed(now for _, now in asked)}"] if asked else []
    if evidence.compilers:
        numbers = sorted(set(evidence.compilers))
        where = f"line{'s' * (len(numbers) > 1)} {listed(map(str, numbers))}"
        made.append(f"nvcc and CUDA's headers ({where}) are in images of {setting(flavour='devel')} alone")
    return made
