"""Pixi's tables: `[tool.pixi]` of a pyproject.toml, and pixi.toml, which has the same at its top.

`dependencies` are conda's, `pypi-dependencies` pip's (pixi's manual, "Pixi manifest"). A feature is taken like an
extra: `pixi.toml[train]`. What is not taken is named.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from projectfiles.errors import unknown
from projectfiles.toml_text import key_place, read_toml
from projectfiles.values import Line, Needs, Note, git_line, index_line

KeyPlace = Callable[[str], str]  #: where a key stands in the file: "pixi.toml:7"
_SYSTEM = "linux-64"  #: the table of a `target` that images have
_Table = dict[str, str | dict[str, Any]]


class _Needs(msgspec.Struct, frozen=True, rename="kebab"):
    dependencies: _Table = {}
    pypi_dependencies: _Table = {}
    build_dependencies: _Table = {}
    host_dependencies: _Table = {}


class _Feature(_Needs, frozen=True, rename="kebab"):
    target: dict[str, _Needs] = {}


class _Workspace(msgspec.Struct, frozen=True):
    channels: list[Any] = []


class Pixi(_Feature, frozen=True, rename="kebab"):
    """The tables that say what a project needs. `project`: the name of `workspace` before pixi 0.40."""

    feature: dict[str, _Feature] = {}
    workspace: _Workspace = _Workspace()
    project: _Workspace = _Workspace()


def pixi_toml(text: str, name: str, features: tuple[str, ...] = ()) -> Needs:
    """Return the needs of a pixi.toml, with these features. Raises ProjectFileError."""
    return read(read_toml(text, name, Pixi), name, lambda key: key_place(text, name, key), features)


def read(pixi: Pixi, name: str, place: KeyPlace, asked: tuple[str, ...] = ()) -> Needs:
    """Return what the tables of the file `name` need, with these features.

    Raises ProjectFileError for one that is not there.
    """
    known = {str(canonicalize_name(key)): feature for key, feature in pixi.feature.items()}
    named = [str(canonicalize_name(feature)) for feature in asked]
    for feature in named:
        if feature not in known:
            raise unknown("feature", feature, name, known)
    parts: list[_Feature] = [pixi, *(known[feature] for feature in named)]
    tables: list[_Needs] = [
        table for part in parts for table in (part, part.target.get(_SYSTEM), part.target.get("linux")) if table
    ]
    specs = [
        Line(place(key), _conda_line(key, entry), "conda")
        for table in tables
        for key, entry in {**table.host_dependencies, **table.dependencies}.items()
    ]
    channels = [str(channel) for channel in (pixi.workspace.channels or pixi.project.channels)]
    made = Needs(lines=specs, channels=channels if specs else [])
    made.lines += [line for table in tables for line in _pip_lines(table.pypi_dependencies, place, made)]
    if tools := [key for table in tables for key in table.build_dependencies]:
        made.notes.append(Note("build", name, tuple(tools)))
    if others := [key for key in known if key not in named]:
        made.notes.append(Note("features", name, tuple(others)))
    return made


def features(pixi: Pixi) -> set[str]:
    """Return the names of the features, normalised."""
    return {str(canonicalize_name(key)) for key in pixi.feature}


def _conda_line(key: str, entry: str | Mapping[str, Any]) -> str:
    """Return a match specification of conda's."""
    if isinstance(entry, str):
        return key if entry in ("", "*") else f"{key}{entry}" if entry[0] in "<>=!~" else f"{key}=={entry}"
    channel = f"{entry['channel']}::" if entry.get("channel") else ""
    build = f"[build={entry['build']}]" if entry.get("build") else ""
    return channel + _conda_line(key, str(entry.get("version", "*"))) + build


def _pip_lines(table: _Table, place: KeyPlace, made: Needs) -> Iterator[Line]:
    """Yield lines of pip's, with the index of a package that has one; note the project itself, which is not taken."""
    for key, entry in table.items():
        if isinstance(entry, dict) and str(entry.get("path", "")).rstrip("/") in (".", "./."):
            made.notes.append(Note("itself", place(key), (key,)))
            continue
        yield Line(place(key), _pip_line(key, entry if isinstance(entry, dict) else {"version": entry}))
        if isinstance(entry, dict) and entry.get("index"):
            yield Line(place(key), index_line(entry["index"]))


def _pip_line(key: str, entry: Mapping[str, Any]) -> str:
    if path := entry.get("path"):
        return str(path) if str(path).startswith((".", "/")) else f"./{path}"
    if git := entry.get("git"):
        revision = entry.get("rev") or entry.get("tag") or entry.get("branch") or "HEAD"
        return git_line(git, revision, entry.get("subdirectory"))
    if url := entry.get("url"):
        return f"{key} @ {url}"
    extras = ",".join(extra for extra in entry.get("extras", ()) if isinstance(extra, str))
    version = str(entry.get("version", "*"))
    bounds = "" if version in ("", "*") else version if version[0] in "<>=!~" else f"=={version}"
    return f"{key}[{extras}]{bounds}" if extras else f"{key}{bounds}"
