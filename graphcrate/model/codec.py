"""From JSON and msgpack to values, safe from any thread.

msgspec resolves the annotations of a type when it first reads one, and crashes (SIGSEGV, seen with 0.18 to 0.22) where
several threads are the first. So one thread at a time does.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

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


def convert(value: Any, kind: type[Value]) -> Value:  # noqa: ANN401 (whatever a parser made)
    """Make a value of what a parser returned. Raises msgspec.ValidationError."""
    with _FIRST:
        return msgspec.convert(value, kind)
