"""Headers that stand in for torch's largest while an extension is compiled. Pure.

`torch/torch.h`, `torch/extension.h` and `torch/script.h` bring neural network modules, pybind11 and TorchScript's
serialisation. PyG's extensions have operators alone, and every file of theirs includes all of it: most of the time that
compiling takes (docs/decisions/wheelhouse.md). Files for the host compiler, where operators are registered, get what
PyTorch advises for extensions, `torch/types.h`, with autograd's functions and the registry; nvcc reads everything once
for each architecture and twice for the host, and gets tensors and the functions that kernels are launched with.
"""

#: of `at`, what the CUDA sources call as functions
_OPERATORS = ("arange", "cat", "empty", "full", "full_like", "rand", "stack", "zeros")
_ALL = "torch/extension.h"
#: path of a header → its lines
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
#: Packages that need no more than that, and the folder of theirs that compilers search first (`include_dirs` in the
#: setup.py of each). Read in torch_scatter 2.1.2, torch_sparse 0.6.18, torch_cluster 1.6.3 and torch_spline_conv 1.2.2.
_FOLDERS = dict.fromkeys(("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv"), "csrc")
#: Seconds that their longest files take, roughly, for two architectures: those are started first.
SECONDS = {
    "csrc/cuda/segment_coo_cuda.cu": 60.0,
    "csrc/cuda/spmm_cuda.cu": 30.0,
    "csrc/cuda/segment_csr_cuda.cu": 20.0,
    "csrc/cpu/neighbor_sample_cpu.cpp": 12.0,
}


def folder_for(package: str) -> str | None:
    """The folder of an unpacked sdist that `STAND_INS` go to; None where nobody has looked whether they do.

    `package`: the normalised name.
    """
    return _FOLDERS.get(package)
