"""Build requirements of a source besides those of its pyproject.toml (`data/back_ends.toml`). Pure."""

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import sonames
from graphcrate.compat.facts.facts import table, table_reader
from graphcrate.model.lock import Compilation, LockedPackage

#: in a variable of a known package: the folder that its build requirements are in, whichever Python it is for
_BUILD_REQUIREMENTS = "{build_requirements}"
_PLACEHOLDER = re.compile(r"\{\w+\}")
_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)


class _BackEnd(msgspec.Struct, frozen=True, kw_only=True):
    module: str
    asks: tuple[str, ...]
    source: str
    rust: bool = False


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    asks: tuple[str, ...]
    source: str
    requires: str = ""
    file: str = ""
    calls: str = ""
    rust: bool = False


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A package's needs for its build: what it `asks` for, `variables`, and `options` of its setup.py.

    `wheels`: projects with libraries and headers of CUDA that code for GPUs is compiled and run with, beside what torch
    needs, as `sonames` names them. `variables_for_cuda` and `options_for_cuda`: more of both where code for GPUs is
    made. `turn_on`: the variable by which the user gets code for GPUs, where its build makes none by itself. `python`:
    the versions that can import the index's releases, where their metadata does not say so; `because` and `instead`
    say why, and what to type.
    """

    name: str
    source: str
    asks: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    variables_for_cuda: dict[str, str] = {}
    options: tuple[str, ...] = ()
    options_for_cuda: tuple[str, ...] = ()
    turn_on: str = ""
    python: str = ""
    because: str = ""
    instead: str = ""

    def variables_where(self, requirements: str, *, cuda: bool) -> dict[str, str]:
        """Its variables, where its build requirements are in this folder."""
        made = self.variables | (self.variables_for_cuda if cuda else {})
        return {name: value.replace(_BUILD_REQUIREMENTS, requirements) for name, value in made.items()}

    def imports_in(self, python: str) -> bool:
        """Return whether this Python ("3.11") can import it, as far as that is known."""
        return SpecifierSet(self.python).contains(f"{python}.0")

    def settings(self, *, cuda: bool) -> tuple[str, ...]:
        """The options of its setup.py."""
        return (*self.options, *(self.options_for_cuda if cuda else ()))


class BuildNeeds(NamedTuple):
    """Further build requirements. `compiles`: the back-end makes nothing else; `rust`: it starts cargo.

    `torch`: its setup.py imports torch; `parallel`: several files are compiled at a time. setuptools by itself compiles
    one after another; CMake and meson start ninja, and so does torch's BuildExtension.
    """

    requires: tuple[str, ...] = ()
    compiles: bool = False
    rust: bool = False
    torch: bool = False
    parallel: bool = False


_back_ends = table_reader("back_ends", tuple[_BackEnd, ...], "back_end")
_tools = table_reader("back_ends", tuple[_Tool, ...], "tool")


def checked(packages: tuple[Package, ...]) -> tuple[Package, ...]:
    """The same. Raises ValueError for an unknown placeholder or project of CUDA's."""
    for row in packages:
        values = (*row.variables.values(), *row.variables_for_cuda.values())
        names = {name for value in values for name in _PLACEHOLDER.findall(value)}
        if unknown := sorted(names - {_BUILD_REQUIREMENTS}):
            raise ValueError(f"{row.name}: {unknown[0]} in a variable stands for nothing")
        if strange := [project for project in row.wheels if not sonames.is_project(project)]:
            raise ValueError(f"{row.name}: {strange[0]} is not a project with libraries of CUDA")
    return packages


@functools.cache
def _packages() -> tuple[Package, ...]:
    return checked(table("back_ends", tuple[Package, ...], "package"))


def package(name: str) -> Package:
    """Look up a package by its normalised name; most have an empty entry."""
    return next((row for row in _packages() if row.name == name), Package(name=name, source=""))


