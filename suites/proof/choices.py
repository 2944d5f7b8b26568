"""Operators of PyG's extensions that choose, as rows: neighbours, clusters, walks and samples, held by what must hold.

They have no gradient. A row's call takes what is drawn here, whichever library it belongs to; its judge raises Wrong.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from proof.operators import Wrong, edges, wanted_by_pyg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    import torch as torch_types

    Tensor = torch_types.Tensor

NEIGHBOURS, RADIUS, RATIO, CELL = 4, 0.45, 0.25, 0.4
COUNTS = ((30, 20), (12, 8))  #: of two batches of points, and of those whose neighbours are sought
NODES, WALKS, LENGTH = 20, 400, 3
ROUNDING = {"float64": 1e-9, "float32": 1e-4}
START = 3
MANY = 64  #: neighbours within the radius, more than there are


@dataclass(frozen=True)
class Choice:
    """One operator. `check(device)` raises Wrong, without the operator's name. `cuda`: whether it takes GPUs."""

    name: str
    check: Callable[[torch_types.device], None]
    cuda: bool = True


class Cloud(NamedTuple):
    """Points in two batches."""

    x: Tensor
    batch: Tensor
    ptr: Tensor

    def to(self, device: torch_types.device, dtype: torch_types.dtype) -> Cloud:
        """The same on a device."""
        return Cloud(self.x.to(device, dtype), self.batch.to(device), self.ptr.to(device))


class Graph(NamedTuple):
    """Edges from `col` to `row`, in order of `row`, whose edges begin at `ptr`."""

    row: Tensor
    col: Tensor
    ptr: Tensor

    def to(self, device: torch_types.device) -> Graph:
        """The same on a device."""
        return Graph(*(each.to(device) for each in self))


def graph_of(torch: ModuleType, *, both_ways: bool = False) -> Graph:
    row, col = edges(torch, NODES, NODES)
    if both_ways:
        there = torch.zeros(NODES, NODES, dtype=torch.bool)
        there[row, col] = there[col, row] = True
        row, col = there.fill_diagonal_(False).nonzero().t().contiguous()
    return Graph(row, col, _pointer(torch, row, NODES))


def _pointer(torch: ModuleType, sorted_index: Tensor, count: int) -> Tensor:
    return torch.cat([sorted_index.new_zeros(1), torch.bincount(sorted_index, minlength=count).cumsum(0)])


# Points


def _clouds(torch: ModuleType, random: torch_types.Generator) -> tuple[Cloud, Cloud]:
    made = []
    for counts in COUNTS:
        x = torch.rand(sum(counts), 3, generator=random, dtype=torch.float64)
        batch = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        made.append(Cloud(x, batch, _pointer(torch, batch, len(counts))))
    return made[0], made[1]


def _distances(torch: ModuleType, first: Cloud, second: Cloud) -> Tensor:
    """Of each point of the first from each of the second, infinite between batches."""
    apart = first.batch.view(-1, 1) != second.batch
    return (first.x.unsqueeze(1) - second.x).pow(2).sum(-1).sqrt().masked_fill(apart, math.inf)


def judge_knn(torch: ModuleType, found: Tensor, cloud: Cloud, others: Cloud, rounding: float) -> None:
    """Pairs (point of `others`, point of `cloud`): the nearest of each."""
    if found.dim() != 2 or sorted(found[0].tolist()) != sorted(list(range(len(others.x))) * NEIGHBOURS):
        raise Wrong(f"it gives {list(found.shape)} pairs, not {NEIGHBOURS} of each of {len(others.x)} points")
    for number, row in enumerate(_distances(torch, others, cloud)):
        chosen = found[1][found[0] == number]
        off = float((row[chosen].sort().values - row.topk(NEIGHBOURS, largest=False).values).abs().max())
        if len(set(chosen.tolist())) < NEIGHBOURS or not off <= rounding:
            raise Wrong(f"the neighbours of point {number} are not the nearest")


def judge_radius(torch: ModuleType, found: Tensor, cloud: Cloud, others: Cloud, rounding: float) -> None:
    """Pairs (point of `others`, point of `cloud`): all that are close."""
    far = _distances(torch, others, cloud)
    pairs = [*zip(*found.tolist())] if found.dim() == 2 else []
    sure, possible = ({*map(tuple, (far < RADIUS + by).nonzero().tolist())} for by in (-rounding, rounding))
    if len({*pairs}) != len(pairs) or not sure <= {*pairs} <= possible:
        raise Wrong(f"it gives {len({*pairs} & sure)} of {len(sure)} pairs within the radius, {len(pairs)} in all")


def judge_nearest(torch: ModuleType, found: Tensor, cloud: Cloud, others: Cloud, rounding: float) -> None:
    """For each point of `others` the nearest of `cloud`."""
    far = _distances(torch, others, cloud)
    if found.shape != (len(others.x),):
        raise Wrong(f"it gives {list(found.shape)} numbers for {len(others.x)} points")
    off = far.gather(1, found.view(-1, 1)).view(-1) - far.amin(1)
    if not bool((off <= rounding).all()):
        raise Wrong(f"the point given for point {int(off.argmax())} is not the nearest")


