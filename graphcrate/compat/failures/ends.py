"""Tell apart why a program that fetches (uv, git) ended without a result. Reads `data/program_ends.toml`; pure."""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.command import Setting, filled, for_shell
from graphcrate.model.errors import GraphcrateError, class_of
from graphcrate.model.words import with_mark
from patienthttp.errors import FetchFailure, NoAnswer, host_of, redacted, server_of

Program = Literal["uv", "git"]
#: the beginning of a message; a row has its own where another says more
_WHAT = {"uv": "uv cannot read the package index", "git": "git cannot fetch {address}"}


class ProgramFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a program that was to fetch from `address`: its exit code and lines."""

    program: Program
    exit_code: int
    lines: tuple[str, ...]
    address: str = ""

    @property
    def text(self) -> str:
        """Its lines without empty ones."""
        return "\n".join(line for line in self.lines if line.strip())

    @property
    def shown(self) -> str:
        """The address without a password."""
        return redacted(self.address) if "://" in self.address else self.address


class ProgramEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table; its first lines say what each field is."""

    says: str
    ends: int
    source: str
    program: Program | Literal[""] = ""
    exit: int = 0
    what: str = ""
    kind: str = ""
    cause: str = ""
    next_step: str = ""


ends = table_reader("program_ends", tuple[ProgramEnd, ...], "end")


def fitting(failure: ProgramFailure) -> Iterator[tuple[ProgramEnd, re.Match[str]]]:
    """Yield the rows that fit, with what each has found in the program's output."""
    for end in ends():
        if end.program not in ("", failure.program) or end.exit not in (0, failure.exit_code):
            continue
        match = re.search(end.says, failure.text)
        if match and server_of(match.groupdict().get("address", failure.address)) == server_of(failure.address):
            yield end, match


def errors(failure: ProgramFailure, folder: Setting | None = None) -> Iterator[GraphcrateError]:
    """Yield the errors that fit, the likeliest first; none for uv where it looked and found nothing.

    `folder`: what to type to give a folder in the place of the address.
    """
    for end, match in fitting(failure):
        yield _error(end, failure, match.groupdict().get("status"), str(folder or ""))


def _error(end: ProgramEnd, failure: ProgramFailure, status: str | None, folder: str) -> GraphcrateError:
    what, cause = end.what or _WHAT[failure.program], end.cause
    next_step = filled(end.next_step)
    if end.kind:
        number = int(status) if status else None
        known = FetchFailure(kind=NoAnswer[end.kind], host=host_of(failure.address), status=number)
        what += f": {known.why}"
        cause, next_step = cause or known.cause, next_step or known.next_step
    # Last: an address is a stranger's, and may have braces.
    what = what.replace("{program}", failure.program).replace("{address}", failure.shown)
    next_step = next_step.replace("{folder}", folder).replace("{address}", for_shell(failure.shown))
    printed = with_mark(failure.text.splitlines()[-4:]) if failure.program == "git" else f"\n{failure.text}"
    return class_of(end.ends)(f"{what}{printed}", cause=cause, next_step=next_step)
