"""A user's own projects: a folder, or a commit of a git repository, becomes a wheel in the cache.

It is made once for the same files or commit, and pure Python. What setuptools has something to compile for becomes a
source archive instead, which is compiled in the image's base as those of an index are.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from graphcrate.compat.own import git_address
from graphcrate.host import process
from graphcrate.host.cache import Cache
from graphcrate.host.connections import redacted
from graphcrate.inputs.wheels.sdist import make_wheel, once, write_sdist
from graphcrate.model.errors import BuildError, NetworkError

#: Raise it whenever the same project would give another wheel.
PROJECT_FORMAT = 2
#: what tools leave in a project and no wheel is made of
_NOT_SOURCE = re.compile(
    r"\.git|\.hg|\.venv|venv|__pycache__|build|dist|\.tox|\.nox|\.eggs|.*\.egg-info|.*\.pyc|\.\w+_cache"
)
#: of the user's variables those by which git reaches a private repository
GIT_VARIABLES = ("SSH_AUTH_SOCK", "SSH_ASKPASS", "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MINUTE = 60.0

BackEnd = Callable[[Path], Sequence[Path]]  #: the wheels of the back-end that a project's folder asks for


def of_folder(
    folder: Path, back_end: BackEnd, cache: Cache, environment: Mapping[str, str], note: Callable[[str], None]
) -> Path:
    """The wheel or source archive of a project's folder. Raises BuildError, and what `back_end` raises.

    `note` gets a line where this machine has no sandbox to build it in.
    """
    digest = hashlib.sha256(str(PROJECT_FORMAT).encode())
    for path in _files(folder):
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_mode & 0o100}\0".encode(errors="surrogateescape"))
        digest.update(content)
    target = cache.path("built", f"project-{digest.hexdigest()}")
    return once(target, str(folder), lambda work: _make(folder, str(folder), back_end, work, environment, note), cache)


def of_commit(
    address: str, back_end: BackEnd, cache: Cache, environment: Mapping[str, str], note: Callable[[str], None]
) -> Path:
    """The same of a git repository, as `own.git_address` reads it; a branch or tag is its commit of today.

    Raises NetworkError when git cannot fetch it, BuildError, and what `back_end` raises.
    """
    url, revision = git_address(address)
    commit = revision if _COMMIT.fullmatch(revision) else _commit(url, revision or "HEAD", environment)
    key = hashlib.sha256(f"{PROJECT_FORMAT} {commit}".encode()).hexdigest()

    def make(work: Path) -> Path:
        clone = work / "clone"
        _git(["clone", "--quiet", "--no-checkout", url, str(clone)], url, environment)
        _git(["-C", str(clone), "checkout", "--quiet", commit], url, environment)
        if (clone / ".gitmodules").is_file():
            _git(["-C", str(clone), "submodule", "update", "--init", "--recursive", "--quiet"], url, environment)
        return _make(clone, redacted(address), back_end, work, environment, note)

    return once(cache.path("built", f"commit-{key}"), redacted(address), make, cache)


def _make(
    source: Path,
    name: str,
    back_end: BackEnd,
    work: Path,
    environment: Mapping[str, str],
    note: Callable[[str], None],
) -> Path:
    if sdist := write_sdist(source, _files(source), work):
        return sdist
    # A copy: setuptools writes into the folder that it builds.
    copy = shutil.copytree(source, work / "source", symlinks=True, ignore=_ignored)
    return make_wheel(copy, name, back_end(copy), work, environment, without=note)


def _ignored(folder: str, names: list[str]) -> set[str]:
    # .git stays: versions may be read from it
    return {name for name in names if _is_made(name, names) and name != ".git"}


def _is_made(name: str, beside: Collection[str]) -> bool:
    """Whether tools left it: what they all do, or cargo beside its manifest."""
    return bool(_NOT_SOURCE.fullmatch(name)) or (name == "target" and "Cargo.toml" in beside)


def _files(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_made(name, names))
        yield from (path for name in sorted(names) if not _is_made(name, names) and (path := Path(at, name)).is_file())


def _commit(url: str, revision: str, environment: Mapping[str, str]) -> str:
    lines = [line.split("\t") for line in _git(["ls-remote", url], url, environment) if "\t" in line]
    listed = {name.removeprefix("refs/"): commit for commit, name in lines}
    for name in ("HEAD",) if revision == "HEAD" else (f"tags/{revision}^{{}}", f"tags/{revision}", f"heads/{revision}"):
        if name in listed:
            return listed[name]
    raise BuildError(
        f"{redacted(url)} has no branch or tag {revision!r}",
        next_step="name a commit by its 40 digits: git+https://HOST/PATH@COMMIT",
    )


def _git(arguments: Sequence[str], url: str, environment: Mapping[str, str]) -> Sequence[str]:
    return run_git(
        arguments,
        url,
        environment,
        cause="No network, no such repository or commit, or one that asks for a password or a key.",
        next_step=f"git clone {redacted(url)}    (and give the folder: ./NAME)",
    )


def run_git(
    arguments: Sequence[str], url: str, environment: Mapping[str, str], *, cause: str, next_step: str
) -> list[str]:
    """Run git on the repository at `url`, without a question; what it prints. Raises NetworkError with these words."""
    lines: list[str] = []
    # A question for a password, or whether a host is known, would wait for ever.
    variables = {"SSH_ASKPASS": "/bin/false", **environment, "GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "force"}
    done = process.run(["git", *arguments], environment=variables, on_line=lines.append, timeout=10 * _MINUTE)
    if done.returncode:
        tail = "".join(f"\n    {line}" for line in done.lines[-4:])
        raise NetworkError(f"git cannot fetch {redacted(url)}{tail}", cause=cause, next_step=next_step)
    return lines
