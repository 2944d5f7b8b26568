"""Samples of a graph that PyG's extensions take, as rows of `proof.choices`: what must hold for each of them."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from proof.choices import NEIGHBOURS, NODES, Choice, Graph, graph_of
from proof.operators import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    import torch as torch_types

    Tensor = torch_types.Tensor

HOPS, ALL, FEW = 2, -1, 2  #: neighbours of each node
TYPES, RELATIONS = ("a", "b"), (("a", "to", "b"), ("b", "by", "a"))
SEEDS = (3, 11)


class Sampled(NamedTuple):
    """A sample: the nodes of each type; for each relation the two places among them of each edge, and its number."""

    nodes: Mapping[str, Sequence[int]]
    edges: Mapping[tuple[str, str, str], Sequence[tuple[int, int, int]]]


def judge_edges(found: Sampled, graph: Graph, seeds: Mapping[str, Sequence[int]]) -> None:
    """Each edge is the graph's with its number, and is there once; the seeds are the first nodes; none is twice."""
    for kind, nodes in found.nodes.items():
        first = list(seeds.get(kind, ()))
        if list(nodes[: len(first)]) != first or len({*nodes}) != len(nodes):
            raise Wrong(f"the nodes are {list(nodes)}, and not {first} and others")
    row, col = graph.row.tolist(), graph.col.tolist()
    for relation, sampled in found.edges.items():
        begins, ends = found.nodes[relation[0]], found.nodes[relation[2]]
        for source, target, edge in sampled:
            if not 0 <= edge < len(row) or (begins[source], ends[target]) != (col[edge], row[edge]):
                raise Wrong(f"an edge from node {begins[source]} to {ends[target]} has the number {edge}, another's")
        if len({edge for _, _, edge in sampled}) != len(sampled):
            raise Wrong("an edge is sampled twice")


def judge_sample(found: Sampled, graph: Graph, seeds: Mapping[str, Sequence[int]], fan: int) -> None:
    """A sample of `fan` neighbours of each node for each of the hops; all of them where it is negative."""
    judge_edges(found, graph, seeds)
    degree = Counter(graph.row.tolist())
    taken = {relation: Counter(target for _, target, _ in each) for relation, each in found.edges.items()}
    reached = {kind: {*range(len(seeds.get(kind, ())))} for kind in found.nodes}
    frontier, due = reached, 0
    for _ in range(HOPS):
        further: dict[str, set[int]] = {kind: set() for kind in found.nodes}
        for relation, sampled in found.edges.items():
            for target in frontier[relation[2]]:
                full = degree[found.nodes[relation[2]][target]]
                wanted = full if fan < 0 else min(fan, full)
                due += wanted
                if taken[relation][target] != wanted:
                    raise Wrong(f"{taken[relation][target]} neighbours of a node are sampled, not {wanted}")
            further[relation[0]] |= {source for source, target, _ in sampled if target in frontier[relation[2]]}
        frontier = {kind: further[kind] - reached[kind] for kind in further}
        reached = {kind: reached[kind] | frontier[kind] for kind in reached}
    if sum(map(len, found.edges.values())) != due or any(
        len(reached[kind]) != len(found.nodes[kind]) for kind in reached
    ):
        raise Wrong(f"the sample is not {HOPS} hops deep")


ONE = (("n", "to", "n"),)


def _one(node: Tensor, row: Tensor, col: Tensor, edge: Tensor) -> Sampled:
    return Sampled({"n": node.tolist()}, {ONE[0]: [*zip(row.tolist(), col.tolist(), edge.tolist())]})


def _several(node: Any, row: Any, col: Any, edge: Any) -> Sampled:  # noqa: ANN401  dictionaries of tensors
    parts = {}
    for relation in RELATIONS:
        key = "__".join(relation)
        parts[relation] = [*zip(row[key].tolist(), col[key].tolist(), edge[key].tolist())]
    return Sampled({kind: node[kind].tolist() for kind in TYPES}, parts)


