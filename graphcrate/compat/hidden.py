"""What packages need to be imported and say nowhere: `data/hidden.toml`. graphlearn-torch's own are in `compat.glt`."""

import functools

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from graphcrate.compat import tables


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """`package` of these `versions` needs one of `one_of` (normalised names). `why` ends "… needs X": a sentence."""

    package: str
    versions: str
    one_of: tuple[str, ...]
    why: str
    known: str


class _Facts(msgspec.Struct, frozen=True):
    hidden: tuple[Hidden, ...]


@functools.cache
def _facts() -> _Facts:
    return tables.read("hidden", _Facts)


def of(package: str, version: str) -> tuple[Hidden, ...]:
    """What this release needs in silence."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return ()
    return tuple(
        one
        for one in _facts().hidden
        if one.package == package and SpecifierSet(one.versions).contains(parsed, prereleases=True)
    )
