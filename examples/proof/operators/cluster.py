"""Points: nearest neighbours, balls, farthest points, grids; and pairings of nodes. Against all distances at once."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import TYPE_CHECKING

from proof.operators import walks
from proof.operators.examiner import insist

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import torch as torch_types

    from proof.operators.examiner import Examiner

    Tensor = torch_types.Tensor

POINTS, OTHERS, SPACE, NEIGHBOURS = 50, 20, 3, 4
#: how much farther, as a share, a neighbour may be than the one that is due
ROUNDING = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2}


class Points:
    """Points of two clouds, each in two batches, as a kind of number on a device; distances in float64."""

    def __init__(self, examiner: Examiner, kind: str) -> None:
        torch = examiner.torch
        dtype = getattr(torch, kind)
        self.kind = kind
        self.x = examiner.uniform(POINTS, SPACE).to(dtype)
        self.y = examiner.uniform(OTHERS, SPACE).to(dtype)
        self.batch_x = (torch.arange(POINTS) >= POINTS // 3).long()
        self.batch_y = (torch.arange(OTHERS) >= OTHERS // 2).long()
        self.distances = torch.cdist(self.y.double(), self.x.double())  # [y, x]
        self.within = self.distances.masked_fill(self.batch_y.view(-1, 1) != self.batch_x.view(1, -1), math.inf)
        self.own = torch.cdist(self.x.double(), self.x.double())
        self.own_within = self.own.masked_fill(self.batch_x.view(-1, 1) != self.batch_x.view(1, -1), math.inf)
        self.x_here, self.y_here = examiner.here((self.x, self.y))
        self.batches = examiner.here((self.batch_x, self.batch_y))


def check(examiner: Examiner, library: ModuleType) -> None:
    """Every operator of torch_cluster."""
    for kind in examiner.kinds:
        points = Points(examiner, kind)
        for name, each in (
            ("knn", _knn),
            ("knn_graph", _knn_graph),
            ("radius", _radius),
            ("radius_graph", _radius_graph),
            ("nearest", _nearest),
            ("fps", _fps),
            ("grid_cluster", _grid),
        ):
            run = functools.partial(each, examiner, library, points)
            if name == "nearest" and examiner.device.type == "cpu" and not importlib.util.find_spec("scipy"):
                examiner.ledger.left_out["torch_cluster.nearest"] = "needs SciPy on the CPU"
                continue
            if kind == "float16":
                # Where an operator has no code for it, that is what it says; else it is held to it.
                if name in ("knn", "radius"):
                    _if_it_can(examiner, f"torch_cluster.{name}", kind, run)
                continue
            examiner.holds(f"torch_cluster.{name}", run)
    examiner.holds("torch_cluster.graclus_cluster", lambda: _graclus(examiner, library))
    examiner.holds("torch_cluster.random_walk", lambda: _walk(examiner, library))
    if examiner.device.type == "cpu":
        examiner.holds("torch_cluster.neighbor_sampler", lambda: _neighbours(examiner, library))


def _if_it_can(examiner: Examiner, operator: str, kind: str, run: Callable[[], None]) -> None:
    def tried() -> None:
        try:
            run()
        except RuntimeError as error:
            if "implemented for" not in str(error):
                raise
            examiner.ledger.has_no_code(operator, kind, str(examiner.device))

    examiner.holds(operator, tried)


def insist_nearest(pairs: Tensor, distances: Tensor, count: int, kind: str, *, itself: bool = True) -> None:
    """`pairs` [2, …] are (y, x): of each y the `count` nearest x that can be reached."""
    got: dict[int, list[int]] = {}
    for y, x in pairs.cpu().t().tolist():
        got.setdefault(y, []).append(x)
    for y, row in enumerate(distances.tolist()):
        near = sorted((far, x) for x, far in enumerate(row) if far < math.inf and (itself or x != y))[:count]
        found = got.get(y, [])
        insist(len(set(found)) == len(found), f"point {y} has a neighbour twice ({kind})")
        insist(len(found) == len(near), f"point {y} has {len(found)} neighbours, not {len(near)} ({kind})")
        for x, (far, _) in zip(sorted(found, key=lambda x, row=row: row[x]), near):
            insist(
                row[x] <= far + ROUNDING[kind] and (itself or x != y),
                f"neighbour {x} of point {y} is {row[x]:.4f} away, {far:.4f} is due ({kind})",
            )


def _knn(examiner: Examiner, library: ModuleType, points: Points) -> None:
    found = library.knn(points.x_here, points.y_here, NEIGHBOURS)
    insist_nearest(found, points.distances, NEIGHBOURS, points.kind)
    found = library.knn(points.x_here, points.y_here, NEIGHBOURS, *points.batches)
    insist_nearest(found, points.within, NEIGHBOURS, points.kind)
    apart = points.x_here.t().contiguous().t()
    insist_nearest(library.knn(apart, points.y_here, 1), points.distances, 1, points.kind)
    found = library.knn(points.x_here, points.y_here, 2 * POINTS)
    insist_nearest(found, points.distances, 2 * POINTS, points.kind)  # fewer than asked, and all of them
    if examiner.device.type == "cuda":
        direction = points.x.double() / points.x.double().norm(dim=1, keepdim=True)
        towards = points.y.double() / points.y.double().norm(dim=1, keepdim=True)
        found = library.knn(points.x_here, points.y_here, NEIGHBOURS, cosine=True)
        insist_nearest(found, 1 - towards @ direction.t(), NEIGHBOURS, points.kind)
    insist(not library.knn(points.x_here[:0], points.y_here, NEIGHBOURS).numel(), "no points are neighbours")


def _knn_graph(examiner: Examiner, library: ModuleType, points: Points) -> None:
    batch = points.batches[0]
    for loop in (False, True):
        found = library.knn_graph(points.x_here, NEIGHBOURS, batch, loop)
        insist_nearest(found.flip(0), points.own_within, NEIGHBOURS, points.kind, itself=loop)
    found = library.knn_graph(points.x_here, NEIGHBOURS, flow="target_to_source")
    insist_nearest(found, points.own, NEIGHBOURS, points.kind, itself=False)


def far_enough(distances: Tensor) -> float:
    """A radius near the first third of all distances that no distance comes close to."""
    ordered = distances[distances < math.inf].flatten().sort().values
    third = len(ordered) // 3
    gaps = ordered[third + 1 : third + 60] - ordered[third : third + 59]
    at = third + int(gaps.argmax())
    return float((ordered[at] + ordered[at + 1]) / 2)


def insist_ball(pairs: Tensor, distances: Tensor, radius: float, most: int, kind: str) -> None:
    """`pairs` [2, …] are (y, x): of each y the x nearer than `radius`, `most` of them at most."""
    found = [tuple(pair) for pair in pairs.cpu().t().tolist()]
    insist(len(set(found)) == len(found), f"a pair comes back twice ({kind})")
    margin = ROUNDING[kind] if kind == "float16" else 0.0
    surely = {tuple(pair) for pair in (distances < radius - margin).nonzero().tolist()}
    perhaps = {tuple(pair) for pair in (distances < radius + margin).nonzero().tolist()}
    insist(set(found) <= perhaps, f"{len(set(found) - perhaps)} pairs are farther apart than {radius:.3f} ({kind})")
    for y in range(len(distances)):
        due = min(most, sum(pair[0] == y for pair in surely))
        got = sum(pair[0] == y for pair in found)
        insist(due <= got <= most, f"of point {y} {got} pairs came, {due} are due ({kind})")


def _radius(examiner: Examiner, library: ModuleType, points: Points) -> None:
    for distances, batches in ((points.distances, (None, None)), (points.within, points.batches)):
        radius = far_enough(distances)
        for most in (POINTS, 3):
            found = library.radius(points.x_here, points.y_here, radius, *batches, max_num_neighbors=most)
            insist_ball(found, distances, radius, most, points.kind)
    insist(not library.radius(points.x_here, points.y_here[:0], 1.0).numel(), "no points are neighbours")


def _radius_graph(examiner: Examiner, library: ModuleType, points: Points) -> None:
    radius = far_enough(points.own_within)
    found = library.radius_graph(points.x_here, radius, points.batches[0], loop=True, max_num_neighbors=POINTS)
    insist_ball(found.flip(0), points.own_within, radius, POINTS, points.kind)
    found = library.radius_graph(points.x_here, radius, points.batches[0], loop=False, max_num_neighbors=POINTS)
    others = points.own_within.clone().fill_diagonal_(math.inf)
    insist_ball(found.flip(0), others, radius, POINTS, points.kind)


def _nearest(examiner: Examiner, library: ModuleType, points: Points) -> None:
    for distances, batches in ((points.distances, (None, None)), (points.within, points.batches)):
        found = library.nearest(points.x_here, points.y_here, *batches).cpu().view(-1)
        insist(found.tolist() == distances.argmin(0).tolist(), f"other points are nearest ({points.kind})")


def farthest(distances: Tensor, start: int, count: int) -> list[int]:
    """From `start` on always the point that is farthest from all that were taken."""
    taken, left = [start], distances[start].clone()
    while len(taken) < count:
        taken.append(int(left.argmax()))
        left = left.minimum(distances[taken[-1]])
    return taken


def insist_farthest(found: Tensor, distances: Tensor, bounds: list[int], ratio: float, *, first: bool) -> None:
    """`found` takes, of each stretch of points between `bounds`, the farthest; from the first point on if `first`."""
    got = found.cpu().tolist()
    for low, high in zip(bounds, bounds[1:]):
        count = math.ceil(ratio * (high - low))
        part, got = got[:count], got[count:]
        insist(part and all(low <= each < high for each in part), f"points {part} are not of their batch")
        insist(not first or part[0] == low, "it does not begin with the first point")
        wanted = [low + each for each in farthest(distances[low:high, low:high], part[0] - low, count)]
        insist(part == wanted, f"it takes points {part}, not {wanted}")
    insist(not got, f"{len(got)} points too many")


def _fps(examiner: Examiner, library: ModuleType, points: Points) -> None:
    batch = points.batches[0]
    bounds = [0, POINTS // 3, POINTS]
    for first in (True, False):
        found = library.fps(points.x_here, None, 0.5, not first)
        insist_farthest(found, points.own, [0, POINTS], 0.5, first=first)
        found = library.fps(points.x_here, batch, 0.25, not first)
        insist_farthest(found, points.own, bounds, 0.25, first=first)


def insist_cells(found: Tensor, cells: Tensor) -> None:
    """Points have the same number where they lie in the same cell, and only there."""
    pairs = set(zip(found.cpu().tolist(), map(tuple, cells.tolist())))
    insist(len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}), "it does not follow the cells")


def _grid(examiner: Examiner, library: ModuleType, points: Points) -> None:
    torch = examiner.torch
    size = torch.tensor([0.25, 0.5, 0.2], dtype=points.x.dtype)
    zero, one = torch.zeros_like(size), torch.ones_like(size)
    found = library.grid_cluster(points.x_here, *examiner.here((size, zero, one)))
    insist_cells(found, (points.x.double() / size.double()).floor().long())
    found = library.grid_cluster(points.x_here, examiner.here(size))
    lowest = points.x.min(0).values
    insist_cells(found, ((points.x - lowest) / size).floor().long())


def insist_pairing(graph: walks.Graph, cluster: Tensor) -> None:
    """Each node is alone or with one neighbour, and no two neighbours are both alone."""
    groups: dict[int, list[int]] = {}
    for node, number in enumerate(cluster.cpu().tolist()):
        groups.setdefault(number, []).append(node)
    edges, alone = set(graph.edges), set()
    for nodes in groups.values():
        insist(len(nodes) <= 2, f"{len(nodes)} nodes are put together")
        insist(len(nodes) == 1 or tuple(nodes) in edges, f"nodes {nodes} are put together and have no edge")
        if len(nodes) == 1:
            alone.add(nodes[0])
    left = [(a, b) for a, b in edges if a in alone and b in alone and a != b]
    insist(not left, f"neighbours {left[:1]} are both left alone")
    insist(len(groups) < len(cluster), "no nodes are put together")


def _graclus(examiner: Examiner, library: ModuleType) -> None:
    graph = walks.draw_graph(examiner, both_ways=True)
    row, col = examiner.here((graph.row, graph.col))
    insist_pairing(graph, library.graclus_cluster(row, col, num_nodes=walks.NODES))
    weight = (1.0 + graph.row + graph.col).to(examiner.device)  # the same both ways
    insist_pairing(graph, library.graclus_cluster(row, col, weight, walks.NODES))


def _walk(examiner: Examiner, library: ModuleType) -> None:
    graph = walks.draw_graph(examiner)
    start = examiner.order(walks.NODES)[: walks.WALKS]
    for p, q in ((1.0, 1.0), (0.5, 2.0)):
        found = library.random_walk(
            *examiner.here((graph.row, graph.col, start)), walks.STEPS, p, q, num_nodes=walks.NODES
        )
        walks.insist_walks(graph, found.cpu(), start, walks.STEPS)


def _neighbours(examiner: Examiner, library: ModuleType) -> None:
    graph = walks.draw_graph(examiner)
    start = examiner.order(walks.NODES)[: walks.WALKS]
    for fan_out in (2, walks.FAN_OUT, walks.NODES):
        numbers = library.neighbor_sampler(start, graph.offsets, fan_out).tolist()
        insist(all(0 <= number < len(graph.edges) for number in numbers), "an edge does not exist")
        edges = [(number, *graph.edges[number]) for number in numbers]
        walks.insist_neighbours(graph, edges, start.tolist(), fan_out)
