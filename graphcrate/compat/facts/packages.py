"""Packages' needs: by their metadata for a platform, and those that it leaves out; and PyG.

The data are `optional.toml`, `opened.toml`, `features.toml`, `hidden.toml` and `pyg.toml`; which graphlearn-torch fits
which torch says `compat.facts.glt`.
"""

import contextlib
import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator

import msgspec
from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.platform import DEFAULT, Platform
from projectfiles import environments


class Optional(msgspec.Struct, frozen=True, kw_only=True):
    """Patterns of `package` and `file`, and what is lost. `by_torch`: the one whose name has torch's version.

    `of_environment`: before them it opens what they need in the lib folder of its environment.
    """

    package: str
    file: str
    why: str
    one_of: bool = False
    by_torch: bool = False
    of_environment: bool = False


class OpenedLibraries(msgspec.Struct, frozen=True, kw_only=True):
    """`package` (normalised name) opens these libraries by name when it is imported."""

    package: str
    libraries: tuple[str, ...]


class OfFeature(msgspec.Struct, frozen=True, kw_only=True):
    """A library that one `feature` needs and nothing else, for GPUs from capability `since` on."""

    stem: str
    feature: str
    known: str
    since: str = "0"
    fix: str = ""  #: another way to the feature


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A library with its kernels elsewhere where its section for GPU code has one of these architectures alone."""

    stem: str
    section: tuple[str, ...]
    known: str


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """`package` of these `versions` needs one of `one_of` (normalised names). `why` ends "… needs X": a sentence."""

    package: str
    versions: str
    one_of: tuple[str, ...]
    why: str


class _Feature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature that PyG loses without one of these extensions, from release `since` on and before `before`."""

    name: str
    any: tuple[str, ...]
    since: str = "0"
    before: str = "9999"


class PygRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A published version of PyG; `python` is its Requires-Python."""

    version: str
    python: str
    known: str


PYTHONS = tuple(f"3.{minor}" for minor in range(8, 16))  #: of images, and some more

#: all optional libraries
optional = table_reader("optional", tuple[Optional, ...], "optional")
#: packages that open libraries of the system
opened = table_reader("opened", tuple[OpenedLibraries, ...], "opened")
#: libraries of one feature each
of_features = table_reader("features", tuple[OfFeature, ...], "library")
#: libraries that keep kernels elsewhere
elsewhere = table_reader("features", tuple[Elsewhere, ...], "elsewhere")
_hidden = table_reader("hidden", tuple[Hidden, ...], "hidden")
_features = table_reader("pyg", tuple[_Feature, ...], "feature")
_releases = table_reader("pyg", tuple[PygRelease, ...], "release")
_coverage = table_reader("pyg", dict[str, tuple[str, ...]], "coverage")


def reason(package: str, file: str, torch: str = "") -> str | None:
    """Name the loss where this file of a package cannot be loaded with this torch; None for a file that has to be."""
    entries = (entry for entry in optional() if matches(entry, package, file))
    return next((entry.why for entry in entries if not (entry.by_torch and is_for(file, torch))), None)


def matches(entry: Optional, package: str, file: str) -> bool:
    """Return whether the entry is about this file of a package."""
    return fnmatch.fnmatchcase(package, entry.package) and fnmatch.fnmatchcase(file, entry.file)


def opens_of_environment(package: str, file: str) -> bool:
    """Return whether a package opens what this file of it needs in the lib folder of its environment."""
    return any(entry.of_environment and matches(entry, package, file) for entry in optional())


def of_feature(file: str) -> OfFeature | None:
    """The feature that a library is for, by its path; None for one that all of its package needs."""
    name = file.rpartition("/")[2]
    return next((feature for feature in of_features() if name.startswith(feature.stem)), None)


def is_for(file: str, torch: str) -> bool:
    """Return whether a library's name has this version of torch: `_pytorch_2.0.1` its release, `_torch24-` series."""
    name, version = file.rpartition("/")[2], torch.partition("+")[0]
    if match := re.search(r"(?<![\d.])(\d+\.\d+\.\d+)(?!\d)", name):
        return match[1] == version
    series = re.search(r"torch(\d)(\d+)", name)
    return series is not None and version.split(".")[:2] == [series[1], series[2]]


