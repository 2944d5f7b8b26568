"""A file as it was understood: what becomes of each line, and the recipe so far."""

import fnmatch
import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.requirements.within import Within
from graphcrate.model.words import printable
from projectfiles.git_address import GitAddress

#: "recipe": it has it; "stack": the stack has it already; "nothing": it means nothing here; "yours": left to the user
Fate = Literal["recipe", "stack", "nothing", "yours"]
FATES: dict[Fate, str] = {
    "recipe": "recipe",
    "stack": "the stack's already",
    "nothing": "means nothing here",
    "yours": "left to you",
}
#: of base images: what those set is not the recipe's
BASE_VARIABLES = {
    **dict.fromkeys(("PYTHONPATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH"), ""),
    "CPLUS_INCLUDE_PATH": "",
    "PATH": "$PATH",
    "HOME": "/root",
}
_LONGEST_TEXT = 200  #: characters of a row and a reason
_PASSWORD = re.compile(r"(?<=://)[^/\s@]*:[^/\s@]*(?=@)")
#: of a variable: of `A=value` anywhere, and of `ENV A value`
_SECRET = re.compile(r"((?:KEY|TOKEN|SECRET|PASSWORD|token|secret|password)[=])[^\s$]\S*")
_SECRET_OF_ENV = re.compile(r"^(ENV \S*(?:KEY|TOKEN|SECRET|PASSWORD)) .*")
_LONGEST_COMMAND = 400  #: of what patterns are compared with
_WILDCARD = re.compile(r"[*?[]")


class CommandRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of a kind of commands: a reader takes it, or its fate is always the same."""

    patterns: tuple[str, ...]
    reader: str = ""
    fate: Fate = "recipe"
    why: str = ""


class _Instruction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    fate: Fate
    why: str


class _Variable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    patterns: tuple[str, ...]
    fate: Fate
    why: str


class _Base(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reads: str
    pyg: bool = False
    why: str = ""
    folder: str = "/"  #: its WORKDIR


class _Kinds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`data/adopt.toml`, which says what each part means."""

    commands: tuple[CommandRow, ...] = msgspec.field(name="command")
    instructions: tuple[_Instruction, ...] = msgspec.field(name="instruction")
    variables: tuple[_Variable, ...] = msgspec.field(name="variable")
    bases: tuple[_Base, ...] = msgspec.field(name="base")
    apt: dict[str, str]


kinds = table_reader("adopt", _Kinds)


class Row(NamedTuple):
    """A command or an instruction with its lines, what becomes of it, and why or as what."""

    line: int
    end: int
    text: str
    fate: Fate
    what: str = ""

    @property
    def lines(self) -> str:
        """Its lines, for people."""
        return str(self.line) if self.end <= self.line else f"{self.line}-{self.end}"


class Item(NamedTuple):
    """A value of the recipe and the line that it came from."""

    value: str
    line: int


@dataclass
class StackSigns:
    """Signs of the stack in a base image and torch's lines; empty: none. Later lines go before."""

    torch: str = ""
    least: str = ""  #: the lowest torch that a line allows
    cuda: str = ""
    pyg: str = ""
    python: str = ""
    has_pyg: bool = False
    has_glt: bool = False
    bases: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    compilers: list[int] = field(default_factory=list)  #: lines that bring CUDA's compiler into the image


@dataclass
class Clone:
    """A repository that was cloned: its address with a commit, and the row that is known when it is installed."""

    address: GitAddress
    row: int
    used: bool = False


@dataclass
class Place:
    """Folders while a file is read: of the user's machine, and where commands would run in the image."""

    context: Path
    folder: str = "/"
    copied: dict[str, str] = field(default_factory=dict)  #: path in the image → path below the context
    cloned: dict[str, Clone] = field(default_factory=dict)
    is_host: bool = False  #: a script's: its paths are those of the context
    here: set[str] = field(default_factory=set)  #: folders that a page clones the project itself to


@dataclass
class Draft:
    """The recipe and the rows that are made while a file is read."""

    name: str
    context: Path
    trusts_paths: bool = False  #: the file may name what is outside of the context
    rows: list[Row] = field(default_factory=list)
    evidence: StackSigns = field(default_factory=StackSigns)
    pip: list[Item] = field(default_factory=list)
    requirements: list[Item] = field(default_factory=list)
    apt: list[Item] = field(default_factory=list)
    build_env: dict[str, Item] = field(default_factory=dict)
    env: dict[str, Item] = field(default_factory=dict)
    files: dict[str, Item] = field(default_factory=dict)
    directories: dict[str, Item] = field(default_factory=dict)
    labels: dict[str, Item] = field(default_factory=dict)
    smoke: list[Item] = field(default_factory=list)
    workdir: Item | None = None
    command: tuple[tuple[str, ...], int] = ((), 0)

    def add(self, line: int, end: int, text: str, fate: Fate, what: str = "") -> None:
        """Add a row; texts are anybody's, and shortened."""
        self.rows.append(Row(line, max(line, end), shortened(text), fate, shortened(what)))

    @property
    def within(self) -> Within | None:
        """The folder out of which nothing is read; None where the user trusts the file."""
        return None if self.trusts_paths else Within(self.context.resolve())


def shortened(text: str) -> str:
    """A text in one line that speaks to no terminal, of bounded length, without passwords of addresses."""
    flat = " ".join(text[: 8 * _LONGEST_TEXT].split())
    step = printable(_SECRET_OF_ENV.sub(r"\1 …", _SECRET.sub(r"\1…", _PASSWORD.sub("…", flat))))
    return step if len(step) <= _LONGEST_TEXT else f"{step[: _LONGEST_TEXT - 1]}…"


def row_of_command(words: tuple[str, ...]) -> CommandRow | None:
    """Return the row of a command's kind; None for one that is not known."""
    text = " ".join(words)[:_LONGEST_COMMAND]
    return next((row for pattern, row in _patterns(text.partition(" ")[0]) if _matches(pattern, text)), None)


@functools.lru_cache(1024)  # as many as a long file has programs
def _patterns(first: str) -> tuple[tuple[str, CommandRow], ...]:
    """Return the patterns, each with its row, that a command with this first word may match, in the table's order."""
    return tuple(
        (pattern, row)
        for row in kinds().commands
        for pattern in row.patterns
        if (head := pattern.partition(" ")[0]) == first or _WILDCARD.search(head)
    )


def row_of_variable(name: str) -> _Variable | None:
    """Return the row of a variable's kind; None for the recipe's."""
    return next((row for row in kinds().variables if any(_matches(step, name) for step in row.patterns)), None)


def row_of_base(reference: str) -> tuple[_Base, dict[str, str]] | None:
    """Return the row of a base image, and what its name says."""
    for row in kinds().bases:
        if match := re.fullmatch(row.reads, reference[:_LONGEST_TEXT]):
            return row, {name: value for name, value in match.groupdict().items() if value}
    return None


def _matches(pattern: str, text: str) -> bool:
    if pattern.endswith(" *") and pattern.count("*") == 1 and "[" not in pattern:
        return text.startswith(pattern[:-1])
    return fnmatch.fnmatchcase(text, pattern)
