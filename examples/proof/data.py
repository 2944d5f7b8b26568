"""Brings a graph into tensors: the generated one, Cora through PyG, or a file of the user's.

A file is NumPy's `.npz` with `x` [nodes, features] numbers, `edge_index` [2, edges] whole numbers, each direction of an
edge on its own, and `y` [nodes] classes from 0; no pickled objects are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof import graphs
from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    import torch

CORA_FILES = tuple(f"ind.cora.{part}" for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"))


@dataclass(frozen=True)
class Tensors:
    """What a model reads: `x` [nodes, width] float32, `edge_index` [2, edges] int64 in both directions, `y` [nodes]."""

    x: torch.Tensor
    edge_index: torch.Tensor
    y: torch.Tensor
    classes: int

    def to(self, device: torch.device) -> Tensors:
        """The same on a device."""
        return Tensors(self.x.to(device), self.edge_index.to(device), self.y.to(device), self.classes)


def load(name: str, root: Path) -> Tensors:
    """`generated`, `cora` (kept below `root`), or the path of a file. Raises Fault of layer data."""
    if name == "generated":
        return from_graph(graphs.generate())
    if name == "cora":
        return _cora(root)
    return _file(Path(name))


def from_graph(graph: graphs.Graph) -> Tensors:
    """A generated graph as tensors."""
    import torch

    x = torch.zeros(len(graph.labels), graph.width)
    for node, words in enumerate(graph.words):
        x[node, list(words)] = 1.0
    edges = torch.tensor(graph.edges, dtype=torch.long).t()
    return Tensors(x, torch.cat([edges, edges.flip(0)], dim=1), torch.tensor(graph.labels), graph.classes)


def _cora(root: Path) -> Tensors:
    """Cora from `root`/Cora/raw where its files lie; else downloaded by PyG, which writes there."""
    raw = root / "Cora" / "raw"
    try:
        if all((raw / name).is_file() for name in CORA_FILES):
            # Planetoid would write what it has processed beside the raw files, where we may not be allowed to.
            from torch_geometric.io import read_planetoid_data

            data = read_planetoid_data(str(raw), "cora")
        else:
            from torch_geometric.datasets import Planetoid

            data = Planetoid(str(root), "Cora")[0]
    except Exception as error:
        present = [name for name in CORA_FILES if (raw / name).is_file()]
        raise Fault(
            Layer.DATA,
            f"Cora cannot be had: {type(error).__name__}: {' '.join(str(error).split())[:300]}; without a network put "
            f"the {len(CORA_FILES)} files {CORA_FILES[0]} … {CORA_FILES[-1]} (there are {len(present)}) of planetoid"
            f"'s data set into {raw.absolute()} by hand, or name another folder with --root",
        ) from error
    return Tensors(data.x, data.edge_index, data.y, int(data.y.max()) + 1)


def _file(path: Path) -> Tensors:
    arrays = _arrays(path)
    x, edge_index, y = arrays["x"], arrays["edge_index"], arrays["y"]
    check_arrays(path, x, edge_index, y)
    return Tensors(
        tensor(x, "float32"),
        tensor(edge_index, "int64"),
        tensor(y, "int64"),
        int(y.max()) + 1,
    )


def tensor(array: Any, kind: str) -> torch.Tensor:  # noqa: ANN401
    """NumPy's array as a tensor of its own, of this kind of number. By its bytes: NumPy 2 and an older torch cannot
    share memory, and Python's numbers would take ten times as much.
    """
    import torch

    dtype = getattr(torch, kind)
    if not array.size:
        return torch.empty(array.shape, dtype=dtype)  # frombuffer refuses nothing
    content = bytearray(memoryview(array.astype(kind, order="C", copy=False)))
    return torch.frombuffer(content, dtype=dtype).view(array.shape)


def check_arrays(path: Path, x: Any, edge_index: Any, y: Any) -> None:  # noqa: ANN401  NumPy's are not imported here
    """Whether these are a graph's. Raises Fault that names `path`."""
    if x.ndim != 2 or y.shape != x.shape[:1] or edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise Fault(
            Layer.DATA,
            f"{path}: x {x.shape}, edge_index {edge_index.shape}, y {y.shape} are not [nodes, features], "
            "[2, edges], [nodes]",
        )
    if edge_index.size and not 0 <= edge_index.min() <= edge_index.max() < len(x):
        raise Fault(Layer.DATA, f"{path}: edge_index names nodes outside 0 … {len(x) - 1}")
    if len(y) < 10 or y.min() < 0:
        raise Fault(Layer.DATA, f"{path}: y must name a class, counted from 0, for each of at least 10 nodes")


def _arrays(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise Fault(Layer.DATA, f"--dataset: {path} is neither generated nor cora nor a file")
    try:
        import numpy as np

        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in ("x", "edge_index", "y")}
    except Exception as error:
        raise Fault(
            Layer.DATA, f"{path} is no .npz with x, edge_index and y: {type(error).__name__}: {error}"
        ) from error
