"""Resolve unpinned packages as of a given date (uv's `exclude-newer`). Pure."""

import contextlib
from collections.abc import Iterable, Iterator

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from graphcrate.model.recipe import Recipe, Variant


class Cutoff(msgspec.Struct, frozen=True):
    """No file is taken that was uploaded after this day (UTC), but of packages that are `exempt`."""

    date: str  #: "2023-08-31"
    exempt: tuple[str, ...] = ()  #: normalised names, sorted

    @property
    def options(self) -> list[str]:
        """Of uv. With a time: a day alone would end by the machine's time zone."""
        exempt = (word for name in self.exempt for word in ("--exclude-newer-package", f"{name}=false"))
        return ["--exclude-newer", f"{self.date}T23:59:59.999999Z", *exempt]


def exempt_of(recipe: Recipe) -> list[str]:
    """Normalised names of what the recipe exempts by name, sorted."""
    return sorted(str(canonicalize_name(name)) for name in recipe.exclude_newer_except)


def cutoff_of(recipe: Recipe, variant: Variant, lines: Iterable[str]) -> Cutoff | None:
    """The date of a variant, if it has one.

    `lines`: requirements, constraints and overrides of the stack, and what its torch requires. What they give an exact
    version is exempt: that is chosen, whenever it was uploaded (graphlearn-torch 0.2.2 is younger than its stack).
    """
    if not variant.exclude_newer:
        return None
    exact = (str(canonicalize_name(line.name)) for line in _parsed(lines) if _is_exact(line))
    return Cutoff(variant.exclude_newer, tuple(sorted({*exempt_of(recipe), *exact})))


def _parsed(lines: Iterable[str]) -> Iterator[Requirement]:
    """Of metadata, what cannot be read is left out."""
    for line in lines:
        with contextlib.suppress(InvalidRequirement):
            yield Requirement(line)


def _is_exact(requirement: Requirement) -> bool:
    parts = requirement.specifier
    return requirement.url is not None or any(
        part.operator == "===" or (part.operator == "==" and not part.version.endswith(".*")) for part in parts
    )
