"""pyproject.toml: PEP 621 and PEP 735, and the tables of Poetry, PDM, uv, setuptools and pixi."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from packaging.dependency_groups import DependencyGroupResolver
from packaging.requirements import InvalidRequirement, Requirement

from projectfiles import pixi
from projectfiles.errors import ProjectFileError
from projectfiles.parts import canonical, expect_python, index_lines, refuse_unknown
from projectfiles.pixi import Pixi
from projectfiles.poetry_tables import NamedIndex, PoetryGroup, PoetryTables, poetry_lines, python_of
from projectfiles.poetry_versions import poetry_specifier
from projectfiles.toml_text import key_place, place_of, read_toml
from projectfiles.values import Environment, Line, Needs
from projectfiles.words import printable


class _Project(msgspec.Struct, frozen=True, rename="kebab"):
    dependencies: list[str] = []
    optional_dependencies: dict[str, list[str]] = {}
    requires_python: str = ""
    dynamic: list[str] = []
    name: str = ""


class _Setuptools(msgspec.Struct, frozen=True):
    dynamic: dict[str, Any] = {}


class _UvIndex(msgspec.Struct, frozen=True):
    url: str


class _Uv(msgspec.Struct, frozen=True):
    index: list[_UvIndex] = []


class _Pdm(msgspec.Struct, frozen=True, rename="kebab"):
    dev_dependencies: dict[str, list[str]] = {}
    source: list[NamedIndex] = []


class _Tools(msgspec.Struct, frozen=True):
    poetry: PoetryTables | None = None
    pdm: _Pdm = _Pdm()
    setuptools: _Setuptools = _Setuptools()
    uv: _Uv = _Uv()
    pixi: Pixi | None = None


class _Pyproject(msgspec.Struct, frozen=True, rename="kebab"):
    project: _Project | None = None
    dependency_groups: dict[str, list[str | dict[str, str]]] = {}
    tool: _Tools = _Tools()


def read(text: str, name: str, extras: tuple[str, ...], environments: Sequence[Environment]) -> Needs:
    """Return a project's needs, with these extras or groups. Raises ProjectFileError."""
    value, made = read_toml(text, name, _Pyproject), Needs()
    project, poetry = value.project, value.tool.poetry
    if project is None and poetry is None and value.tool.pixi is None:
        raise ProjectFileError(
            f"{name} has no [project]: nothing in it says what the project needs",
            kind="needs",
            where=name,
            next_step="build the project itself",
        )
    if project is not None:
        made.lines += [Line(place_of(text, name, dependency), dependency) for dependency in project.dependencies]
        expect_python(made, project.requires_python, name)
        if "dependencies" in project.dynamic:
            made.lines += [Line(name, f"-r '{path}'") for path in _files(value, name)]
    if poetry is not None and (project is None or not project.dependencies):
        made.lines += poetry_lines(poetry.dependencies, text, name, environments)
        if "python" in poetry.dependencies:
            where = key_place(text, name, "python")
            expect_python(made, poetry_specifier(python_of(poetry), "python", where), name)
        made.lines += index_lines([(place_of(text, name, source.url), source.url) for source in poetry.source])
    features: tuple[str, ...] = ()
    if value.tool.pixi is not None:
        known = pixi.features(value.tool.pixi)
        features = tuple(extra for extra in extras if canonical(extra) in known)
        needs = pixi.read(value.tool.pixi, name, lambda key: key_place(text, name, key), features)
        made.lines += needs.lines
        made.channels += needs.channels
        made.notes += needs.notes
    made.lines += _extras(value, text, name, [extra for extra in extras if extra not in features], environments)
    urls = [*(index.url for index in value.tool.uv.index), *(source.url for source in value.tool.pdm.source)]
    made.lines += index_lines([(place_of(text, name, url), url) for url in urls])
    return made


