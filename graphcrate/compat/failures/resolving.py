"""Tell apart why uv could not look for a solution. Reads `data/uv_ends.toml`; pure."""

import functools
import re

import msgspec

from graphcrate.compat.facts.facts import table
from graphcrate.model.command import filled
from graphcrate.model.errors import GraphcrateError, class_of
from patienthttp.errors import FetchFailure, NoAnswer, host_of, server_of


class ResolveFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The end of uv without a solution: its exit code and lines. `index`: the address of the one that is set."""

    exit_code: int
    lines: tuple[str, ...]
    index: str = ""

    @property
    def text(self) -> str:
        """Its lines without empty ones."""
        return "\n".join(line for line in self.lines if line.strip())


class UvEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table; its first lines say what each field is."""

    uv: int
    says: str
    ends: int
    source: str
    what: str = ""
    kind: str = ""
    cause: str = ""
    next_step: str = ""


ends = functools.cache(functools.partial(table, "uv_ends", tuple[UvEnd, ...], "end"))


def unsearched(failure: ResolveFailure) -> GraphcrateError | None:
    """Return the error of a search that uv could not make; None where it looked and found nothing."""
    for end in ends():
        if end.uv in (0, failure.exit_code) and (match := re.search(end.says, failure.text)):
            groups = match.groupdict()
            if "address" not in groups or server_of(groups["address"]) == server_of(failure.index):
                return _error(end, failure, groups.get("status"))
    return None


def _error(end: UvEnd, failure: ResolveFailure, status: str | None) -> GraphcrateError:
    what, cause, next_step = end.what or "uv cannot read the package index", end.cause, end.next_step
    if end.kind:
        number = int(status) if status else None
        known = FetchFailure(kind=NoAnswer[end.kind], host=host_of(failure.index), status=number)
        what += f": {known.why}"
        cause, next_step = cause or known.cause, next_step or known.next_step
    return class_of(end.ends)(f"{what}\n{failure.text}", cause=cause, next_step=filled(next_step))
