"""The files of a commit, as git's own objects have them: no work tree that settings, attributes or links could change.

Submodules come by the same rule as the address that was given. What a commit names as a link is made as one, where it
leads within the tree; readers of the tree (`host.sandbox.beneath`) refuse others.
"""

import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from graphcrate.compat.failures import ends
from graphcrate.compat.failures.ends import ProgramFailure
from graphcrate.host import git
from graphcrate.model.command import Setting, setting
from graphcrate.model.errors import BuildError, IntegrityError
from graphcrate.model.limits import SOURCES, Gauge
from graphcrate.model.words import number_of, printable
from layertar.errors import TarError
from layertar.stream import TarStream, members
from patienthttp.errors import redacted
from projectfiles import git_address

COMMIT = re.compile(r"[0-9a-f]{40}")
#: the beginning of what git-lfs has in place of a file
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_DEEPEST = 64  #: folders of a path, and repositories within each other
_GITLINK = re.compile(r"160000 commit ([0-9a-f]{40})\t(.+)", re.DOTALL)
#: As they are in the objects, not as the commit's .gitattributes say: this file goes before those.
_AS_THEY_ARE = "* !text !eol !crlf !ident !filter !working-tree-encoding !export-ignore !export-subst\n"
_ALL_OF_IT = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")

Note = Callable[[str], None]


