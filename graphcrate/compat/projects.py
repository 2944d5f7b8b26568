"""What projects and their locks say: pyproject.toml (PEP 621, Poetry), uv.lock, pylock.toml (PEP 751), poetry.lock.

A lock's versions become constraints with hashes, but for what is the stack's: its versions are compared.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from graphcrate.compat.translated import Lines, Translated, is_stacks
from graphcrate.model import codec
from graphcrate.model.command import setting
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Expected
from graphcrate.model.words import listed, printable

_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_ALWAYS = "sys_platform == 'linux'"  #: true of every image
_At = Callable[[str], str]
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


class _Poetry(_Group, frozen=True, rename="kebab"):
    extras: dict[str, list[str]] = {}
    group: dict[str, _Group] = {}


class _Setuptools(msgspec.Struct, frozen=True):
    dynamic: dict[str, Any] = {}


class _UvIndex(msgspec.Struct, frozen=True):
    url: str


class _Uv(msgspec.Struct, frozen=True):
    index: list[_UvIndex] = []


class _Tools(msgspec.Struct, frozen=True):
    poetry: _Poetry | None = None
    setuptools: _Setuptools = _Setuptools()
    uv: _Uv = _Uv()


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


class _UvFile(msgspec.Struct, frozen=True):
    hash: str = ""


class _UvPackage(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    source: dict[str, Any] = {}
    metadata: _UvMetadata = _UvMetadata()
    sdist: _UvFile | None = None
    wheels: list[_UvFile] = []


class _UvLock(msgspec.Struct, frozen=True, rename="kebab"):
    package: list[_UvPackage] = []
    requires_python: str = ""


class _PylockFile(msgspec.Struct, frozen=True):
    hashes: dict[str, str] = {}


class _PylockVcs(msgspec.Struct, frozen=True, rename="kebab"):
    type: str = ""
    url: str = ""
    commit_id: str = ""


class _PylockFolder(msgspec.Struct, frozen=True):
    path: str


class _PylockPackage(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    marker: str = ""
    index: str = ""
    vcs: _PylockVcs | None = None
    directory: _PylockFolder | None = None
    archive: dict[str, Any] | None = None
    sdist: _PylockFile | None = None
    wheels: list[_PylockFile] = []


class _Pylock(msgspec.Struct, frozen=True, rename="kebab"):
    packages: list[_PylockPackage]
    requires_python: str = ""


class _PoetryPackage(msgspec.Struct, frozen=True):
    name: str
    version: str
    source: dict[str, str] = {}
    files: list[_UvFile] = []


class _PoetryLock(msgspec.Struct, frozen=True):
    package: list[_PoetryPackage] = []


def pyproject(text: str, name: str, extras: tuple[str, ...] = ()) -> Translated:
    """What a project needs, with these extras or groups. Raises UsageError."""
    value, made = _read(text, name, _Pyproject), Translated()
    project, poetry = value.project, value.tool.poetry
    if project is None and poetry is None:
        raise UsageError(
            f"{name} has no [project]: nothing in it says what the project needs",
            next_step=f"give the project itself, which is built then: {setting(with_='./folder')}",
        )
    if project is not None:
        made.lines += [(_place(text, name, dependency), dependency) for dependency in project.dependencies]
        _expect_python(made, project.requires_python, name)
        if "dependencies" in project.dynamic:
            made.lines += [(name, f"-r '{path}'") for path in _files(value, name)]
    if poetry is not None and (project is None or not project.dependencies):
        made.lines += _of_poetry(poetry.dependencies, text, name)
        python = poetry.dependencies.get("python")
        _expect_python(made, ",".join(_caret(python)) if isinstance(python, str) else "", name)
    made.lines += _extras(value, text, name, extras)
    made.lines += _indexes([(_place(text, name, index.url), index.url) for index in value.tool.uv.index])
    return made


def extras(text: str, name: str, names: tuple[str, ...]) -> Lines:
    """What these extras or groups of a project need besides. Raises UsageError."""
    return _extras(_read(text, name, _Pyproject), text, name, names)


def uv_lock(text: str, name: str, asked: tuple[str, ...] = ()) -> Translated:
    """What the projects of a uv.lock need, in its versions. Raises UsageError."""
    lock, made = _read(text, name, _UvLock), Translated()
    roots = [package for package in lock.package if {"editable", "virtual"} & package.source.keys()]
    own, at = {root.name for root in roots}, _places(text, name)
    gits = {package.name: git for package in lock.package if isinstance(git := package.source.get("git"), str)}
    for root in roots:
        for requirement in root.metadata.requires_dist:
            marker = _chosen(requirement.marker, asked)
            if marker is None or requirement.name in own:
                continue
            git = gits.get(requirement.name)
            line = _git(git) if git else f"{requirement.name}{_bracketed(requirement.extras)}{requirement.specifier}"
            folder = requirement.editable or requirement.directory or requirement.virtual or requirement.path
            line = f"./{folder}" if folder else line
            made.lines.append((at(root.name), f"{line} ; {marker}" if marker and not (git or folder) else line))
    if not roots:
        raise UsageError(f"{name} locks no project", next_step="uv export > pylock.toml    (or give requirements.txt)")
    registries = [package for package in lock.package if isinstance(package.source.get("registry"), str)]
    made.lines += _indexes([(at(registry.name), registry.source["registry"]) for registry in registries])
    versions = [
        (registry.name, registry.version, _hashes([registry.sdist, *registry.wheels])) for registry in registries
    ]
    _constrain(made, versions, at)
    _expect_python(made, lock.requires_python, name)
    return made


def pylock(text: str, name: str) -> Translated:
    """All packages of a pylock.toml, which does not say which of them were asked for. Raises UsageError."""
    lock, made, at = _read(text, name, _Pylock), Translated(), _places(text, name)
    for package in lock.packages:
        where = at(package.name)
        if package.directory is not None:
            made.lines.append((where, f"./{package.directory.path}"))
        elif package.vcs is not None:
            made.lines.append((where, _git(f"{package.vcs.url}#{package.vcs.commit_id}")))
        elif package.archive is not None or not package.version:
            made.notes.append(f"{where}: {printable(package.name)} is passed over: an address, or without a version")
        elif is_stacks(package.name):
            made.expected.append(_pinned(package.name, where, package.version))
        else:
            files = [file for file in [package.sdist, *package.wheels] if file]
            sha256s = [sha256 for file in files if (sha256 := file.hashes.get("sha256"))]
            marker = f" ; {package.marker}" if package.marker else ""
            made.lines.append((where, f"{package.name}=={package.version}{marker}{_options(sha256s)}"))
    made.lines += _indexes([(at(package.name), package.index) for package in lock.packages if package.index])
    _expect_python(made, lock.requires_python, name)
    return made


def poetry_lock(text: str, name: str, project: Translated) -> Translated:
    """What a project needs, in the versions of its poetry.lock. Raises UsageError."""
    lock, at = _read(text, name, _PoetryLock), _places(text, name)
    public = [package for package in lock.package if package.source.get("type", "legacy") == "legacy"]
    project.lines += _indexes(
        [(at(package.name), package.source.get("url", "")) for package in public if package.source]
    )
    _constrain(project, [(package.name, package.version, _hashes(package.files)) for package in public], at)
    return project


def _read(text: str, name: str, kind: type[_Kind]) -> _Kind:
    """Read TOML as a value of this form. Raises UsageError."""
    try:
        return codec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {printable(str(error))}", next_step="fix that line") from error
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{name}: {printable(str(error)[:300])}", next_step="fix that field, or write the packages to a file"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of 5000 digits, tables without end
        raise UsageError(
            f"{name} cannot be read: {printable(str(error)[:300])}", next_step="write the packages to a file"
        ) from error


def _extras(value: _Pyproject, text: str, name: str, asked: Iterable[str]) -> Lines:
    """Lines of extras and groups, with those that they include (`mypkg[dev]` in an extra of mypkg, include-group)."""
    project, poetry = value.project or _Project(), value.tool.poetry or _Poetry()
    known: dict[str, list[str]] = {_canonical(key): ones for key, ones in project.optional_dependencies.items()}
    for key, group in value.dependency_groups.items():
        lines = [entry if isinstance(entry, str) else f"[{entry.get('include-group', '')}]" for entry in group]
        known.setdefault(_canonical(key), lines)
    for key, part in poetry.group.items():
        known.setdefault(_canonical(key), [line for _, line in _of_poetry(part.dependencies, text, name)])
    for key, names in poetry.extras.items():
        known.setdefault(_canonical(key), [f"{name}{''.join(_caret(_poetry_version(poetry, name)))}" for name in names])
    made, done, to_do = Lines(), set[str](), [_canonical(extra) for extra in asked]
    while to_do:
        extra = to_do.pop(0)
        if extra in done:
            continue
        done.add(extra)
        if extra not in known:
            raise UsageError(
                f"{name} has no extra or group {printable(extra)!r}"
                + (f"; it has {listed(sorted(known))}" if known else ""),
                next_step=f"{setting(requirements=f'pyproject.toml[{extra}]')}, or leave it out",
            )
        for line in known[extra]:
            own = re.fullmatch(r"([\w.-]*)\[([\w\s.,-]+)\]", line.strip())
            if own and _canonical(own[1]) in ("", _canonical(project.name)):
                to_do += [_canonical(extra) for extra in own[2].split(",")]
            else:
                made.append((_place(text, name, line), line))
    return made


def _files(value: _Pyproject, name: str) -> list[str]:
    """The requirements files that setuptools reads a project's dependencies from. Raises UsageError for none."""
    dependencies = value.tool.setuptools.dynamic.get("dependencies")
    files = dependencies.get("file", ()) if isinstance(dependencies, dict) else ()
    paths = [files] if isinstance(files, str) else [file for file in files if isinstance(file, str)]
    if not paths:
        raise UsageError(
            f"{name} calls its dependencies dynamic: its own program says them when the project is built",
            next_step=f"give the project itself, which is built then: {setting(with_='./folder')}",
        )
    return [path.replace("'", "") for path in paths]


