"""Values that readers of all formats return: lines of pip or conda, locked releases, and what is not taken."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

#: markers of a machine by their names (PEP 508), as `packaging` evaluates them
Environment = Mapping[str, str]


class Line(NamedTuple):
    """A need: a line as requirements.txt has it (options too), or a match specification of conda's.

    `where`: "environment.yml:7"; the file alone where no line is known. `release`: of a lock that does not say which of
    its packages were asked for, so that all of them are needs.
    """

    where: str
    text: str
    of: Literal["pip", "conda"] = "pip"
    release: "Release | None" = None


class Release(NamedTuple):
    """A version that a lock has. `marker`: for which machines; empty: for all. `hashes`: sha256, in hex."""

    where: str
    name: str
    version: str
    hashes: tuple[str, ...] = ()
    marker: str = ""


class Note(NamedTuple):
    """A part that is not taken. `names` are its parts, `more` what could be asked for in its place.

    "variables", "key": of environment.yml; "build": what builds the project, "features", "itself": of pixi; "systems",
    "extras": packages of a pylock.toml for other machines, or of extras and groups; "address": without a version.
    """

    kind: Literal["variables", "key", "build", "features", "itself", "systems", "extras", "address"]
    where: str
    names: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass
class Needs:
    """All that a file says of what a project needs, in the file's order.

    `locked`: the versions that a lock allows. `pythons`: specifiers. `channels`: conda's, in their order.
    """

    lines: list[Line] = field(default_factory=list)
    locked: list[Release] = field(default_factory=list)
    pythons: list[Line] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def git_line(address: str, revision: str = "", folder: object = "") -> str:
    """Return a git address as pip has it; `folder`: of the project in its repository, empty for its top."""
    return f"git+{address}" + (f"@{revision}" if revision else "") + (f"#subdirectory={folder}" if folder else "")


def index_line(address: object) -> str:
    """Return pip's line of an index."""
    return f"--extra-index-url '{str(address).replace(chr(39), '')}'"
