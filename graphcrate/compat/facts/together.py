"""Packages that fit each other or do not, beyond what their metadata says: `data/together.toml`, judged purely."""

import re
from collections.abc import Mapping, Sequence

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts.facts import table_reader

_CONTRARY = {">=": "<", "<": ">=", "==": "!=", "!=": "=="}


class KnownPair(msgspec.Struct, frozen=True, kw_only=True):
    """These `versions` of `package` (normalised) need `needs`, where that is there. `why`: a clause."""

    package: str
    versions: str
    needs: str
    why: str
    known: str
    source: tuple[str, ...]

    @property
    def needed(self) -> str:
        """The normalised name of what it needs."""
        return str(canonicalize_name(Requirement(self.needs).name))

    @property
    def without(self) -> str:
        """A constraint that leaves these releases out."""
        match = re.fullmatch(r"(>=|<|==|!=)(.*)", self.versions)
        assert match is not None, "the table's own test"
        return f"{self.package}{_CONTRARY[match[1]]}{match[2]}"


class _Undeclared(msgspec.Struct, frozen=True, kw_only=True):
    """These `versions` of `package` import `needs` (PEP 508) as well."""

    package: str
    versions: str
    needs: tuple[str, ...]


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """An extra whose requirements hold wherever `package` is there."""

    name: str
    package: str


class NeededProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that the import of `package` runs, and fails without; `apt`: the Debian package that has it."""

    package: str
    program: str
    apt: str


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a package that does without what is there."""

    pattern: str


#: all known pairs
pairs = table_reader("together", tuple[KnownPair, ...], "pair")
_undeclared = table_reader("together", tuple[_Undeclared, ...], "undeclared")
#: extras that say with what a package works
extras = table_reader("together", tuple[Extra, ...], "extra")
#: programs that imports run
programs = table_reader("together", tuple[NeededProgram, ...], "program")
_said = table_reader("together", tuple[_Said, ...], "said")


def broken(versions: Mapping[str, str]) -> tuple[KnownPair, ...]:
    """The pairs that do not fit among packages, normalised name → version."""
    return tuple(
        pair
        for pair in pairs()
        if pair.package in versions
        and _has(SpecifierSet(pair.versions), versions[pair.package])
        and pair.needed in versions
        and not _has(Requirement(pair.needs).specifier, versions[pair.needed])
    )


def undeclared(versions: Mapping[str, str]) -> dict[str, str]:
    """Find imports among packages, normalised name → version, that are not there → by which package."""
    return {
        need: entry.package
        for entry in _undeclared()
        if entry.package in versions and _has(SpecifierSet(entry.versions), versions[entry.package])
        for need in entry.needs
        if canonicalize_name(Requirement(need).name) not in versions
    }


def _has(versions: SpecifierSet, version: str) -> bool:
    return versions.contains(Version(version).public, prereleases=True)


def complaint(lines: Sequence[str]) -> str:
    """The first line by which a package says that it does without what is there; empty where none does."""
    return next((line.strip() for line in lines if any(entry.pattern in line for entry in _said())), "")
