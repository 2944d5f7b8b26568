"""What packages do not say of themselves: libraries that they can do without, and packages that they cannot.

`data/optional.toml`: libraries that a package opens only where they can be, or one of several of; that one cannot be
loaded is no fault by itself. `data/hidden.toml`: what an import needs (graphlearn-torch's is in `compat.glt`).
"""

import fnmatch
import functools
import re

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from graphcrate.compat import tables


class Optional(msgspec.Struct, frozen=True, kw_only=True):
    """`package` and `file` (below site-packages) are patterns; `why` says what is lost where it cannot be loaded.

    `one_of`: several libraries of which the package needs one. `by_torch`: the one whose name has torch's version.
    """

    package: str
    file: str
    why: str
    known: str
    one_of: bool = False
    by_torch: bool = False


class _Optional(msgspec.Struct, frozen=True):
    optional: tuple[Optional, ...]


@functools.cache
def optional() -> tuple[Optional, ...]:
    """All optional libraries."""
    return tables.read("optional", _Optional).optional


def reason(package: str, file: str, torch: str = "") -> str | None:
    """What is lost where this file of a package cannot be loaded; None for a file that has to be.

    `torch`: the version that is installed.
    """
    for one in optional():
        if matches(one, package, file) and not (one.by_torch and is_for(file, torch)):
            return one.why
    return None


def matches(one: Optional, package: str, file: str) -> bool:
    """Whether the entry is about this file of a package."""
    return fnmatch.fnmatchcase(package, one.package) and fnmatch.fnmatchcase(file, one.file)


def is_for(file: str, torch: str) -> bool:
    """Whether a library's name has this version of torch: `_pytorch_2.0.1` its release, `_torch24-` its series."""
    name, version = file.rpartition("/")[2], torch.partition("+")[0]
    if found := re.search(r"(?<![\d.])(\d+\.\d+\.\d+)(?!\d)", name):
        return found[1] == version
    series = re.search(r"torch(\d)(\d+)", name)
    return series is not None and version.split(".")[:2] == [series[1], series[2]]


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """`package` of these `versions` needs one of `one_of` (normalised names). `why` ends "… needs X": a sentence."""

    package: str
    versions: str
    one_of: tuple[str, ...]
    why: str
    known: str


class _Hidden(msgspec.Struct, frozen=True):
    hidden: tuple[Hidden, ...]


@functools.cache
def _hidden() -> _Hidden:
    return tables.read("hidden", _Hidden)


def hidden(package: str, version: str) -> tuple[Hidden, ...]:
    """What this release needs in silence."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return ()
    return tuple(
        one
        for one in _hidden().hidden
        if one.package == package and SpecifierSet(one.versions).contains(parsed, prereleases=True)
    )
