"""Source distributions: what they say of themselves; pure-Python ones become wheels, by the locked back-end alone.

pip's wheel (PEP 517) is packed again: nothing of file times, umask, order of folders or the host's Python is left.
"""

import ast
import configparser
import contextlib
import email
import functools
import gzip
import hashlib
import io
import lzma
import re
import shutil
import sys
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple, cast

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.artifacts.wheel import Wheel, open_wheel
from graphcrate.compat.facts import back_ends, crates, cuda_sources
from graphcrate.compat.facts.back_ends import BuildNeeds
from graphcrate.compat.facts.crates import CargoNeeds
from graphcrate.compat.plan.planning import SYSTEM_PATH
from graphcrate.host import arguments, process
from graphcrate.host.arguments import Argv
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.inflating import pieces
from graphcrate.host.disk.os_errors import MachineError, by_limit
from graphcrate.host.sandbox import beneath, own_root, sandbox
from graphcrate.host.sandbox.beneath import PlainFile
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.wheels import pip_program
from graphcrate.model import codec
from graphcrate.model.command import ETC, LOCK_AGAIN, command
from graphcrate.model.errors import BuildError, HostError, IntegrityError, LayoutError
from graphcrate.model.limits import SOURCES, Gauge
from graphcrate.model.lock import LockedPackage
from graphcrate.model.words import with_mark
from graphcrate.oci.blob import Chunks, TarStream, members
from nsbox.box import Bind

#: Raise it whenever the same sdist and back-end would give another wheel.
SDIST_FORMAT = 1
TIMEOUT = 900.0  #: seconds
_CHUNK = 1 << 20
_EPOCH = "315532800"  #: 1980-01-01, the first time that a zip can hold
_DATE = (1980, 1, 1, 0, 0, 0)
_INSIDE = "/tmp/graphcrate-sdist"
_FOLDERS = ("back-end", "home", "tmp", "wheel")
_PASSED = re.compile(r"LD_LIBRARY_PATH|SETUPTOOLS_SCM_PRETEND_\w+|\w+_PRETEND_VERSION|PBR_VERSION")
_UNIX = 3  #: create_system of a zip entry, so that its attributes are a Unix mode


def build_wheel(
    package: LockedPackage, sdist: Path, build: Sequence[Path], cache: Cache, environment: Mapping[str, str]
) -> Path:
    """The wheel of a locked sdist, from the cache or built now by the back-end's wheels in a child's `environment`.

    Raises BuildError when the build fails or its wheel is not for every platform, IntegrityError for a broken one.
    """

    def make(work: Path) -> Path:
        source = work / package.file.name  # pip goes by the file's name, which a cache keeps
        check_sdist(sdist, source.name)
        shutil.copyfile(sdist, source)
        return make_wheel(source, source.name, build, work, environment)

    return once(cache.path("built", origin(package)), package.file.name, make, cache)


def once(folder: Path, name: str, make: Callable[[Path], Path], cache: Cache) -> Path:
    """The pure wheel, or the sdist, of the source called `name` in this folder of the cache; made where it is absent.

    Raises BuildError for a wheel that is not for every platform, IntegrityError for a broken one.
    """
    with cache.exclusively(f"built-{folder.name}"):
        if not folder.is_dir():
            with cache.folder() as work:
                made, done = make(work), work / "done"
                done.mkdir()
                if made.suffix != ".whl":
                    made.rename(done / made.name)
                else:
                    with open_wheel(made) as wheel:
                        check_pure(name, wheel)
                        repack(wheel, done / made.name)
                cache.adopt(done, folder)
    return next(folder.iterdir())


def repack(wheel: Wheel, target: Path) -> None:
    """Write the same members in order of name, stored, with fixed times and modes; the `.dist-info` last (PEP 427)."""
    start = f"{wheel.dist_info}/"
    record = f"{start}RECORD"
    order = sorted(wheel.members, key=lambda m: (m.name == record, m.name.startswith(start), m.name))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for member in order:
            info = zipfile.ZipInfo(member.name, _DATE)
            info.create_system = _UNIX
            info.external_attr = (0o100755 if member.executable else 0o100644) << 16
            archive.writestr(info, wheel.read(member))