def _expect_python(made: Translated, specifier: str, name: str) -> None:
    """Note the Python that a project is for; nothing of alternatives (`^3.8 || ^3.11`). Raises UsageError."""
    if not specifier or "|" in specifier:  # which PEP 440 cannot say
        return
    try:
        SpecifierSet(specifier)
    except InvalidSpecifier as error:
        raise UsageError(
            f"{name} says that it is for Python {specifier!r}, which is not a version",
            cause="A version is like >=3.10 (PEP 440), in Poetry's table also like ^3.10.",
            next_step=f"correct it in {name}, or leave it out",
        ) from error
    made.expected.append(Expected(name="python", where=name, specifier=specifier))


def _of_poetry(dependencies: Mapping[str, Any], text: str, name: str) -> Lines:
    """Poetry's table as lines; optional ones are its extras'."""
    made = Lines()
    for key, value in dependencies.items():
        for entry in value if isinstance(value, list) else [value]:
            table = entry if isinstance(entry, dict) else {"version": entry}
            if key == "python" or table.get("optional") is True:
                continue
            where, path, git = _place(text, name, key), table.get("path"), table.get("git")
            if isinstance(path, str):
                made.append((where, f"./{path}"))
            elif isinstance(git, str):
                rev = table.get("rev") or table.get("tag") or table.get("branch") or "HEAD"
                made.append((where, f"git+{git}@{rev}"))
            else:
                extras = [str(extra) for extra in table.get("extras", ()) if isinstance(extra, str)]
                marker = table.get("markers")
                version = "".join(_caret(str(table.get("version", "*"))))
                made.append((where, f"{key}{_bracketed(extras)}{version}" + (f" ; {marker}" if marker else "")))
    return made


