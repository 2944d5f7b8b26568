"""Sampling from a graph: neighbours, walks, subgraphs. Chance decides, so properties are checked, not numbers.

Every edge that comes back must exist, none more often than asked, and all of them where more is asked than there is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proof.operators.examiner import insist

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType

    import torch as torch_types

    from proof.operators.examiner import Examiner

    Tensor = torch_types.Tensor
    Matrix = Any  #: a SparseTensor

NODES, DEGREE = 30, 6
FAN_OUT = 4
STEPS, WALKS = 12, 20


@dataclass(frozen=True)
class Graph:
    """Edges in order: the neighbours of node n are `col[offsets[n]:offsets[n + 1]]`, 1 to 2 * DEGREE of them."""

    offsets: Tensor
    row: Tensor
    col: Tensor

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Node and neighbour, by the number of the edge."""
        return list(zip(self.row.tolist(), self.col.tolist()))

    def degree(self, node: int) -> int:
        """How many neighbours a node has."""
        return int(self.offsets[node + 1] - self.offsets[node])


def draw_graph(examiner: Examiner, *, both_ways: bool = False) -> Graph:
    """A graph of NODES nodes, every one with at least one neighbour and none with itself for one."""
    torch = examiner.torch
    wanted = set()
    for node in range(NODES):
        for other in examiner.order(NODES)[: 1 + node % (2 * DEGREE)].tolist():
            wanted.add((node, other if other != node else (node + 1) % NODES))
    if both_ways:
        wanted |= {(other, node) for node, other in wanted}
    edges = torch.tensor(sorted(wanted), dtype=torch.long)
    counts = torch.bincount(edges[:, 0], minlength=NODES)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    return Graph(offsets, edges[:, 0].contiguous(), edges[:, 1].contiguous())


def insist_walks(graph: Graph, walks: Tensor, start: Tensor, steps: int) -> None:
    """Each walk begins where it was told to and goes along edges."""
    insist(list(walks.shape) == [len(start), steps + 1], f"the walks have shape {list(walks.shape)}")
    insist(walks[:, 0].tolist() == start.tolist(), "walks begin elsewhere")
    edges = set(graph.edges)
    for walk in walks.tolist():
        for pair in zip(walk, walk[1:]):
            insist(pair in edges, f"a walk goes from {pair[0]} to {pair[1]}, where no edge is")
    if len(start) > 1:
        insist(len({tuple(walk[1:]) for walk in walks.tolist()}) > 1, "all walks are the same")


def insist_neighbours(
    graph: Graph, edges: Iterable[tuple[int, int, int]], asked: Iterable[int], fan_out: int, *, repeat: bool = False
) -> None:
    """`edges` (number, node, neighbour) exist, and each node that was asked has as many as it should."""
    known = graph.edges
    counts: Counter[int] = Counter()
    seen = set()
    for number, node, other in edges:
        insist(0 <= number < len(known), f"there is no edge {number}")
        insist(known[number] == (node, other), f"edge {number} is {known[number]}, not {(node, other)}")
        insist(repeat or number not in seen, f"edge {number} comes back twice")
        seen.add(number)
        counts[node] += 1
    for node in asked:
        degree = graph.degree(node)
        due = degree if fan_out < 0 else fan_out if repeat else min(fan_out, degree)
        insist(counts[node] == due, f"node {node} has {degree} neighbours, {due} were due, {counts[node]} came")
    insist(set(counts) <= set(asked), "neighbours came of nodes that were not asked")


def check(examiner: Examiner, library: ModuleType) -> None:
    """torch_sparse's operators, most of which are for the CPU alone."""
    graph = draw_graph(examiner)
    torch = examiner.torch
    operators = torch.ops.torch_sparse
    start = examiner.order(NODES)[:WALKS]

    def walk() -> None:
        matrix = _matrix(examiner, library, graph)
        insist_walks(graph, library.random_walk(matrix, examiner.here(start), STEPS).cpu(), start, STEPS)

    def sample() -> None:
        found = library.sample(_matrix(examiner, library, graph), 9, examiner.here(start)).cpu()
        insist(list(found.shape) == [len(start), 9], f"it has shape {list(found.shape)}")
        edges = set(graph.edges)
        pairs = [(node, other) for node, others in zip(start.tolist(), found.tolist()) for other in others]
        insist(all(pair in edges for pair in pairs), "a neighbour is none")

    examiner.holds("torch_sparse.random_walk", walk)
    examiner.holds("torch_sparse.sample", sample)
    for name, run in (
        ("saint_subgraph", lambda: _saint(examiner, library, graph, start)),
        ("sample_adj", lambda: _sample_adj(examiner, operators, graph, start)),
        ("neighbor_sample", lambda: _neighbor_sample(examiner, operators, graph, start[:5])),
        ("hetero_neighbor_sample", lambda: _hetero(examiner, operators, graph, start[:5])),
        ("hetero_temporal_neighbor_sample", lambda: _temporal(examiner, operators, graph, start[:5])),
        ("hgt_sample", lambda: _hgt(operators, graph, start[:5])),
        ("ego_k_hop_sample_adj", lambda: _ego(operators, graph, start[:5])),
        ("relabel", lambda: _relabel(operators, graph, start)),
        ("relabel_one_hop", lambda: _relabel_one_hop(operators, graph, start)),
    ):
        if examiner.device.type == "cpu" and hasattr(operators, name):
            examiner.holds(f"torch_sparse.{name}", run)
    if examiner.device.type == "cpu":
        two_way = draw_graph(examiner, both_ways=True)
        examiner.holds(
            "torch_sparse.partition", lambda: _partition(examiner, library, two_way), unless="Not compiled with"
        )


