"""Licences by the ids of SPDX's list, from what METADATA, Debian's copyright files and file names say. Pure.

What has no id stays the name that it has: `data/licences.toml` is all that is known of names.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from graphcrate.compat.facts import libraries, pyg_lib, slim
from graphcrate.compat.facts.facts import table
from graphcrate.model.lock import DebianBase, Lock, LockedPackage

_LICENCE_REF = "LicenseRef-"
_CUDA = "LicenseRef-NVIDIA-CUDA-EULA"
#: graphcrate's own programs; then what has its licences in files of the image
_OWN, _DEBIAN, _BASE = "Apache-2.0", "LicenseRef-Debian-copyright", "LicenseRef-base-image"
_TOKENS = re.compile(r"[()]| AND | OR ")
_GNU = re.compile(r"(?P<kind>[al]?gpl|gfdl)(?P<niv>-niv)?-?v?(?P<version>\d(?:\.\d)?)(?:\.0)?(?P<later>\+?)")
_BSD = re.compile(
    r"Redistribution and use in source and binary forms, with or without modification, are permitted provided that the "
    r"following conditions are met:(.{1,2000}?)THIS SOFTWARE IS PROVIDED"
)
_GROUPS = re.compile(r",\s+(and|or)\s+")
_WORDS = re.compile(r"\s+(and|or)\s+")


class _Nvidia(msgspec.Struct, frozen=True):
    package: str
    licence: str


class _Bundled(msgspec.Struct, frozen=True):
    library: str
    licence: str


def _names(part: str) -> Mapping[str, str]:
    return table("licences", dict[str, str], part)


@functools.cache
def spdx(text: str) -> str:
    """The SPDX expression that a text is, or that people mean by it; empty for none."""
    text = " ".join(text.split())
    if text.lower() in _names("texts"):
        return _names("texts")[text.lower()]
    try:
        return str(canonicalize_license_expression(text))
    except (InvalidLicenseExpression, ValueError):
        return ""


def of_metadata(expression: str, classifiers: Sequence[str], field: str) -> tuple[str, ...]:
    """Read licences from METADATA: the expression (PEP 639), else the classifiers, else the old field.

    Each is an SPDX expression where it can be told, else a name in words. A classifier that means one of several
    licences goes by the old field if that names one of them.
    """
    if expression:
        return (spdx(expression) or expression,)
    if not classifiers:
        return (spdx(field) or field,) if field else ()
    known, families = _names("classifiers"), table("licences", dict[str, tuple[str, ...]], "families")
    named = (spdx(field) or bsd(field)) if field else ""
    licences = []
    for name in classifiers:
        fits = name in families and named and (not families[name] or named in families[name])
        licences.append(known.get(name) or (named if fits else name))
    return tuple(dict.fromkeys(licences))


def bsd(text: str) -> str:
    """The BSD licence that a whole text begins with (numpy's, scipy's and pandas' field has one); empty: another."""
    match = _BSD.search(" ".join(text.split()))
    if not match:
        return ""
    return "BSD-3-Clause" if "neither the name" in match[1].lower() else "BSD-2-Clause"


def of_package(name: str, licences: Sequence[str]) -> tuple[str, ...]:
    """The same with NVIDIA's terms by their name, where a package of theirs says no more than "proprietary"."""
    vague = table("licences", dict[str, tuple[str, ...]], "vague")["names"]
    if not licences or not slim.is_from_nvidia(name):
        return tuple(licences)
    row = next(row for row in table("licences", tuple[_Nvidia, ...], "nvidia") if re.fullmatch(row.package, name))
    return tuple(dict.fromkeys(row.licence if licence.lower() in vague else licence for licence in licences))


def of_library(name: str) -> str:
    """The licence of a library that a wheel of another project brings along, by its file's name; empty: unknown."""
    for row in table("licences", tuple[_Bundled, ...], "bundled"):
        if re.match(rf"{row.library}(?:[-._\d]|$)", name):
            return row.licence
    return _CUDA if slim.is_nvidias_library(name) else ""


def address(licence: str) -> str:
    """The address of terms that SPDX has no id for; empty for all others."""
    return _names("terms").get(licence, "")


def is_ref(licence: str) -> bool:
    """Return whether it is a name of ours for terms without an id."""
    return licence.startswith(_LICENCE_REF)


def of_debian(name: str) -> str:
    """SPDX expression of a short name in a copyright file, "GPL-2+ or Artistic, and Expat"; empty: unknown."""
    parts = _GROUPS.split(" ".join(name.split()))
    groups = [_joined(part, nested=len(parts) > 1) for part in parts[::2]]
    words = {word.lower() for word in parts[1::2]}
    if len(words) > 1 or not all(groups):
        return ""
    return spdx(f" {words.pop().upper()} ".join(groups)) if words else spdx(groups[0])


def _joined(text: str, *, nested: bool) -> str:
    """ "A or B and C": `and` binds as in SPDX."""
    parts = _WORDS.split(text)
    names = [_short(part) for part in parts[::2]]
    if not all(names):
        return ""
    if len(names) == 1:
        return names[0]
    words = [word.upper() for word in parts[1::2]] + [""]
    made = " ".join(f"{name} {word}" for name, word in zip(names, words, strict=True)).strip()
    return f"({made})" if nested else made


def _short(name: str) -> str:
    """One short name of Debian's."""
    lower = name.lower()
    if lower in (known := _names("debian")):
        licence = known[lower]
        return f"({licence})" if " OR " in licence else licence
    if gnu := _GNU.fullmatch(lower):
        version = gnu["version"] if "." in gnu["version"] else f"{gnu['version']}.0"
        niv = "-no-invariants" if gnu["niv"] else ""
        return spdx(f"{gnu['kind'].upper()}-{version}{niv}{'-or-later' if gnu['later'] else '-only'}")
    return spdx(name) if " " not in name else ""


def of_lock(lock: Lock, *, devel: bool = False) -> str:
    """One SPDX expression of all that an image of this lock has, for its label. `devel`: it keeps the compiler.

    `LicenseRef-…` stands for what SPDX has no id for, what says none, and what says too many: Debian's copyright files.
    """
    compilation = lock.compilation if devel else None
    parts = {_OWN, _DEBIAN if isinstance(lock.base, DebianBase) else _BASE}
    if compilation is not None and compilation.toolkit is not None:
        parts.add(_CUDA)
    for package in (*lock.packages, *(compilation.tools if compilation else ())):
        parts.update(part for expression in _of_locked(package, lock) for part in parts_of(expression))
    if lock.compilation is not None:
        for name in (package.name for package in lock.packages if package.compiled):
            for library, _ in libraries.linked(name, lock.compilation):
                parts.update(parts_of(library.licence))
    return all_of(sorted(parts))


def _of_locked(package: LockedPackage, lock: Lock) -> Iterable[str]:
    """Of its repositories; else by its version, else what all versions that are known say."""
    if package.commit and (release := pyg_lib.release_at(package.commit)):
        return (part.licence for part in release.of(lock.torch_cuda))
    known = table("package_licences", dict[str, dict[str, str]]).get(package.name, {})
    if package.version in known:
        return (known[package.version],)
    if known:
        return known.values()
    if slim.is_from_nvidia(package.name):
        return of_package(package.name, table("licences", dict[str, tuple[str, ...]], "vague")["names"])
    return (f"{_LICENCE_REF}package-{package.name}",)


def parts_of(expression: str) -> tuple[str, ...]:
    """Split at `AND` outside of brackets; keep a choice whole, as `OR` binds less."""
    parts, start, depth = [], 0, 0
    for token in _TOKENS.finditer(expression):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth:
            continue
        if token[0] == " OR ":
            return (expression,)
        if token[0] == " AND ":
            parts.append(expression[start : token.start()])
            start = token.end()
    return (*parts, expression[start:])


def all_of(licences: Sequence[str]) -> str:
    """One expression that says all of these; empty where one of them has no id. `OR` stays together."""
    expressions = [spdx(licence) for licence in licences]
    if not expressions or not all(expressions):
        return ""
    # one that is whole in brackets has them already
    bare = dict.fromkeys(
        expression[1:-1]
        if expression[0] == "(" and expression[-1] == ")" and expression.count("(") == 1
        else expression
        for expression in expressions
    )
    return spdx(
        " AND ".join(f"({expression})" if len(bare) > 1 and " OR " in expression else expression for expression in bare)
    )
