"""Which wheels fit an image."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.model.recipe import BaseSpec
from graphcrate.resolve.target import Target, project_and_version, target_of

BOOKWORM = Target("3.11", "2.36")


def test_build_tags_win_among_equal_tags():
    names = [f"torch-2.10.0{build}-cp311-cp311-manylinux_2_28_x86_64.whl" for build in ("", "-2", "-10", "-3")]
    assert BOOKWORM.best(names) == "torch-2.10.0-10-cp311-cp311-manylinux_2_28_x86_64.whl"


def test_specific_wheels_win_over_general_ones():
    names = ["a-1-py3-none-any.whl", "a-1-cp39-abi3-manylinux2014_x86_64.whl", "a-1-cp311-cp311-manylinux1_x86_64.whl"]
    assert BOOKWORM.best(names) == names[2]
    assert BOOKWORM.best(names[:2]) == names[1]


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("311-manylinux_2_36_x86_64.whl", True),
        ("311-manylinux1_x86_64.whl", True),
        ("311-linux_x86_64.whl", True),
        ("311-macosx_11_0_arm64.whl", False),
        ("311-manylinux_2_17_aarch64.whl", False),
        ("311-manylinux_2_39_x86_64.whl", False),
        ("311-musllinux_1_2_x86_64.whl", False),
        ("312-manylinux1_x86_64.whl", False),
        (".tar.gz", False),
    ],
)
def test_files_of_the_image_fit_and_foreign_ones_do_not(name, fits):
    assert (BOOKWORM.rank(f"a-1-cp311-cp{name}") is not None) is fits


def test_bases():
    assert target_of(BaseSpec(suite="bullseye"), "3.9") == Target("3.9", "2.31")
    for reference, glibc in (("docker.io/library/python:3.12-slim-bookworm", "2.36"), ("quay.io/image:1", "2.28")):
        assert target_of(BaseSpec(provider="registry", reference=reference), "3.12") == Target("3.12", glibc)


@pytest.mark.parametrize(
    ("glibc", "platform"), [("2.31", "2_31"), ("2.36", "2_36"), ("2.41", "2_40"), ("2.28", "2_28"), ("2.30", "2_28")]
)
def test_uv_platforms(glibc, platform):
    assert Target("3.11", glibc).uv_platform == f"x86_64-manylinux_{platform}"


def test_names_and_versions():
    assert str(project_and_version("torch-2.0.1+cu118-cp311-cp311-linux_x86_64.whl")[1]) == "2.0.1+cu118"
    assert project_and_version("antlr4_python3-runtime-4.9.3.tar.gz")[0] == "antlr4-python3-runtime"
    assert project_and_version("README.txt") is project_and_version("torch-banana.tar.gz") is None


@given(st.text(max_size=60))
def test_any_name_is_judged_without_a_crash(name):
    project_and_version(name)
    project_and_version(name + ".whl")
    BOOKWORM.rank(name + ".whl")
