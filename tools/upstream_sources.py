"""Upstream's tests at a tag: from a folder of repositories that the user has, else by git from GitHub.

What is taken is the tests alone: in a checkout Python would import the uncompiled package in place of the image's own.
"""

import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphcrate.host import settings
from graphcrate.host.disk.trees import remove_tree
from graphcrate.model.errors import GraphcrateError, HostError, IntegrityError, NetworkError, UsageError
from tools.upstream_list import Suite

ARCHIVES = (".tar.gz", ".tgz", ".tar")
_PATIENCE = 900  #: seconds for a clone
_GITHUB = "https://github.com"


@dataclass(frozen=True)
class Sources:
    """Sources of tests. `given`: the user's folder (`UPSTREAM=`); `kept`: where clones stay."""

    given: Path | None
    kept: Path

    def take(self, suite: Suite, version: str, into: Path) -> str:
        """Put the tests of a suite into a folder; return the commit that they are of.

        Of what is no repository "sha256:" and the hash of their files. Raises UsageError, NetworkError, HostError,
        IntegrityError.
        """
        tag = suite.tag.format(version=version)
        if self.given is None:
            return _of_git(self._cloned(suite, tag), suite, tag, into)
        found = self._in_folder(suite)
        if repository := _git_folder(found):
            return _of_git(repository, suite, tag, into)
        _copy(found, suite, into)
        return f"sha256:{_hash(into, suite)}"

    def _in_folder(self, suite: Suite) -> Path:
        assert self.given is not None
        name = suite.repository.rpartition("/")[2]
        names = [name, f"{name}.git", *(f"{name}{ending}" for ending in ARCHIVES)]
        for each in names:
            if (self.given / each).exists():
                return self.given / each
        raise UsageError(
            f"{self.given} has no {name}",
            cause=f"The tests of {suite.title} are in that repository: a clone, a bare one, or {name}.tar.gz.",
            next_step=f"git clone --bare {_GITHUB}/{suite.repository} {self.given}/{name}    (where GitHub is reached)",
        )

    def _cloned(self, suite: Suite, tag: str) -> Path:
        name = suite.repository.rpartition("/")[2]
        folder = self.kept / f"{name}-{tag}.git"
        if _git_folder(folder):
            return folder
        remove_tree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = folder.with_suffix(".part")
        remove_tree(part)
        address = f"{_GITHUB}/{suite.repository}.git"
        try:
            _git("clone", "--quiet", "--bare", "--depth", "1", "--branch", tag, address, str(part))
        except GraphcrateError as error:
            if isinstance(error, HostError):
                raise
            raise NetworkError(
                f"the tests of {suite.title} {tag} cannot be fetched from {address}",
                cause=error.what,
                next_step=f"git clone --bare {address} FOLDER/{name} where it is reached, then UPSTREAM=FOLDER",
            ) from error
        part.rename(folder)
        return folder


def _git_folder(path: Path) -> Path | None:
    """The folder of git's data, of a clone or a bare one; git itself would look above a plain folder, too."""
    return next(
        (folder for folder in (path / ".git", path) if (folder / "HEAD").is_file() and (folder / "objects").is_dir()),
        None,
    )


def _git(*words: str) -> bytes:
    variables = {**settings.child_environment(), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(["git", *words], env=variables, capture_output=True, timeout=_PATIENCE, check=False)
    except FileNotFoundError as error:
        raise HostError("git is not installed", next_step="apt-get install git, or your system's way") from error
    except subprocess.TimeoutExpired as error:
        raise NetworkError(f"git {words[0]} took longer than {_PATIENCE} s", next_step="try it again") from error
    if done.returncode:
        ending = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise IntegrityError(f"git {words[0]}: {ending or f'exit code {done.returncode}'}")
    return done.stdout


def _below(name: str, suite: Suite) -> str:
    """Return a name that is one of a suite's paths or below one, of any other nothing."""
    return name if any(name == path or name.startswith(f"{path}/") for path in suite.paths) else ""


def _unpack(archive: tarfile.TarFile, into: Path, named: Callable[[str], str]) -> None:
    """Write an archive's folders, files and symbolic links to where `named` says; nothing is not written.

    The `filter` of tarfile would do it from Python 3.11.4 on; Debian 12 has 3.11.2.
    Raises tarfile.ReadError on what would leave the folder, or is neither.
    """
    for member in archive:
        if not (name := named(member.name.removeprefix("./").rstrip("/"))):
            continue
        target = into / name
        is_known = member.isreg() or member.isdir() or member.issym()
        if not is_known or not _is_inside(target.parent, into):
            raise tarfile.ReadError(f"{member.name} is not a file, folder or link inside the folder")
        (target if member.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
        if member.issym():
            target.symlink_to(member.linkname)
        elif content := archive.extractfile(member):
            with content, target.open("xb") as written:
                shutil.copyfileobj(content, written)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
    for path in into.rglob("*"):  # only now is it known where a link leads that goes by another
        if path.is_symlink() and not _is_inside(path, into):
            raise tarfile.ReadError(f"{path.relative_to(into)} leads out of the folder")


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _of_git(repository: Path, suite: Suite, tag: str, into: Path) -> str:
    """Take the tests of a tag out of a repository."""
    here = f"--git-dir={repository}"
    try:
        commit = _git(here, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}").decode().strip()
    except IntegrityError as error:
        raise UsageError(
            f"{repository} has no tag {tag}",
            cause=f"The image has {suite.package} of that version, and its tests are those of the tag.",
            next_step=f"git --git-dir={repository} fetch --tags {_GITHUB}/{suite.repository}",
        ) from error
    archive = into.with_name(f"{into.name}.tar")
    try:
        _git(here, "archive", "--format=tar", f"--output={archive}", commit, "--", *suite.paths)
        with tarfile.open(archive) as opened:
            _unpack(opened, into, str)
    except tarfile.TarError as error:
        raise IntegrityError(f"{repository}: {error}") from error
    finally:
        archive.unlink(missing_ok=True)
    return commit


def _copy(source: Path, suite: Suite, into: Path) -> None:
    """Take the tests out of a plain folder or an archive of one, whose only folder at the top may have any name."""
    into.mkdir(parents=True, exist_ok=True)
    archive, is_whole = into.with_name(f"{into.name}.tar"), source.is_file()
    if not is_whole:
        with tarfile.open(archive, "w") as packed:
            for path in suite.paths:
                if (source / path).exists():
                    packed.add(source / path, path)
    try:
        with tarfile.open(source if is_whole else archive) as opened:
            _unpack(opened, into, lambda name: _below(name.partition("/")[2] if is_whole else name, suite))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise IntegrityError(f"{source} cannot be read: {error}", next_step="give a clone, or pack it again") from error
    finally:
        archive.unlink(missing_ok=True)
    if absent := [path for path in suite.paths if not (into / path).exists()]:
        raise UsageError(
            f"{source} has no {absent[0]}",
            cause=f"That is where the tests of {suite.title} are.",
            next_step=f"git clone --bare {_GITHUB}/{suite.repository} {source}",
        )


def _hash(folder: Path, suite: Suite) -> str:
    """The hash of what was taken: names and contents."""
    total = hashlib.sha256()
    files = sorted(path for each in suite.paths for path in [folder / each, *(folder / each).rglob("*")])
    for path in files:
        if path.is_file() and not path.is_symlink():
            total.update(f"{path.relative_to(folder)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
