"""Sources that are compiled with CUDA: kernels, projects that enable the language, includes of its headers."""

import pytest

from graphcrate.compat.facts import cuda_sources
from graphcrate.inputs.wheels import sdist
from tests.unit.wheel_server import small_sdist


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("src/op.cu", ""),
        ("include/op.cuh", ""),
        ("CMakeLists.txt", "cmake_minimum_required(VERSION 3.18)\nproject(mine VERSION 1.0 LANGUAGES CXX CUDA)\n"),
        ("CMakeLists.txt", "project(mine CXX)\nif(MINE_CUDA)\n  enable_language( CUDA )\nendif()\n"),
        ("cmake/cuda.cmake", "find_package(CUDAToolkit REQUIRED)\n"),
        ("meson.build", "project('mine', 'cpp', 'cuda',\n  version: '1')\n"),
        (
            "setup.py",
            "from torch.utils.cpp_extension import CUDAExtension\nsetup(ext_modules=[CUDAExtension('a', ['a.cpp'])])",
        ),
        ("src/a.cpp", "// a\n#include <vector>\n#  include <cuda_runtime.h>\n"),
        ("src/a.cc", '#include "cublas_v2.h"\n'),
        ("src/a.h", "#include <ATen/cuda/CUDAContext.h>\n"),
        ("src/a.hpp", "#include <thrust/sort.h>\n"),
        ("mine/a.pyx", 'cdef extern from "cuda_runtime_api.h":\n    pass\n'),
    ],
)
def test_source_that_is_compiled_with_cuda_is_known_by_a_file(tmp_path, path, content):
    name, data = small_sdist("mine", "1.0", pyproject="", more={path: content})
    (tmp_path / name).write_bytes(data)
    assert sdist.wants_cuda(tmp_path / name)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("src/a.c", "int a;"),
        ("tests/op.cu", ""),
        ("docs/CMakeLists.txt", "enable_language(CUDA)"),
        ("CMakeLists.txt", "project(cuda_free LANGUAGES C CXX)\n# enable CUDA elsewhere\n"),
        ("CMakeLists.txt", "project(\n  mine\n)\nset(USE CUDA)\n"),
        ("src/a.cpp", "// #include <cuda_runtime.h> was here\n#include <cudd.h>\n#include <torch/extension.h>\n"),
        ("src/a.py", "#include <cuda_runtime.h>\n"),
        ("setup.py", "# CUDAExtension would be for another day\nsetup(ext_modules=[CppExtension('a', ['a.cpp'])])"),
        ("src/deep.cpp", "\n" * cuda_sources.HEAD + "#include <cuda_runtime.h>\n"),
    ],
)
def test_source_without_cuda_gets_no_toolkit(tmp_path, path, content):
    name, data = small_sdist("mine", "1.0", pyproject="", more={path: content})
    (tmp_path / name).write_bytes(data)
    assert not sdist.wants_cuda(tmp_path / name)
