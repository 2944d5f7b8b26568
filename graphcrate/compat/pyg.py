"""PyTorch Geometric: which extension a feature wants, for which torch its pages have wheels: `data/pyg.toml`."""

import functools
from collections.abc import Collection

import msgspec
from packaging.version import Version

from graphcrate.compat import tables


class Feature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What PyG cannot do without one of these extensions, from release `since` on and before `before`."""

    name: str
    any: tuple[str, ...]
    since: str = ""
    before: str = ""
    known: str


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published version; `python` is its Requires-Python."""

    version: str
    python: str
    known: str


class _Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    feature: tuple[Feature, ...]
    coverage: dict[str, tuple[str, ...]]
    release: tuple[Release, ...]


@functools.cache
def _facts() -> _Facts:
    return tables.read("pyg", _Facts)


def releases() -> tuple[Release, ...]:
    """Every known release, oldest first."""
    return _facts().release


def features(version: str) -> tuple[Feature, ...]:
    """What this release ("2.3.1") wants extensions for."""
    at = Version(version)
    return tuple(
        one
        for one in _facts().feature
        if (not one.since or at >= Version(one.since)) and (not one.before or at < Version(one.before))
    )


def lost(extension: str, version: str, there: Collection[str]) -> str:
    """What a release loses without an extension (normalised name), for people. `there`: those that it has.

    What another one does as well is lost only while that is not there either.
    """
    alone: list[str] = []
    shared: list[str] = []
    for feature in features(version):
        others = [name.replace("-", "_") for name in feature.any if name != extension]
        if extension not in feature.any or {name.replace("_", "-") for name in others} & set(there):
            continue
        (shared if others else alone).append(
            f"{feature.name} unless {' or '.join(others)} is there" if others else feature.name
        )
    return "; ".join(part for part in (", ".join(alone), ", ".join(shared)) if part)


def has_wheels(torch: str, torch_cuda: str) -> bool | None:
    """Whether PyG's pages have wheels for a torch ("2.0.1+cu118", "11.8"); None where nobody looked."""
    series = ".".join(torch.split("+")[0].split(".")[:2])
    known = _facts().coverage.get(series)
    return None if known is None else torch_cuda in known
