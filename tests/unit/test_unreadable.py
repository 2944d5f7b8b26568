"""Documents that others wrote: whatever stands in them, decoding them fails in a way that is caught."""

import ast
from pathlib import Path

import msgspec
import pytest

from graphcrate.model.errors import UNREADABLE

PACKAGE = Path(__file__).resolve().parent.parent.parent / "graphcrate"
DEEP = b'{"more":' + b"[" * 100_000


class Document(msgspec.Struct):
    name: str = ""


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"name":1}', b'{"name":"\xff"}', DEEP])
def test_no_document_escapes(data):
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(data, type=Document)


def caught(tree):
    """Names in `except …` and `suppress(…)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            yield from ast.walk(node.type)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            yield from (part for argument in node.args for part in ast.walk(argument))


def test_nobody_catches_a_part_of_it():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in caught(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "DecodeError"
    ]
    assert found == [], "catch graphcrate.model.unreadable.UNREADABLE"
