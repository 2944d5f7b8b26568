"""Conda's match specifications: `conda-forge::numpy>=1.26,<2|>=2.1=*_cuda`, `numpy[version='>=1.26',build='py311*']`.

Source: conda's documentation of MatchSpec; versions as conda.models.version has them. Pure.
"""

import re
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from projectfiles.alternatives import any_of
from projectfiles.errors import ProjectFileError
from projectfiles.words import listed, printable

_SPEC = re.compile(
    r"(?:(?P<channel>[\w./:+-]+)::)?(?P<name>[A-Za-z0-9_.-]+?)\s*(?P<rest>[=<>!~\s(*][^\[]*)?(?:\[(?P<keys>[^]]*)\])?"
)
_KEY = re.compile(r"\s*([a-z0-9_]+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^,'\"]*))\s*(?:,|$)")
_BUILD = re.compile(r"(.*[^=<>!~,|])=([^=<>!~,|]+)")  #: `=1.26=py311*`
_CLAUSE = re.compile(r"(==|>=|<=|!=|~=|=|<|>)?(.+)")
#: of PEP 440, whose letters have numbers: conda's 9e and 2023c are not among them
_NUMBER = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.?dev\d+)?(\+[a-z0-9.]+)?")
#: as dglteam's channel has CUDA in a version: 1.1.1.cu118
_CUDA = re.compile(r"([\d.]+)\.(cu\d+)")


class CondaSpec(NamedTuple):
    """A package as conda is asked for it. Empty: not said. `others`: further keys in brackets, as they are written."""

    name: str
    version: str = ""
    build: str = ""
    channel: str = ""
    others: tuple[str, ...] = ()


def parse_spec(text: str, where: str) -> CondaSpec:
    """Return what a match specification says. Raise ProjectFileError, which names `where`."""
    match = _SPEC.fullmatch(text.partition(" #")[0].strip())
    keys = _keys(match["keys"] or "") if match else None
    if not match or keys is None:
        raise ProjectFileError(
            f"{where}: {printable(text)!r} is not a package of conda's",
            kind="form",
            where=where,
            text=text,
            next_step="numpy, numpy=1.26, 'numpy>=1.26' or conda-forge::numpy",
        )
    version, build = _version_and_build((match["rest"] or "").strip())
    return CondaSpec(
        name=match["name"],
        version=keys.pop("version", version),
        build=keys.pop("build", build),
        channel=keys.pop("channel", match["channel"] or ""),
        others=tuple(f"{name}={value}" for name, value in keys.items()),
    )


def conda_specifier(asked: CondaSpec, where: str) -> str:
    """Return the versions that are asked for as a specifier; empty for any. Raise ProjectFileError where there is none.

    `1.26` and `=1.26` are 1.26 and what begins so. Of alternatives (`1.10|1.11`) any will do.
    """
    if not asked.version:
        return ""
    try:
        alternatives = [_all_of(part) for part in asked.version.split("|")]
        specifier = any_of(alternatives)
    except InvalidSpecifier as error:
        raise ProjectFileError(
            f"{where}: {asked.name} {printable(asked.version)} is not a version that the package index can have",
            kind="version",
            where=where,
            text=asked.version,
            cause="Its versions are those of PEP 440: 1.26, 2.0rc1, >=1.5,<2.",
            next_step=f"change line {where.rpartition(':')[2]}: {asked.name}, or {asked.name} with such a version",
        ) from error
    if specifier is None:
        raise ProjectFileError(
            f"{where}: {asked.name} {printable(asked.version)} has alternatives that no one requirement can say",
            kind="alternatives",
            where=where,
            text=asked.version,
            cause="There is no end to the releases between them, each of which would have to be excluded (PEP 440).",
            next_step=f"keep one in line {where.rpartition(':')[2]}: "
            + listed((f"{asked.name}{alternative}" for alternative in alternatives), "or"),
        )
    return specifier


def _keys(text: str) -> dict[str, str] | None:
    """Return the keys in brackets; None where they are none."""
    keys, at = dict[str, str](), 0
    while at < len(text):
        match = _KEY.match(text, at)
        if not match:
            return None
        name, *values = match.groups()
        keys[name] = next((value for value in values if value is not None), "").strip()
        at = match.end()
    return keys


def _version_and_build(text: str) -> tuple[str, str]:
    """Split `=1.26=py311*` and `1.26 py311*`; spaces around operators mean nothing."""
    version, _, build = re.sub(r"\s*([<>=!~]=?|[,|])\s*", r"\1", text).partition(" ")
    if not build and (match := _BUILD.fullmatch(version)):
        version, build = match.groups()
    return version, build.strip()


def _all_of(clauses: str) -> str:
    """Return clauses that hold together (`>=1.5,<2`) as a specifier."""
    return str(SpecifierSet(",".join(filter(None, map(_clause, clauses.split(","))))))


def _clause(clause: str) -> str:
    match = _CLAUSE.fullmatch(clause)
    operator, version = (match[1] or "=", match[2].strip()) if match else ("", "")
    if version == "*" and operator in ("=", "=="):
        return ""
    if built := _CUDA.fullmatch(version):
        return f"=={built[1]}+{built[2]}" if operator in ("=", "==") else f"{operator}{built[1]}"
    number = re.sub(r"\.?\*$", "", version)
    if not _NUMBER.fullmatch(number):
        raise InvalidSpecifier(f"no version: {clause!r}")
    if operator == "=" or (operator in ("==", "!=") and number != version):
        operator = "==" if operator == "=" else operator
        return f"{operator}{number}.*" if re.fullmatch(r"\d+(\.\d+)*", number) else f"{operator}{number}"
    return f"{operator}{number}"