def _poetry_version(poetry: _Poetry, name: str) -> str:
    dependency = poetry.dependencies.get(name, "*")
    dependency = dependency.get("version", "*") if isinstance(dependency, dict) else dependency
    return dependency if isinstance(dependency, str) else "*"


def _caret(version: str) -> list[str]:
    """A version as poetry writes it (`^1.2`, `~1.2`, `1.2`, `*`) in parts of a specifier."""
    made = []
    for part in (clause.strip() for clause in version.split(",")):
        match = re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)(\S*)", part)
        if not match:
            is_plain = part[:1].isdigit()
            made += [f"=={part}"] if is_plain else [part] if part not in ("", "*") else []
            continue
        numbers = [int(number) for number in match[2].split(".")]
        if match[1] == "^":  # the first number that is not zero may not change
            at = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        else:
            at = min(1, len(numbers) - 1)
        above = [*numbers[:at], numbers[at] + 1]
        made += [f">={match[2]}{match[3]}", f"<{'.'.join(map(str, above))}"]
    return [",".join(made)] if made else []


def _chosen(marker: str, asked: Iterable[str]) -> str | None:
    """A marker without its extra, for one that was asked for; None for another's."""
    names = {_canonical(extra) for extra in asked}
    if any(_canonical(extra) not in names for extra in _EXTRA.findall(marker)):
        return None
    return _EXTRA.sub(_ALWAYS, marker)