def _typed(graph: Graph) -> tuple[Any, ...]:
    """The arguments of a graph with two relations, each of which has the edges of `graph`."""
    keys = ["__".join(relation) for relation in RELATIONS]
    return list(TYPES), list(RELATIONS), dict.fromkeys(keys, graph.ptr), dict.fromkeys(keys, graph.col)


def _by_parts(owner: Sequence[int], node: Sequence[int], row: Tensor, col: Tensor, edge: Tensor) -> Iterator[Sampled]:
    """The sample of each seed, of a disjoint one: the number of its seed is known of each node."""
    for seed in range(len(SEEDS)):
        mine = {number: place for place, number in enumerate(n for n, of in enumerate(owner) if of == seed)}
        triples = zip(row.tolist(), col.tolist(), edge.tolist())
        parts = [(mine[a], mine[b], e) for a, b, e in triples if owner[a] == seed == owner[b]]
        yield Sampled({"n": [node[number] for number in mine]}, {ONE[0]: parts})


def pyg_lib(torch: ModuleType, random: torch_types.Generator) -> Iterator[Choice]:
    """The samplers of pyg_lib."""
    importlib.import_module("pyg_lib")
    operators, graph, seeds = torch.ops.pyg, graph_of(torch), torch.tensor(SEEDS)

    def plain(fan: int) -> None:
        row, col, node, edge = operators.neighbor_sample(graph.ptr, graph.col, seeds, [fan] * HOPS, csc=True)[:4]
        judge_sample(_one(node, row, col, edge), graph, {"n": SEEDS}, fan)

    def disjoint(fan: int) -> None:
        row, col, node, edge = operators.neighbor_sample(
            graph.ptr, graph.col, seeds, [fan] * HOPS, csc=True, disjoint=True
        )[:4]
        parts = [*_by_parts(node[:, 0].tolist(), node[:, 1].tolist(), row, col, edge)]
        judge_parts(parts, graph, fan, len(edge))

    def heterogeneous(fan: int) -> None:
        fans = {"__".join(relation): [fan] * HOPS for relation in RELATIONS}
        row, col, node, edge = operators.hetero_neighbor_sample(*_typed(graph), {"a": seeds}, fans, csc=True)[:4]
        judge_sample(_several(node, row, col, edge), graph, {"a": SEEDS}, fan)

    def subgraph(_: int) -> None:
        nodes = torch.arange(0, NODES, 3)
        ptr, col, edge = operators.subgraph(graph.ptr, graph.col, nodes, True)
        judge_between(torch, nodes, ptr, col, edge, graph)

    yield from _samplers(
        "pyg_lib",
        {
            "neighbor_sample": plain,
            "neighbor_sample, disjoint": disjoint,
            "hetero_neighbor_sample": heterogeneous,
            "subgraph": subgraph,
        },
    )


def _samplers(library: str, checks: Mapping[str, Callable[[int], None]]) -> Iterator[Choice]:
    """Rows, each with all neighbours and with few."""

    def both(check: Callable[[int], None]) -> None:
        for fan in (ALL, FEW):
            check(fan)

    for name, check in checks.items():
        yield Choice(f"{library}.{name}", lambda _, check=check: both(check), cuda=False)


def judge_parts(parts: Sequence[Sampled], graph: Graph, fan: int, count: int) -> None:
    """One sample for each seed, which together have all edges."""
    for seed, part in zip(SEEDS, parts):
        judge_sample(part, graph, {"n": [seed]}, fan)
    if sum(len(part.edges[ONE[0]]) for part in parts) != count:
        raise Wrong("an edge joins the samples of two seeds")


