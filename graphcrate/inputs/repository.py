"""Sources of a repository with its submodules: from git by their commits, or from a folder of the user's.

Each part is checked against what the data name, and only what compiling needs is taken. It is packed to one archive:
the same files give the same bytes, wherever they came from. Submodules are fetched by the commits of the data, not by
what a repository says of itself.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.compat.facts.pyg_lib import Part, commands, listing
from graphcrate.host import git
from graphcrate.host.disk import trees
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox import beneath
from graphcrate.host.sandbox.beneath import PlainFile
from graphcrate.inputs.commits import GitSource, write_part
from graphcrate.inputs.wheels.sdist_archive import pack_sdist
from graphcrate.inputs.wheels.wheel_build import once
from graphcrate.model.command import ETC, command, setting
from graphcrate.model.errors import IntegrityError, UsageError
from patienthttp.errors import redacted
from projectfiles import git_address

#: Raise it whenever the same parts would give another archive.
FORMAT = 1
_MINUTE = 60.0

Files = Mapping[str, PlainFile]  #: path below a part → file


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """An archive's content. `name`: of the package, as it is written in an archive's name."""

    name: str
    version: str
    parts: tuple[Part, ...]

    @property
    def archive(self) -> str:
        """Name of the archive."""
        return f"{self.name}-{self.version}.tar.gz"


def of_folder(tree: Tree, folder: Path, cache: Cache, environment: Mapping[str, str]) -> Path:
    """The archive of a folder's files: a clone with its submodules, or trees that were exported.

    `environment`: of git, which is asked of parts that only a commit names. Raises UsageError for a folder that has
    other files than the data name.
    """
    taken = [(part, _checked(tree, part, folder, environment)) for part in tree.parts]
    return _packed(tree, lambda _: taken, cache)


def of_git(tree: Tree, server: str, cache: Cache, environment: Mapping[str, str]) -> Path:
    """The archive of what git fetches from a server, which has the repositories as `OWNER/NAME`.

    Raises NetworkError where git cannot fetch it, IntegrityError for other files than the data name.
    """

    def taken(work: Path) -> list[tuple[Part, Files]]:
        fetched: list[tuple[Part, Files]] = []
        for number, part in enumerate(tree.parts):
            folder = work / str(number)
            files = _fetch(part, _url(server, part), folder, environment)
            if part.sha256 and _sha256(files) != part.sha256:
                raise IntegrityError(
                    f"{redacted(server)} has other files of {part.repository} at {part.commit} than they were",
                    cause="What answers there is not the repository that its name says.",
                    next_step=f"{commands(tree.parts, tree.version)}    (and give it: {setting(pyg_lib='./pyg-lib')})",
                )
            fetched.append((part, files))
        return fetched

    return _packed(tree, taken, cache)


def _packed(tree: Tree, taken: Callable[[Path], Sequence[tuple[Part, Files]]], cache: Cache) -> Path:
    """The archive, from the cache or packed now; `taken` gets an empty folder."""
    parts = [msgspec.to_builtins(part) for part in tree.parts]
    key = hashlib.sha256(msgspec.json.encode([FORMAT, tree.name, tree.version, parts])).hexdigest()

    def make(work: Path) -> Path:
        return _pack(tree, taken(work / "git"), work)

    return once(cache.path("built", f"repository-{key}"), tree.archive, make, cache)


def _pack(tree: Tree, taken: Sequence[tuple[Part, Files]], target: Path) -> Path:
    """Write the archive. Times, owners and modes say nothing; PKG-INFO makes it a source archive as an index has it."""
    stem = f"{tree.name}-{tree.version}"
    info = f"Metadata-Version: 2.1\nName: {tree.name}\nVersion: {tree.version}\n".encode()
    files: dict[str, PlainFile | bytes] = {"PKG-INFO": info}
    for part, of_part in taken:
        files |= {f"{part.path}/{name}".lstrip("/"): path for name, path in of_part.items()}
        if part.path:  # by this name setuptools takes it into the wheel
            terms = next((path for name, path in of_part.items() if name.startswith("LICENSE")), None)
            files |= {f"LICENSE.{part.path.rpartition('/')[2]}": terms} if terms else {}
    return pack_sdist(target / tree.archive, stem, {name: files[name] for name in sorted(files)})


def _checked(tree: Tree, part: Part, folder: Path, environment: Mapping[str, str]) -> Files:
    """The files of a part in the user's folder. Raises UsageError for others than the data name."""
    root = folder / part.path
    files = _files(root, part)
    where, named = part.path or "it", f"{part.repository} at {part.commit}"
    again = f"{commands(tree.parts, tree.version)}    (and give it: {setting(pyg_lib='./pyg-lib')})"
    if not files:
        raise UsageError(
            f"{folder} is not {tree.name} {tree.version}: {where} has none of the files of {part.repository}",
            cause="A clone without its submodules, or another folder.",
            next_step=again,
        )
    if part.sha256 and _sha256(files) == part.sha256:
        return files
    commit = _commit(root, environment)
    if part.sha256:
        instead = f"it is at {commit}" if commit and commit != part.commit else "its files differ from that commit's"
        raise UsageError(
            f"{folder} is not {tree.name} {tree.version}: {where} has to be {named}, and {instead}",
            cause="The images are locked and tested with these sources; others would be compiled under their name.",
            next_step=again,
        )
    if commit != part.commit or _changed(root, part, environment):
        raise UsageError(
            f"{folder} is not known to be {tree.name} {tree.version}: {where} has to be {named}, as git has it",
            cause="No hash of these files is known, so only a clone with nothing changed in it says what they are"
            + (f"; it is at {commit}." if commit else "; git says nothing of this folder."),
            next_step=again,
        )
    return files