def _matrix(examiner: Examiner, library: ModuleType, graph: Graph) -> Matrix:
    row, col = examiner.here((graph.row, graph.col))
    return library.SparseTensor(row=row, col=col, sparse_sizes=(NODES, NODES), is_sorted=True)


def _saint(examiner: Examiner, library: ModuleType, graph: Graph, chosen: Tensor) -> None:
    found, numbers = library.saint_subgraph(_matrix(examiner, library, graph), examiner.here(chosen))
    row, col, _ = found.coo()
    local = {node: place for place, node in enumerate(chosen.tolist())}
    wanted = {(local[a], local[b]): number for number, (a, b) in enumerate(graph.edges) if a in local and b in local}
    got = dict(zip(zip(row.tolist(), col.tolist()), numbers.tolist()))
    insist(got == wanted, f"the subgraph has {len(got)} edges, {len(wanted)} lie between its nodes")


def _sample_adj(examiner: Examiner, operators: ModuleType, graph: Graph, chosen: Tensor) -> None:
    for fan_out, repeat in ((FAN_OUT, False), (FAN_OUT, True), (NODES, False), (-1, False)):
        offsets, col, nodes, numbers = operators.sample_adj(graph.offsets, graph.col, chosen, fan_out, repeat)
        insist(nodes[: len(chosen)].tolist() == chosen.tolist(), "the nodes asked for do not come first")
        edges = []
        for place, node in enumerate(chosen.tolist()):
            for at in range(int(offsets[place]), int(offsets[place + 1])):
                edges.append((int(numbers[at]), node, int(nodes[col[at]])))
        insist_neighbours(graph, edges, chosen.tolist(), fan_out, repeat=repeat)
    offsets, col, nodes, _ = operators.sample_adj(graph.offsets, graph.col, chosen[:0], FAN_OUT, False)
    insist(offsets.tolist() == [0] and not col.numel() and not nodes.numel(), "no node has neighbours")


def insist_hops(
    graph: Graph, nodes: Tensor, found: Sequence[Tensor], seeds: Tensor, fan_outs: list[int], *, repeat: bool
) -> None:
    """One sample over hops: `found` is (towards, from, number of the edge), towards and from counted in `nodes`."""
    towards, source, numbers = (each.tolist() for each in found)
    named = nodes.tolist()
    insist(named[: len(seeds)] == seeds.tolist(), "the seeds do not come first")
    insist(len(set(named)) == len(named), "a node comes back twice")
    edges = [(number, named[a], named[b]) for a, b, number in zip(towards, source, numbers)]
    distance = dict.fromkeys(seeds.tolist(), 0)
    for hop in range(1, len(fan_outs) + 1):
        reached = [node for node, far in distance.items() if far == hop - 1]
        due = [edge for edge in edges if edge[1] in reached]
        insist_neighbours(graph, due, reached, fan_outs[hop - 1], repeat=repeat)
        for _, _, other in due:
            distance.setdefault(other, hop)
    insist(set(distance) == set(named), "a node comes back that no edge leads to")
    insist(all(distance[edge[1]] < len(fan_outs) for edge in edges), "edges come back beyond the last hop")


def _neighbor_sample(examiner: Examiner, operators: ModuleType, graph: Graph, seeds: Tensor) -> None:
    for fan_outs, repeat in (([FAN_OUT, 2], False), ([FAN_OUT, 2], True), ([-1, -1], False), ([NODES], False)):
        nodes, source, towards, numbers = operators.neighbor_sample(
            graph.offsets, graph.col, seeds, fan_outs, repeat, True
        )
        insist_hops(graph, nodes, (towards, source, numbers), seeds, fan_outs, repeat=repeat)
    nodes, source, towards, numbers = operators.neighbor_sample(graph.offsets, graph.col, seeds, [2], False, False)
    insist_induced(graph, nodes, towards, source, numbers)
    empty = operators.neighbor_sample(graph.offsets, graph.col, seeds[:0], [FAN_OUT], False, True)
    insist(not any(each.numel() for each in empty), "no seeds have neighbours")


def insist_induced(graph: Graph, nodes: Tensor, towards: Tensor, source: Tensor, numbers: Tensor) -> None:
    """All edges between `nodes` are there, and no other."""
    named = nodes.tolist()
    wanted = {(number, *edge) for number, edge in enumerate(graph.edges) if edge[0] in named and edge[1] in named}
    got = {(n, named[a], named[b]) for a, b, n in zip(towards.tolist(), source.tolist(), numbers.tolist())}
    insist(got == wanted, f"{len(got & wanted)} of {len(wanted)} edges between its nodes, {len(got - wanted)} others")