class GitSource(NamedTuple):
    """A repository that commits come from; `environment`: of git; `folder`: how a folder is given in its place."""

    url: str
    environment: Mapping[str, str]
    folder: Setting = setting(with_="./NAME")

    @property
    def shown(self) -> str:
        """The address without a password."""
        return shown(self.url)

    def commit(self, revision: str, empty: Path) -> str:
        """Return the commit of today of a branch, a tag, or HEAD for no revision; `empty`: a folder.

        Raises NetworkError, and BuildError where it has no such branch or tag.
        """
        lines = self._run("ls-remote", "--quiet", strange=[self.url], cwd=empty)
        listed = {name: commit for line in lines for commit, tab, name in [line.partition("\t")] if tab}
        tag, head = f"refs/tags/{revision}", f"refs/heads/{revision}"
        for name in (f"{tag}^{{}}", tag, head) if revision else ("HEAD",):
            if COMMIT.fullmatch(listed.get(name, "")):
                return listed[name]
        raise BuildError(
            f"{self.shown} has no branch or tag {revision or 'HEAD'!r}",
            next_step="name a commit by its 40 digits: git+https://HOST/PATH@COMMIT",
        )

    def fetch(self, commit: str, folder: Path, *, history: bool) -> str:
        """Fetch a commit into a new repository in `folder`, and let HEAD and the index be it; nothing is checked out.

        Return it, which of a tag's object is the tag's commit. `history`: with branches and tags, which versions may
        be read from. Raises NetworkError.
        """
        folder.mkdir(parents=True)
        self._run("init", "--quiet", "--template=", cwd=folder)
        (folder / ".git" / "info").mkdir()
        (folder / ".git" / "info" / "attributes").write_text(_AS_THEY_ARE)
        fetch = ("fetch", "--quiet", "--no-write-fetch-head", "--no-recurse-submodules")
        if not history:
            done, _ = git.run(*fetch, "--depth=1", strange=[self.url, commit], environment=self.environment, cwd=folder)
            history = bool(done.returncode)
        if history:
            self._run(*fetch, strange=[self.url, *_ALL_OF_IT], cwd=folder)
        if not (there := self._peeled(commit, folder)):
            self._run(*fetch, strange=[self.url, commit], cwd=folder)  # of no branch: a pull request's
            there = self._peeled(commit, folder)
        self._run("update-ref", "--no-deref", "HEAD", there, cwd=folder)
        self._run("read-tree", there, cwd=folder)
        return there

    def _peeled(self, commit: str, folder: Path) -> str:
        """The commit of an object, which may be a tag's; empty where it is not there."""
        words = ("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
        done, lines = git.run(*words, environment=self.environment, cwd=folder)
        return "" if done.returncode or not lines else lines[-1]

    def _run(self, *ours: str, cwd: Path, strange: list[str] | None = None) -> list[str]:
        done, lines = git.run(*ours, strange=strange or (), environment=self.environment, cwd=cwd)
        if done.returncode:
            failure = ProgramFailure(program="git", exit_code=done.returncode, lines=done.lines, address=self.url)
            raise next(ends.errors(failure, self.folder))
        return lines


def shown(url: str) -> str:
    """Return an address without a password."""
    return redacted(url) if "://" in url else url


def write_tree(source: GitSource, commit: str, folder: Path, note: Note) -> None:
    """Write the files of a commit and of its submodules into the new `folder`, beside the repository in `.git`.

    `note` gets a line where files are git-lfs's pointers. Raises NetworkError, BuildError for a submodule without an
    address, IntegrityError for an address or a path that no repository needs.
    """
    pointers = list[str]()
    _write(source, commit, folder, pointers, 0)
    if pointers:
        note(
            f"{source.shown}: {number_of(len(pointers), 'file')} of git-lfs, which is not asked: the pointer stands in "
            f"place of {printable(pointers[0])}" + (" and others" if len(pointers) > 1 else "")
        )


def write_part(source: GitSource, commit: str, folder: Path, entries: Sequence[str]) -> None:
    """Write those files of a commit that `entries` (of our own) name, with `*` in a name, into the new `folder`.

    Of its submodules there is nothing, and no history. Raises as `write_tree`.
    """
    patterns = [f":(glob){entry}" for entry in entries]
    _archived(source, source.fetch(commit, folder, history=False), folder, [], patterns)


def _write(source: GitSource, commit: str, folder: Path, pointers: list[str], depth: int) -> None:
    if depth > _DEEPEST:
        raise IntegrityError(f"{source.shown} has submodules in submodules, more than {_DEEPEST} deep")
    commit = source.fetch(commit, folder, history=depth == 0)
    folders = _archived(source, commit, folder, pointers)
    if not (folder / ".gitmodules").is_file() or (folder / ".gitmodules").is_symlink():
        return
    for path, address, at in _submodules(source, commit, folder):
        if path not in folders:
            raise IntegrityError(f"{source.shown}: its submodule {printable(path)} has no folder")
        (folder / path).rmdir()  # git's archive has an empty one for it
        _write(source._replace(url=address), at, folder / path, pointers, depth + 1)


def _archived(
    source: GitSource, commit: str, folder: Path, pointers: list[str], patterns: Sequence[str] = ()
) -> set[str]:
    """Write the files of a commit that was fetched, or those that patterns name; the folders that there are now."""
    archive = folder / ".git" / "graphcrate.tar"
    words = ("archive", "--format=tar", f"--output={archive}", commit, *(["--", *patterns] if patterns else []))
    git.output(*words, environment=source.environment, cwd=folder)
    folders = _unpack(archive, folder, source.shown, pointers)
    archive.unlink()
    return folders


def _submodules(source: GitSource, commit: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Path, address and commit of each submodule. Raises BuildError, IntegrityError."""
    listed = git.output("ls-tree", "-r", "-z", "--full-tree", commit, environment=source.environment, cwd=folder)
    links = {match[2]: match[1] for line in listed.split("\0") if (match := _GITLINK.fullmatch(line))}
    blob = f"--blob={commit}:.gitmodules"
    settings = git.output("config", blob, "-z", "--list", environment=source.environment, cwd=folder) if links else ""
    modules: dict[str, dict[str, str]] = {}
    for entry in settings.split("\0"):
        key, _, value = entry.partition("\n")
        if key.startswith("submodule."):
            name, _, field = key.removeprefix("submodule.").rpartition(".")
            modules.setdefault(name, {})[field] = value
    by_path = {module.get("path", ""): module for module in modules.values()}
    for path, at in links.items():
        module = by_path.get(path, {})
        if module.get("update") == "none":
            continue
        if not (address := module.get("url", "")):
            raise BuildError(
                f"{source.shown} has a submodule {printable(path)} whose address its .gitmodules does not say",
                next_step=f"clone it with what is missing, and give the folder: {source.folder}",
            )
        yield path, _submodule_address(source, address, path), at


def _submodule_address(source: GitSource, address: str, path: str) -> str:
    try:
        if address.startswith(("./", "../")):
            return git_address.relative(source.url, address)
        url = git_address.repository(address)
        if url.startswith("file:"):
            raise ValueError("a repository names no folder of this machine")
        return url
    except ValueError as error:
        raise IntegrityError(
            f"{source.shown}: the address of its submodule {printable(path)} is not fetched: {error}",
            next_step=f"clone it yourself, and give the folder: {source.folder}",
        ) from error


def _unpack(archive: Path, folder: Path, name: str, pointers: list[str]) -> set[str]:
    """Write what git has packed of a commit; the folders that it has.

    Raises IntegrityError for what no honest repository has.
    """
    gauge, folders = Gauge(SOURCES, name), {""}
    with archive.open("rb") as file:
        stream = TarStream(file, gauge)
        try:
            for member, _ in members(stream):
                path = member.name.rstrip("/")
                if not path:
                    continue
                target = folder / _checked(path, name, folders)
                if member.isdir():
                    target.mkdir()
                    folders.add(path)
                elif member.issym():
                    target.symlink_to(member.linkname)
                elif member.isreg() and not member.issparse():
                    if _copy(stream, member, target):
                        pointers.append(path)
                else:
                    raise IntegrityError(f"{name}: {printable(path)} is neither a file nor a folder nor a link")
        except TarError as error:
            raise IntegrityError(f"{name}: git's archive of it cannot be read: {error.what}") from error
        except FileExistsError as error:
            raise IntegrityError(f"{name} has {printable(path)} twice") from error
    return folders


def _copy(stream: TarStream, member: tarfile.TarInfo, target: Path) -> bool:
    """Write a file; whether it is a pointer of git-lfs."""
    mode = 0o755 if member.mode & 0o100 else 0o644
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    head = b""
    with os.fdopen(descriptor, "wb") as file:
        for chunk in stream.chunks(member.size):
            head = head or chunk[: len(_POINTER)]
            file.write(chunk)
    target.chmod(mode)  # under any umask
    return head == _POINTER


def _checked(path: str, name: str, folders: set[str]) -> PurePosixPath:
    """A path in one of these folders. Raises IntegrityError for one that leads elsewhere, or into what git keeps."""
    parts = path.split("/")
    strange = any(part in ("", ".", "..") or part.lower().rstrip(". ") == ".git" for part in parts)
    strange = strange or path.rpartition("/")[0] not in folders
    if strange or len(parts) > _DEEPEST or "\0" in path:
        raise IntegrityError(
            f"{name} has a path that no repository needs: {printable(path[:200])!r}",
            next_step="do not use it; ask whoever made it",
        )
    return PurePosixPath(path)