def extras(text: str, name: str, names: tuple[str, ...], environments: Sequence[Environment]) -> list[Line]:
    """Return what these extras or groups of a pyproject.toml need besides. Raises ProjectFileError."""
    return _extras(read_toml(text, name, _Pyproject), text, name, names, environments)


def _extras(
    value: _Pyproject, text: str, name: str, asked: Iterable[str], environments: Sequence[Environment]
) -> list[Line]:
    """Lines of extras and groups, with those that they include (`mypkg[dev]` in an extra of mypkg)."""
    project, poetry = value.project or _Project(), value.tool.poetry or PoetryTables()
    known: dict[str, list[str]] = {canonical(key): ones for key, ones in project.optional_dependencies.items()}
    groups = {canonical(key) for key in value.dependency_groups} - known.keys()
    known |= {group: [] for group in groups}
    for key, lines in value.tool.pdm.dev_dependencies.items():
        known.setdefault(canonical(key), lines)
    of_dev = {"dev": PoetryGroup(poetry.dev_dependencies)} if poetry.dev_dependencies else {}
    for key, part in {**of_dev, **poetry.group}.items():
        needs = poetry_lines(part.dependencies, text, name, environments)
        known.setdefault(canonical(key), [line.text for line in needs])
    for key, names in poetry.extras.items():
        chosen = {name: poetry.dependencies[name] for name in names if name in poetry.dependencies}
        lines = [line.text for line in poetry_lines(chosen, text, name, environments, optional=True)]
        known.setdefault(canonical(key), [*lines, *(name for name in names if name not in chosen)])
    made, done, to_do = list[Line](), set[str](), [canonical(extra) for extra in asked]
    while to_do:
        extra = to_do.pop(0)
        if extra in done:
            continue
        done.add(extra)
        refuse_unknown([extra], known, name)
        for line in _of_group(value.dependency_groups, extra, name) if extra in groups else known[extra]:
            own = re.fullmatch(r"([\w.-]+)\[([\w\s.,-]+)\]", line.strip())
            if own and canonical(own[1]) == canonical(project.name):
                to_do += [canonical(extra) for extra in own[2].split(",")]
            else:
                made.append(Line(place_of(text, name, line), line))
    return made


def _of_group(groups: Mapping[str, list[str | dict[str, str]]], group: str, name: str) -> list[str]:
    """List the needs of a group with those of groups that it includes (PEP 735), as they are written.

    Raises ProjectFileError; a line that is no requirement comes alone, for the reader of lines to refuse.
    """
    entries = [entry for group in groups.values() for entry in group if isinstance(entry, str)]
    try:
        needed = DependencyGroupResolver(groups).resolve(group)
    except ExceptionGroup as error:
        first = next(iter(error.exceptions))
        if isinstance(first, InvalidRequirement):
            return [entry for entry in entries if not _is_requirement(entry)][:1]
        raise ProjectFileError(
            f"{name}: {printable(str(first)[:300])}",
            kind="form",
            where=name,
            cause="Its [dependency-groups] are not as PEP 735 has them.",
            next_step=f"correct it in {name}, or write the packages to a file",
        ) from error
    written = {str(Requirement(entry)): entry for entry in entries if _is_requirement(entry)}
    return [written[str(requirement)] for requirement in needed]


def _is_requirement(text: str) -> bool:
    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return True


def _files(value: _Pyproject, name: str) -> list[str]:
    """The requirements files that setuptools reads a project's dependencies from. Raises ProjectFileError for none."""
    dependencies = value.tool.setuptools.dynamic.get("dependencies")
    files = dependencies.get("file", ()) if isinstance(dependencies, dict) else ()
    paths = [files] if isinstance(files, str) else [file for file in files if isinstance(file, str)]
    if not paths:
        raise ProjectFileError(
            f"{name} calls its dependencies dynamic: its own program says them when the project is built",
            kind="dynamic",
            where=name,
            next_step="build the project itself",
        )
    return [path.replace("'", "") for path in paths]