def _hetero(examiner: Examiner, operators: ModuleType, graph: Graph, seeds: Tensor) -> None:
    """One kind of node and one of edge, under names: the answer must be as without."""
    nodes, source, towards, numbers = operators.hetero_neighbor_sample(
        ["v"],
        [("v", "to", "v")],
        {"v__to__v": graph.offsets},
        {"v__to__v": graph.col},
        {"v": seeds},
        {"v__to__v": [FAN_OUT, 2]},
        2,
        False,
        True,
    )
    found = (towards["v__to__v"], source["v__to__v"], numbers["v__to__v"])
    insist_hops(graph, nodes["v"], found, seeds, [FAN_OUT, 2], repeat=False)


def _temporal(examiner: Examiner, operators: ModuleType, graph: Graph, seeds: Tensor) -> None:
    """No neighbour is younger than the seed that it was sampled for."""
    times = examiner.order(NODES)
    nodes, source, towards, numbers = operators.hetero_temporal_neighbor_sample(
        ["v"],
        [("v", "to", "v")],
        {"v__to__v": graph.offsets},
        {"v__to__v": graph.col},
        {"v": seeds},
        {"v__to__v": [FAN_OUT]},
        {"v": times},
        1,
        False,
        True,
    )
    named, known = nodes["v"].tolist(), graph.edges
    for a, b, number in zip(towards["v__to__v"].tolist(), source["v__to__v"].tolist(), numbers["v__to__v"].tolist()):
        insist(known[number] == (named[a], named[b]), f"edge {number} is {known[number]}")
        insist(times[named[b]] <= times[named[a]], "a neighbour is younger than its seed")


def _hgt(operators: ModuleType, graph: Graph, seeds: Tensor) -> None:
    nodes, source, towards, numbers = operators.hgt_sample(
        {"v__to__v": graph.offsets}, {"v__to__v": graph.col}, {"v": seeds}, {"v": [FAN_OUT, FAN_OUT]}, 2
    )
    named = nodes["v"].tolist()
    insist(named[: len(seeds)] == seeds.tolist(), "the seeds do not come first")
    insist(len(set(named)) == len(named) <= len(seeds) + 2 * FAN_OUT, f"{len(named)} nodes came")
    insist_induced(graph, nodes["v"], towards["v__to__v"], source["v__to__v"], numbers["v__to__v"])


def _ego(operators: ModuleType, graph: Graph, seeds: Tensor) -> None:
    offsets, col, nodes, numbers, parts, roots = operators.ego_k_hop_sample_adj(
        graph.offsets, graph.col, seeds, 1, NODES, False
    )
    named, known = nodes.tolist(), graph.edges
    insist([named[root] for root in roots.tolist()] == seeds.tolist(), "the roots are other nodes")
    for number, seed in enumerate(seeds.tolist()):
        part = named[int(parts[number]) : int(parts[number + 1])]
        wanted = {seed, *(b for a, b in known if a == seed)}
        insist(set(part) == wanted, f"around node {seed} are {sorted(wanted)}, not {sorted(part)}")
    for place in range(len(named)):
        for at in range(int(offsets[place]), int(offsets[place + 1])):
            insist(known[int(numbers[at])] == (named[place], named[int(col[at])]), "an edge is another")


def _relabel(operators: ModuleType, graph: Graph, chosen: Tensor) -> None:
    col, nodes = operators.relabel(graph.col, chosen)
    insist(nodes[: len(chosen)].tolist() == chosen.tolist(), "the nodes asked for do not come first")
    insist(nodes[col].tolist() == graph.col.tolist(), "the new numbers stand for other nodes")


def _relabel_one_hop(operators: ModuleType, graph: Graph, chosen: Tensor) -> None:
    offsets, col, _, nodes = operators.relabel_one_hop(graph.offsets, graph.col, None, chosen, False)
    for place, node in enumerate(chosen.tolist()):
        others = nodes[col[int(offsets[place]) : int(offsets[place + 1])]].tolist()
        wanted = graph.col[int(graph.offsets[node]) : int(graph.offsets[node + 1])].tolist()
        insist(sorted(others) == sorted(wanted), f"node {node} has other neighbours")


def _partition(examiner: Examiner, library: ModuleType, graph: Graph) -> None:
    matrix, weights = _matrix(examiner, library, graph), examiner.torch.ones(NODES, dtype=examiner.torch.long)
    for node_weight in (None, weights):
        _, ends, order = library.partition(matrix, 2, node_weight=node_weight)
        _insist_parts(ends, order)


def _insist_parts(ends: Tensor, order: Tensor) -> None:
    insist(sorted(order.tolist()) == list(range(NODES)), "nodes are lost")
    insist(int(ends[0]) == 0 and int(ends[-1]) == NODES and NODES // 4 <= int(ends[1]) <= NODES - NODES // 4, f"{ends}")
