"""Source distributions: what they say of themselves, and those that are written of a user's project."""

import ast
import configparser
import contextlib
import email
import re
import tomllib
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts import back_ends, crates, cuda_sources
from graphcrate.compat.facts.back_ends import BuildNeeds
from graphcrate.compat.facts.crates import CargoNeeds
from graphcrate.host.sandbox import beneath
from graphcrate.host.sandbox.beneath import PlainFile
from graphcrate.inputs.wheels.sdist_archive import broken, pack_sdist, read_files, reading_errors
from graphcrate.model import codec
from graphcrate.model.errors import IntegrityError
from graphcrate.model.words import in_lines

#: of an sdist without [build-system], by PEP 517
LEGACY_BUILD = ("setuptools>=40.8", "wheel")
LARGEST = 1 << 20  #: bytes of a metadata file that is still read
_REQUIRES = ".egg-info/requires.txt"
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_MOST_DOCUMENTS = 50  #: of cargo that are read; a source has some two, and each takes memory
#: what setup.py imports of a stack, of which its build requirements say nothing
_OF_STACK = {"torch", "numpy"}
_ASIDE = {"test", "tests", "doc", "docs", "examples"}
_SETUPTOOLS = "setuptools.build_meta"
#: by a compiler, or by what makes C of them (Cython, SWIG, f2py); in small letters
_COMPILED = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".i", ".rs"),
    *(".f", ".for", ".f77", ".f90", ".f95", ".f03", ".f08", ".pyf"),
)


class SdistMetadata(NamedTuple):
    """PEP 508 requirements to run and to build, those too that its setup.py has as a literal (setup_requires)."""

    requires: tuple[str, ...]
    build_requires: tuple[str, ...]
    asked: BuildNeeds = BuildNeeds()
    back_end: str = f"{_SETUPTOOLS}:__legacy__"  #: object that has the hooks of PEP 517
    back_end_path: tuple[str, ...] = ()  #: folders of the sdist that it is in (PEP 517)
    imports_stack: bool = False  #: its setup.py does: it is built beside the stack, as what is compiled
    extras: Mapping[str, tuple[str, ...]] = MappingProxyType({})  #: normalised name → what it needs besides


class _BuildSystem(msgspec.Struct, rename="kebab"):
    requires: list[str] = []
    build_backend: str = ""
    backend_path: list[str] = []


class _Project(msgspec.Struct):
    name: str = ""
    version: str = ""
    dependencies: list[str] = []
    dynamic: list[str] = []


class _Maturin(msgspec.Struct, rename="kebab"):
    manifest_path: str = ""


class _Tool(msgspec.Struct):
    maturin: _Maturin = msgspec.field(default_factory=_Maturin)


class _Pyproject(msgspec.Struct, rename="kebab"):
    """The fields that are read from a pyproject.toml."""

    build_system: _BuildSystem = msgspec.field(default_factory=_BuildSystem)
    project: _Project = msgspec.field(default_factory=_Project)
    tool: _Tool = msgspec.field(default_factory=_Tool)


def read_sdist(path: Path, name: str) -> SdistMetadata:
    """Read pyproject.toml and PKG-INFO of an sdist named `name`. Raises IntegrityError when they are not there."""
    files = read_files(path, name, _says)
    with reading_errors(name):
        pyproject = _toml(files.get("pyproject.toml", b"").decode())
        info = files.get("PKG-INFO", b"").decode()
        listed = next((files[path] for path in files if path.endswith(_REQUIRES)), b"").decode()
        if not info:
            raise broken(name, "it has no PKG-INFO")
        system = pyproject.get("build-system", {})
        build = tuple(system.get("requires", LEGACY_BUILD))
        for requirement in build:
            Requirement(requirement)
        back_end = system.get("build-backend", f"{_SETUPTOOLS}:__legacy__")
        folders = tuple(system.get("backend-path", ()))
        requires, is_setup = _requires(pyproject, info, listed), _is_setup(pyproject, files)
        build += _setup_requires(files) if is_setup else ()
        asked = back_ends.asked(back_end, build, files, is_setup=is_setup)
        extras = _extras(pyproject, info, listed)
        beside = is_setup and imports_stack(files["setup.py"])
        return SdistMetadata(requires, build, asked, back_end, folders, beside, extras)


def read_cargo(path: Path, name: str) -> CargoNeeds:
    """Read cargo's needs for an sdist in Rust, by its Cargo.lock. Raises IntegrityError where that cannot be read."""
    files = read_files(path, name, _says)
    with reading_errors(name):
        pyproject = _toml(files.get("pyproject.toml", b"").decode())
        paths = {inside for inside in files if not _ASIDE & set(inside.lower().split("/"))}
        begin = crates.manifest_of(paths, _manifest(pyproject)) if _is_maturin(pyproject) else ""
        documents = crates.documents(paths, begin)[:_MOST_DOCUMENTS]
        texts = read_files(path, name, lambda inside: LARGEST if inside in documents else 0)
        for inside in documents:
            if len(texts[inside]) >= LARGEST:
                raise broken(name, f"its {inside} has a megabyte or more")
        return crates.needs({inside: texts[inside] for inside in documents})


