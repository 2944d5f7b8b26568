"""PyG's own examples on generated data, to their end. Run inside an image by tools/upstream_suites.py."""

from __future__ import annotations

import importlib.util

import pytest
from run_example import run_example

#: name, arguments, epochs where there is no option for them
EXAMPLES: tuple[tuple[str, list[str], int], ...] = (
    ("dna.py", [], 8),
    ("gcn.py", ["--epochs=30"], 0),
    ("gat.py", ["--epochs=30"], 0),
    ("autoencoder.py", ["--epochs=30"], 0),
    ("autoencoder.py", ["--epochs=30", "--variational"], 0),
    ("link_pred.py", [], 20),
    ("node2vec.py", [], 3),
    ("infomax_transductive.py", [], 20),
    ("graph_sage_unsup.py", [], 3),
    ("mutag_gin.py", ["--epochs=10"], 0),
    ("proteins_topk_pool.py", [], 5),
    ("hetero/metapath2vec.py", [], 1),
    ("cluster_gcn_reddit.py", [], 5),
    ("cluster_gcn_ppi.py", [], 5),
)


@pytest.mark.parametrize(
    ("name", "arguments", "epochs"), EXAMPLES, ids=[" ".join([name, *arguments[1:]]) for name, arguments, _ in EXAMPLES]
)
def test_example_ends(name: str, arguments: list[str], epochs: int) -> None:
    """It ends with 0, and says its epochs."""
    if name == "node2vec.py" and not any(map(importlib.util.find_spec, ("torch_cluster", "pyg_lib"))):
        pytest.skip("walks need torch_cluster or pyg_lib")
    assert "Epoch" in run_example(name, *arguments, epochs=epochs)