def _constrain(made: Translated, versions: Iterable[tuple[str, str, list[str]]], at: _At) -> None:
    """Add the versions of a lock as constraints; of a package with several, which markers choose from, none."""
    of: dict[str, list[tuple[str, list[str]]]] = {}
    for name, version, hashes in versions:
        of.setdefault(name, []).append((version, hashes))
    for name, releases in of.items():
        version, hashes = releases[0]
        if len(releases) > 1 or not version:
            continue
        if is_stacks(name):
            made.expected.append(_pinned(name, at(name), version))
        else:
            made.constraints.append((at(name), f"{name}=={version}{_options(hashes)}"))


def _pinned(name: str, where: str, version: str) -> Expected:
    public, _, build = version.partition("+")
    return Expected(name=_canonical(name), where=where, specifier=f"=={public}", build=build)


def _hashes(files: Iterable[_UvFile | None]) -> list[str]:
    return [file.hash.removeprefix("sha256:") for file in files if file and file.hash.startswith("sha256:")]


def _options(hashes: Iterable[str]) -> str:
    return "".join(f" --hash=sha256:{digest}" for digest in hashes if re.fullmatch("[0-9a-f]{64}", digest))


def _indexes(indexes: Iterable[tuple[str, str]]) -> Lines:
    """One line for each index that a lock names."""
    first = dict[str, str]()
    for where, address in indexes:
        if address:
            first.setdefault(address, where)
    return [(where, f"--extra-index-url '{address.replace(chr(39), '')}'") for address, where in first.items()]


def _git(address: str) -> str:
    """An address of uv's or PEP 751's (`https://…?rev=main#COMMIT`) as pip has it."""
    place, _, commit = address.partition("#")
    return f"git+{place.partition('?')[0]}" + (f"@{commit}" if commit else "")


def _bracketed(extras: Iterable[str]) -> str:
    named = ",".join(extras)
    return f"[{named}]" if named else ""


def _place(text: str, name: str, line: str) -> str:
    """Where a text stands in a file."""
    before, separator, _ = text.partition(line)
    return f"{name}:{before.count(chr(10)) + 1}" if separator else name


def _places(text: str, name: str) -> _At:
    """Find the line of a package of a lock by its name."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r'name = "([^"]+)"', line):
            lines.setdefault(match[1], number)
    return lambda package: f"{name}:{lines[package]}" if package in lines else name


def _canonical(name: str) -> str:
    return str(canonicalize_name(name.strip()))
