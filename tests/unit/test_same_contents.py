"""Bytecode, RECORD and launchers: the same in another form, or not."""

import importlib.util
import marshal
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.trees.bytecode import same_code
from graphcrate.trees.contents import is_kept, same

SOURCE = '''
"""Text, ünïcode."""
import os as system
LONG, SMALL, REAL, IMAGINARY, NOTHING = 1 << 70, -3, 1.5, 2j, ...
NAMES = ("a", b"b", None, True, False, (1, (2, 3)), frozenset)
def outer(one, /, two=2, *rest, three, **more):
    """Say more than two hundred and fifty-six characters so that the text is a long one. """ + "x" * 300
    def inner():
        nonlocal two
        two += one
        return two in {"a", "b", "c"}
    try:
        return [inner() for _ in rest]
    except (ValueError, TypeError):
        return {key: lambda: value for key, value in more.items()}
class Thing:
    slot: int = 5
'''
MAGIC = importlib.util.MAGIC_NUMBER


def pyc(source=SOURCE, version=marshal.version, *, head=b"\1\0\0\0source!!", name="module.py", magic=MAGIC):
    return magic + head + marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0), version)


@pytest.mark.parametrize("version", [2, 3])
def test_equal_code_in_other_bytes(version):
    # Version 2 knows no references, 3 no short texts: never the bytes of version 4 and later.
    assert pyc(version=version) != pyc()
    assert same_code(pyc(version=version), pyc())
    assert same("bytecode", pyc(), pyc(version=version))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-3", "-4"),
        ("1 << 70", "1 << 71"),
        ("1.5", "1.25"),
        ("2j", "3j"),
        ("ünïcode", "unicode"),
        ('b"b"', 'b"c"'),
        ('b"b"', '"b"'),
        ("True", "1"),
        ("(2, 3)", "[2, 3][0]"),
        ('"c"}', '"d"}'),
        ("two=2", "two=3"),
        ("one, /", "one"),
        ("ValueError", "KeyError"),
        ("+= one", "-= one"),
        ("inner", "other"),
        ("class", "\nclass"),
    ],
)
def test_other_code_is_other_code(old, new):
    assert old in SOURCE
    changed = SOURCE.replace(old, new, 1) if old != "inner" else SOURCE.replace(old, new)
    assert not same_code(pyc(changed, 2), pyc())


def test_the_header_and_the_file_name_count():
    assert not same_code(pyc(head=b"\0\0\0\0timesize"), pyc())
    assert not same_code(pyc(name="other.py"), pyc())
    assert not same_code(pyc(magic=struct.pack("<H", 3413) + b"\r\n"), pyc())


def test_the_order_of_a_set_does_not_count():
    def with_set(*members):
        parts = b"".join(b"i" + struct.pack("<i", member) for member in members)
        return MAGIC + bytes(12) + b">" + struct.pack("<i", len(members)) + parts

    assert same_code(with_set(1, 2, 3), with_set(3, 1, 2))
    assert not same_code(with_set(1, 2, 3), with_set(1, 2, 4))
    assert not same_code(with_set(1, 2), with_set(1, 2, 2))


def code_object(numbers, objects, line, tables):
    """A code object by hand, all of whose objects are the same empty text."""
    return (
        b"c" + struct.pack(f"<{len(numbers)}i", *numbers) + b"z\0" * objects + struct.pack("<i", line) + b"z\0" * tables
    )


@pytest.mark.parametrize(("magic", "numbers", "tables"), [(3413, 6, 1), (3439, 6, 1), (3495, 5, 2), (3627, 5, 2)])
def test_code_objects_of_older_and_newer_pythons(magic, numbers, tables):
    head = struct.pack("<H", magic) + b"\r\n" + bytes(12)
    one = head + code_object(range(numbers), 8, 7, tables)
    # The same, each text but the first by reference.
    marked = code_object(range(numbers), 8, 7, tables).replace(b"z\0", b"r\0\0\0\0").replace(b"r\0\0\0\0", b"\xfa\0", 1)
    assert same_code(one, head + marked)
    assert not same_code(one, head + code_object(range(numbers), 8, 8, tables))
    assert not same_code(one, head + code_object([*range(1, numbers), 0], 8, 7, tables))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"N" * 2,
        b"?",
        b"r\0\0\0\0",
        b"\xa8\1\0\0\0r\0\0\0\0",  # a tuple that holds itself
        b"(\xff\xff\xff\x7f",
        b"(" + struct.pack("<i", -1),
        b"s\xff\xff\xff\xff",
        b"0",
        b")\1" * 100_000,
        b"u\1\0\0\0\xff",
        b"{N",
    ],
)
def test_malformed_bytecode_is_never_the_same(body):
    data = MAGIC + bytes(12) + body
    assert not same_code(data, data)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_can_be_compared(one, other):
    assert same_code(MAGIC + one, MAGIC + other) in (True, False)


