"""Wheels that fit an image."""

from hypothesis import given
from hypothesis import strategies as st

from graphcrate.model.recipe import BaseSpec
from graphcrate.resolve.sources.target import WheelTarget, project_and_version, target_of

BOOKWORM = WheelTarget("3.11", "2.36")


def test_best_wheel_is_the_most_specific_with_the_highest_build():
    builds = [f"torch-2.10.0{build}-cp311-cp311-manylinux_2_28_x86_64.whl" for build in ("", "-2", "-10", "-3")]
    assert BOOKWORM.best(builds) == builds[2]
    names = ["a-1-py3-none-any.whl", "a-1-cp39-abi3-manylinux2014_x86_64.whl", "a-1-cp311-cp311-manylinux1_x86_64.whl"]
    assert BOOKWORM.best(names) == names[2]
    assert BOOKWORM.best(names[:2]) == names[1]
    assert BOOKWORM.best(["a-1-cp312-cp312-manylinux1_x86_64.whl", "a-1.tar.gz"]) is None


def test_target_of_a_base_has_its_glibc():
    assert target_of(BaseSpec(suite="bullseye"), "3.9") == WheelTarget("3.9", "2.31")
    for reference, glibc in (("docker.io/library/python:3.12-slim-bookworm", "2.36"), ("quay.io/image:1", "2.28")):
        assert target_of(BaseSpec(provider="registry", reference=reference), "3.12") == WheelTarget("3.12", glibc)


def test_uv_platform_is_the_newest_manylinux_of_the_glibc():
    known = {"2.31": "2_31", "2.36": "2_36", "2.41": "2_40", "2.28": "2_28", "2.30": "2_28"}
    for glibc, platform in known.items():
        assert WheelTarget("3.11", glibc).uv_platform == f"x86_64-manylinux_{platform}"


def test_project_and_version_are_parsed_from_file_names():
    assert str(project_and_version("torch-2.0.1+cu118-cp311-cp311-linux_x86_64.whl")[1]) == "2.0.1+cu118"
    assert project_and_version("antlr4_python3-runtime-4.9.3.tar.gz")[0] == "antlr4-python3-runtime"
    assert project_and_version("README.txt") is project_and_version("torch-banana.tar.gz") is None


@given(st.text(max_size=60))
def test_project_and_version_takes_any_text(name):
    project_and_version(name)
    project_and_version(name + ".whl")
    BOOKWORM.rank(name + ".whl")
