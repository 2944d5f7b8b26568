"""Instructions of a Dockerfile with their lines: its grammar with directives, lines that go on, and heredocs.

Source: the reference of Dockerfiles (docs.docker.com/reference/dockerfile), 2026-11.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from dockerread.errors import ReadError
from dockerread.shell import MOST_COMMANDS, lines_of

_DIRECTIVE = re.compile(r"#\s*([a-zA-Z]+)\s*=\s*(\S+)\s*")
_HEREDOC = re.compile(r"<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_.]*)\2")
_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?:=((?:(?!\\\n)\S)*))?[ \t]*")
_WITH_HEREDOCS = ("RUN", "COPY", "ADD")
_WITH_FLAGS = (*_WITH_HEREDOCS, "FROM", "HEALTHCHECK")
KEYWORDS = frozenset(
    {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"}
    | {"ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
)


class Instruction(NamedTuple):
    """An instruction. `text`: behind keyword and flags, with its line ends escaped as a shell has them."""

    line: int
    end: int
    keyword: str
    text: str
    flags: tuple[tuple[str, str], ...] = ()
    heredocs: tuple[tuple[int, str], ...] = ()  #: (first line, body)

    @property
    def flat(self) -> str:
        """The text in one line."""
        return self.text.replace("\\\n", " ").strip()

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words of the JSON form; None where it has the other one."""
        if not self.flat.startswith("["):
            return None
        try:
            words = json.loads(self.flat)
        except (ValueError, RecursionError):
            return None
        return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def instructions(text: str, name: str) -> list[Instruction]:
    """Return the instructions. Raises ReadError for a line that none begins."""
    parsed = list[Instruction]()
    for instruction in _instructions(lines_of(text)):
        if instruction.keyword not in KEYWORDS:
            keyword, line = instruction.keyword[:40], instruction.line
            what = f"{name}:{line}: {keyword!r} is not an instruction of a Dockerfile"
            raise ReadError(what, kind="instruction", file=name, line=line, text=keyword)
        parsed.append(instruction)
        if len(parsed) > MOST_COMMANDS:
            raise ReadError(f"{name} has more than {MOST_COMMANDS} instructions", kind="length", file=name)
    return parsed


def _instructions(lines: list[str]) -> Iterator[Instruction]:
    at, escape = 0, "\\"
    while at < len(lines) and (directive := _DIRECTIVE.fullmatch(lines[at].strip())):
        escape = directive[2] if directive[1].lower() == "escape" and directive[2] in ("\\", "`") else escape
        at += 1
    while at < len(lines):
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        first, parts = at, list[str]()
        while at < len(lines):
            line = lines[at]
            at += 1
            if parts and (not line.strip() or line.lstrip().startswith("#")):
                parts.append("")  # it is nothing, and the instruction goes on
                continue
            goes_on = line.rstrip().endswith(escape)
            parts.append(line.rstrip()[:-1] if goes_on else line)
            if not goes_on:
                break
        keyword, _, rest = parts[0].strip().partition(" ")
        keyword, rest = (keyword.split("\t", 1)[0], parts[0].strip()[len(keyword.split("\t", 1)[0]) :])
        text = "\\\n".join([rest, *parts[1:]])
        flags, text = _flags(text) if keyword.upper() in _WITH_FLAGS else ((), text)
        heredocs = list[tuple[int, str]]()
        end = at
        for match in _HEREDOC.finditer(text) if keyword.upper() in _WITH_HEREDOCS else ():
            begin, body = at, list[str]()
            while at < len(lines):
                line = lines[at].lstrip("\t") if match[1] else lines[at]
                at += 1
                if line == match[3]:
                    break
                body.append(line)
            heredocs.append((begin + 1, "\n".join(body)))
            end = at
        yield Instruction(first + 1, end, keyword.upper(), text, flags, tuple(heredocs))


def _flags(text: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Split flags from the text behind them; the lines that they take stay in it."""
    flags, passed = list[tuple[str, str]](), ""
    while True:
        rest = text.lstrip(" \t")
        if rest.startswith("\\\n"):
            passed, text = passed + "\\\n", rest[2:]
            continue
        match = _FLAG.match(rest)
        if not match:
            return tuple(flags), passed + rest
        flags.append((match[1], match[2] or ""))
        text = rest[match.end() :]
