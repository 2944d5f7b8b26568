"""Headers that stand in for torch's largest while an extension is compiled. Pure.

`torch/torch.h`, `torch/extension.h` and `torch/script.h` bring neural network modules, pybind11 and TorchScript's
serialisation. PyG's extensions have operators alone, and every file of theirs includes all of it: most of the time that
compiling takes (docs/decisions/wheelhouse.md). PyTorch's own advice for CUDA sources is `torch/types.h`. What compilers
make of a kernel is the same to the byte; host code loses what pybind11 leaves in it.
"""

_TYPES = "torch/types.h"
#: path of a header → its lines
STAND_INS = {
    "torch/torch.h": ("#pragma once", f"#include <{_TYPES}>"),
    "torch/extension.h": ("#pragma once", f"#include <{_TYPES}>"),
    "torch/script.h": (
        "#pragma once",
        f"#include <{_TYPES}>",
        "#include <torch/csrc/autograd/custom_function.h>",  # torch::autograd::Function
        "#include <torch/csrc/jit/runtime/custom_operator.h>",  # torch::RegisterOperators
    ),
}
#: Packages that need no more than that, and the folder of theirs that compilers search first (`include_dirs` in the
#: setup.py of each). Read in torch_scatter 2.1.2, torch_sparse 0.6.18, torch_cluster 1.6.3 and torch_spline_conv 1.2.2.
_FOLDERS = dict.fromkeys(("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv"), "csrc")


def folder_for(package: str) -> str | None:
    """The folder of an unpacked sdist that `STAND_INS` go to; None where nobody has looked whether they do.

    `package`: the normalised name.
    """
    return _FOLDERS.get(package)