def judge_fps(torch: ModuleType, found: Tensor, cloud: Cloud, others: Cloud, rounding: float) -> None:
    """In each batch its first point, then each time the one that is farthest from all before."""
    far = _distances(torch, cloud, cloud)
    for begin, end in zip(cloud.ptr.tolist(), cloud.ptr.tolist()[1:]):
        chosen = [number for number in found.tolist() if begin <= number < end]
        if len(chosen) != math.ceil((end - begin) * RATIO) or chosen[0] != begin:
            raise Wrong(f"it gives the points {chosen} of {begin} to {end - 1}")
        for count in range(1, len(chosen)):
            room = far[begin:end, chosen[:count]].amin(1)
            if not float(room.max() - room[chosen[count] - begin]) <= rounding:
                raise Wrong(f"point {chosen[count]} is not the farthest from those before it")


def judge_cells(torch: ModuleType, found: Tensor, cloud: Cloud, others: Cloud, rounding: float) -> None:
    """Points have the same number where they are in the same cell, and only there."""
    cells = [*map(tuple, (cloud.x / CELL).floor().long().tolist())]
    if len({*zip(cells, found.tolist())}) != len({*cells}) or len({*found.tolist()}) != len({*cells}):
        raise Wrong(f"it makes {len({*found.tolist()})} cells of {len({*cells})}, or puts points into others")


#: operator → what judges it; a graph is of one cloud with itself
POINTS = {
    "knn": judge_knn,
    "knn_graph": judge_knn,
    "radius": judge_radius,
    "radius_graph": judge_radius,
    "nearest": judge_nearest,
    "fps": judge_fps,
    "grid_cluster": judge_cells,
    "voxel_grid": judge_cells,
}


def _points(
    torch: ModuleType, library: str, calls: Mapping[str, Callable[..., Tensor]], random: torch_types.Generator
) -> Iterator[Choice]:
    cloud, others = _clouds(torch, random)

    def check(device: torch_types.device, name: str, call: Callable[..., Tensor]) -> None:
        for kind, rounding in ROUNDING.items():
            found = call(*(each.to(device, getattr(torch, kind)) for each in (cloud, others))).cpu()
            if name.endswith("_graph"):  # of a cloud with itself, and the other way round
                POINTS[name](torch, found.flip(0), cloud, cloud, rounding)
            else:
                POINTS[name](torch, found, cloud, others, rounding)

    for name, call in calls.items():
        yield Choice(f"{library}.{name}", lambda device, name=name, call=call: check(device, name, call))


# Clusters and walks of a graph


def judge_matching(found: Sequence[int], graph: Graph) -> None:
    """Clusters are nodes or edges, and no edge is left between two nodes that are alone."""
    size = Counter(found)
    pairs = {*zip(graph.row.tolist(), graph.col.tolist())}
    for number, count in size.items():
        members = [node for node, cluster in enumerate(found) if cluster == number]
        if count > 2 or (count == 2 and tuple(members) not in pairs):
            raise Wrong(f"nodes {members} are a cluster, and no edge of the graph")
    if left := [pair for pair in pairs if size[found[pair[0]]] == size[found[pair[1]]] == 1]:
        raise Wrong(f"nodes {list(left[0])} have an edge and are both left alone")


def judge_walks(found: Tensor, start: Sequence[int], graph: Graph) -> None:
    """Each walk begins where it should and follows edges; together they take every edge of their first node."""
    if list(found.shape) != [len(start), LENGTH + 1] or found[:, 0].tolist() != list(start):
        raise Wrong(f"it gives {list(found.shape)} nodes, or walks that do not begin where they should")
    pairs = {*zip(graph.row.tolist(), graph.col.tolist())}
    steps = {step for walk in found.tolist() for step in zip(walk, walk[1:])}
    if strays := steps - pairs:
        raise Wrong(f"a walk goes from node {min(strays)[0]} to {min(strays)[1]} without an edge")
    if missing := {pair for pair in pairs if pair[0] == start[0]} - steps:
        raise Wrong(f"{len(start)} walks never go from node {min(missing)[0]} to {min(missing)[1]}")


def _clusters_and_walks(
    torch: ModuleType, library: str, matching: Callable[..., Tensor], walk: Callable[..., Tensor]
) -> Iterator[Choice]:
    graph = graph_of(torch, both_ways=True)
    weight = (graph.row + graph.col).double() % 7 + 1

    def check_matching(device: torch_types.device) -> None:
        for weights in (None, weight.to(device)):
            judge_matching(matching(graph.to(device), weights).tolist(), graph)

    def check_walks(device: torch_types.device, p: float, q: float) -> None:
        start = torch.full((WALKS,), START)
        judge_walks(walk(graph.to(device), start.to(device), p, q).cpu(), start.tolist(), graph)

    yield Choice(f"{library}.graclus_cluster", check_matching)
    yield Choice(f"{library}.random_walk", lambda device: check_walks(device, 1.0, 1.0))
    if library == "torch_cluster":  # pyg_lib has no other walks yet
        yield Choice(f"{library}.random_walk, p and q", lambda device: check_walks(device, 2.0, 0.5), cuda=False)