def hidden(package: str, version: str, there: Collection[str]) -> tuple[Hidden, ...]:
    """Find what this release needs in silence and misses among the packages `there` (normalised names)."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return ()
    return tuple(
        hidden
        for hidden in _hidden()
        if hidden.package == package
        and SpecifierSet(hidden.versions).contains(parsed, prereleases=True)
        and set(hidden.one_of).isdisjoint(there)
    )


def pyg_release(version: str) -> PygRelease | None:
    """A release of PyG ("2.3.1"), if it is known."""
    return next((release for release in _releases() if release.version == version), None)


def lost(extension: str, version: str, there: Collection[str]) -> str:
    """Name what PyG loses without an extension (normalised name), beside those that are there. For people."""
    at = Version(version)
    alone: list[str] = []
    shared: list[str] = []
    for feature in _features():
        others = [name for name in feature.any if name != extension]
        if extension not in feature.any or not Version(feature.since) <= at < Version(feature.before):
            continue
        if not others:
            alone.append(feature.name)
        elif set(others).isdisjoint(there):
            shared.append(f"{feature.name} unless {' or '.join(others).replace('-', '_')} is there")
    return "; ".join(part for part in (", ".join(alone), ", ".join(shared)) if part)


def moved(version: str, there: Collection[str]) -> tuple[str, str]:
    """Features that a PyG lacks since another extension took them over, and that extension; empty where it has all.

    `there`: the extensions of the image (normalised names). For people.
    """
    at = Version(version)
    before = {feature.name: feature for feature in _features() if Version(feature.before) <= at}
    lost = [
        feature
        for feature in _features()
        if Version(feature.since) <= at < Version(feature.before)
        and set(feature.any).isdisjoint(there)
        and feature.name in before
        and set(feature.any).isdisjoint(before[feature.name].any)
    ]
    by = dict.fromkeys(name.replace("-", "_") for feature in lost for name in feature.any)
    return ", ".join(feature.name for feature in lost), " or ".join(by)


def has_wheels(torch: str, torch_cuda: str) -> bool | None:
    """Tell whether PyG's pages have wheels for a torch ("2.0.1+cu118", "11.8"); None if unknown."""
    series = ".".join(torch.split("+")[0].split(".")[:2])
    known = _coverage().get(series)
    return None if known is None else torch_cuda in known


def markers(python: str, platform: Platform = DEFAULT) -> dict[str, str]:
    """The environment of an image with this Python ("3.11"; empty: not known), without extras (PEP 508)."""
    known = environments.linux(python, platform.machine)
    return known if python else {name: value for name, value in known.items() if not name.startswith("python_")}


def counts(requirement: Requirement, python: str, extras: Iterable[str] = ("",)) -> bool | None:
    """Return whether a requirement's marker is true with this Python and one of these extras.

    None of a marker that cannot be evaluated: it compares what cannot be compared, or names what lock files alone have
    (`"gpu" in extras`, `"dev" in dependency_groups`).
    """
    if requirement.marker is None:
        return True
    try:
        return any(requirement.marker.evaluate({**markers(python), "extra": extra}) for extra in extras)
    except (UndefinedComparison, UndefinedEnvironmentName, InvalidVersion):
        return None


def is_for_no_image(text: str) -> bool:
    """Return whether a requirement's marker (`sys_platform == 'darwin'`) is false in every image."""
    return environments.is_for_none(text, map(markers, PYTHONS))


def requirements(lines: Iterable[str], python: str, extras: Iterable[str] = ("",)) -> Iterator[Requirement]:
    """Yield what counts with one of these extras, without lines that are no requirement or cannot be evaluated."""
    for line in lines:
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line)
            if counts(requirement, python, extras):
                yield requirement
