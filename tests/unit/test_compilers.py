"""Which compiler a suite has for a toolkit, and what compiling goes by."""

import pytest

from graphcrate.compat import compilers
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation, DebianBase, DebianToolkit

TOOLKIT = DebianToolkit(version="11.8.89", suite="bookworm", packages=(), wheels=())


def compilation(toolkit=None, architectures=()):
    base = DebianBase(suite="bookworm", packages=())
    return Compilation(architectures=architectures, compiler="g++-11", base=base, tools=(), toolkit=toolkit)


@pytest.mark.parametrize(
    ("suite", "newest", "expected"),
    [
        ("bookworm", 11, "g++-11"),
        ("bookworm", 13, "g++-12"),
        ("bookworm", None, "g++-12"),
        ("bullseye", 11, "g++-10"),
        ("trixie", 13, "g++-13"),
        ("trixie", 15, "g++-14"),
    ],
)
def test_the_newest_compiler_that_the_toolkit_takes(suite, newest, expected):
    assert compilers.compiler_for(suite, newest) == expected


def test_a_suite_whose_compilers_are_all_too_new_is_refused():
    with pytest.raises(ResolutionError, match="too new for this CUDA: it takes gcc 11") as caught:
        compilers.compiler_for("trixie", 11)
    assert "begins with gcc 12" in caught.value.cause


def test_an_unknown_suite_is_refused():
    with pytest.raises(ResolutionError, match="Debian sid"):
        compilers.compiler_for("sid", 13)


def test_names():
    assert compilers.programs("g++-11") == ("gcc-11", "g++-11")
    assert compilers.packages("g++-11") == ("g++-11", "libpython3-dev")


def test_variables_for_the_cpu_alone_know_no_cuda():
    found = compilers.variables(compilation())
    assert found.keys() == {"CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "FORCE_ONLY_CPU", "WITH_CUDA"}
    assert (found["CC"], found["CXX"]) == ("gcc-11", "g++-11")
    assert "-s " in found["LDFLAGS"]


def test_flags_are_whole_where_setuptools_takes_them_in_place_of_pythons():
    found = compilers.variables(compilation())
    assert found["CFLAGS"] == found["CXXFLAGS"]
    assert {"-O2", "-DNDEBUG", "-g0"} <= set(found["CXXFLAGS"].split())


def test_variables_for_cuda_make_the_one_variant_that_is_loaded():
    found = compilers.variables(compilation(TOOLKIT, ("7.0", "8.0+PTX")))
    assert found["TORCH_CUDA_ARCH_LIST"] == "7.0;8.0+PTX"
    assert found["FORCE_CUDA"] == found["FORCE_ONLY_CUDA"] == "1"
    assert found["NVCC_PREPEND_FLAGS"] == "-ccbin g++-11"
    assert found["CUDA_HOME"] == "/usr/local/cuda"