def _is_maturin(pyproject: Mapping[str, Any]) -> bool:
    back_end: str = pyproject.get("build-system", {}).get("build-backend", "")
    return back_end.partition(":")[0].partition(".")[0] == "maturin"


def _manifest(pyproject: Mapping[str, Any]) -> str:
    named: str = pyproject.get("tool", {}).get("maturin", {}).get("manifest-path", "")
    return named


def _setup_requires(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Read further requirements of setup.py or setup.cfg, where literal: setup.py is not run to lock a source."""
    literal: object = None
    # A setup.py for Python 2, or with brackets within brackets without end.
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        literal = _setup_arguments(ast.parse(files.get("setup.py", b""))).get("setup_requires")
    config = configparser.RawConfigParser()
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        config.read_string(files.get("setup.cfg", b"").decode())
        literal = literal or config.get("options", "setup_requires", fallback=None)
    lines = literal.strip().splitlines() if isinstance(literal, str) else literal
    requirements = []
    for line in lines if isinstance(lines, list | tuple) else ():
        with contextlib.suppress(InvalidRequirement, TypeError):
            requirements.append(str(Requirement(line)))
    return tuple(requirements)


def _toml(text: str) -> dict[str, Any]:
    """A pyproject.toml. Raises ValueError or ValidationError where what is read of it is malformed."""
    value = tomllib.loads(text)
    codec.convert(value, _Pyproject)
    return value


def _is_setup(pyproject: dict[str, Any], files: Container[str]) -> bool:
    back_end: str = pyproject.get("build-system", {}).get("build-backend", _SETUPTOOLS)
    return "setup.py" in files and back_end.startswith(_SETUPTOOLS)


def build_requires(folder: Path) -> tuple[str, ...]:
    """Read a project's build requirements (PEP 518). Raises IntegrityError for a malformed pyproject.toml."""
    return tuple(_pyproject(folder).get("build-system", {}).get("requires", LEGACY_BUILD))


def _pyproject(folder: Path) -> dict[str, Any]:
    path = folder / "pyproject.toml"
    try:
        pyproject = _toml(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for line in pyproject.get("build-system", {}).get("requires", ()):
            Requirement(line)
        return pyproject
    except (OSError, ValueError, msgspec.ValidationError, RecursionError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}") from error


def compiled_sources(path: Path) -> list[str]:
    """List the files of an sdist that need a compiler, outside of tests and documents. Raises IntegrityError."""
    files = read_files(path, path.name, _says)
    if not files:
        raise broken(path.name, "it has no files")
    return _to_compile(files)


def wants_cuda(path: Path) -> bool:
    """Return whether a file of an sdist, outside of tests and documents, is compiled with CUDA.

    Raises IntegrityError.
    """
    files = read_files(path, path.name, cuda_sources.to_read)
    return any(cuda_sources.wants(name, head) for name, head in files.items() if _is_own(name))


def _to_compile(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.lower().endswith(_COMPILED) and _is_own(name)]


def _is_own(name: str) -> bool:
    return not _ASIDE & set(name.lower().split("/"))


def write_sdist(folder: Path, files: Iterable[tuple[str, PlainFile]], target: Path) -> Path | None:
    """Write these files of a project as an sdist into the folder `target`; the same files give the same bytes.

    None where it has nothing to compile and its setup.py imports nothing of the stack, and where name, version or
    dependencies are known only once a setup.py ran.
    """
    paths = dict(files)
    pyproject = _pyproject(folder)
    system = pyproject.get("build-system", {})
    is_compiled = _is_setup(pyproject, paths) and (bool(_to_compile(paths)) or imports_stack(paths["setup.py"].read()))
    asked = back_ends.asked(system.get("build-backend", ""), system.get("requires", ()), {}, is_setup=False)
    is_compiled = is_compiled or asked.compiles
    if not (is_compiled and (stated := _stated(folder, pyproject))):
        return None
    name, version, requires = stated
    stem = f"{name.replace('-', '_')}-{version}"
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {requirement}" for requirement in requires)]
    info = in_lines(("Metadata-Version: 2.1", *lines)).encode()
    return pack_sdist(target / f"{stem}.tar.gz", stem, {**paths, "PKG-INFO": info})


def imports_stack(setup: bytes) -> bool:
    """Return whether a setup.py imports, at any place of it, what is beside it in a stack alone: torch or numpy."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.walk(ast.parse(setup)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if {module.partition(".")[0] for module in modules} & _OF_STACK:
                return True
    return False


class _Stated(NamedTuple):
    name: str  #: normalised, as the version
    version: str
    requires: Sequence[str] = ()  #: of the sdist's PKG-INFO; none where [project] has them


def _stated(folder: Path, pyproject: Mapping[str, Any]) -> _Stated | None:
    """Read a project's statements in [project], or setup.cfg and the literals in setup.py, without running anything."""
    if project := pyproject.get("project"):
        version = project.get("version") or _cargo_version(folder, pyproject)
        is_known = "name" in project and version and "dependencies" not in project.get("dynamic", ())
        return _normalised(project["name"], version) if is_known else None
    values: dict[str, Any] = {"install_requires": []}
    config = configparser.RawConfigParser()
    # What is absent or computed is None or no version, as `attr: package.__version__` is.
    with contextlib.suppress(configparser.Error, AttributeError, KeyError, TypeError, ValueError, SyntaxError):
        config.read(folder / "setup.cfg", encoding="utf-8")
        for section, key in (("metadata", "name"), ("metadata", "version"), ("options", "install_requires")):
            if config.has_option(section, key):
                values[key] = config.get(section, key)
        values |= _setup_arguments(ast.parse((folder / "setup.py").read_bytes()))
        requires = values["install_requires"]
        requires = requires.strip().splitlines() if isinstance(requires, str) else requires
        return _normalised(values["name"], values["version"], map(str, requires))
    return None


def _cargo_version(folder: Path, pyproject: Mapping[str, Any]) -> str:
    """The version that maturin takes of Cargo.toml where [project] has none; empty for other back-ends."""
    if not _is_maturin(pyproject):
        return ""
    named = (
        path for path in {*crates.MANIFESTS, _manifest(pyproject)} if path[:1] != "/" and ".." not in path.split("/")
    )
    there = [path for path in named if path and beneath.is_plain(folder / path, folder)]
    path = crates.manifest_of(there, _manifest(pyproject))
    try:
        return crates.version_of((folder / path).read_bytes()) if path else ""
    except (OSError, ValueError, msgspec.ValidationError, RecursionError) as error:
        raise IntegrityError(f"{folder / path} cannot be read: {error}") from error


def _normalised(name: str, version: str, requires: Iterable[str] = ()) -> _Stated:
    return _Stated(str(canonicalize_name(name)), str(Version(version)), tuple(requires))


def _setup_arguments(program: ast.Module) -> dict[str, Any]:
    """The arguments of `setup(…)` that are literals, or names of literals; None for the others.

    A name that is set twice, or of which a method is called (`NEEDS.append(…)`), is no literal.
    """
    nodes = list(ast.walk(program))
    stored = [node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
    changed = {node.value.id for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    constant = {name for name in stored if stored.count(name) == 1} - changed
    literals: dict[str, object] = {}

    def value(node: ast.expr) -> object:
        return literals[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)

    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name) and target.id in constant:
            with contextlib.suppress(ValueError, KeyError):
                literals[target.id] = value(node.value)
    given: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setup":
            for keyword in node.keywords:
                given[keyword.arg or "name"] = None
                with contextlib.suppress(ValueError, KeyError):
                    given[keyword.arg or "name"] = value(keyword.value) if keyword.arg else None
    return given


def _requires(pyproject: dict[str, Any], info: str, listed: str) -> tuple[str, ...]:
    """[project] binds unless it calls its dependencies dynamic (PEP 621). Then what the back-end wrote: PKG-INFO, or
    where an old setuptools left them out of it (torch_geometric 2.3.1), requires.txt."""
    project = pyproject.get("project", {})
    if project and "dependencies" not in project.get("dynamic", ()):
        return tuple(project.get("dependencies", ()))
    stated = email.message_from_string(info).get_all("Requires-Dist") or []
    return tuple(item for item in stated if "extra ==" not in item) or _of_requires_txt(listed)


def _extras(pyproject: Mapping[str, Any], info: str, listed: str) -> dict[str, tuple[str, ...]]:
    """Map each extra (normalised) to the requirements that it adds, from where `_requires` reads the others."""
    project = pyproject.get("project", {})
    lines: dict[str, list[str]] = {}
    if project and "optional-dependencies" not in project.get("dynamic", ()):
        lines = {name: [*added] for name, added in project.get("optional-dependencies", {}).items()}
    else:
        message = email.message_from_string(info)
        lines = {name: [] for name in message.get_all("Provides-Extra") or []}
        for item in message.get_all("Requires-Dist") or []:
            requirement, _, marker = item.partition(";")
            for name in _EXTRA.findall(marker):
                lines.setdefault(name, []).append(requirement.strip())
        name = ""
        for line in map(str.strip, listed.splitlines()):
            if line.startswith("["):
                name = line.strip("[]").partition(":")[0]
            elif line and name and line not in lines.setdefault(name, []):
                lines[name].append(line)
    return {str(canonicalize_name(name)): tuple(added) for name, added in lines.items()}


def _of_requires_txt(text: str) -> tuple[str, ...]:
    """Requirements of setuptools' requires.txt; a section `[:marker]` is conditional, `[name]` is an extra."""
    requirements, section = [], ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not section:
            requirements.append(line)
        elif line and section.startswith(":"):
            requirements.append(f"{line} ; {section[1:]}")
    return tuple(requirements)


def _says(inside: str) -> int:
    says = inside in ("pyproject.toml", "PKG-INFO", "setup.py", "setup.cfg") or inside.endswith(_REQUIRES)
    return LARGEST if says else 0
