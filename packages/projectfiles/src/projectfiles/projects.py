"""Projects and their locks: pyproject.toml (PEP 621, Poetry), uv.lock, pylock.toml (PEP 751), poetry.lock, pdm.lock.

Markers of what is always installed, or never, are written as those of Linux: other systems are not read for.
"""

import re
import threading
import tomllib
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from packaging.dependency_groups import DependencyGroupResolver
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from projectfiles import pixi, pylocks
from projectfiles.environments import is_for_none
from projectfiles.errors import ProjectFileError, unknown
from projectfiles.pixi import Pixi
from projectfiles.poetry_versions import poetry_specifier
from projectfiles.values import Environment, Line, Needs, Note, Release, git_line, index_line
from projectfiles.words import printable

_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_ALWAYS = "sys_platform == 'linux'"
_NEVER = "sys_platform == 'none'"
_At = Callable[[str], str]
#: msgspec crashes where several threads are the first to read a type (seen with 0.18 to 0.22)
_FIRST = threading.Lock()
_Kind = TypeVar("_Kind")


class _Project(msgspec.Struct, frozen=True, rename="kebab"):
    dependencies: list[str] = []
    optional_dependencies: dict[str, list[str]] = {}
    requires_python: str = ""
    dynamic: list[str] = []
    name: str = ""


class _Group(msgspec.Struct, frozen=True, rename="kebab"):
    """Of poetry: a requirement is a version, or a table, or several of them."""

    dependencies: dict[str, str | dict[str, Any] | list[dict[str, Any]]] = {}


class _PoetrySource(msgspec.Struct, frozen=True):
    name: str = ""
    url: str = ""


class _Poetry(_Group, frozen=True, rename="kebab"):
    extras: dict[str, list[str]] = {}
    group: dict[str, _Group] = {}
    dev_dependencies: dict[str, str | dict[str, Any] | list[dict[str, Any]]] = {}
    source: list[_PoetrySource] = []


class _Setuptools(msgspec.Struct, frozen=True):
    dynamic: dict[str, Any] = {}


class _UvIndex(msgspec.Struct, frozen=True):
    url: str


class _Uv(msgspec.Struct, frozen=True):
    index: list[_UvIndex] = []


class _Pdm(msgspec.Struct, frozen=True, rename="kebab"):
    dev_dependencies: dict[str, list[str]] = {}
    source: list[_PoetrySource] = []


class _Tools(msgspec.Struct, frozen=True):
    poetry: _Poetry | None = None
    pdm: _Pdm = _Pdm()
    setuptools: _Setuptools = _Setuptools()
    uv: _Uv = _Uv()
    pixi: Pixi | None = None


class _Pyproject(msgspec.Struct, frozen=True, rename="kebab"):
    project: _Project | None = None
    dependency_groups: dict[str, list[str | dict[str, str]]] = {}
    tool: _Tools = _Tools()


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


class _UvFile(msgspec.Struct, frozen=True):
    hash: str = ""


