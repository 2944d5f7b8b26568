"""Parts that several formats have: hashes, indexes, repositories, markers of extras, the Python of a project.

Markers of what is always installed, or never, are written as those of Linux: other systems are not read for.
"""

import re
import urllib.parse
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from projectfiles.errors import ProjectFileError, unknown
from projectfiles.values import Line, Needs, Release, git_line, index_line

EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
ALWAYS = "sys_platform == 'linux'"
NEVER = "sys_platform == 'none'"


class LockedFile(msgspec.Struct, frozen=True):
    """A file of a lock. `hash`: "sha256:…", or by another algorithm."""

    hash: str = ""


class PinnedGit(NamedTuple):
    """A repository of a lock. `reference`: a branch or tag, as the project asks for it."""

    address: str
    reference: str
    commit: str
    folder: str


def at_commits(lines: Iterable[Line], gits: Iterable[PinnedGit]) -> list[Line]:
    """Return lines, those of repositories at the commits of a lock."""
    commits: dict[str, str] = {}
    for git in gits:
        for reference in {git.reference, ""} if git.reference == "HEAD" else {git.reference}:
            commits[git_line(git.address, reference, git.folder)] = git_line(git.address, git.commit, git.folder)
    made = list[Line]()
    for line in lines:
        begin, git_plus, address = line.text.partition("git+")
        asked, semicolon, marker = f"{git_plus}{address}".partition(" ;")
        made.append(line._replace(text=f"{begin}{commits.get(asked, asked)}{semicolon}{marker}"))
    return made


def merged(locked: Iterable[Release]) -> Iterator[Release]:
    """Yield each version once: locks repeat it for its extras (PDM) and for each index that has it."""
    of: dict[tuple[str, str], list[Release]] = {}
    for release in locked:
        of.setdefault((release.name, release.version), []).append(release)
    for (name, version), same in of.items():
        hashes = dict.fromkeys(digest for release in same for digest in release.hashes)
        is_bound = all(release.marker for release in same)
        markers = dict.fromkeys(f"({release.marker})" for release in same) if len(same) > 1 else [same[0].marker]
        yield Release(same[0].where, name, version, (*hashes,), " or ".join(markers) if is_bound else "")


def hashes_of(files: Iterable[LockedFile | None]) -> tuple[str, ...]:
    """Return the sha256 of those that have one, in hex."""
    return tuple(file.hash.removeprefix("sha256:") for file in files if file and file.hash.startswith("sha256:"))


def hash_options(hashes: Iterable[str]) -> str:
    """Return pip's options of these sha256, which are left out where they are none."""
    return "".join(f" --hash=sha256:{digest}" for digest in hashes if re.fullmatch("[0-9a-f]{64}", digest))


def index_lines(indexes: Iterable[tuple[str, str]]) -> list[Line]:
    """Return a line for each index, where it is named first."""
    first = dict[str, str]()
    for where, address in indexes:
        if address:
            first.setdefault(address, where)
    return [Line(where, index_line(address)) for address, where in first.items()]


def git_of(address: str, folder: str = "") -> str:
    """Return an address of uv's or PEP 751's (`https://…?rev=main&subdirectory=FOLDER#COMMIT`) as pip has it."""
    place, _, commit = address.partition("#")
    place, _, query = place.partition("?")
    folders = urllib.parse.parse_qs(query).get("subdirectory", [folder])
    return git_line(place, commit, folders[0])


def bracketed(extras: Iterable[str]) -> str:
    """Return extras as a requirement has them; empty for none."""
    named = ",".join(extras)
    return f"[{named}]" if named else ""


def chosen_marker(marker: str, asked: Iterable[str]) -> str | None:
    """Return a marker without its extra, for one that was asked for; None for another's."""
    names = {canonical(extra) for extra in asked}
    if any(canonical(extra) not in names for extra in EXTRA.findall(marker)):
        return None
    return EXTRA.sub(ALWAYS, marker)


def refuse_unknown(asked: Iterable[str], known: Collection[str], name: str) -> None:
    """Raise ProjectFileError for an extra or group that a file lacks."""
    for extra in map(canonical, asked):
        if extra not in known:
            raise unknown("extra or group", extra, name, known)


def expect_python(made: Needs, specifier: str, name: str) -> None:
    """Note the Python that a project is for. Raises ProjectFileError."""
    if not specifier:
        return
    try:
        SpecifierSet(specifier)
    except InvalidSpecifier as error:
        raise ProjectFileError(
            f"{name} says that it is for Python {specifier!r}, which is not a version",
            kind="version",
            where=name,
            text=specifier,
            cause="A version is like >=3.10 (PEP 440), in Poetry's table also like ^3.10.",
            next_step=f"correct it in {name}, or leave it out",
        ) from error
    made.pythons.append(Line(name, specifier))


def canonical(name: str) -> str:
    """Return a name as indexes normalise it (PEP 503)."""
    return str(canonicalize_name(name.strip()))
