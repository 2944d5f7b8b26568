"""Data sets of the Open Graph Benchmark (https://ogb.stanford.edu) through its own package, without its questions."""

from __future__ import annotations

import builtins
import contextlib
from typing import TYPE_CHECKING, Any

from proof.verdict import Fault, Layer, Proof

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

#: name → the files that a folder put there by hand has to have
NAMES = {
    "ogbn-products": (
        *("RELEASE_v1.txt", "raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz"),
        *("raw/num-node-list.csv.gz", "raw/num-edge-list.csv.gz"),
        *(f"split/sales_ranking/{role}.csv.gz" for role in ("train", "valid", "test")),
    ),
    "ogbn-papers100M": (
        *("RELEASE_v1.txt", "raw/data.npz", "raw/node-label.npz"),
        *(f"split/time/{role}.csv.gz" for role in ("train", "valid", "test")),
    ),
}
ARCHIVES = {"ogbn-products": "products", "ogbn-papers100M": "papers100M-bin"}  #: without .zip; also the folder in it


def load(name: str, root: Path, proof: Proof) -> tuple[Any, ...]:
    """x, edge_index, y, classes, roles: from `root`, else downloaded to it by OGB's package. Raises Fault of data."""
    folder = root / name.replace("-", "_")
    if not _is_complete(name, folder):
        proof.enter(f"downloading {name} to {root}", Layer.DATA)
    try:
        from ogb.nodeproppred import NodePropPredDataset
    except ImportError as error:
        raise Fault(Layer.DATA, f"{name} is read by OGB's package, which cannot be imported: {error}") from error
    try:
        if folder.is_dir():
            (folder / "processed").mkdir(exist_ok=True)  # OGB's package writes there, and its archive brings it
        with _answers(proof):
            dataset = NodePropPredDataset(name=name, root=str(root))
            graph, labels = dataset[0]
            split = dataset.get_idx_split()
    except (Exception, SystemExit) as error:  # it ends the program when told not to download
        raise Fault(Layer.DATA, _cannot(name, root, folder, error)) from error
    return (*_tensors(graph, labels), dataset.num_classes, _roles(split))


def _tensors(graph: dict[str, Any], labels: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # noqa: ANN401
    import numpy as np
    import torch

    known = np.nan_to_num(labels.reshape(-1), nan=-1.0).astype("int64")  # most papers have no label: they only link
    return (
        torch.from_numpy(graph["node_feat"].astype("float32", copy=False)),
        torch.from_numpy(graph["edge_index"].astype("int64", copy=False)),
        torch.from_numpy(known),
    )


def _roles(split: dict[str, Any]) -> dict[str, torch.Tensor]:
    import torch

    return {role: torch.as_tensor(split[role], dtype=torch.long) for role in ("train", "valid", "test")}


def _is_complete(name: str, folder: Path) -> bool:
    return not missing(name, folder)


def missing(name: str, folder: Path) -> list[str]:
    """The files that a data set's folder lacks."""
    return [file for file in NAMES[name] if not (folder / file).is_file()]


def _cannot(name: str, root: Path, folder: Path, error: BaseException) -> str:
    """Say what happened, and what to put where."""
    archive = ARCHIVES[name]
    lacking = missing(name, folder)
    told = f"{name} not available: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if (root / f"{archive}.zip").exists():
        return f"{told}; {root / archive}.zip may be cut off: remove it, and start again"
    if not lacking:
        return f"{told}; its files are there: remove {folder / 'processed'} if it is half-written, and start again"
    return (
        f"{told}; without a network unpack {archive}.zip of OGB on a machine that has one, and put its folder "
        f"{archive} here as {folder.absolute()}; that lacks {', '.join(lacking)}"
    )


@contextlib.contextmanager
def _answers(proof: Proof) -> Iterator[None]:
    """Answer OGB's questions: yes, download it; no, do not throw away what is there for a newer one."""
    asked = builtins.input

    def answer(question: object = "") -> str:
        reply = "n" if "update" in str(question) else "y"
        proof.say(f"{' '.join(str(question).split())} {reply}")
        return reply

    builtins.input = answer
    try:
        yield
    finally:
        builtins.input = asked