def of_setup(locked: LockedPackage, compilation: Compilation) -> tuple[str, ...]:
    """The options that the setup.py of a source gets; those of a stack's own sources get none."""
    return package(locked.name).settings(cuda=compilation.toolkit is not None) if locked.isolated else ()


def asked(back_end: str, requires: Collection[str], files: Mapping[str, bytes], *, is_setup: bool) -> BuildNeeds:
    """Find what the back-end of a source asks for.

    `requires`: its build requirements; `files`: path → content, as read.
    """
    module = back_end.partition(":")[0].partition(".")[0]
    if row := next((row for row in _back_ends() if row.module == module), None):
        return BuildNeeds(_lacking(row.asks, requires), compiles=True, rust=row.rust, parallel=True)
    names, setup = _names(requires), files.get("setup.py", b"").decode(errors="replace").lower()
    tools = [row for row in _tools() if row.requires in names or (is_setup and _is_called(row, setup, files))]
    asks = [line for row in tools for line in row.asks]
    asks += ["cython"] * (is_setup and any(_is_cython_alone(path, files) for path in files))
    return BuildNeeds(
        _lacking(dict.fromkeys(asks), requires),
        bool(tools),
        rust=any(row.rust for row in tools),
        torch=is_setup and _TORCH.search(setup) is not None,
        parallel=bool(tools) or (is_setup and "buildextension" in setup),
    )


def all_asked(name: str, stated: Iterable[str], asked: BuildNeeds) -> tuple[str, ...]:
    """The build requirements of a source, as they are for one image: what it states, what its back-end asks for, and
    what is known of the package with this normalised name.
    """
    return tuple(for_stack(line) for line in (*stated, *asked.requires, *package(name).asks))


def wheels(name: str, cuda: str) -> tuple[str, ...]:
    """Projects of the index with what of CUDA a package (normalised name) is compiled and run with, beside torch's own.

    `cuda`: what the stack's torch is built with ("11.7"; "cpu": it is none).
    """
    named = (sonames.project_for(project, cuda) for project in package(name).wheels)
    return tuple(filter(None, named))


def lacks(locked: LockedPackage, there: Collection[str], cuda: str) -> bool:
    """Return whether a source was locked without something that it is known to ask for.

    `there`: names of all packages of its lock; `cuda`: as in `wheels`.
    """
    asks = _names(package(locked.name).asks)
    is_whole = asks <= {need.name for need in locked.build} and {*wheels(locked.name, cuda)} <= {*there}
    return locked.isolated and not is_whole


def for_stack(line: str) -> str:
    """A build requirement as it is for one image, whose numpy stays: what is compiled with another may not load there.

    `oldest-supported-numpy` is for wheels that are to work with all; it pins numpy 1.
    """
    requirement = Requirement(line)
    if _name(line) != "oldest-supported-numpy":
        return line
    return f"numpy ; {requirement.marker}" if requirement.marker else "numpy"


def _is_called(tool: _Tool, setup: str, files: Mapping[str, bytes]) -> bool:
    """Return whether a setup.py starts this tool: it names it beside the tool's file, or starts it as a program."""
    if not tool.calls or tool.calls not in setup:
        return False
    is_program = re.search(rf"""["']{re.escape(tool.calls)}["']""", setup) is not None
    return tool.file in files or (is_program and any(path.rpartition("/")[2] == tool.file for path in files))


def _is_cython_alone(path: str, files: Mapping[str, bytes]) -> bool:
    """Return whether a file is Cython's without what it makes of it: setuptools takes that where there is no Cython."""
    stem, dot, ending = path.rpartition(".")
    return ending == "pyx" and not any(f"{stem}{dot}{other}" in files for other in ("c", "cpp", "cxx"))


def _lacking(asks: Collection[str], requires: Collection[str]) -> tuple[str, ...]:
    names = _names(requires)
    return tuple(line for line in asks if _name(line) not in names)


def _names(requires: Collection[str]) -> set[str]:
    return {_name(line) for line in requires}


def _name(line: str) -> str:
    return str(canonicalize_name(Requirement(line).name))