def judge_between(torch: ModuleType, nodes: Tensor, ptr: Tensor, col: Tensor, edge: Tensor, graph: Graph) -> None:
    """All edges between chosen nodes, numbered among them: where each node's begin, where they end, which they are."""
    row = torch.arange(len(nodes)).repeat_interleave(ptr[1:] - ptr[:-1])
    if not torch.equal(nodes[row], graph.row[edge]) or not torch.equal(nodes[col], graph.col[edge]):
        raise Wrong("an edge has another's number")
    inside = torch.isin(graph.row, nodes) & torch.isin(graph.col, nodes)
    if sorted(edge.tolist()) != inside.nonzero().flatten().tolist():
        raise Wrong(f"it gives {len(edge)} edges, not the {int(inside.sum())} between the chosen nodes")


def torch_sparse(torch: ModuleType, random: torch_types.Generator) -> Iterator[Choice]:
    """The samplers of torch_sparse, and of SparseTensor."""
    importlib.import_module("torch_sparse")
    operators, graph, seeds = torch.ops.torch_sparse, graph_of(torch), torch.tensor(SEEDS)

    def plain(fan: int) -> None:
        found = operators.neighbor_sample(graph.ptr, graph.col, seeds, [fan] * HOPS, False, True)
        node, row, col, edge = found
        judge_sample(_one(node, row, col, edge), graph, {"n": SEEDS}, fan)

    def heterogeneous(fan: int) -> None:
        fans = {"__".join(relation): [fan] * HOPS for relation in RELATIONS}
        found = operators.hetero_neighbor_sample(*_typed(graph), {"a": seeds}, fans, HOPS, False, True)
        judge_sample(_several(*found), graph, {"a": SEEDS}, fan)

    def hgt(_: int) -> None:
        counts = {kind: [FEW] * HOPS for kind in TYPES}
        sample = _several(*operators.hgt_sample(*_typed(graph)[2:], {"a": seeds}, counts, HOPS))
        judge_edges(sample, graph, {"a": SEEDS})
        pairs = {*zip(graph.row.tolist(), graph.col.tolist())}
        for relation in RELATIONS:
            ends = [(a, b) for b in sample.nodes[relation[2]] for a in sample.nodes[relation[0]] if (b, a) in pairs]
            if len(sample.edges[relation]) != len(ends):
                raise Wrong(f"{len(sample.edges[relation])} of {len(ends)} edges between the sampled nodes are there")
        if any(not 0 < len(nodes) <= len(SEEDS) + FEW * HOPS for nodes in sample.nodes.values()):
            raise Wrong(f"it samples {[*map(len, sample.nodes.values())]} nodes, {FEW} of each type a hop are due")

    def ego(_: int) -> None:
        found = operators.ego_k_hop_sample_adj(graph.ptr, graph.col, seeds, HOPS, NODES, False)
        judge_balls(torch, graph, *found)

    yield from _samplers(
        "torch_sparse",
        {
            "neighbor_sample": plain,
            "hetero_neighbor_sample": heterogeneous,
            "hgt_sample": hgt,
            "ego_k_hop_sample_adj": ego,
            **_of_matrix(torch, graph),
        },
    )


def judge_balls(
    torch: ModuleType,
    graph: Graph,
    ptr: Tensor,
    col: Tensor,
    nodes: Tensor,
    numbers: Tensor,
    bounds: Tensor,
    roots: Tensor,
) -> None:
    """For each seed all nodes that are at most some hops away, and all edges between them."""
    if nodes[roots].tolist() != list(SEEDS):
        raise Wrong(f"the roots are {nodes[roots].tolist()}, not {list(SEEDS)}")
    pairs = [*zip(graph.row.tolist(), graph.col.tolist())]
    for low, high, seed in zip(bounds.tolist(), bounds.tolist()[1:], SEEDS):
        ball = {seed}
        for _hop in range(HOPS):
            ball |= {b for a, b in pairs if a in ball}
        mine, first, last = nodes[low:high], int(ptr[low]), int(ptr[high])
        if sorted(mine.tolist()) != sorted(ball):
            raise Wrong(f"the nodes around {seed} are {sorted(mine.tolist())}, not {sorted(ball)}")
        judge_between(torch, mine, ptr[low : high + 1] - first, col[first:last] - low, numbers[first:last], graph)