OURS = b"""#!/opt/venv/bin/python
# -*- coding: utf-8 -*-
import re
import sys
from tqdm.cli import main
if __name__ == "__main__":
    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])
    sys.exit(main())
"""
UVS = b"""#!/opt/venv/bin/python
# -*- coding: utf-8 -*-
import sys
from tqdm.cli import main
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit(main())
"""
PIPS = b"""#!/opt/venv/bin/python
import sys
from tqdm.cli import main
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit(main())
"""


def test_launchers_are_the_same_in_other_words():
    assert same("launcher", OURS, UVS)
    assert same("launcher", UVS, PIPS)
    assert same("launcher", PIPS, OURS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"/opt/venv/bin/python", b"/usr/bin/python"),
        (b"tqdm.cli", b"tqdm.cl"),
        (b"import main", b"import main2"),
        (b"main())", b"main.run())"),
        (b"import sys\n", b"import sys\nimport os\n"),
        (b"    sys.exit", b"    print()\n    sys.exit"),
        (b"[:-4]", b"[:-4] + evil()"),
        (b"sys.exit(main())\n", b"sys.exit(main())\nmain()\n"),
    ],
)
def test_launchers_that_do_something_else_are_not(old, new):
    assert old in UVS
    assert not same("launcher", OURS, UVS.replace(old, new))


def test_scripts_that_are_no_launchers_are_compared_by_their_bytes():
    assert not same("launcher", b"#!/bin/sh\necho 1\n", b"#!/bin/sh\necho 2\n")
    assert not same("launcher", b"\xff", b"\xff")


def record(*rows):
    return "".join(f"{row}\n" for row in rows).encode()


ROWS = ("tqdm/__init__.py,sha256=abc,10", "tqdm-4.dist-info/METADATA,sha256=def,20", '"tqdm/a,b.py",sha256=ghi,30')


def test_records_of_two_installers():
    ours = record(
        *ROWS,
        "../../../bin/tqdm,sha256=one,211",
        "tqdm-4.dist-info/INSTALLER,sha256=one,11",
        "tqdm-4.dist-info/RECORD,,",
        "tqdm/__pycache__/__init__.cpython-311.pyc,,",
    )
    uvs = record(
        "../../../bin/tqdm,sha256=two,294",
        "../../../bin/pip3.11,sha256=two,294",
        *reversed(ROWS),
        "tqdm-4.dist-info/INSTALLER,sha256=two,2",
        "tqdm-4.dist-info/RECORD,,",
        "tqdm-4.dist-info/REQUESTED,sha256=two,0",
        "tqdm-4.dist-info/direct_url.json,sha256=two,75",
        "tqdm-4.dist-info/uv_cache.json,sha256=two,127",
    )
    assert same("record", ours, uvs)
    assert same("record", ours.replace(b"\n", b"\r\n"), uvs)
    for old, new in ((b"abc", b"abd"), (b",10", b",11"), (b"../bin/tqdm", b"../bin/tqdm2"), (b"METADATA", b"WHEEL")):
        assert old in uvs
        assert not same("record", ours, uvs.replace(old, new))
    assert not same("record", ours, uvs + b"tqdm/more.py,sha256=x,1\n")


@pytest.mark.parametrize("content", [b"\xff", b"a,b\n", b"a,b,c,d\n", b'"a,b,c\n'])
def test_a_malformed_record_is_never_the_same(content):
    assert not same("record", content, content)


@pytest.mark.parametrize(
    ("path", "size", "expected"),
    [
        ("/opt/venv/lib/python3.11/site-packages/a/__pycache__/b.cpython-311.pyc", 5, True),
        ("/opt/venv/lib/python3.11/site-packages/a/__pycache__/b.cpython-311.pyc", 1 << 25, False),
        ("opt/venv/lib/python3.11/site-packages/a-1.dist-info/RECORD", 5, True),
        ("/a/RECORD", 5, False),
        ("/opt/venv/bin/tqdm", 300, True),
        ("/opt/venv/bin/ninja", 300_000, False),
        ("/a/b.py", 5, False),
    ],
)
def test_what_readers_keep(path, size, expected):
    assert is_kept(path, size) is expected
