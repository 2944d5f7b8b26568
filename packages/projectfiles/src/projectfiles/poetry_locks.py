"""poetry.lock: the versions of a project whose needs its pyproject.toml has."""

from collections.abc import Iterable

import msgspec

from projectfiles.parts import (
    ALWAYS,
    EXTRA,
    NEVER,
    LockedFile,
    PinnedGit,
    at_commits,
    canonical,
    hashes_of,
    index_lines,
    merged,
)
from projectfiles.toml_text import package_places, read_toml
from projectfiles.values import Needs, Release


class _PoetryPackage(msgspec.Struct, frozen=True):
    name: str
    version: str
    source: dict[str, str] = {}
    files: list[LockedFile] = []
    groups: list[str] = []
    markers: str | dict[str, str] = ""  #: of all its groups, or of each


class _PoetryLock(msgspec.Struct, frozen=True):
    package: list[_PoetryPackage] = []


def read(text: str, name: str, project: Needs, asked: tuple[str, ...] = ()) -> Needs:
    """Return a project's needs, and the versions of its poetry.lock. Raises ProjectFileError."""
    lock, at = read_toml(text, name, _PoetryLock), package_places(text, name)
    public = [package for package in lock.package if package.source.get("type", "legacy") == "legacy"]
    project.lines += index_lines(
        [(at(package.name), package.source.get("url", "")) for package in public if package.source]
    )
    project.locked += merged(
        Release(
            at(package.name),
            package.name,
            package.version,
            hashes_of(package.files),
            _poetry_lock_marker(package, asked),
        )
        for package in public
    )
    sources = [package.source for package in lock.package if package.source.get("type") == "git"]
    gits = [
        PinnedGit(*(source.get(key, "") for key in ("url", "reference", "resolved_reference", "subdirectory")))
        for source in sources
    ]
    project.lines = at_commits(project.lines, gits)
    return project


def _poetry_lock_marker(package: _PoetryPackage, asked: Iterable[str]) -> str:
    """Return the marker of a package of a poetry.lock: of what is always installed, and of what was asked for."""
    written = package.markers
    if isinstance(written, dict):
        taken = {"main", *map(canonical, asked)}
        groups = [group for group in package.groups if canonical(group) in taken] or package.groups
        parts = [written.get(group, "") for group in groups]
        written = " or ".join(f"({part})" for part in parts) if all(parts) else ""
    names = {canonical(extra) for extra in asked}
    return EXTRA.sub(lambda match: ALWAYS if canonical(match[1]) in names else NEVER, written)