def _of_matrix(torch: ModuleType, graph: Graph) -> dict[str, Callable[[int], None]]:
    """Samples that a SparseTensor takes of itself, and its ways from rows to pointers."""
    library, seeds = importlib.import_module("torch_sparse"), torch.tensor(SEEDS)
    matrix = library.SparseTensor(row=graph.row, col=graph.col, sparse_sizes=(NODES, NODES), is_sorted=True)
    pairs = {*zip(graph.row.tolist(), graph.col.tolist())}

    def saint(_: int) -> None:
        nodes = torch.arange(0, NODES, 3)
        part, numbers = matrix.saint_subgraph(nodes)
        ptr, col, _values = part.csr()
        judge_between(torch, nodes, ptr, col, numbers, graph)

    def sample_adj(fan: int) -> None:
        part, nodes = matrix.sample_adj(seeds, fan)
        row, col, _values = part.coo()
        degrees = (graph.ptr[seeds + 1] - graph.ptr[seeds]).tolist()
        due = [degree if fan < 0 else min(fan, degree) for degree in degrees]
        if nodes[: len(SEEDS)].tolist() != list(SEEDS) or torch.bincount(row, minlength=len(SEEDS)).tolist() != due:
            raise Wrong(f"it does not sample {due} neighbours of the nodes {list(SEEDS)}")
        found = [*zip(seeds[row].tolist(), nodes[col].tolist())]
        if len({*found}) != len(found) or not {*found} <= pairs:
            raise Wrong("a sampled edge is not the graph's, or there twice")

    def sample(_: int) -> None:
        found = matrix.sample(NEIGHBOURS, seeds)
        if not {(seed, node) for seed, nodes in zip(SEEDS, found.tolist()) for node in nodes} <= pairs:
            raise Wrong("a sampled edge is not the graph's")

    def pointers(_: int) -> None:
        operators = torch.ops.torch_sparse
        if not torch.equal(operators.ptr2ind(graph.ptr, len(graph.row)), graph.row):
            raise Wrong("the rows are not those of the pointers")
        if not torch.equal(operators.ind2ptr(graph.row, NODES), graph.ptr):
            raise Wrong("the pointers are not those of the rows")

    return {"saint_subgraph": saint, "sample_adj": sample_adj, "sample": sample, "ptr2ind": pointers}


def pyg(torch: ModuleType, random: torch_types.Generator) -> Iterator[Choice]:
    """PyG's NeighborLoader, by pyg_lib or torch_sparse; disjoint samples by pyg_lib alone."""
    typing = importlib.import_module("torch_geometric.typing")
    if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
        return
    loader, data = importlib.import_module("torch_geometric.loader"), importlib.import_module("torch_geometric.data")
    graph = graph_of(torch)
    whole = data.Data(
        edge_index=torch.stack([graph.col, graph.row]), edge_attr=torch.arange(len(graph.row)), num_nodes=NODES
    )

    def batch(fan: int, **more: bool) -> Any:  # noqa: ANN401  a Data
        size = {"batch_size": len(SEEDS), **more}
        return next(iter(loader.NeighborLoader(whole, [fan] * HOPS, input_nodes=torch.tensor(SEEDS), **size)))

    def plain(fan: int) -> None:
        found = batch(fan)
        judge_sample(_one(found.n_id, *found.edge_index, found.edge_attr), graph, {"n": SEEDS}, fan)

    def disjoint(fan: int) -> None:
        found = batch(fan, disjoint=True)
        parts = [*_by_parts(found.batch.tolist(), found.n_id.tolist(), *found.edge_index, found.edge_attr)]
        judge_parts(parts, graph, fan, len(found.edge_attr))

    checks = {"NeighborLoader": plain, **({"NeighborLoader, disjoint": disjoint} if typing.WITH_PYG_LIB else {})}
    yield from _samplers("PyG", checks)


#: library → its rows
SAMPLES = {"pyg_lib": pyg_lib, "torch_sparse": torch_sparse, "PyG": pyg}
