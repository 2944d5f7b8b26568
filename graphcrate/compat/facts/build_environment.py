"""Variables that the user has sources compiled with: read, written again, refused and joined. Pure.

They are part of the lock, and so of what is published of an image.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from graphcrate.compat.facts import back_ends
from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.command import filled, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import Compilation, LockedPackage


class _Refused(msgspec.Struct, frozen=True, kw_only=True):
    names: str
    why: str
    instead: str


_refused = table_reader("build_environment", tuple[_Refused, ...], "refused")
_joined = table_reader("build_environment", tuple[str, ...], "joined")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: A word without `NAME=` is more of the value before it: CMAKE_ARGS=-DA=on -DB=off. What is quoted is one word.
_WORD = re.compile(
    r"""\s*(?P<name>[A-Za-z_]\w*)=(?P<value>(?:"[^"]*"|'[^']*'|\s+(?!\s|\Z|[A-Za-z_]\w*=)|[^\s"'])*)(?:\s+|\Z)""",
    re.ASCII,
)
_CUDA = re.compile(r"CUDA\w*(:BOOL)?=(on|1|true|yes)\b", re.IGNORECASE)


def read(texts: Sequence[str]) -> dict[str, str]:
    """The variables of `NAME=VALUE NAME='VALUE'` as typed. Raises UsageError for other texts and refused names."""
    made: dict[str, str] = {}
    usual = setting(build_env="CMAKE_ARGS=-DGGML_CUDA=on").both()
    for text in texts:
        given = _split(text)
        if given is None:
            closed = " with its quotation marks closed" if set(text) & set("\"'") else ""
            raise UsageError(f"--build-env: {text!r} is not NAME=VALUE{closed}", next_step=usual)
        made |= given
    for fault in filter(None, map(_fault, made.items())):
        raise UsageError(f"--build-env: {fault.what}", cause=fault.why, next_step=fault.instead or usual)
    return made


def _split(text: str) -> dict[str, str] | None:
    made, at = dict[str, str](), 0
    while match := _WORD.match(text, at):
        made[match["name"]], at = _unquoted(match["value"]), match.end()
    return made if made and at == len(text) else None


def _unquoted(value: str) -> str:
    quote = value[:1]
    inside = value[1:-1]
    return inside if len(value) > 1 and quote in "\"'" and value.endswith(quote) and quote not in inside else value


def written(variables: Mapping[str, str]) -> str:
    """The same as one text that `read` takes."""
    return " ".join(map(_written, variables.items()))


def _written(variable: tuple[str, str]) -> str:
    name, value = variable
    forms = [f"{name}={quote}{value}{quote}" for quote in ("", '"', "'")]
    return next((form for form in forms if _split(form) == {name: value}), forms[0])


def faults(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield faults of variables to compile with."""
    for fault in filter(None, map(_fault, variables.items())):
        yield "; ".join(filter(None, (f"{fault.what}: {fault.why}" if fault.why else fault.what, fault.instead)))


class _Fault(NamedTuple):
    what: str
    why: str = ""
    instead: str = ""


def _fault(variable: tuple[str, str]) -> _Fault | None:
    name, value = variable
    if not _NAME.fullmatch(name):
        return _Fault(f"{name!r} is not a name of a variable")
    if _CONTROL.search(value):
        return _Fault(f"{name} has a control character ({value!r})", "a variable is one line of text")
    if row := _row(name):
        return _Fault(f"{name} cannot be set", row.why, filled(row.instead))
    return None


def _row(name: str) -> _Refused | None:
    return next((row for row in _refused() if re.fullmatch(row.names, name, re.IGNORECASE)), None)


def joined(given: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """The variables of a build with those that the user asked for. Flags come after the build's own.

    What the build sets, or is refused, stays as it is: a lock may have been written by anybody.
    """
    made = dict(given)
    for name, value in asked.items():
        if name in _joined():
            made[name] = f"{given.get(name, '')} {value}".strip()
        elif not _row(name):
            made.setdefault(name, value)
    return made


def of_step(
    given: Mapping[str, str], isolated: Iterable[LockedPackage], compilation: Compilation, *, requirements: str
) -> dict[str, str]:
    """The variables of sources that one environment compiles: what is known of each, and what was asked for.

    `requirements`: the folder with the packages that they are built by.
    """
    asked = dict[str, str]()
    for package in isolated:
        asked |= asked_for(package, compilation, requirements)
    return joined(given, asked)


def asked_for(package: LockedPackage, compilation: Compilation, requirements: str) -> dict[str, str]:
    """The variables that are known of a source, and those that the user asked for.

    `requirements`: the folder with the packages that it is built by. The user's flags come after the known ones; other
    variables of the user take the place of known ones.
    """
    row, mine = back_ends.package(package.name), compilation.environment
    known = row.variables_where(requirements, cuda=compilation.toolkit is not None)
    flags = {name: f"{known[name]} {mine[name]}" for name in _joined() if name in known and name in mine}
    return known | mine | flags


def asks_for_cuda(variables: Mapping[str, str]) -> bool:
    """Return whether one of them turns CUDA on: CMAKE_ARGS=-DGGML_CUDA=on, MINE_WITH_CUDA=1."""
    return any(_CUDA.search(f"{name}={value}") for name, value in variables.items())
