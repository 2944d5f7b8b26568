"""A package as a user writes it, in a list or on a command line."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from graphcrate.compat.facts.packages import counts
from graphcrate.compat.requirements import requirement_files
from graphcrate.compat.requirements.own_packages import GIT, git_address
from graphcrate.compat.requirements.requirement_lines import without_build
from graphcrate.compat.requirements.within import Within, not_a_name
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Additions, Expected
from graphcrate.model.words import printable
from patienthttp.errors import redacted

_NAMES = "lightning, 'dgl==2.1'"


def read_packages(texts: Iterable[str], folder: Path, where: str, within: Within | None = None) -> Additions:
    """Packages as they were typed. Raises UsageError."""
    packages, expected = list[str](), list[Expected]()
    for text in texts:
        plain, builds = without_build(text, where)
        packages.append(read_package(plain, folder, where, within))
        expected += builds
    return Additions(packages=tuple(dict.fromkeys(packages)), expected=tuple(expected))


def read_requirements(path: Path, within: Within | None = None) -> Additions:
    """Read a file's additions, in any format of `requirement_files`. Raises UsageError with file and line.

    `within`: where all that it names has to be.
    """
    return requirement_files.read(path, read_package, within)


def read_package(text: str, folder: Path, where: str, within: Within | None = None) -> str:
    """A package as `Additions` has it. Raises UsageError."""
    address = re.sub(rf"^[A-Za-z0-9._-]+\s*@\s*(?={re.escape(GIT)})", "", text)
    is_path = text.startswith((".", "/", "~", "file:")) or (text.endswith(".whl") and "@" not in text)
    names_alone = within is not None and within.names_alone
    if names_alone and is_path:
        raise not_a_name(f"{where}: {text[:200]!r} is not taken")
    if names_alone and (url := re.search(r"[A-Za-z+]+://\S*", text)):
        raise not_a_name(f"{where}: {redacted(url[0])[:200]} is not taken")
    if address.startswith(GIT):
        return _git_package(address, where, within)
    if match := re.match(rf"([A-Za-z0-9._-]+)\s*\[([^\]]*)\]\s*@\s*({re.escape(GIT)})", text):
        raise UsageError(
            f"{where}: the extras of {match[1]}, {printable(match[2])}, are not read of a repository",
            next_step=f"{match[1]} @ {text[match.start(3) :]} without them, and what they need beside it",
        )
    if is_path:
        return _local(text, folder, where, within)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        if match := re.fullmatch(r"([\w.-]+(?:\[[^]]*\])?)\s*=\s*(\d[\w.+!*-]*)", text):
            raise UsageError(
                f"{where}: {text!r} has one = as conda writes it", next_step=f"write {match[1]}=={match[2]}"
            ) from error
        raise UsageError(
            f"{where}: {text!r} is not a package: {str(error).splitlines()[0]}",
            next_step=_NAMES if names_alone else f"{_NAMES}, './mypkg', './file.whl' or 'git+https://HOST/PATH@COMMIT'",
        ) from error
    if counts(requirement, "3.11") is None:
        raise UsageError(
            f"{where}: the marker of {requirement.name} cannot be evaluated: {requirement.marker}",
            cause="`extras` and `dependency_groups` are of lock files (pylock.toml) alone, and versions compare with "
            "versions.",
            next_step=f"{requirement.name} without it, or with python_version, sys_platform or platform_machine",
        )
    if requirement.url:
        raise UsageError(
            f"{where}: {requirement.name} is given by an address, which may have another file tomorrow",
            next_step="download it and give the wheel: ./file.whl",
        )
    return text


def _git_package(text: str, where: str, within: Within | None) -> str:
    """A git address, written again from its parts. Raises UsageError, which repeats nothing that could be pasted."""
    try:
        address = git_address(text)
    except ValueError as error:
        with_folder = "git+https://HOST/PATH@COMMIT#subdirectory=FOLDER"
        usual = "git+https://HOST/PATH@COMMIT, git+ssh://git@HOST/PATH, git+file:///PATH"
        raise UsageError(
            f"{where}: {printable(text[:200])!r} is not an address that git is given: {error}",
            next_step=with_folder if "#" in text else usual,
        ) from error
    if address.folder and within:  # a repository may be made of another's objects, wherever those are
        raise within.refused(f"{where}: {address.url} is a repository of this machine, which is not")
    return f"{GIT}{address.written}"


def _local(text: str, folder: Path, where: str, within: Within | None) -> str:
    """The wheel or the folder of a project that a path names. Raises UsageError."""
    path = folder / text.removeprefix("file://")
    try:
        path = folder / Path(text.removeprefix("file://")).expanduser()
        if within:
            within.check(path, f"{where}: {text} is not")
        is_wheel = path.suffix == ".whl" and path.is_file()
        if is_wheel or (path / "pyproject.toml").is_file() or (path / "setup.py").is_file():
            return str(path.resolve())
        if not path.exists():
            kind = "file" if path.suffix == ".whl" else "folder"
            raise UsageError(f"{where}: there is no {kind} {text}", next_step=f"ls {shlex.quote(str(path.parent))}")
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL in it, no such user or a circle of links
        raise UsageError(
            f"{where}: {text!r} is not the path of a file here: {error}", next_step="./folder or ./file.whl"
        ) from error
    raise UsageError(
        f"{where}: {text} is neither a wheel nor a folder with a pyproject.toml or a setup.py",
        next_step=f"ls {shlex.quote(str(path))}",
    )
