"""A plug-in beside GLT's own tests in an image: which of them need GPUs, so that others alone run where none are.

GLT's tests ask for GPUs in their set-up without a word: "'Graph': invalid device rank 0", "Found no NVIDIA driver".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

#: of graphlearn-torch 0.2.2 and 0.2.4: a file, or a test in it → GPUs
GPUS = {
    "test_dist_feature.py": 2,
    "test_dist_link_loader.py": 2,
    "test_dist_neighbor_loader.py": 2,
    "test_dist_subgraph_loader.py": 2,
    "test_feature.py": 1,
    "test_graph.py::test_cuda_graph_init": 1,
    "test_graph.py::test_pin_graph_init": 1,
    "test_hetero_neighbor_sampler.py": 1,
    "test_link_loader.py": 1,
    "test_neighbor_sampler.py": 1,
    "test_pyg_remote_backend.py": 2,
    "test_shm_channel.py": 1,
    "test_subgraph.py::test_cuda_khop_subgraph": 1,
    "test_subgraph.py::test_cuda_node_subgraph": 1,
    "test_unified_tensor.py": 1,
}


def gpus(file: str, test: str) -> int:
    """The number of GPUs that a test needs."""
    return GPUS.get(file, GPUS.get(f"{file}::{test}", 0))


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Skip what this machine has too few GPUs for."""
    import torch

    here = torch.cuda.device_count()
    for item in items:
        needed = gpus(item.path.name, item.name)
        if here < needed:
            item.add_marker(pytest.mark.skipif(True, reason=f"needs {needed} GPU{'s' if needed > 1 else ''}"))
