"""Pure-Python source distributions become wheels, by the locked back-end alone, in the sandbox.

pip's wheel (PEP 517) is packed again: nothing of file times, umask, order of folders or the host's Python is left.
"""

import functools
import hashlib
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.compat.plan.image_config import SYSTEM_PATH
from graphcrate.host import arguments, process
from graphcrate.host.arguments import Argv
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.os_errors import MachineError, by_limit
from graphcrate.host.sandbox import beneath, own_root, sandbox
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.wheels import pip_program
from graphcrate.inputs.wheels.sdist_archive import check_sdist
from graphcrate.model.command import LOCK_AGAIN, command
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.words import with_mark
from nsbox.box import Bind
from wheelread.wheel import Wheel

#: Raise it whenever the same sdist and back-end would give another wheel.
SDIST_FORMAT = 1
TIMEOUT = 900.0  #: seconds
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