def origin(package: LockedPackage) -> str:
    """Hash the origin of a package's wheel: the wheel itself, or an sdist with its back-end and who starts that."""
    if not package.is_sdist:
        return package.file.sha256
    parts = [str(SDIST_FORMAT), guest(), package.file.sha256, *sorted(build.file.sha256 for build in package.build)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def guest() -> str:
    """Hash the program that runs pip in the sandbox."""
    return hashlib.sha256(Path(pip_program.__file__).read_bytes()).hexdigest()


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """Select the user's variables that a build sees: they name a version or libraries, others hold passwords."""
    return {name: value for name, value in environment.items() if _PASSED.fullmatch(name)}


def make_wheel(
    source: Path,
    name: str,
    build: Sequence[Path],
    work: Path,
    environment: Mapping[str, str],
    *,
    below: str = "",
    without: Callable[[str], None] | None = None,
) -> Path:
    """The wheel of a source archive or folder called `name`, made by pip offline with the back-end's wheels `build`.

    `work` is an empty folder but for the source; `below`: the project's folder in that. What is built runs in the
    sandbox: of this machine it sees programs alone, and no network. `without` is for a user's own project: where
    nothing can be isolated it gets a line, and the project is built without walls. Raises BuildError with the last
    lines of pip's output, HostError.
    """
    for folder in (*_FOLDERS, "root"):
        (work / folder).mkdir()
    for path in build:
        shutil.copyfile(path, work / "back-end" / path.name)
    binds = [Bind(work / folder, f"{_INSIDE}/{folder}", read_only=folder == "back-end") for folder in _FOLDERS]
    binds.append(Bind(source, f"{_INSIDE}/source/{source.name}", read_only=source.is_file()))
    binds += own_root.make(work / "root", environment)
    argv, variables = _pip(_INSIDE, str(Path(f"{_INSIDE}/source", source.name, below)), environment)
    try:
        command = sandbox.Exec(argv, variables, binds, cwd=_INSIDE, timeout=TIMEOUT, step=Step.BUILD)
        done = sandbox.run_in(work / "root", command)
    except HostError as error:
        if without is None or isinstance(error, MachineError):
            raise
        without(f"{name} is built with all that you may do, outside of the sandbox: {error.cause or error.what}")
        argv, variables = _pip(str(work), str(source / below), environment)
        done = process.run(argv, environment=variables, cwd=work, timeout=TIMEOUT)
    wheels = sorted(path for path in (work / "wheel").glob("*.whl") if beneath.is_plain(path, work))
    if done.returncode != 0 or len(wheels) != 1:
        what = f"{name} could not be made a wheel" + with_mark(done.lines[-20:])
        if limit := by_limit(what, done.lines, work):
            raise limit
        raise BuildError(
            what,
            cause="Its back-end failed, or needs the network or a package that its build requirements do not name.",
            next_step=f"{LOCK_AGAIN}    (locks the back-end again), or put a wheel of it into a local folder",
        )
    return wheels[0]


def _pip(folder: str, source: str, environment: Mapping[str, str]) -> tuple[Argv, dict[str, str]]:
    """The command that makes the wheel, and its variables: no set-up of the user's for pip, fixed seeds and times."""
    variables = passed(environment)
    variables |= {"HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp", "PIP_CONFIG_FILE": "/dev/null"}
    variables |= {"PYTHONHASHSEED": "0", "PYTHONNOUSERSITE": "1", "SOURCE_DATE_EPOCH": _EPOCH, "TZ": "UTC"}
    variables |= {"LC_ALL": "C.UTF-8", "PATH": f"{Path(sys.executable).parent}:{SYSTEM_PATH}"}
    options = ["--no-index", "--find-links", f"{folder}/back-end", "--no-deps", "--no-cache-dir", "--no-input"]
    options += ["--disable-pip-version-check", "--progress-bar", "off", "--wheel-dir", f"{folder}/wheel"]
    program = Path(pip_program.__file__).read_text(encoding="utf-8")
    return arguments.line(sys.executable, "-c", program, "wheel", *options, strange=[source]), variables


def check_pure(name: str, wheel: Wheel) -> None:
    """Raises BuildError for a wheel, made of the source called `name`, that has compiled parts."""
    tags = sorted(str(tag) for tag in wheel.tags)
    if "py3-none-any" not in tags or not wheel.root_is_purelib:
        raise BuildError(
            f"{name} is not pure Python: its wheel is for {', '.join(tags)}",
            cause="It has compiled parts, which must be built inside the image's base with its compilers.",
            next_step=f"take a channel that has a wheel of it ({command('list')}), or put one into a local folder",
        )


#: of an sdist without [build-system], by PEP 517
LEGACY_BUILD = ("setuptools>=40.8", "wheel")
LARGEST = 1 << 20  #: bytes of a metadata file that is still read
_REQUIRES = ".egg-info/requires.txt"
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_MOST_DOCUMENTS = 50  #: of cargo that are read; a source has some two, and each takes memory
_MAGICS = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz"}


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
    files = _files(path, name)
    with _explained(name):
        pyproject = _toml(files.get("pyproject.toml", b"").decode())
        info = files.get("PKG-INFO", b"").decode()
        listed = next((files[path] for path in files if path.endswith(_REQUIRES)), b"").decode()
        if not info:
            raise _broken(name, "it has no PKG-INFO")
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
    files = _files(path, name)
    with _explained(name):
        pyproject = _toml(files.get("pyproject.toml", b"").decode())
        paths = {inside for inside in files if not _ASIDE & set(inside.lower().split("/"))}
        begin = crates.manifest_of(paths, _manifest(pyproject)) if _is_maturin(pyproject) else ""
        documents = crates.documents(paths, begin)[:_MOST_DOCUMENTS]
        texts = _files(path, name, lambda inside: LARGEST if inside in documents else 0)
        for inside in documents:
            if len(texts[inside]) >= LARGEST:
                raise _broken(name, f"its {inside} has a megabyte or more")
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


#: what readers of archives raise for damaged ones, and Python's for what is in them
_UNREADABLE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(ValueError, msgspec.ValidationError, InvalidRequirement),
    RuntimeError,  # a zip that is encrypted or compressed in another way; brackets within brackets without end
)


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Raises IntegrityError for what cannot be read of an sdist."""
    try:
        yield
    except _UNREADABLE as error:
        raise _broken(name, str(error).splitlines()[0] if str(error) else type(error).__name__) from error


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
    files = _files(path, path.name)
    if not files:
        raise _broken(path.name, "it has no files")
    return _to_compile(files)


def wants_cuda(path: Path) -> bool:
    """Return whether a file of an sdist, outside of tests and documents, is compiled with CUDA.

    Raises IntegrityError.
    """
    files = _files(path, path.name, cuda_sources.to_read)
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
    info = "".join(f"{line}\n" for line in ("Metadata-Version: 2.1", *lines)).encode()
    return pack_sdist(target / f"{stem}.tar.gz", stem, {**paths, "PKG-INFO": info})


def pack_sdist(archive: Path, stem: str, files: Mapping[str, PlainFile | bytes]) -> Path:
    """Write files (path below the folder `stem` → file or content) in this order, without times, owners and modes."""
    # Stored, since other versions of zlib pack to other bytes.
    with gzip.GzipFile(archive, "wb", compresslevel=0, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for inside, file in files.items():
                content = file if isinstance(file, bytes) else file.read()
                member = tarfile.TarInfo(f"{stem}/{inside}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return archive


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


def check_sdist(path: Path, name: str) -> None:
    """Raises IntegrityError for an sdist that is damaged or a bomb: its unpackers have no limits."""
    _files(path, name)


def _says(inside: str) -> int:
    says = inside in ("pyproject.toml", "PKG-INFO", "setup.py", "setup.cfg") or inside.endswith(_REQUIRES)
    return LARGEST if says else 0


def _files(path: Path, name: str, to_read: Callable[[str], int] = _says) -> dict[str, bytes]:
    """Paths of an sdist's files below its folder, with what each begins with, `to_read` bytes of it.

    A .zip by its name, as pip goes by it, else a tar. Raises IntegrityError.
    """
    with _explained(name):
        return (_zipped if name.endswith(".zip") else _tarred)(path, name, to_read)


def _zipped(path: Path, name: str, to_read: Callable[[str], int]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    gauge = Gauge(SOURCES, name, packed=path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            gauge.member(info.filename, info.file_size)
        for info in archive.infolist():
            inside = info.filename.partition("/")[2]
            if info.filename.endswith("/"):
                continue
            with archive.open(info) as stream:
                files[inside] = stream.read(to_read(inside))
                gauge.inflated(len(files[inside]))
                while piece := stream.read(_CHUNK):  # headers may say less than comes out
                    gauge.inflated(len(piece))
    return files


def _tarred(path: Path, name: str, to_read: Callable[[str], int]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    gauge = Gauge(SOURCES, name, packed=path.stat().st_size)
    with path.open("rb") as file:
        head = file.read(6)
        file.seek(0)
        packing = next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), "")
        packed = cast("IO[bytes]", io.BufferedReader(Chunks(pieces(name, packing, file, gauge))))
        # What comes out is counted where it is inflated.
        stream = TarStream(packed, None, (), Gauge(SOURCES, name, packed=path.stat().st_size))
        try:
            for member, _ in members(stream):
                inside = member.name.partition("/")[2]
                if member.isfile():
                    size = 0 if member.issparse() else member.size
                    files[inside] = b"".join(stream.chunks(min(size, to_read(inside))))
        except LayoutError as error:
            raise _broken(name, error.what) from error
    return files


def _broken(name: str, detail: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is not a usable source archive: {detail}",
        next_step=f"lock another version, or bring a wheel of it: {command('image', ETC, wheels='/path')}",
    )