def _files(root: Path, part: Part) -> dict[str, PlainFile]:
    """The plain files that are taken below a folder; not what git keeps there, and nothing that a link leads to.

    Nothing else is looked at: the user's folder may be any.
    """
    chosen: dict[str, PlainFile] = {}
    for path in (path for entry in part.take for path in root.glob(entry)):
        for file in _below(path) if path.is_dir() and not path.is_symlink() else (path,):
            if file.name != ".git" and stat.S_ISREG(file.lstat().st_mode):
                name = file.relative_to(root).as_posix()
                chosen[name] = PlainFile(root, name)
    return chosen


def _below(folder: Path) -> Iterator[Path]:
    """Every file below a folder, but for those below a `.git`; links are not followed."""
    for at, folders, names in trees.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        yield from (Path(at, name) for name in names)


def _sha256(files: Files) -> str:
    hashes = {name: hashlib.sha256(file.read()).hexdigest() for name, file in files.items()}
    return hashlib.sha256(listing(hashes).encode()).hexdigest()


def _url(server: str, part: Part) -> str:
    """The address of a part's repository on a server. Raises UsageError for what is no address of git's."""
    try:
        return git_address.repository(f"{server.rstrip('/')}/{part.repository}")
    except ValueError as error:
        raise UsageError(
            f"{redacted(server)} is not the address of a server of git repositories: {error}",
            next_step=f"{command('image', ETC, pyg_lib='https://HOST')}, or {setting(pyg_lib='./pyg-lib')}",
        ) from error


def _fetch(part: Part, url: str, folder: Path, environment: Mapping[str, str]) -> Files:
    """Write what is taken of a part, of one commit and without history, as git's objects have it.

    Raises NetworkError, IntegrityError for a link that leads out of it.
    """
    source = GitSource(url, environment, setting(pyg_lib="./pyg-lib"))
    write_part(source, part.commit, folder, part.take)
    for _ in beneath.files(folder):  # raises
        pass
    return _files(folder, part)


def _commit(root: Path, environment: Mapping[str, str]) -> str:
    """The commit that a folder of the user's is at; empty where it is no work tree of its own."""
    if not os.path.lexists(root / ".git"):
        return ""
    lines = _asked(root, ["rev-parse", "HEAD"], environment)
    return lines[0] if lines else ""


def _changed(root: Path, part: Part, environment: Mapping[str, str]) -> bool:
    """Return whether a work tree has other files than its commit where something is taken, or git does not say.

    Other repositories in it are looked at by themselves: git would go by their own settings there.
    """
    words = ["status", "--porcelain", "--ignored", "--untracked-files=all", "--ignore-submodules=all"]
    lines = _asked(root, words, environment, _without_filters(root, environment))
    return lines is None or any(part.takes(line[3:].strip('"')) for line in lines)


def _without_filters(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings by which the filters of a work tree, which are programs, do nothing."""
    names = "\n".join(_asked(root, ["config", "--list", "--name-only", "-z"], environment) or ()).split("\0")
    filters = {name.rpartition(".")[0] for name in names if name.startswith("filter.")}
    empty = {f"{each}.{field}": "" for each in filters for field in ("clean", "smudge", "process")}
    return empty | {f"{each}.required": "false" for each in filters}


def _asked(
    root: Path, words: Sequence[str], environment: Mapping[str, str], settings: Mapping[str, str] | None = None
) -> list[str] | None:
    """Ask git about a folder; None where it fails."""
    done, lines = git.run(*words, environment=environment, cwd=root, seconds=_MINUTE, settings=settings)
    return None if done.returncode else lines
