"""uv.lock: the needs of the projects that it locks, and its versions."""

from collections.abc import Iterator
from typing import Any

import msgspec

from projectfiles.errors import ProjectFileError
from projectfiles.parts import (
    EXTRA,
    LockedFile,
    bracketed,
    canonical,
    chosen_marker,
    expect_python,
    git_of,
    hashes_of,
    index_lines,
    merged,
    refuse_unknown,
)
from projectfiles.toml_text import package_places, read_toml
from projectfiles.values import Line, Needs, Release


class _UvRequired(msgspec.Struct, frozen=True):
    name: str
    specifier: str = ""
    marker: str = ""
    extras: list[str] = []
    git: str = ""
    editable: str = ""
    directory: str = ""
    virtual: str = ""
    path: str = ""
    url: str = ""


class _UvMetadata(msgspec.Struct, frozen=True, rename="kebab"):
    requires_dist: list[_UvRequired] = []
    requires_dev: dict[str, list[_UvRequired]] = {}
    provides_extras: list[str] = []


class _UvPackage(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    version: str = ""
    source: dict[str, Any] = {}
    metadata: _UvMetadata = _UvMetadata()
    sdist: LockedFile | None = None
    wheels: list[LockedFile] = []
    resolution_markers: list[str] = []


class _UvLock(msgspec.Struct, frozen=True, rename="kebab"):
    package: list[_UvPackage] = []
    requires_python: str = ""


def read(text: str, name: str, asked: tuple[str, ...] = ()) -> Needs:
    """Return the needs of the projects of a uv.lock, and its versions. Raises ProjectFileError."""
    lock, made = read_toml(text, name, _UvLock), Needs()
    roots = [package for package in lock.package if {"editable", "virtual"} & package.source.keys()]
    own, at = {root.name for root in roots}, package_places(text, name)
    gits = {package.name: git for package in lock.package if isinstance(git := package.source.get("git"), str)}
    if not roots:
        raise ProjectFileError(
            f"{name} locks no project",
            kind="needs",
            where=name,
            next_step="uv export > pylock.toml    (or give requirements.txt)",
        )
    refuse_unknown(asked, {extra for root in roots for extra in _uv_extras(root)}, name)
    for root in roots:
        groups = [required for group in asked for required in root.metadata.requires_dev.get(canonical(group), ())]
        for requirement in (*root.metadata.requires_dist, *groups):
            marker = chosen_marker(requirement.marker, asked)
            if marker is not None and requirement.name not in own:
                made.lines.append(Line(at(root.name), _line(requirement, marker, gits.get(requirement.name, ""))))
    registries = [package for package in lock.package if isinstance(package.source.get("registry"), str)]
    made.lines += index_lines([(at(registry.name), registry.source["registry"]) for registry in registries])
    made.locked += merged(
        Release(
            at(registry.name),
            registry.name,
            registry.version,
            hashes_of([registry.sdist, *registry.wheels]),
            " or ".join(f"({marker})" for marker in registry.resolution_markers),
        )
        for registry in registries
    )
    expect_python(made, lock.requires_python, name)
    return made


def _line(requirement: _UvRequired, marker: str, git: str) -> str:
    """Return pip's line of a requirement; `git`: the repository that the lock has for it. Folders take no marker."""
    if folder := requirement.editable or requirement.directory or requirement.virtual or requirement.path:
        return f"./{folder}"
    ends = f" ; {marker}" if marker else ""
    if requirement.url:
        return f"{requirement.name} @ {requirement.url}{'' if git else ends}"
    if git:
        return git_of(git)
    return f"{requirement.name}{bracketed(requirement.extras)}{requirement.specifier}{ends}"


def _uv_extras(root: _UvPackage) -> Iterator[str]:
    """Names of the extras and groups of a project of a uv.lock."""
    metadata = root.metadata
    yield from map(canonical, (*metadata.provides_extras, *metadata.requires_dev))
    for requirement in metadata.requires_dist:
        yield from map(canonical, EXTRA.findall(requirement.marker))
