"""Bytecode, RECORD and launchers: the same in another form, or not."""

import importlib.util

import pytest

from graphcrate.artifacts.tree.contents import is_kept, same

HEADER = importlib.util.MAGIC_NUMBER + b"\1\0\0\0source!!"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (HEADER + b"N", HEADER + b"\xce", True),  # other reference marks
        (HEADER + b"N", HEADER[:-1] + b"?N", False),  # of another source
        (HEADER + b"N", b"\x55\r\r\n" + HEADER[4:] + b"N", False),  # by another Python
        (HEADER, HEADER, False),  # no code
        (b"", b"", False),
    ],
)
def test_bytecode_of_one_source_by_one_python(one, other, expected):
    assert same("bytecode", one, other) is expected


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