class _UvPackage(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    version: str = ""
    source: dict[str, Any] = {}
    metadata: _UvMetadata = _UvMetadata()
    sdist: _UvFile | None = None
    wheels: list[_UvFile] = []
    resolution_markers: list[str] = []


class _UvLock(msgspec.Struct, frozen=True, rename="kebab"):
    package: list[_UvPackage] = []
    requires_python: str = ""


class _PoetryPackage(msgspec.Struct, frozen=True):
    name: str
    version: str
    source: dict[str, str] = {}
    files: list[_UvFile] = []
    groups: list[str] = []
    markers: str | dict[str, str] = ""  #: of all its groups, or of each


class _PoetryLock(msgspec.Struct, frozen=True):
    package: list[_PoetryPackage] = []


class _PdmPackage(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    files: list[_UvFile] = []
    marker: str = ""
    git: str = ""
    ref: str = ""
    revision: str = ""
    subdirectory: str = ""
    path: str = ""
    url: str = ""


class _PdmLock(msgspec.Struct, frozen=True):
    package: list[_PdmPackage] = []


def pyproject(text: str, name: str, extras: tuple[str, ...], environments: Sequence[Environment]) -> Needs:
    """Return a project's needs, with these extras or groups. Raises ProjectFileError."""
    value, made = _read(text, name, _Pyproject), Needs()
    project, poetry = value.project, value.tool.poetry
    if project is None and poetry is None and value.tool.pixi is None:
        raise ProjectFileError(
            f"{name} has no [project]: nothing in it says what the project needs",
            kind="needs",
            where=name,
            next_step="build the project itself",
        )
    if project is not None:
        made.lines += [Line(_place(text, name, dependency), dependency) for dependency in project.dependencies]
        _expect_python(made, project.requires_python, name)
        if "dependencies" in project.dynamic:
            made.lines += [Line(name, f"-r '{path}'") for path in _files(value, name)]
    if poetry is not None and (project is None or not project.dependencies):
        made.lines += _of_poetry(poetry.dependencies, text, name, environments)
        if "python" in poetry.dependencies:
            version = _poetry_version(poetry, "python")
            _expect_python(made, poetry_specifier(version, "python", _key_place(text, name, "python")), name)
        made.lines += _indexes([(_place(text, name, source.url), source.url) for source in poetry.source])
    features: tuple[str, ...] = ()
    if value.tool.pixi is not None:
        known = pixi.features(value.tool.pixi)
        features = tuple(extra for extra in extras if _canonical(extra) in known)
        needs = pixi.read(value.tool.pixi, name, lambda key: _key_place(text, name, key), features)
        made.lines += needs.lines
        made.channels += needs.channels
        made.notes += needs.notes
    made.lines += _extras(value, text, name, [extra for extra in extras if extra not in features], environments)
    urls = [*(index.url for index in value.tool.uv.index), *(source.url for source in value.tool.pdm.source)]
    made.lines += _indexes([(_place(text, name, url), url) for url in urls])
    return made


def pixi_toml(text: str, name: str, features: tuple[str, ...] = ()) -> Needs:
    """Return the needs of a pixi.toml, with these features. Raises ProjectFileError."""
    return pixi.read(_read(text, name, Pixi), name, lambda key: _key_place(text, name, key), features)


def extras(text: str, name: str, names: tuple[str, ...], environments: Sequence[Environment]) -> list[Line]:
    """Return what these extras or groups of a pyproject.toml need besides. Raises ProjectFileError."""
    return _extras(_read(text, name, _Pyproject), text, name, names, environments)


def uv_lock(text: str, name: str, asked: tuple[str, ...] = ()) -> Needs:
    """Return the needs of the projects of a uv.lock, and its versions. Raises ProjectFileError."""
    lock, made = _read(text, name, _UvLock), Needs()
    roots = [package for package in lock.package if {"editable", "virtual"} & package.source.keys()]
    own, at = {root.name for root in roots}, _places(text, name)
    gits = {package.name: git for package in lock.package if isinstance(git := package.source.get("git"), str)}
    if not roots:
        raise ProjectFileError(
            f"{name} locks no project",
            kind="needs",
            where=name,
            next_step="uv export > pylock.toml    (or give requirements.txt)",
        )
    _refuse_unknown(asked, {extra for root in roots for extra in _uv_extras(root)}, name)
    for root in roots:
        groups = [required for group in asked for required in root.metadata.requires_dev.get(_canonical(group), ())]
        for requirement in (*root.metadata.requires_dist, *groups):
            marker = _chosen(requirement.marker, asked)
            if marker is None or requirement.name in own:
                continue
            git = gits.get(requirement.name)
            line = _git(git) if git else f"{requirement.name}{_bracketed(requirement.extras)}{requirement.specifier}"
            folder = requirement.editable or requirement.directory or requirement.virtual or requirement.path
            line = f"./{folder}" if folder else f"{requirement.name} @ {requirement.url}" if requirement.url else line
            made.lines.append(Line(at(root.name), f"{line} ; {marker}" if marker and not (git or folder) else line))
    registries = [package for package in lock.package if isinstance(package.source.get("registry"), str)]
    made.lines += _indexes([(at(registry.name), registry.source["registry"]) for registry in registries])
    made.locked += _merged(
        Release(
            at(registry.name),
            registry.name,
            registry.version,
            _hashes([registry.sdist, *registry.wheels]),
            " or ".join(f"({marker})" for marker in registry.resolution_markers),
        )
        for registry in registries
    )
    _expect_python(made, lock.requires_python, name)
    return made


def pylock(text: str, name: str, asked: tuple[str, ...], environments: Sequence[Environment]) -> Needs:
    """Return what machines get of a pylock.toml, with its default groups and these extras and groups.

    It does not say which of its packages were asked for: all are. Raises ProjectFileError.
    """
    made, at = Needs(), _places(text, name)
    lock, selected, notes = pylocks.select(_read(text, name, dict[str, Any]), name, asked, environments)
    made.notes += notes
    for package, marker in selected:
        where, ends = at(package.name), f" ; {marker}" if marker else ""
        files = [file for file in (package.sdist, *(package.wheels or ())) if file]
        if package.directory is not None:
            folder = "/".join(filter(None, (package.directory.path, package.directory.subdirectory)))
            made.lines.append(Line(where, f"./{folder}"))
        elif package.vcs is not None:
            vcs = package.vcs
            made.lines.append(Line(where, _git(f"{vcs.url or vcs.path}#{vcs.commit_id}", vcs.subdirectory or "")))
        elif package.archive is not None or package.version is None:
            made.notes.append(Note("address", where, (package.name,)))
        else:
            sha256s = (sha256 for file in files if (sha256 := file.hashes.get("sha256")))
            release = Release(where, package.name, str(package.version), tuple(sha256s), marker)
            text_of = f"{package.name}=={package.version}{ends}{hash_options(release.hashes)}"
            made.lines.append(Line(where, text_of, release=release))
    made.lines += _indexes([(at(package.name), package.index) for package, _ in selected if package.index])
    _expect_python(made, str(lock.requires_python or ""), name)
    return made


def poetry_lock(text: str, name: str, project: Needs, asked: tuple[str, ...] = ()) -> Needs:
    """Return a project's needs, and the versions of its poetry.lock. Raises ProjectFileError."""
    lock, at = _read(text, name, _PoetryLock), _places(text, name)
    public = [package for package in lock.package if package.source.get("type", "legacy") == "legacy"]
    project.lines += _indexes(
        [(at(package.name), package.source.get("url", "")) for package in public if package.source]
    )
    project.locked += _merged(
        Release(
            at(package.name),
            package.name,
            package.version,
            _hashes(package.files),
            _poetry_lock_marker(package, asked),
        )
        for package in public
    )
    sources = [package.source for package in lock.package if package.source.get("type") == "git"]
    gits = [
        _Git(*(source.get(key, "") for key in ("url", "reference", "resolved_reference", "subdirectory")))
        for source in sources
    ]
    project.lines = _at_commits(project.lines, gits)
    return project


def pdm_lock(text: str, name: str, project: Needs) -> Needs:
    """Return a project's needs, and the versions of its pdm.lock. Raises ProjectFileError."""
    lock, at = _read(text, name, _PdmLock), _places(text, name)
    project.locked += _merged(
        Release(at(package.name), package.name, package.version, _hashes(package.files), package.marker)
        for package in lock.package
        if not (package.git or package.path or package.url)
    )
    gits = [
        _Git(package.git, package.ref, package.revision, package.subdirectory)
        for package in lock.package
        if package.git
    ]
    project.lines = _at_commits(project.lines, gits)
    return project


def hash_options(hashes: Iterable[str]) -> str:
    """Return pip's options of these sha256, which are left out where they are none."""
    return "".join(f" --hash=sha256:{digest}" for digest in hashes if re.fullmatch("[0-9a-f]{64}", digest))


def _read(text: str, name: str, kind: type[_Kind]) -> _Kind:
    """Read TOML as a value of this form. Raises ProjectFileError."""
    try:
        with _FIRST:
            return msgspec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        what = f"{name} is not TOML: {printable(str(error))}"
        raise ProjectFileError(what, kind="syntax", where=name, next_step="fix that line") from error
    except msgspec.ValidationError as error:
        raise ProjectFileError(
            f"{name}: {printable(str(error)[:300])}",
            kind="form",
            where=name,
            next_step="fix that field, or write the packages to a file",
        ) from error
    except (ValueError, RecursionError) as error:  # a number of 5000 digits, tables without end
        raise ProjectFileError(
            f"{name} cannot be read: {printable(str(error)[:300])}",
            kind="syntax",
            where=name,
            next_step="write the packages to a file",
        ) from error


def _extras(
    value: _Pyproject, text: str, name: str, asked: Iterable[str], environments: Sequence[Environment]
) -> list[Line]:
    """Lines of extras and groups, with those that they include (`mypkg[dev]` in an extra of mypkg)."""
    project, poetry = value.project or _Project(), value.tool.poetry or _Poetry()
    known: dict[str, list[str]] = {_canonical(key): ones for key, ones in project.optional_dependencies.items()}
    groups = {_canonical(key) for key in value.dependency_groups} - known.keys()
    known |= {group: [] for group in groups}
    for key, lines in value.tool.pdm.dev_dependencies.items():
        known.setdefault(_canonical(key), lines)
    of_dev = {"dev": _Group(poetry.dev_dependencies)} if poetry.dev_dependencies else {}
    for key, part in {**of_dev, **poetry.group}.items():
        needs = _of_poetry(part.dependencies, text, name, environments)
        known.setdefault(_canonical(key), [line.text for line in needs])
    for key, names in poetry.extras.items():
        chosen = {name: poetry.dependencies[name] for name in names if name in poetry.dependencies}
        lines = [line.text for line in _of_poetry(chosen, text, name, environments, optional=True)]
        known.setdefault(_canonical(key), [*lines, *(name for name in names if name not in chosen)])
    made, done, to_do = list[Line](), set[str](), [_canonical(extra) for extra in asked]
    while to_do:
        extra = to_do.pop(0)
        if extra in done:
            continue
        done.add(extra)
        _refuse_unknown([extra], known, name)
        for line in _of_group(value.dependency_groups, extra, name) if extra in groups else known[extra]:
            own = re.fullmatch(r"([\w.-]+)\[([\w\s.,-]+)\]", line.strip())
            if own and _canonical(own[1]) == _canonical(project.name):
                to_do += [_canonical(extra) for extra in own[2].split(",")]
            else:
                made.append(Line(_place(text, name, line), line))
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


def _expect_python(made: Needs, specifier: str, name: str) -> None:
    """Note the Python that a project is for. Raises ProjectFileError."""
    if not specifier:
        return
    try:
        SpecifierSet(specifier)
    except InvalidSpecifier as error:
        raise ProjectFileError(
            f"{name} says that it is for Python {specifier!r}, which is not a version",
            kind="version",
            where=name,
            text=specifier,
            cause="A version is like >=3.10 (PEP 440), in Poetry's table also like ^3.10.",
            next_step=f"correct it in {name}, or leave it out",
        ) from error
    made.pythons.append(Line(name, specifier))


def _of_poetry(
    dependencies: Mapping[str, Any],
    text: str,
    name: str,
    environments: Sequence[Environment],
    *,
    optional: bool = False,
) -> list[Line]:
    """Return Poetry's table as lines; `optional`: those of an extra, which have that key. Raise ProjectFileError."""
    made = list[Line]()
    for key, value in dependencies.items():
        for entry in value if isinstance(value, list) else [value]:
            table = entry if isinstance(entry, dict) else {"version": entry}
            if key == "python" or (table.get("optional") is True) is not optional:
                continue
            where = _key_place(text, name, key)
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
    return f"{key}{_bracketed(extras)}{poetry_specifier(str(table.get('version', '*')), key, where)}{ends}"


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


def _poetry_version(poetry: _Poetry, name: str) -> str:
    dependency = poetry.dependencies.get(name, "*")
    dependency = dependency.get("version", "*") if isinstance(dependency, dict) else dependency
    return dependency if isinstance(dependency, str) else "*"


def _uv_extras(root: _UvPackage) -> Iterator[str]:
    """Names of the extras and groups of a project of a uv.lock."""
    metadata = root.metadata
    yield from map(_canonical, (*metadata.provides_extras, *metadata.requires_dev))
    for requirement in metadata.requires_dist:
        yield from map(_canonical, _EXTRA.findall(requirement.marker))


def _refuse_unknown(asked: Iterable[str], known: Collection[str], name: str) -> None:
    for extra in map(_canonical, asked):
        if extra not in known:
            raise unknown("extra or group", extra, name, known)


def _chosen(marker: str, asked: Iterable[str]) -> str | None:
    """A marker without its extra, for one that was asked for; None for another's."""
    names = {_canonical(extra) for extra in asked}
    if any(_canonical(extra) not in names for extra in _EXTRA.findall(marker)):
        return None
    return _EXTRA.sub(_ALWAYS, marker)


def _poetry_lock_marker(package: _PoetryPackage, asked: Iterable[str]) -> str:
    """Return the marker of a package of a poetry.lock: of what is always installed, and of what was asked for."""
    written = package.markers
    if isinstance(written, dict):
        taken = {"main", *map(_canonical, asked)}
        groups = [group for group in package.groups if _canonical(group) in taken] or package.groups
        parts = [written.get(group, "") for group in groups]
        written = " or ".join(f"({part})" for part in parts) if all(parts) else ""
    names = {_canonical(extra) for extra in asked}
    return _EXTRA.sub(lambda match: _ALWAYS if _canonical(match[1]) in names else _NEVER, written)


class _Git(NamedTuple):
    """A repository of a lock. `reference`: a branch or tag, as the project asks for it."""

    address: str
    reference: str
    commit: str
    folder: str


def _at_commits(lines: Iterable[Line], gits: Iterable[_Git]) -> list[Line]:
    """Return lines, those of repositories at the commits of a lock."""
    commits: dict[str, str] = {}
    for git in gits:
        for reference in {git.reference, ""} if git.reference == "HEAD" else {git.reference}:
            commits[git_line(git.address, reference, git.folder)] = git_line(git.address, git.commit, git.folder)
    made = list[Line]()
    for line in lines:
        begin, git_plus, address = line.text.partition("git+")
        asked, semicolon, marker = f"{git_plus}{address}".partition(" ;")
        made.append(line._replace(text=f"{begin}{commits.get(asked, asked)}{semicolon}{marker}"))
    return made


def _merged(locked: Iterable[Release]) -> Iterator[Release]:
    """Yield each version once: locks repeat it for its extras (PDM) and for each index that has it."""
    of: dict[tuple[str, str], list[Release]] = {}
    for release in locked:
        of.setdefault((release.name, release.version), []).append(release)
    for (name, version), same in of.items():
        hashes = dict.fromkeys(digest for release in same for digest in release.hashes)
        is_bound = all(release.marker for release in same)
        markers = dict.fromkeys(f"({release.marker})" for release in same) if len(same) > 1 else [same[0].marker]
        yield Release(same[0].where, name, version, (*hashes,), " or ".join(markers) if is_bound else "")


def _hashes(files: Iterable[_UvFile | None]) -> tuple[str, ...]:
    return tuple(file.hash.removeprefix("sha256:") for file in files if file and file.hash.startswith("sha256:"))


def _indexes(indexes: Iterable[tuple[str, str]]) -> list[Line]:
    """One line for each index that a lock names."""
    first = dict[str, str]()
    for where, address in indexes:
        if address:
            first.setdefault(address, where)
    return [Line(where, index_line(address)) for address, where in first.items()]


def _git(address: str, folder: str = "") -> str:
    """An address of uv's or PEP 751's (`https://…?rev=main&subdirectory=FOLDER#COMMIT`) as pip has it."""
    place, _, commit = address.partition("#")
    place, _, query = place.partition("?")
    folders = urllib.parse.parse_qs(query).get("subdirectory", [folder])
    return git_line(place, commit, folders[0])


def _bracketed(extras: Iterable[str]) -> str:
    named = ",".join(extras)
    return f"[{named}]" if named else ""


def _key_place(text: str, name: str, key: str) -> str:
    """Return the file and line of a table's key."""
    match = re.search(rf"""^\s*["']?{re.escape(key)}["']?\s*=""", text, re.MULTILINE)
    return f"{name}:{text.count(chr(10), 0, match.end()) + 1}" if match else name


def _place(text: str, name: str, line: str) -> str:
    """Return the file and line of a text."""
    at = text.find(line) if line else -1
    return f"{name}:{text.count(chr(10), 0, at) + 1}" if at >= 0 else name


def _places(text: str, name: str) -> _At:
    """Find the line of a package of a lock by its name."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r'name = "([^"]+)"', line):
            lines.setdefault(match[1], number)
    return lambda package: f"{name}:{lines[package]}" if package in lines else name


def _canonical(name: str) -> str:
    return str(canonicalize_name(name.strip()))
