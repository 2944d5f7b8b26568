"""Wheels for an image, and what is said of a damaged one."""

import contextlib

import pytest

from graphcrate.artifacts.wheel import check_tags, open_wheel
from graphcrate.model.errors import BuildError, IntegrityError
from tests.made import refused
from tests.unit.wheelmaker import make_wheel


def test_damaged_wheel_is_an_integrity_error_with_a_next_step(tmp_path):
    path = make_wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with refused(IntegrityError, "not a whole zip file", "damaged, changed or built", "remove it from the cache"):
        with open_wheel(path):
            pass
    with refused(IntegrityError, "pkg.whl is not a wheel's file name", "fetch or copy it again"):
        with open_wheel(tmp_path / "pkg.whl"):
            pass


@pytest.mark.parametrize(
    ("name", "python", "glibc", "fits"),
    [
        ("torch-2.0.1-cp311-cp311-manylinux1_x86_64.whl", "3.11", "2.36", True),
        ("torch-2.0.1+cu118-cp311-cp311-linux_x86_64.whl", "3.11", "2.36", True),
        ("torch-2.0.1-cp310-cp310-manylinux1_x86_64.whl", "3.11", "2.36", False),
        ("torch-2.0.1-cp311-cp311-manylinux2014_aarch64.whl", "3.11", "2.36", False),
        ("torch-2.0.1-cp311-none-macosx_11_0_arm64.whl", "3.11", "2.36", False),
        ("psutil-7.0-cp36-abi3-manylinux_2_12_x86_64.manylinux2010_x86_64.whl", "3.11", "2.31", True),
        ("scipy-1.17-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", "3.11", "2.28", True),
        ("scipy-1.17-cp311-cp311-manylinux_2_39_x86_64.whl", "3.11", "2.36", False),
        ("six-1.17-py2.py3-none-any.whl", "3.9", "2.31", True),
        ("old-1.0-py2-none-any.whl", "3.9", "2.31", False),
        ("free-1.0-cp313-cp313t-manylinux_2_28_x86_64.whl", "3.13", "2.41", False),
        ("torch-2.0.1-cp311-cp311-musllinux_1_2_x86_64.whl", "3.11", "2.36", False),
    ],
)
def test_wheel_tag_for_another_python_or_newer_glibc_is_refused(name, python, glibc, fits):
    with contextlib.nullcontext() if fits else pytest.raises(BuildError, match="is not for this image"):
        check_tags(name, python, glibc)
