"""Compiling extensions: which compilers Debian's suites have, what compiling goes by, headers that make it fast. Pure.

nvcc refuses a host compiler that is newer than what it was tested with; a distribution's own, newest one has the best
of everything else. So: the newest of the suite that the toolkit takes.
"""

from graphcrate.compat.facts import limits
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation
from graphcrate.model.plan import CUDA_HOME

#: Headers of the suite's own Python. `python3-dev` brings the same with distutils and lib2to3 besides.
PYTHON_HEADERS = "libpython3-dev"

#: What Debian's Python was compiled with has -g besides: a third of the work, for tables that are stripped off at the
#: end. setuptools up to 69 adds CFLAGS to that, for C++ too; 84 takes CFLAGS and CXXFLAGS in its place.
_FLAGS = "-DNDEBUG -fwrapv -O2 -g0"

#: of `at`, what the CUDA sources call as functions
_OPERATORS = ("arange", "cat", "empty", "full", "full_like", "rand", "stack", "zeros")
_ALL = "torch/extension.h"
#: Stand-ins for torch's largest headers: path → lines. `torch/torch.h`, `torch/extension.h` and `torch/script.h` bring
#: neural network modules, pybind11 and TorchScript's serialisation. PyG's extensions have operators alone, and every
#: file of theirs includes all of it: most of the time that compiling takes (docs/decisions/wheelhouse.md). Files for
#: the host compiler, where operators are registered, get what PyTorch advises for extensions, `torch/types.h`, with
#: autograd's functions and the registry; nvcc reads everything once for each architecture and twice for the host, and
#: gets tensors and the functions that kernels are launched with.
STAND_INS = {
    _ALL: (
        "#pragma once",
        "#ifdef __CUDACC__",
        "#define AT_PER_OPERATOR_HEADERS",
        "#include <ATen/core/Tensor.h>",
        "#include <ATen/Dispatch.h>",
        "#include <ATen/TensorOperators.h>",
        "#include <c10/util/Optional.h>",
        *(f"#include <ATen/ops/{name}.h>" for name in _OPERATORS),
        "namespace torch {",
        "using namespace at;",
        "using c10::nullopt;",
        "using c10::optional;",
        "}",
        "#else",
        "#include <torch/types.h>",
        "#include <torch/csrc/autograd/custom_function.h>",  # torch::autograd::Function
        "#include <torch/csrc/jit/runtime/custom_operator.h>",  # torch::RegisterOperators
        "#endif",
    ),
    "torch/torch.h": ("#pragma once", f"#include <{_ALL}>"),
    "torch/script.h": ("#pragma once", f"#include <{_ALL}>"),
}
#: Packages (normalised names) that need no more than that, and the folder of their sdist that compilers search first:
#: `include_dirs` in the setup.py of torch_scatter 2.1.2, torch_sparse 0.6.18, torch_cluster 1.6.3, torch_spline_conv
#: 1.2.2. Nobody has looked at others.
_FOLDERS = dict.fromkeys(("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv"), "csrc")
#: Seconds that their longest files take, roughly, for two architectures: those are started first.
SECONDS = {
    "csrc/cuda/segment_coo_cuda.cu": 60.0,
    "csrc/cuda/spmm_cuda.cu": 30.0,
    "csrc/cuda/segment_csr_cuda.cu": 20.0,
    "csrc/cpu/neighbor_sample_cpu.cpp": 12.0,
}


def compiler_for(suite: str, newest_gcc: int | None = None) -> str:
    """Debian's newest C++ compiler in a suite, not above `newest_gcc` (None: any). Raises ResolutionError for none."""
    versions = limits().suites[suite].gcc
    fitting = [version for version in versions if newest_gcc is None or version <= newest_gcc]
    if not fitting:
        raise ResolutionError(
            f"every compiler of Debian {suite} is too new for this CUDA: it takes gcc {newest_gcc} and older",
            cause=f"nvcc checks its host compiler, and {suite} begins with gcc {min(versions)}.",
            next_step="take an older suite in the recipe (base.suite), or a newer CUDA",
        )
    return f"g++-{max(fitting)}"


def packages(compiler: str) -> tuple[str, ...]:
    """What a base needs besides its own packages so that extensions can be compiled in it by this compiler."""
    return (compiler, PYTHON_HEADERS)


def variables(compilation: Compilation) -> dict[str, str]:
    """The environment that sdists are compiled in, the same in the embedded build and in texts.

    PyG's extensions exist in a `_cpu` and a `_cuda` variant of everything. `FORCE_CUDA` makes both, though their
    `__init__` loads the CUDA one alone wherever it exists, and that one has the operators for the CPU too;
    `FORCE_ONLY_CUDA` leaves the other out. Others (graphlearn-torch) know neither, and go by `WITH_CUDA`.
    """
    c, cxx = compilation.compiler.replace("g++", "gcc"), compilation.compiler
    # Names of nvcc's temporary files and of sources would differ from one compile to the next, were they not stripped.
    made = {"CC": c, "CXX": cxx, "CFLAGS": _FLAGS, "CXXFLAGS": _FLAGS, "LDFLAGS": "-s -Wl,--build-id=none"}
    if compilation.toolkit is None:
        return made | {"FORCE_ONLY_CPU": "1", "WITH_CUDA": "OFF"}
    return made | {
        "CUDA_HOME": CUDA_HOME,
        "FORCE_CUDA": "1",
        "FORCE_ONLY_CUDA": "1",
        # nvcc takes the system's own g++, which may be newer than it can read.
        "NVCC_PREPEND_FLAGS": f"-ccbin {cxx}",
        "TORCH_CUDA_ARCH_LIST": ";".join(compilation.architectures),
        "WITH_CUDA": "ON",
    }


def folder_for(package: str) -> str | None:
    """The folder of a package's sdist that `STAND_INS` go to; None where nobody has looked whether they do."""
    return _FOLDERS.get(package)
