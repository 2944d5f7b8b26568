"""A user's own projects: a folder, or a commit of a git repository, becomes a wheel in the cache.

It is made once for the same files or commit, and pure Python. What setuptools has something to compile for becomes a
source archive instead, which is compiled in the image's base as those of an index are.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from graphcrate.compat.requirements.own_packages import git_address
from graphcrate.host.disk import trees
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.host.sandbox import beneath
from graphcrate.host.sandbox.beneath import PlainFile
from graphcrate.inputs.commits import COMMIT, GitSource, shown, write_tree
from graphcrate.inputs.wheels.sdist import write_sdist
from graphcrate.inputs.wheels.wheel_build import guest, make_wheel, once, passed
from graphcrate.model.command import setting
from graphcrate.model.errors import BuildError, HostError

#: Raise it whenever the same project would give another wheel.
PROJECT_FORMAT = 3
#: what tools leave in a project and no wheel is made of
_NOT_SOURCE = re.compile(
    r"\.git|\.hg|\.venv|venv|__pycache__|build|dist|\.tox|\.nox|\.eggs|.*\.egg-info|.*\.pyc|\.\w+_cache"
)


class BackEnd(NamedTuple):
    """The packages that build projects."""

    wheels: Callable[[Path], Sequence[Path]]  #: of the back-end that a project's folder asks for
    #: All that decides which files these are, but for the project; a part of the cache's key. Whoever names the index
    #: in a requirements file chooses the setuptools that runs; the files' hashes would have to be asked for each time.
    asked: bytes


def of_folder(
    folder: Path,
    back_end: BackEnd,
    cache: Cache,
    environment: Mapping[str, str],
    note: Callable[[str], None],
    *,
    walled: bool = False,
) -> Path:
    """The wheel or source archive of a project's folder. Raises BuildError, and what `back_end` raises; IntegrityError
    for a link that leads out of the folder, and for what is no file.

    `note` gets a line where this machine has no sandbox to build it in; with `walled` that is a HostError.
    """
    digest = _begun(back_end, environment)
    for name, file in _files(folder):
        with file.opened() as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        digest.update(f"{name}\0{0o100 * file.is_executable}\0".encode(errors="surrogateescape"))
        digest.update(content)
    target = cache.path("built", f"project-{digest.hexdigest()}")
    without = None if walled else note
    return once(
        target, str(folder), lambda work: _make(folder, str(folder), back_end, work, environment, without), cache
    )


def of_commit(
    address: str,
    back_end: BackEnd,
    cache: Cache,
    environment: Mapping[str, str],
    note: Callable[[str], None],
    *,
    walled: bool = False,
) -> Path:
    """The same of a git repository, as `own_packages.git_address` reads it; a branch or tag is its commit of today.

    Raises NetworkError when git cannot fetch it, IntegrityError for a link that leads out of it, BuildError, and what
    `back_end` raises.
    """
    given = git_address(address)
    source, below = GitSource(given.url, environment), given.subdirectory
    with cache.folder() as empty:
        commit = given.revision if COMMIT.fullmatch(given.revision) else source.commit(given.revision, empty)
    digest = _begun(back_end, environment)
    # The address, as tags are a repository's and versions may be read from them.
    digest.update(f"{commit} {shown(given.url)} {below}".encode())
    name = f"git+{given._replace(url=shown(given.url)).written}"

    def make(work: Path) -> Path:
        write_tree(source, commit, work / "clone", note)
        return _make(work / "clone", name, back_end, work, environment, None if walled else note, below)

    return once(cache.path("built", f"commit-{digest.hexdigest()}"), name, make, cache)


def _begun(back_end: BackEnd, environment: Mapping[str, str]) -> "hashlib._Hash":
    """Begin a key with all that decides a wheel besides the project's own files."""
    variables = {name: value for name, value in passed(environment).items() if name != "LD_LIBRARY_PATH"}
    parts = [str(PROJECT_FORMAT), guest(), repr(sorted(variables.items()))]
    return hashlib.sha256("\n".join(parts).encode() + b"\n" + hashlib.sha256(back_end.asked).digest())


def _make(
    source: Path,
    name: str,
    back_end: BackEnd,
    work: Path,
    environment: Mapping[str, str],
    without: Callable[[str], None] | None,
    below: str = "",
) -> Path:
    """Make the source archive or wheel of a project, which is in the folder `below` of its source."""
    files = dict(_files(source))
    if below:  # what its links mean may be anywhere in the repository
        start = f"{below}/"
        files = {path.removeprefix(start): file for path, file in files.items() if path.startswith(start)}
        if not {"pyproject.toml", "setup.py"} & files.keys():
            raise BuildError(
                f"{name} has no project there: its folder {below} has neither a pyproject.toml nor a setup.py",
                next_step="name another folder: git+https://HOST/PATH@COMMIT#subdirectory=FOLDER",
            )
    if sdist := write_sdist(source / below, files.items(), work):
        return sdist
    for _ in trees.walk(source):  # ends for one that is too deep to be copied
        pass
    # A copy: setuptools writes into the folder that it builds.
    copy = shutil.copytree(source, work / "source", symlinks=True, ignore=_ignored)
    try:
        return make_wheel(copy, name, back_end.wheels(copy / below), work, environment, below=below, without=without)
    except HostError as error:
        if without is not None or isinstance(error, MachineError):
            raise
        raise HostError(
            f"{name} is not built outside of the sandbox, with all that you may do: a recipe names it",
            cause=error.cause or error.what,
            next_step=f"{error.next_step}; or, for a recipe that you have read: {setting(trust_paths=True).both()}",
        ) from error


def _ignored(folder: str, names: list[str]) -> set[str]:
    # .git stays: versions may be read from it
    return {name for name in names if _is_made(name, names) and name != ".git"}


def _is_made(name: str, beside: Collection[str]) -> bool:
    """Return whether tools left it: what they all do, or cargo beside its manifest."""
    return bool(_NOT_SOURCE.fullmatch(name)) or (name == "target" and "Cargo.toml" in beside)


def _files(folder: Path) -> Iterable[tuple[str, PlainFile]]:
    return beneath.files(folder, _is_made)