def torch_cluster(torch: ModuleType, random: torch_types.Generator) -> Iterator[Choice]:
    """All of torch_cluster."""
    library = importlib.import_module("torch_cluster")
    calls = {
        **_of_points(library),
        "grid_cluster": lambda cloud, others: library.grid_cluster(cloud.x, *_cells(cloud)),
    }
    yield from _points(torch, "torch_cluster", calls, random)
    yield from _clusters_and_walks(
        torch,
        "torch_cluster",
        lambda graph, weight: library.graclus_cluster(graph.row, graph.col, weight, NODES),
        lambda graph, start, p, q: library.random_walk(graph.row, graph.col, start, LENGTH, p, q, num_nodes=NODES),
    )


def _of_points(library: ModuleType) -> dict[str, Callable[..., Tensor]]:
    """The operators that torch_cluster and PyG have under the same names."""
    return {
        "knn": lambda cloud, others: library.knn(cloud.x, others.x, NEIGHBOURS, cloud.batch, others.batch),
        "knn_graph": lambda cloud, others: library.knn_graph(cloud.x, NEIGHBOURS, cloud.batch, loop=True),
        "radius": lambda cloud, others: library.radius(cloud.x, others.x, RADIUS, cloud.batch, others.batch, MANY),
        "radius_graph": lambda cloud, others: library.radius_graph(cloud.x, RADIUS, cloud.batch, True, MANY),
        "nearest": lambda cloud, others: library.nearest(others.x, cloud.x, others.batch, cloud.batch),
        "fps": lambda cloud, others: library.fps(cloud.x, cloud.batch, RATIO, random_start=False),
    }


def _cells(cloud: Cloud) -> tuple[Tensor, Tensor, Tensor]:
    """Size, first and last corner of a grid."""
    return cloud.x.new_full((3,), CELL), cloud.x.new_zeros(3), cloud.x.new_ones(3)


def pyg_lib(torch: ModuleType, random: torch_types.Generator) -> Iterator[Choice]:
    """Operators of torch_cluster that pyg_lib has from 0.6 on, and its sort."""
    importlib.import_module("pyg_lib")
    operators = torch.ops.pyg
    if hasattr(operators, "index_sort"):
        yield Choice("pyg_lib.index_sort", lambda device: _sorted(torch, operators.index_sort), cuda=False)
    if not hasattr(operators, "knn"):
        return
    calls = {
        "knn": lambda cloud, others: operators.knn(cloud.x, others.x, cloud.ptr, others.ptr, NEIGHBOURS, False, 1),
        "radius": lambda cloud, others: operators.radius(
            cloud.x, others.x, cloud.ptr, others.ptr, RADIUS, MANY, 1, False
        ),
        "nearest": lambda cloud, others: operators.nearest(others.x, cloud.x, others.ptr, cloud.ptr),
        "fps": lambda cloud, others: operators.fps(cloud.x, cloud.ptr, RATIO, False),
        "grid_cluster": lambda cloud, others: operators.grid_cluster(cloud.x, *_cells(cloud)),
    }
    yield from _points(torch, "pyg_lib", calls, random)
    yield from _clusters_and_walks(
        torch,
        "pyg_lib",
        lambda graph, weight: operators.graclus_cluster(graph.ptr, graph.col, weight),
        lambda graph, start, p, q: operators.random_walk(graph.ptr, graph.col, start, LENGTH, p, q),
    )


def _sorted(torch: ModuleType, sort: Callable[..., tuple[Tensor, Tensor]]) -> None:
    column = graph_of(torch).col
    values, places = sort(column, NODES)
    if not torch.equal(values, column.sort().values) or not torch.equal(column[places], values):
        raise Wrong("the numbers are not in order")


def pyg(torch: ModuleType, random: torch_types.Generator) -> Iterator[Choice]:
    """The same by PyG's own functions, which call torch_cluster, or from 2.8 on pyg_lib."""
    if not wanted_by_pyg("torch_cluster")[1]:
        return
    library = importlib.import_module("torch_geometric.nn")

    def voxels(cloud: Cloud, others: Cloud) -> Tensor:
        size, start, end = (each.tolist() for each in _cells(cloud))
        return library.voxel_grid(cloud.x, size, start=start, end=end)

    yield from _points(torch, "PyG", {**_of_points(library), "voxel_grid": voxels}, random)
    graph = graph_of(torch, both_ways=True)
    pairs = torch.stack([graph.row, graph.col])

    def matching(device: torch_types.device) -> None:
        judge_matching(library.graclus(pairs.to(device), num_nodes=NODES).tolist(), graph)

    def walks(device: torch_types.device) -> None:
        model = library.Node2Vec(pairs, 4, LENGTH + 1, LENGTH + 1, num_nodes=NODES)
        start = torch.full((WALKS,), START)
        judge_walks(model.pos_sample(start), start.tolist(), graph)

    yield Choice("PyG.graclus", matching)
    yield Choice("PyG.Node2Vec", walks, cuda=False)


#: library → its rows
CHOICES = {"pyg_lib": pyg_lib, "torch_cluster": torch_cluster, "PyG": pyg}
