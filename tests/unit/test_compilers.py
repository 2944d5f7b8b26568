"""Which compiler a suite has for a toolkit, and what compiling goes by."""

import pytest

from graphcrate.compat import compilers
from graphcrate.model.errors import ResolutionError
from tests.unit import compiled_plans


@pytest.mark.parametrize(
    ("suite", "newest", "expected"),
    [("bookworm", 11, "g++-11"), ("bookworm", None, "g++-12"), ("bullseye", 11, "g++-10"), ("trixie", 15, "g++-14")],
)
def test_the_newest_compiler_that_the_toolkit_takes(suite, newest, expected):
    assert compilers.compiler_for(suite, newest) == expected
    with pytest.raises(ResolutionError, match=r"it takes gcc 11 and older\ncause: .* and trixie begins with gcc 12"):
        compilers.compiler_for("trixie", 11)


def test_variables_for_the_cpu_alone_know_no_cuda():
    found = compilers.variables(compiled_plans.lock(None).compilation)
    assert found.keys() == {"CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "FORCE_ONLY_CPU", "WITH_CUDA"}
    assert (found["CC"], found["CXX"]) == ("gcc-11", "g++-11")
    assert "-s " in found["LDFLAGS"]
    assert found["CFLAGS"] == found["CXXFLAGS"]  # whole, where setuptools takes them in place of Python's
    assert {"-O2", "-DNDEBUG", "-g0"} <= set(found["CXXFLAGS"].split())


def test_variables_for_cuda_make_the_one_variant_that_is_loaded():
    found = compilers.variables(compiled_plans.lock(compiled_plans.TOOLKITS["debian"]).compilation)
    assert found["TORCH_CUDA_ARCH_LIST"] == "7.0;8.0+PTX"
    assert found["FORCE_CUDA"] == found["FORCE_ONLY_CUDA"] == "1"
    assert found["NVCC_PREPEND_FLAGS"] == "-ccbin g++-11"
    assert found["CUDA_HOME"] == "/usr/local/cuda"
