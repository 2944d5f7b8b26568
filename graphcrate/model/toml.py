"""TOML files that people write: a text becomes a value, or an error that names file, line and field."""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from graphcrate.model import codec
from graphcrate.model.command import command
from graphcrate.model.errors import RecipeError
from projectfiles.files import unreadable

Value = TypeVar("Value", bound=msgspec.Struct)
#: gives (path of a field, what is wrong with it)
Contradictions = Callable[[Value], Iterable[tuple[str, str]]]

_AT_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")
_AT_PATH = re.compile(r" - at `\$?([^`]*)`$")
_WORD = re.compile(r"[\w.\[\]<>=!~+-]+")  #: a package
_OTHER_QUOTES = {*"\u201c\u201d\u2018\u2019\u201e\xab\xbb\uff02\u300c\u300d"}
_FIELD = re.compile(r"field `([^`]+)`")


def load(path: Path, kind: type[Value], contradictions: Contradictions[Value], fields: str) -> Value:
    """Read a file. Errors (RecipeError) begin with its path and the line, and end with `fields`."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        step = f"{command('init')}    writes a recipe of what is in this folder"
        raise RecipeError(f"there is no file {path}", next_step=step) from error
    except (OSError, ValueError) as error:
        what, next_step = unreadable(path, error)
        raise RecipeError(what, next_step=next_step) from error
    return parse(text, str(path), kind, contradictions, fields)


def place(path: Path | None, field: str, value: str) -> str:
    """Return where a file has this value in a field of its own, `mine.toml:3: cuda: `; empty where it does not.

    It begins an error that is found after the file was read.
    """
    try:
        text = path.read_text(encoding="utf-8") if path else ""
        return f"{path}:{_line(text, field)}: {field}: " if tomllib.loads(text).get(field) == value else ""
    except (OSError, ValueError, RecursionError):  # changed since it was read
        return ""


def schema(kind: type[Value]) -> dict[str, Any]:
    """JSON schema of such a file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}


def parse(text: str, name: str, kind: type[Value], contradictions: Contradictions[Value], fields: str) -> Value:
    """Convert a TOML text; `name` stands before the line in errors."""

    def failure(line: int, what: str) -> RecipeError:
        return RecipeError(f"{name}:{line}: {what}", next_step=f"fix line {line}; {fields}")

    try:
        value: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _AT_LINE.search(str(error))
        line = int(match[1]) if match and match[1] else text.count("\n") + 1
        raise failure(line, _AT_LINE.sub("", str(error)) + _other_quotes(text, line)) from error
    except (ValueError, RecursionError) as error:
        raise failure(1, _unreadable(error)) from error
    try:
        made = codec.convert(value, kind)
    except msgspec.ValidationError as error:
        path, what = _explain(str(error))
        what += _hint(path, what, kind, value)
        raise failure(_line(text, path), f"{path}: {what}" if path else what) from error
    for path, what in contradictions(made):
        raise failure(_line(text, path), f"{path}: {what}")
    return made


def _other_quotes(text: str, line: int) -> str:
    """Say which quotation marks of a line TOML has no use for: office programs and Chinese keyboards write them."""
    marks = sorted({*"\n".join(text.splitlines()[line - 1 : line])} & _OTHER_QUOTES)
    return f': it has {" and ".join(marks)}, and TOML takes " alone' if marks else ""


def _unreadable(error: Exception) -> str:
    """Find the fault that Python's reader does not report as an error of the file, and knows no line of."""
    if isinstance(error, RecursionError):
        return "lists or tables are within each other deeper than a recipe ever needs"
    return str(error)  # a number of more than 4300 digits


def _explain(what: str) -> tuple[str, str]:
    """Path of the field that msgspec speaks of, and what it says."""
    at = _AT_PATH.search(what)
    path, what = (at[1].lstrip(".") if at else ""), _AT_PATH.sub("", what)
    if field := _FIELD.search(what):
        path = f"{path}.{field[1]}" if path else field[1]
    if what.startswith(("Expected `str`, got `float`", "Expected `str`, got `int`")):
        what += ": versions are written in quotes, since the number 3.10 is 3.1"
    return path, what


def _hint(path: str, what: str, kind: type[msgspec.Struct], document: dict[str, Any]) -> str:
    """Guess what the user meant: a field of a similar name, a list of one."""
    if match := _FIELD.search(what):
        names = {name for part in _objects(kind) for name in part.get("properties", ())}
        near = difflib.get_close_matches(match[1], sorted(names), n=1)
        return f": did you mean {near[0]}?" if near else ""
    value = document.get(path)
    if isinstance(value, str) and what.startswith("Expected `array`, got `str`"):
        words = value.split() if all(map(_WORD.fullmatch, value.split())) else [value]
        return f": write {path} = [{', '.join(json.dumps(word, ensure_ascii=False) for word in words)}]"
    return ""


def _objects(kind: type[msgspec.Struct]) -> list[dict[str, Any]]:
    """Objects of the schema of a file."""
    described = msgspec.json.schema(kind)
    return list(described.get("$defs", {}).values())


def _line(text: str, path: str) -> int:
    """The line of the field (a path as msgspec writes it: `variant[0].python`) or of the nearest table around it."""
    lines = text.splitlines()
    line, table = 0, ""
    for name, index in re.findall(r"([^.\[\]]+)(?:\[(\d+)\])?", path):
        table = f"{table}.{name}" if table else name
        header = re.compile(rf"\s*\[\[?\s*{re.escape(table)}\s*\]")
        if headers := [number for number, text in enumerate(lines[line:], line + 1) if header.match(text)]:
            line = headers[min(int(index or 0), len(headers) - 1)]
            continue
        for number, text in enumerate(lines[line:], line + 1):
            if re.match(rf"\s*{re.escape(name)}\s*=", text):
                return number
            if re.match(r"\s*\[", text):
                break
    return max(line, 1)
