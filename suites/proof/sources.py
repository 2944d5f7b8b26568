"""Sources of a graph for several machines: generated, files, or a data set of the Open Graph Benchmark (OGB).

A file is an `.npz` with `x` [nodes, features], `edge_index` [2, edges] with both directions of an edge, and `y` [nodes]
with classes from 0, no pickled objects; a folder has the same arrays in files `x.npy`, `edge_index.npy`, `y.npy`, which
need not fit into memory twice. Both may have `train`, `valid` and `test`, numbers of nodes; else nodes are split by
class as the generated graph's are.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof import graphs, ogb_files
from proof.verdict import Fault, Layer, Proof

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

ARRAYS = ("x", "edge_index", "y")
ROLES = ("train", "valid", "test")
CHUNK = 16 << 20


@dataclass(frozen=True)
class Split:
    """A graph in tensors, as `proof.graphs.Tensors`, and the nodes of each role."""

    x: torch.Tensor
    edge_index: torch.Tensor
    y: torch.Tensor
    classes: int
    roles: Mapping[str, torch.Tensor]

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.y)

    @property
    def edges(self) -> int:
        """The number of edges, each direction on its own."""
        return int(self.edge_index.size(1))


@dataclass(frozen=True)
class Source:
    """A graph that can be loaded. `name` as it was asked for, `paths` of the files that it is read from."""

    name: str
    paths: tuple[Path, ...] = ()
    root: Path = Path()

    def sha256(self) -> str:
        """Of the files; empty where the name alone says which graph it is. Raises Fault."""
        if not self.paths:
            return ""
        found = hashlib.sha256()
        for path in self.paths:
            try:
                with path.open("rb") as stream:
                    while block := stream.read(CHUNK):
                        found.update(block)
            except OSError as error:
                raise Fault(Layer.DATA, f"--dataset: {path} cannot be read: {error.strerror}") from error
        return found.hexdigest()

    def load(self, seed: int, proof: Proof) -> Split:
        """The graph in tensors; `seed` splits nodes that come without roles. Raises Fault."""
        if self.name == "generated":
            graph = graphs.tensors(graphs.generate())
            return Split(graph.x, graph.edge_index, graph.y, graph.classes, _roles_by_class(graph.y, seed))
        if self.name in ogb_files.NAMES:
            return Split(*ogb_files.load(self.name, self.root, proof))
        return _from_arrays(Path(self.name), _arrays(self.paths), seed)


def find(name: str, root: Path) -> Source:
    """The source of this name: `generated`, a data set of OGB (kept below `root`), a folder or a file. Raises Fault."""
    path = Path(name)
    if name == "generated" or name in ogb_files.NAMES:
        return Source(name, root=root)
    if path.is_dir():
        missing = [f"{array}.npy" for array in ARRAYS if not (path / f"{array}.npy").is_file()]
        if missing:
            raise Fault(
                Layer.DATA,
                f"--dataset {path} lacks {', '.join(missing)}: a folder has x.npy [nodes, features], edge_index.npy "
                "[2, edges] and y.npy [nodes]; a data set of OGB is named (ogbn-products) and its place is --root",
            )
        files = [path / f"{array}.npy" for array in (*ARRAYS, *ROLES)]
        return Source(str(path), tuple(file for file in files if file.is_file()))
    if path.is_file():
        return Source(str(path), (path,))
    known = ", ".join(("generated", *ogb_files.NAMES))
    raise Fault(Layer.DATA, f"--dataset {name} is neither {known} nor a folder nor a file")


def _arrays(paths: Sequence[Path]) -> dict[str, Any]:
    """The arrays of an `.npz`, or of a folder's `.npy`, which stay on the disk until they are used. Raises Fault."""
    import numpy as np

    try:
        if len(paths) == 1:
            with np.load(paths[0], allow_pickle=False) as archive:
                return {name: archive[name] for name in (*ARRAYS, *ROLES) if name in archive.files}
        return {path.stem: np.load(path, mmap_mode="c", allow_pickle=False) for path in paths}
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise Fault(Layer.DATA, f"--dataset: {paths[0]} holds no arrays of NumPy: {error}") from error


def _from_arrays(path: Path, arrays: Mapping[str, Any], seed: int) -> Split:
    import torch

    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise Fault(Layer.DATA, f"{path} lacks {', '.join(missing)}; it has {', '.join(arrays) or 'no arrays'}")
    check_arrays(path, arrays["x"], arrays["edge_index"], arrays["y"])
    given = [name for name in ROLES if name in arrays]
    if given and given != list(ROLES):
        raise Fault(Layer.DATA, f"{path} has {', '.join(given)}: either all of {', '.join(ROLES)} or none of them")
    y = torch.from_numpy(arrays["y"].astype("int64"))
    roles = {name: torch.from_numpy(arrays[name].astype("int64")) for name in given}
    for name, nodes in roles.items():
        if nodes.dim() != 1 or not len(nodes) or int(nodes.min()) < 0 or int(nodes.max()) >= len(y):
            raise Fault(Layer.DATA, f"{path}: {name} must be numbers of nodes, 0 … {len(y) - 1}, at least one")
    return Split(
        torch.from_numpy(arrays["x"].astype("float32", copy=False)),
        torch.from_numpy(arrays["edge_index"].astype("int64", copy=False)),
        y,
        int(y.max()) + 1,
        roles or _roles_by_class(y, seed),
    )


def _roles_by_class(y: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    import torch

    split = graphs.split(y.tolist(), seed)
    return {name: torch.tensor(part) for name, part in zip(ROLES, (split.train, split.validation, split.test))}


def check_arrays(path: Path, x: Any, edge_index: Any, y: Any) -> None:  # noqa: ANN401  NumPy's are not imported here
    """Check that these are a graph's. Raises Fault that names `path`."""
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
