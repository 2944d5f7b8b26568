#!/usr/bin/env python3
"""Breaks operators of the extensions one by one: the suite `ops` must find each. Needs torch and the extensions.

python bench/ops_faults.py [--device cuda]        inside an image, or in an environment that has them
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import ops  # noqa: E402  examples/ is no package
from proof import stack  # noqa: E402
from proof.operators.ledger import Ledger  # noqa: E402
from proof.verdict import Proof  # noqa: E402

Anything = Any  #: operators, their arguments and results are of all kinds


def main() -> int:
    """Print what the suite says of each fault. Returns 1 when it missed one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    missed = 0
    for name, path, broken in FAULTS:
        extension, attribute = path.split(".")[0], path.rsplit(".", 1)[1]
        if stack.installed(extension) is None:
            continue
        owner: Any = importlib.import_module(extension)
        for part in path.split(".")[1:-1]:
            owner = getattr(owner, part)
        whole = getattr(owner, attribute)
        setattr(owner, attribute, broken(whole))
        try:
            ledger = examine(given.device, extension)
        finally:
            setattr(owner, attribute, whole)
        missed += not ledger.findings
        print(f"{name}: {ledger.findings[0] if ledger.findings else 'NOT FOUND'}", flush=True)
    return 1 if missed else 0


class Silent(Proof):
    """Says nothing."""

    def say(self, line: str) -> None:
        """Say nothing."""


def examine(wanted: str, extension: str) -> Ledger:
    """What the suite finds of one extension."""
    proof, ledger = Silent("faults"), Ledger()
    torch = stack.load_torch(proof)
    stack.load_extensions(proof)
    for device in ops.choose_devices(torch, wanted, proof):
        ops.check_device(torch, device, [extension], False, 0, ledger, proof, set())
    return ledger


def _off(share: float) -> Anything:
    """The result, wrong by a share."""
    return lambda whole: lambda *a, **k: _each(whole(*a, **k), lambda tensor: tensor * (1 + share))


def _slope(share: float) -> Anything:
    """The result as it is; its gradient wrong by a share."""

    def bend(tensor: Anything) -> Anything:
        return tensor * (1 + share) - (tensor * share).detach()

    return lambda whole: lambda *a, **k: _each(whole(*a, **k), bend)


def _cut(whole: Anything) -> Anything:
    """The result without a gradient."""
    return lambda *a, **k: _each(whole(*a, **k), lambda tensor: tensor.detach())


def _together(whole: Anything) -> Anything:
    """Reads its first input as if it lay together in memory."""

    def call(source: Anything, *a: Anything, **k: Anything) -> Anything:
        return whole(source.as_strided(source.shape, source.new_empty(source.shape).stride()), *a, **k)

    return call


def _each(found: Anything, change: Anything) -> Anything:
    if isinstance(found, tuple):
        return tuple(change(each) if each.is_floating_point() else each for each in found)
    return change(found)


def _without_last(whole: Anything) -> Anything:
    """Samples one pair, edge or walk fewer than it did."""
    return lambda *a, **k: whole(*a, **k)[..., :-1]


def _sample(change: Anything) -> Anything:
    """`sample_adj` or `neighbor_sample` with its four tensors changed."""
    return lambda whole: lambda *a, **k: change(*whole(*a, **k))


def _next_edge(a: Anything, b: Anything, c: Anything, numbers: Anything) -> Anything:
    return a, b, c, (numbers + 1).clamp(max=max(int(numbers.max()), 0)) if len(numbers) else numbers


def _lost_edge(nodes: Anything, rows: Anything, cols: Anything, numbers: Anything) -> Anything:
    return nodes, rows[:-1], cols[:-1], numbers[:-1]


def _other_node(walks: Anything) -> Anything:
    return lambda *a, **k: walks(*a, **k).roll(1, -1)


#: what is broken, where, and how
FAULTS = (
    ("a result off by 0.1 %", "torch_scatter.scatter_mean", _off(1e-3)),
    ("a gradient off by 0.1 %", "torch_scatter.scatter_max", _slope(1e-3)),
    ("no gradient", "torch_scatter.segment_mean_csr", _cut),
    ("input that lies apart read as together", "torch_scatter.gather_csr", _together),
    ("add for sum, twice", "torch_scatter.scatter_add", _off(1.0)),
    ("a result off by 0.01 %", "torch_sparse.matmul", _off(1e-4)),
    ("a gradient off by 0.01 %", "torch_sparse.spmm", _slope(1e-4)),
    ("numbers of other edges", "torch_sparse.torch.ops.torch_sparse.sample_adj", _sample(_next_edge)),
    ("an edge lost", "torch_sparse.torch.ops.torch_sparse.neighbor_sample", _sample(_lost_edge)),
    ("walks along no edges", "torch_sparse.random_walk", _other_node),
    ("a neighbour lost", "torch_cluster.knn", _without_last),
    ("a pair lost", "torch_cluster.radius", _without_last),
    ("a point lost", "torch_cluster.fps", _without_last),
    ("a walk's last step lost", "torch_cluster.random_walk", _without_last),
    (
        "nodes put together at random",
        "torch_cluster.graclus_cluster",
        lambda whole: lambda *a, **k: whole(*a, **k).roll(1),
    ),
    ("a result off by 0.01 %", "torch_spline_conv.spline_conv", _off(1e-4)),
    ("a gradient off by 0.01 %", "torch_spline_conv.spline_weighting", _slope(1e-4)),
)


if __name__ == "__main__":
    sys.exit(main())
