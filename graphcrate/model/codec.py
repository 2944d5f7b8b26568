"""From JSON and msgpack to values, safe from any thread; and what is wrong with what cannot be read, and where.

msgspec resolves the annotations of a type when it first reads one, and crashes (SIGSEGV, seen with 0.18 to 0.22) where
several threads are the first. So one thread at a time does.
"""

import ast
import codecs
import functools
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from graphcrate.model import values
from graphcrate.model.errors import UNREADABLE
from graphcrate.model.words import printable

Value = TypeVar("Value")
_FIRST = threading.Lock()
_json: Callable[[Any], msgspec.json.Decoder[Any]] = functools.cache(msgspec.json.Decoder)
_msgpack: Callable[[Any], msgspec.msgpack.Decoder[Any]] = functools.cache(msgspec.msgpack.Decoder)


def decode(data: bytes | str, kind: type[Value]) -> Value:
    """Read JSON. Raises one of `errors.UNREADABLE`."""
    with _FIRST:
        decoder: msgspec.json.Decoder[Value] = _json(kind)
    return decoder.decode(data)


def unpack(data: bytes, kind: type[Value]) -> Value:
    """Read msgpack. Raises one of `errors.UNREADABLE`."""
    with _FIRST:
        decoder: msgspec.msgpack.Decoder[Value] = _msgpack(kind)
    return decoder.decode(data)


def convert(value: Any, kind: type[Value]) -> Value:  # noqa: ANN401 (any value of a parser)
    """Make a value of what a parser returned. Raises msgspec.ValidationError."""
    with _FIRST:
        return msgspec.convert(value, kind)


_AT_BYTE = re.compile(r"^(?:JSON is malformed: )?(.*) \(byte (\d+)\)$", re.S)
_AT_PATH = re.compile(r"^(.*?)(?: - at `(key in )?(\$[^`]*)`)?$", re.S)
_PATTERN = re.compile(r"Expected `str` matching regex (.*)$", re.S)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_MARKS = {
    codecs.BOM_UTF8: "a byte order mark (save it as UTF-8 without one)",
    codecs.BOM_UTF16_LE: "text in UTF-16, and not in UTF-8",
    codecs.BOM_UTF16_BE: "text in UTF-16, and not in UTF-8",
}
_LONGEST = 80  #: characters of a value that are shown


def explained(error: Exception, data: bytes | str) -> str:
    """Explain a document's fault, after its place: `line 3, column 5: …` or `$.packages[3].file.sha256: …`.

    `error`: one of `errors.UNREADABLE` that decoding `data` raised.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if not raw.strip():
        return "it is empty"
    if isinstance(error, RecursionError):
        return "brackets within brackets, deeper than any document has"
    if isinstance(error, msgspec.ValidationError):
        return _misfit(str(error), raw)
    for mark, meaning in _MARKS.items():
        if raw.startswith(mark):
            return f"line 1, column 1: {meaning}"
    if isinstance(error, UnicodeDecodeError):
        return f"{_place(raw, _first_foreign(raw))}: bytes that are not UTF-8"
    match = _AT_BYTE.match(str(error))
    if match is None:
        return f"{_place(raw, len(raw.rstrip()))}: it ends in the middle: {str(error).lower()}"
    what, byte = match[1], int(match[2])
    if what == "trailing characters":
        byte -= 1  # msgspec has read the first of them
    at = f" {raw[byte : byte + 1]!r}" if what == "invalid character" else ""
    return f"{_place(raw, byte)}: no JSON: {what}{at.replace(' b', ' ', 1)}"


def conflict(data: bytes) -> int | None:
    """The line where a git merge conflict begins; None where there is no such mark."""
    match = re.search(rb"^<<<<<<<(?: |$)", data, re.M)
    return data.count(b"\n", 0, match.start()) + 1 if match else None


def _place(raw: bytes, byte: int) -> str:
    """Line and column of a byte, counted from one."""
    before = raw[:byte]
    begin = before.rfind(b"\n") + 1
    line, column = before.count(b"\n") + 1, len(before[begin:].decode("utf-8", "replace")) + 1
    return f"line {line}, column {column}"


def _first_foreign(raw: bytes) -> int:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _misfit(text: str, raw: bytes) -> str:
    """A value that is not of its field's type: which, what it is, and what was expected, in words."""
    match = _AT_PATH.match(text)
    what, path = (match[1], match[3] or "$") if match else (text, "$")
    if pattern := _PATTERN.match(what):
        what = f"expected {values.expected(ast.literal_eval(pattern[1]))}"
    if path == "$.format" and "enum" in what:
        return f"{path}: another version of graphcrate wrote it (format {_value(raw, path)})"
    value = _value(raw, path)
    # msgspec quotes names of alternatives as they are in the document, of any length
    return printable(f"{path}: {what[:1].lower()}{what[1 : 3 * _LONGEST]}" + (f"; it is {value}" if value else ""))


def _value(raw: bytes, path: str) -> str:
    """The value at a path as the document has it, shortened; empty for a whole object or where it cannot be found."""
    if "[...]" in path:  # of a mapping, whose keys msgspec does not say
        return ""
    steps = _STEP.findall(path)
    try:
        value = msgspec.json.decode(raw)
        for name, index in steps:
            value = value[name] if name else value[int(index)]
    except (*UNREADABLE, LookupError, TypeError):
        return ""
    if not isinstance(value, str | int | float | None):
        return ""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
