"""Reading recipes strictly: a TOML text becomes a `Recipe`, or a RecipeError that names file, line and field."""

import datetime
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from graphcrate.compat.facts.facts import torch_runs_on
from graphcrate.compat.facts.suites import bases, titled
from graphcrate.model import toml
from graphcrate.model.platform import SUPPORTED
from graphcrate.model.recipe import BaseSpec, Recipe, Variant
from graphcrate.model.suite import SUITES

_VERSION = r"\d+(\.\d+)+(\.post\d+)?(\+[a-z0-9.]+)?|\*"
#: fields by name, wherever they stand: the form of a text in them, and what is wrong with another
_FORMS = {
    "cuda": (r"cpu|\d+\.\d+", 'is not a CUDA version: write "11.8", or "cpu"'),
    "torch_cuda": (r"cpu|\d+\.\d+", "is not a CUDA version"),
    "python": (r"3\.\d+", 'is not a Python version: write "3.11"'),
    "torch": (_VERSION, 'is not an exact version such as "2.0.1+cu118"'),
    "torch_geometric": (rf"{_VERSION}|", 'is not an exact version such as "2.3.1"'),
    "suffix": (r"(-[a-z0-9.]+)?", 'cannot end a tag: write "-compat"'),
    "program": (r"([a-z0-9_]+\.py)?", 'is not a file of examples/: write "dna.py"'),
    "architectures": (
        r"[1-9]\d?\.\d(\+PTX)?",
        'is not a compute capability: write "8.0", or "9.0+PTX" for newer GPUs too',
    ),
}
_Wrong = Iterator[tuple[str, str]]  #: (path of a field, what is wrong with it)


def load(path: Path) -> Recipe:
    """Read and validate a recipe file. Raises RecipeError."""
    fields = "recipes/recipe.schema.json lists every field (editors can check against it)"
    return toml.load(path, Recipe, contradictions, fields)


def contradictions(recipe: Recipe) -> _Wrong:
    """Find contradictions in a recipe that its fields' types do not tell."""
    yield from _malformed(recipe)
    if not re.fullmatch(r"[a-z0-9]+([._-][a-z0-9]+)*", recipe.name):
        yield "name", f"{recipe.name!r} cannot be an image name (lower-case letters, digits, . _ -)"
    if not recipe.variants:
        yield "variant", "a recipe needs at least one [[variant]]"
    for index in _repeated([variant.cuda for variant in recipe.variants]):
        yield f"variant[{index}].cuda", f"CUDA {recipe.variants[index].cuda} stands twice"
    for name, why in recipe.exclude_newer_except.items():
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
            yield "exclude_newer_except", f"{name!r} is not the name of a package"
        elif not why.strip():
            yield "exclude_newer_except", f"say why newer files of {name} are taken"
    for index, variant in enumerate(recipe.variants):
        yield from ((f"variant[{index}].{field}", what) for field, what in _bad_variant(variant))


def _malformed(value: msgspec.Struct, where: str = "") -> _Wrong:
    """Texts of a recipe, a variant or a candidate that do not have their field's form."""
    for field in msgspec.structs.fields(value):
        given, path = getattr(value, field.name), f"{where}{field.encode_name}"
        for index, item in enumerate(given if isinstance(given, tuple) else [given]):
            if isinstance(item, msgspec.Struct):
                yield from _malformed(item, f"{path}[{index}]." if isinstance(given, tuple) else f"{path}.")
            elif what := _wrong(field.name, item):
                yield path, what


def _wrong(field: str, text: str) -> str:
    """Say what is wrong with a field's text; empty where nothing is."""
    if field in ("requirements", "extensions", "overrides"):
        try:
            Requirement(text)
        except InvalidRequirement as error:
            return f"{text!r} is not a PEP 508 requirement: {str(error).splitlines()[0]}"
    if field == "smoke" and text not in SUITES:
        return f"there is no smoke suite {text!r}; there are {', '.join(SUITES)}"
    pattern, what = _FORMS.get(field, ("", ""))
    return f"{text!r} {what}" if pattern and not re.fullmatch(pattern, text) else ""


def _repeated(names: Sequence[str]) -> Iterator[int]:
    return (index for index, name in enumerate(names) if name in names[:index])


def _bad_variant(variant: Variant) -> _Wrong:
    yield from _bad_base(variant.base, variant.python)
    if variant.unavailable is None:
        yield from _bad_architectures(variant)
        if not variant.candidates:
            yield "candidate", "a variant needs at least one [[variant.candidate]], or `unavailable` with the reason"
    elif variant.candidates:
        yield "unavailable", "an unavailable variant has no candidates"
    for index in _repeated([candidate.name for candidate in variant.candidates]):
        yield f"candidate[{index}].name", f"candidate {variant.candidates[index].name!r} stands twice"
    if variant.exclude_newer and not _is_day(variant.exclude_newer):
        yield "exclude_newer", f'{variant.exclude_newer!r} is not a day: write "2023-08-31"'
    for index, candidate in enumerate(variant.candidates):
        if not candidate.channels:
            yield f"candidate[{index}].channels", "a candidate needs at least one channel"
        if candidate.torch_cuda != variant.cuda and not candidate.suffix:
            what = f'torch is for CUDA {candidate.torch_cuda}, and the tag must tell: write "-compat"'
            yield f"candidate[{index}].suffix", what


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _bad_architectures(variant: Variant) -> _Wrong:
    field, given = "architectures", variant.architectures
    if len(set(given)) < len(given):
        yield field, "an architecture stands twice"
    if given and variant.cuda == "cpu":
        yield field, "nothing is compiled for a GPU in the variant for the CPU"
    if variant.extensions and not given and variant.cuda != "cpu":
        yield field, 'extensions may have to be compiled, so say for which GPUs: architectures = ["7.0", "8.0"]'
    for architecture in given if variant.candidates else ():
        capability = architecture.removesuffix("+PTX")
        if all(
            torch_runs_on(candidate.torch, candidate.torch_cuda, capability) is False
            for candidate in variant.candidates
        ):
            torches = list(dict.fromkeys(candidate.torch for candidate in variant.candidates))
            verb = "have" if len(torches) > 1 else "has"
            yield field, f"torch {' and '.join(torches)} {verb} no code for {capability}, so no extension needs any"


def _bad_base(base: BaseSpec, python: str) -> _Wrong:
    suites = bases()
    known = [platform.name for platform in SUPPORTED]
    if base.platform is not msgspec.UNSET and base.platform not in known:
        yield "base", f"images are made for {' and '.join(known)}, not for {base.platform!r}"
    if base.provider == "registry":
        if not base.reference or base.suite:
            yield "base", 'a registry base takes `reference` (such as "python:3.11-slim") and no `suite`'
    elif base.reference or base.suite not in suites:
        yield "base", f"a debian base takes `suite` (one of {', '.join(suites)}) and no `reference`"
    elif suites[base.suite].python != python:
        yield "python", f"{titled(base.suite)} has Python {suites[base.suite].python}, not {python}"
