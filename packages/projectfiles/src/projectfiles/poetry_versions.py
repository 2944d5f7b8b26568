"""Poetry's versions as PEP 440 has them: `^1.2`, `~1.2`, `>=12 <14`, `^0.6 || ^0.8`, `1.*`. Pure.

Source: Poetry's documentation of dependency specification.
"""

import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from projectfiles.alternatives import any_of
from projectfiles.errors import ProjectFileError
from projectfiles.words import printable

_BETWEEN = re.compile(r"\s*,\s*|(?<=[\w*.])\s+(?=[\^~=<>!\d*])")  #: two clauses
_CLAUSE = re.compile(r"(\^|~=?|[=!<>]=?)?\s*v?(\d[\w.+!-]*(?:\.\*)?|\*)")


def poetry_specifier(version: str, name: str, where: str) -> str:
    """Return the specifier of a version that Poetry's table has of `name`; empty for any.

    Raise ProjectFileError for what is no version, and for alternatives that PEP 440 has no word for.
    """
    try:
        alternatives = [_all_of(alternative.strip()) for alternative in re.split(r"\|\|?", version)]
        possible = [each for each in alternatives if not SpecifierSet(each).is_unsatisfiable()]
        specifier = any_of(possible) if possible else None
    except InvalidSpecifier as error:
        raise ProjectFileError(
            f"{where}: {name} {printable(repr(version))} is not a version of Poetry's",
            kind="version",
            where=where,
            text=version,
            cause="Its versions are like ^1.2, ~1.2, 1.*, >=1.2,<2 and ^1.2 || ^2.1.",
            next_step=f"correct it in {where.partition(':')[0]}",
        ) from error
    if specifier is None:
        raise ProjectFileError(
            f"{where}: {name} {printable(repr(version))} is not a requirement that the package index knows",
            kind="alternatives",
            where=where,
            text=version,
            cause="No release fits it, or there is no end to the releases between its alternatives (PEP 440).",
            next_step=f"keep one of its alternatives in {where.partition(':')[0]}",
        )
    return specifier


def _all_of(clauses: str) -> str:
    """Return clauses that hold together, with commas or spaces between them, as a specifier."""
    return ",".join(filter(None, map(_clause, _BETWEEN.split(clauses))))


def _clause(clause: str) -> str:
    match = _CLAUSE.fullmatch(clause)
    if not match:
        raise InvalidSpecifier(f"no version: {clause!r}")
    operator, version = match[1] or "", match[2]
    if version.endswith((".x", ".X")):  # as npm and older files of Poetry's have it
        version = f"{version[:-2]}.*"
    if operator not in ("", "=", "=="):  # a local part is of one file: PEP 440 compares none
        version = version.partition("+")[0]
    if version == "*" and operator in ("", "=", "=="):
        return ""
    if operator not in ("^", "~"):
        return f"{'==' if operator in ('', '=') else operator}{version}"
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    if not numbers:  # ^*
        raise InvalidSpecifier(f"no version: {clause!r}")
    release = [int(number) for number in numbers[0].split(".")]
    if operator == "^":  # the first number that is not zero may not change
        at = next((at for at, number in enumerate(release) if number), len(release) - 1)
    else:
        at = min(1, len(release) - 1)
    above = [*release[:at], release[at] + 1]
    return f">={version},<{'.'.join(map(str, above))}"
