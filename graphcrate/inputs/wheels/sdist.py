"""Source distributions: what they say of themselves; pure-Python ones become wheels, by the locked back-end alone.

pip's wheel (PEP 517) is packed again: nothing of file times, umask, order of folders or the host's Python is left.
"""

import ast
import configparser
import contextlib
import email
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
from typing import IO, Any, NamedTuple, cast

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.artifacts.wheel import Wheel, open_wheel
from graphcrate.compat.planning import SYSTEM_PATH
from graphcrate.host import beneath, own_root, process, sandbox
from graphcrate.host.cache import Cache
from graphcrate.host.inflating import pieces
from graphcrate.host.steps import Step
from graphcrate.model import codec
from graphcrate.model.command import LOCK_AGAIN, command, setting
from graphcrate.model.errors import BuildError, HostError, IntegrityError, LayoutError
from graphcrate.model.limits import SOURCES, Gauge
from graphcrate.model.lock import LockedPackage
from graphcrate.oci.blob import Chunks, TarStream, members

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
    """What a package's wheel depends on, as one hash: the wheel's own, or that of an sdist with its back-end."""
    if not package.is_sdist:
        return package.file.sha256
    parts = [str(SDIST_FORMAT), package.file.sha256, *sorted(build.file.sha256 for build in package.build)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def make_wheel(
    source: Path,
    name: str,
    build: Sequence[Path],
    work: Path,
    environment: Mapping[str, str],
    *,
    without: Callable[[str], None] | None = None,
) -> Path:
    """The wheel of a source archive or folder called `name`, made by pip offline with the back-end's wheels `build`.

    `work` is an empty folder but for the source. What is built runs in the sandbox: of this machine it sees programs
    alone, and no network. `without` is for a user's own project: where nothing can be isolated it gets a line, and
    the project is built without walls. Raises BuildError with the last lines of pip's output, HostError.
    """
    for folder in (*_FOLDERS, "root"):
        (work / folder).mkdir()
    for path in build:
        shutil.copyfile(path, work / "back-end" / path.name)
    binds = [sandbox.Bind(work / folder, f"{_INSIDE}/{folder}", read_only=folder == "back-end") for folder in _FOLDERS]
    binds.append(sandbox.Bind(source, f"{_INSIDE}/source/{source.name}", read_only=source.is_file()))
    binds += own_root.make(work / "root", environment)
    argv, variables = _pip(_INSIDE, f"{_INSIDE}/source/{source.name}", environment)
    try:
        command = sandbox.Exec(argv, variables, binds, cwd=_INSIDE, timeout=TIMEOUT, step=Step.BUILD)
        done = sandbox.run_in(work / "root", command)
    except HostError as error:
        if without is None:
            raise
        without(f"{name} is built with all that you may do, outside of the sandbox: {error.cause or error.what}")
        argv, variables = _pip(str(work), str(source), environment)
        done = process.run(argv, environment=variables, cwd=work, timeout=TIMEOUT)
    wheels = sorted(path for path in (work / "wheel").glob("*.whl") if beneath.is_plain(path, work))
    if done.returncode != 0 or len(wheels) != 1:
        raise BuildError(
            f"{name} could not be made a wheel" + "".join(f"\n    {line}" for line in done.lines[-20:]),
            cause="Its back-end failed, or needs the network or a package that its build requirements do not name.",
            next_step=f"{LOCK_AGAIN}    (locks the back-end again), or put a wheel of it into a local folder",
        )
    return wheels[0]


def _pip(folder: str, source: str, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command that makes the wheel, and its variables: nothing of the user's set-up for pip, fixed seeds and times.

    Of the user's variables it gets those that name a version or libraries: others hold passwords.
    """
    passed = {name: value for name, value in environment.items() if _PASSED.fullmatch(name)}
    passed |= {"HOME": f"{folder}/home", "TMPDIR": f"{folder}/tmp", "PIP_CONFIG_FILE": "/dev/null"}
    passed |= {"PYTHONHASHSEED": "0", "PYTHONNOUSERSITE": "1", "SOURCE_DATE_EPOCH": _EPOCH, "TZ": "UTC"}
    passed |= {"LC_ALL": "C.UTF-8", "PATH": f"{Path(sys.executable).parent}:{SYSTEM_PATH}"}
    options = ["--no-index", "--find-links", f"{folder}/back-end", "--no-deps", "--no-cache-dir", "--no-input"]
    options += ["--disable-pip-version-check", "--progress-bar", "off", "--wheel-dir", f"{folder}/wheel"]
    return [sys.executable, "-m", "pip", "wheel", *options, source], passed


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
_MAGICS = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz"}


_ASIDE = {"test", "tests", "doc", "docs", "examples"}
_SETUPTOOLS = "setuptools.build_meta"
_COMPILED = (".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".f", ".f90", ".rs")


class SdistMetadata(NamedTuple):
    """PEP 508 requirements to run and to build."""

    requires: tuple[str, ...]
    build_requires: tuple[str, ...]
    is_setup: bool  #: setuptools builds it, by a setup.py
    tool: str = ""  #: what its setup.py calls to compile, which no base has: CMake


class _BuildSystem(msgspec.Struct, rename="kebab"):
    requires: list[str] = []
    build_backend: str = ""


class _Project(msgspec.Struct):
    name: str = ""
    version: str = ""
    dependencies: list[str] = []
    dynamic: list[str] = []


class _Pyproject(msgspec.Struct, rename="kebab"):
    """What is read of a pyproject.toml."""

    build_system: _BuildSystem = msgspec.field(default_factory=_BuildSystem)
    project: _Project = msgspec.field(default_factory=_Project)


def read_sdist(path: Path, name: str) -> SdistMetadata:
    """Read pyproject.toml and PKG-INFO of an sdist named `name`. Raises IntegrityError when they are not there."""
    files = _files(path, name)
    with _explained(name):
        pyproject = _toml(files.get("pyproject.toml", b"").decode())
        info = files.get("PKG-INFO", b"").decode()
        listed = next((files[path] for path in files if path.endswith(_REQUIRES)), b"").decode()
        if not info:
            raise _broken(name, "it has no PKG-INFO")
        build = tuple(pyproject.get("build-system", {}).get("requires", LEGACY_BUILD))
        for requirement in build:
            Requirement(requirement)
        by_cmake = "CMakeLists.txt" in files and b"cmake" in files.get("setup.py", b"").lower()
        tool = "CMake" if by_cmake else ""
        return SdistMetadata(_requires(pyproject, info, listed), build, _is_setup(pyproject, files), tool)


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
    """What a project's folder asks for to be built (PEP 518). Raises IntegrityError for a malformed pyproject.toml."""
    return tuple(_pyproject(folder).get("build-system", {}).get("requires", LEGACY_BUILD))


def _pyproject(folder: Path) -> dict[str, Any]:
    path = folder / "pyproject.toml"
    try:
        return _toml(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, msgspec.ValidationError, RecursionError) as error:
        raise IntegrityError(f"{path} cannot be read: {error}") from error


def compiled_sources(path: Path) -> list[str]:
    """List the files of an sdist that a compiler wants, outside of tests and documents. Raises IntegrityError."""
    files = _files(path, path.name)
    if not files:
        raise _broken(path.name, "it has no files")
    return _to_compile(files)


def _to_compile(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(_COMPILED) and not _ASIDE & set(name.lower().split("/"))]


def write_sdist(folder: Path, files: Iterable[Path], target: Path) -> Path | None:
    """Write these files of a project as an sdist into the folder `target`; the same files give the same bytes.

    None where a setup.py has nothing to compile, or name, version or dependencies are known only once it ran.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in files}
    pyproject = _pyproject(folder)
    if not (_is_setup(pyproject, paths) and _to_compile(paths) and (stated := _stated(folder, pyproject))):
        return None
    name, version, requires = stated
    stem = f"{name.replace('-', '_')}-{version}"
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {requirement}" for requirement in requires)]
    # Stored, since other versions of zlib pack to other bytes.
    with gzip.GzipFile(target / f"{stem}.tar.gz", "wb", compresslevel=0, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            info = "".join(f"{line}\n" for line in ("Metadata-Version: 2.1", *lines)).encode()
            for inside, path in {**paths, "PKG-INFO": None}.items():
                content = path.read_bytes() if path else info
                member = tarfile.TarInfo(f"{stem}/{inside}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return target / f"{stem}.tar.gz"


class _Stated(NamedTuple):
    name: str  #: normalised, as the version
    version: str
    requires: Sequence[str] = ()  #: of the sdist's PKG-INFO; none where [project] has them


def _stated(folder: Path, pyproject: Mapping[str, Any]) -> _Stated | None:
    """What [project], or setup.cfg and the literals in setup.py, say of a project without running anything."""
    if project := pyproject.get("project"):
        is_known = {"name", "version"} <= project.keys() and "dependencies" not in project.get("dynamic", ())
        return _normalised(project["name"], project["version"]) if is_known else None
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
    arguments: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setup":
            for keyword in node.keywords:
                arguments[keyword.arg or "name"] = None
                with contextlib.suppress(ValueError, KeyError):
                    arguments[keyword.arg or "name"] = value(keyword.value) if keyword.arg else None
    return arguments


def _requires(pyproject: dict[str, Any], info: str, listed: str) -> tuple[str, ...]:
    """[project] binds unless it calls its dependencies dynamic (PEP 621). Then what the back-end wrote: PKG-INFO, or
    where an old setuptools left them out of it (torch_geometric 2.3.1), requires.txt."""
    project = pyproject.get("project", {})
    if project and "dependencies" not in project.get("dynamic", ()):
        return tuple(project.get("dependencies", ()))
    stated = email.message_from_string(info).get_all("Requires-Dist") or []
    return tuple(item for item in stated if "extra ==" not in item) or _of_requires_txt(listed)


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
    """Raises IntegrityError for an sdist that is damaged or a bomb: whoever unpacks it has no limits."""
    _files(path, name)


def _files(path: Path, name: str) -> dict[str, bytes]:
    """Paths of an sdist's files below its folder, with the contents of those that say what it is.

    A .zip by its name, as pip goes by it, else a tar. Raises IntegrityError.
    """
    with _explained(name):
        return _zipped(path, name) if name.endswith(".zip") else _tarred(path, name)


def _says(inside: str) -> bool:
    return inside in ("pyproject.toml", "PKG-INFO", "setup.py") or inside.endswith(_REQUIRES)


def _zipped(path: Path, name: str) -> dict[str, bytes]:
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
                files[inside] = stream.read(LARGEST if _says(inside) else 0)
                gauge.inflated(len(files[inside]))
                while piece := stream.read(_CHUNK):  # headers may say less than comes out
                    gauge.inflated(len(piece))
    return files


def _tarred(path: Path, name: str) -> dict[str, bytes]:
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
                    size = member.size if _says(inside) and not member.issparse() else 0
                    files[inside] = b"".join(stream.chunks(min(size, LARGEST)))
        except LayoutError as error:
            raise _broken(name, error.what) from error
    return files


def _broken(name: str, detail: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is not a usable source archive: {detail}",
        next_step=f"lock another version, or bring a wheel of it: {setting(wheels='/path')}",
    )
