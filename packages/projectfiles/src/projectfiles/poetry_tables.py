"""Tables of `[tool.poetry]`: dependencies as lines of pip."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from packaging.specifiers import SpecifierSet

from projectfiles.environments import is_for_none
from projectfiles.errors import ProjectFileError
from projectfiles.parts import bracketed
from projectfiles.poetry_versions import poetry_specifier
from projectfiles.toml_text import key_place
from projectfiles.values import Environment, Line, git_line


class PoetryGroup(msgspec.Struct, frozen=True, rename="kebab"):
    """Of poetry: a requirement is a version, or a table, or several of them."""

    dependencies: dict[str, str | dict[str, Any] | list[dict[str, Any]]] = {}


class NamedIndex(msgspec.Struct, frozen=True):
    """An index, as Poetry and PDM name it."""

    name: str = ""
    url: str = ""


class PoetryTables(PoetryGroup, frozen=True, rename="kebab"):
    """The tables of `[tool.poetry]` that say what a project needs."""

    extras: dict[str, list[str]] = {}
    group: dict[str, PoetryGroup] = {}
    dev_dependencies: dict[str, str | dict[str, Any] | list[dict[str, Any]]] = {}
    source: list[NamedIndex] = []


def poetry_lines(
    dependencies: Mapping[str, Any],
    text: str,
    name: str,
    environments: Sequence[Environment],
    *,
    optional: bool = False,
) -> list[Line]:
    """Return Poetry's table as lines; `optional`: those of an extra, which have that key. Raises ProjectFileError."""
    made = list[Line]()
    for key, value in dependencies.items():
        for entry in value if isinstance(value, list) else [value]:
            table = entry if isinstance(entry, dict) else {"version": entry}
            if key == "python" or (table.get("optional") is True) is not optional:
                continue
            where = key_place(text, name, key)
            if "subdirectory" in table and "git" not in table:
                raise ProjectFileError(
                    f"{where}: {key} is in a folder of its archive",
                    kind="subdirectory",
                    where=where,
                    text=key,
                    next_step="clone it, and take that folder",
                )
            made.append(Line(where, _poetry_line(key, table, where, environments)))
    return made


def _poetry_line(key: str, table: Mapping[str, Any], where: str, environments: Sequence[Environment]) -> str:
    """Return a line of a dependency in Poetry's table: of its sources at most one is there, and of its markers any."""
    marker = " and ".join(f"({part})" for part in _poetry_markers(table, where))
    if marker and is_for_none(f"{key} ; {marker}", environments):
        return f"{key} ; {marker}"  # a reader of lines passes over it, whatever its source is
    if path := table.get("path") or table.get("file"):
        return f"./{path}"
    if git := table.get("git"):
        revision = table.get("rev") or table.get("tag") or table.get("branch") or "HEAD"
        return git_line(git, revision, table.get("subdirectory"))
    ends = f" ; {marker}" if marker else ""
    if url := table.get("url"):
        return f"{key} @ {url}{ends}"
    extras = [extra for extra in table.get("extras", ()) if isinstance(extra, str)]
    return f"{key}{bracketed(extras)}{poetry_specifier(str(table.get('version', '*')), key, where)}{ends}"


def _poetry_markers(table: Mapping[str, Any], where: str) -> Iterator[str]:
    if marker := table.get("markers"):
        yield str(marker)
    if platform := table.get("platform"):
        yield f"sys_platform == '{platform}'"
    if python := table.get("python"):
        for part in SpecifierSet(poetry_specifier(str(python), "python", where)):
            version = part.version.removesuffix(".*")
            variable = "python_full_version" if version.count(".") > 1 else "python_version"
            yield f"{variable} {part.operator} '{version}'"


def python_of(poetry: PoetryTables) -> str:
    """Return the Python that a project is for, as Poetry writes versions."""
    dependency = poetry.dependencies.get("python", "*")
    dependency = dependency.get("version", "*") if isinstance(dependency, dict) else dependency
    return dependency if isinstance(dependency, str) else "*"
