"""GLT's own examples on generated data, to their end. Run inside an image by tools/upstream_suites.py.

Without a GPU those run that take any device (GLT samples on the CPU then, see generated.py); the others need GPUs.
"""

from __future__ import annotations

import pytest
import torch
from run_example import run_example

#: name, epochs (0: it has none), GPUs that it needs
EXAMPLES = (
    ("seal_link_pred.py", 1, 0),
    ("graph_sage_unsup_ppi.py", 2, 0),
    ("train_sage_ogbn_products.py", 7, 0),
    ("hetero/bipartite_sage_unsup.py", 2, 0),
    ("hetero/hierarchical_sage.py", 2, 0),
    ("hetero/train_hgt_mag.py", 2, 0),
    ("distributed/partition_ogbn_dataset.py", 0, 1),
    ("train_sage_prod_with_trim.py", 2, 1),
    ("hetero/train_hgt_mag_mp.py", 2, 1),
    ("feature_mp.py", 0, 2),
)


@pytest.mark.parametrize(("name", "epochs", "gpus"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES])
def test_example_ends(name: str, epochs: int, gpus: int) -> None:
    """It ends with 0, and says its epochs."""
    if torch.cuda.device_count() < gpus:
        pytest.skip(f"needs {gpus} GPU{'s' if gpus > 1 else ''}")
    told = run_example(name, epochs=epochs)
    assert not epochs or "Epoch" in told
