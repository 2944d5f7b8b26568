"""Files go where PEP 427 and the installer library put them; RECORD tells of each."""

import csv
import io
import posixpath
import re

import pytest

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.inputs.wheels.install import INSTALLER, place
from graphcrate.model.errors import IntegrityError
from tests.unit.wheelmaker import make_wheel, record_row

PYTHON = "3.11"
PACKAGES = "/opt/venv/lib/python3.11/site-packages"
INFO = f"{PACKAGES}/pkg-1.0.dist-info"


def installed(folder, **options):
    """path → (content, mode) and RECORD's rows of an installed wheel."""
    with open_wheel(make_wheel(folder, **options)) as wheel:
        installation = place(wheel, PYTHON)
        contents = {one.path: wheel.read(one.member) if one.member else one.content for one in installation.files}
        files = {one.path: (contents[one.path], one.mode) for one in installation.files}
        compiled = [f"{PACKAGES}/pkg/__pycache__/__init__.cpython-311.pyc"]
        assert installation.record_path == f"{INFO}/RECORD"
        return files, list(csv.reader(io.StringIO(installation.record(compiled, PYTHON, {}).decode())))


def test_installed_wheel_files_have_path_and_mode(tmp_path):
    files, rows = installed(
        tmp_path,
        files={
            "pkg/__pycache__/__init__.cpython-311.pyc": b"from somewhere else",
            "pkg-1.0.data/headers/pkg.h": b"#define",
            "pkg-1.0.data/scripts/gui": b"#!pythonw\nimport pkg\n",
            "pkg-1.0.data/scripts/shell": b"#!/bin/sh\n",
            "pkg-1.0.data/data/etc/some": b"some",
            "pkg-1.0.data/purelib/pure.py": b"pure",
        },
        executable=("pkg-1.0.data/data/etc/some",),
        entry_points="[gui_scripts]\nwindow = pkg:app.start [extra]\n[other]\nx = nothing\n",
    )
    expected = {
        "/opt/venv/include/site/python3.11/pkg/pkg.h": (b"#define", 0o644),
        "/opt/venv/bin/gui": (b"#!/opt/venv/bin/python\nimport pkg\n", 0o755),
        "/opt/venv/etc/some": (b"some", 0o755),
        f"{PACKAGES}/pure.py": (b"pure", 0o644),
        "/opt/venv/bin/shell": (b"#!/bin/sh\n", 0o755),
        f"{INFO}/INSTALLER": (INSTALLER, 0o644),
    }
    assert {path: files[path] for path in expected} == expected
    assert re.match(rb"(?s)#!/opt/venv/bin/python\n.*sys.exit\(app.start\(\)\)", files["/opt/venv/bin/window"][0])
    assert not any("__pycache__" in path or path.endswith("/x") for path in files)

    assert rows == sorted(rows)
    listed = {path: ",".join([path, *row]) for path, *row in rows}
    for own in ("pkg-1.0.dist-info/RECORD", "pkg/__pycache__/__init__.cpython-311.pyc"):
        assert listed.pop(own) == f"{own},,"
    assert {"../../../bin/window", "../../../include/site/python3.11/pkg/pkg.h"} <= listed.keys()
    contents = {path: files[posixpath.normpath(f"{PACKAGES}/{path}")][0] for path in listed}
    assert listed == {path: record_row(path, content) for path, content in contents.items()}
    assert len(listed) == len(files)


def test_large_wheel_script_is_not_rewritten(tmp_path):
    program = b"\x7fELF" + bytes(17 << 20)
    with open_wheel(make_wheel(tmp_path, files={"pkg-1.0.data/scripts/ruff": program})) as wheel:
        placed = {one.path: one for one in place(wheel, PYTHON).files}["/opt/venv/bin/ruff"]
    assert (bool(placed.member), placed.size, placed.mode) == (True, len(program), 0o755)


@pytest.mark.parametrize(
    "options",
    [
        {"entry_points": "[console_scripts]\n../../evil = pkg:main\n"},
        {"entry_points": "[console_scripts]\ntool = pkg\n"},
        {"entry_points": "no section\n"},
        {"entry_points": "[console_scripts]\ntool = a:b\ntool = a:c\n"},
        {"files": {"pkg-1.0.data/elsewhere/x": b""}},
        {"files": {"pkg-1.0.data/scripts": b""}},
        {"files": {"pkg/x.py": b"1", "pkg-1.0.data/purelib/pkg/x.py": b"2"}},
    ],
)
def test_uninstallable_wheel_is_refused(tmp_path, options):
    with pytest.raises(IntegrityError, match=r"pkg-1.0-py3-none-any\.whl: "):
        installed(tmp_path, **options)
