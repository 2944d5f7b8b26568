"""Libraries that decide whether a GPU runs a package, and their common code."""

import pytest

from graphcrate.compat.facts import gpu_code
from graphcrate.model.errors import IntegrityError
from treeaudit.values import GpuCode


def code(sass="", ptx="", some=""):
    return GpuCode(sass=tuple(sass.split()), ptx=tuple(ptx.split()), some=tuple(some.split()))


@pytest.mark.parametrize(
    ("has", "capability", "serves"),
    [
        (code("7.0 8.0"), "7.5", "native"),
        (code("7.0", ptx="7.0", some="9.0"), "9.0", "jit"),
        (code("7.0", some="9.0"), "9.0", "few"),
        (code("7.0"), "9.0", "none"),
        (code("9.0a"), "9.0", "native"),
        (code(ptx="9.0a"), "10.0", "none"),
    ],
)
def test_gpu_code_serves_a_capability_as_native_jit_few_or_none(has, capability, serves):
    assert gpu_code.serves(has, capability) == serves


LARGE = code("7.0 7.5 8.0 9.0", some="8.9")


@pytest.mark.parametrize(
    ("libraries", "together"),
    [
        ({"libtorch_cuda.so": LARGE}, LARGE),
        ({"libtorch_cuda.so": LARGE, "libtorch_more.so": code("7.0 8.0 9.0")}, LARGE),  # 7.0 runs on 7.5
        ({"libtorch_cuda.so": LARGE, "libtorch_more.so": code("8.0")}, code("8.0", some="7.0 7.5 8.9 9.0")),
        ({"libtorch_cuda.so": LARGE, "libtorch_cuda_linalg.so": code("8.0")}, LARGE),
        ({"libtorch_cuda.so": LARGE, "libcublas-f6c022dc.so.11": code("3.5")}, LARGE),
        ({"a.so": code("8.0", "8.0"), "b.so": code("8.0", "9.0")}, code("8.0", "9.0")),
        ({"libcudnn.so.9": code("8.0")}, code()),
        ({}, code()),
    ],
)
def test_package_code_is_common_to_its_deciding_libraries(libraries, together):
    found = gpu_code.together("torch", {f"torch/lib/{name}": one for name, one in libraries.items()})
    assert found == together


def test_gpu_code_of_contradicting_libraries_is_refused():
    """On 9.0 one is compiled by the driver and the other runs, which has no PTX for what comes later."""
    with pytest.raises(IntegrityError, match=r"8\.0|9\.0"):
        gpu_code.together("torch", {"a.so": code("8.0", "8.0"), "b.so": code("8.0 9.0")})
