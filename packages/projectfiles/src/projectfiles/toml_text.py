"""TOML as values of a form, and where in a file its keys and texts stand."""

import re
import threading
import tomllib
from collections.abc import Callable
from typing import TypeVar

import msgspec

from projectfiles.errors import ProjectFileError
from projectfiles.words import printable

#: Gives file and line of a package of a lock by its name.
PlaceOf = Callable[[str], str]
#: msgspec crashes where several threads are the first to read a type (seen with 0.18 to 0.22)
_FIRST = threading.Lock()
_Kind = TypeVar("_Kind")


def read_toml(text: str, name: str, kind: type[_Kind]) -> _Kind:
    """Read TOML as a value of this form. Raises ProjectFileError."""
    try:
        with _FIRST:
            return msgspec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        what = f"{name} is not TOML: {printable(str(error))}"
        raise ProjectFileError(what, kind="syntax", where=name, next_step="fix that line") from error
    except msgspec.ValidationError as error:
        raise ProjectFileError(
            f"{name}: {printable(str(error)[:300])}",
            kind="form",
            where=name,
            next_step="fix that field, or write the packages to a file",
        ) from error
    except (ValueError, RecursionError) as error:  # a number of 5000 digits, tables without end
        raise ProjectFileError(
            f"{name} cannot be read: {printable(str(error)[:300])}",
            kind="syntax",
            where=name,
            next_step="write the packages to a file",
        ) from error


def key_place(text: str, name: str, key: str) -> str:
    """Return the file and line of a table's key."""
    match = re.search(rf"""^\s*["']?{re.escape(key)}["']?\s*=""", text, re.MULTILINE)
    return f"{name}:{text.count(chr(10), 0, match.end()) + 1}" if match else name


def place_of(text: str, name: str, line: str) -> str:
    """Return the file and line of a text."""
    at = text.find(line) if line else -1
    return f"{name}:{text.count(chr(10), 0, at) + 1}" if at >= 0 else name


def package_places(text: str, name: str) -> PlaceOf:
    """Return what finds file and line of a package of a lock by its name."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r'name = "([^"]+)"', line):
            lines.setdefault(match[1], number)
    return lambda package: f"{name}:{lines[package]}" if package in lines else name
