"""Records with their checksum behind them: one that was damaged reads as none."""

import hashlib
from pathlib import Path
from typing import TypeVar

from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE

_SEAL = b"\ngraphcrate sha256:"  #: between a record and its checksum
_Record = TypeVar("_Record")


def sealed(data: bytes) -> bytes:
    """Return a record with its checksum, for `kept` and `kept_bytes`."""
    return data + _SEAL + hashlib.sha256(data).hexdigest().encode()


def kept_bytes(path: Path) -> bytes | None:
    """Read what `sealed` made; None where it is missing or damaged. One without a checksum comes as it is."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    record, seal, checksum = data[: -len(_SEAL) - 64], data[-len(_SEAL) - 64 : -64], data[-64:]
    if seal != _SEAL:  # of an older version
        return data
    return record if hashlib.sha256(record).hexdigest().encode() == checksum else None


def kept(path: Path, kind: type[_Record]) -> _Record | None:
    """The value of a record in JSON; None where it is missing, damaged or of another version."""
    data = kept_bytes(path)
    try:
        return None if data is None else codec.decode(data, kind)
    except UNREADABLE:
        return None
