"""Whether PyG uses what is installed, and gets right answers from it.

PyG falls back to slower code of its own where it could not import an extension, so an answer alone says little: the
operators that it runs are looked at as well.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from proof.operators import scatter, trace, walks
from proof.operators.cluster import insist_nearest
from proof.operators.examiner import insist, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import torch as torch_types

    from proof.operators.examiner import Examiner

    Tensor = torch_types.Tensor

SWITCHES = {  # in torch_geometric.typing, as far as a version has them
    "pyg_lib": "WITH_PYG_LIB",
    "torch_scatter": "WITH_TORCH_SCATTER",
    "torch_sparse": "WITH_TORCH_SPARSE",
    "torch_cluster": "WITH_TORCH_CLUSTER",
    "torch_spline_conv": "WITH_TORCH_SPLINE_CONV",
}
TOLERANCE = 1e-4  #: of float32, as a share


def check(examiner: Examiner, installed: Collection[str]) -> None:
    """All of it, with the extensions that are `installed`."""
    typing = importlib.import_module("torch_geometric.typing")
    for name in switched_off(typing, installed):
        examiner.ledger.begin("PyG.typing")
        examiner.ledger.wrong("PyG.typing", SWITCHES[name], f"{name} is installed and PyG has switched it off")
    for name, providers, run in (
        ("segment", ("torch_scatter",), _segment),
        ("knn", ("torch_cluster", "pyg_lib"), _nearest),
        ("radius_graph", ("torch_cluster", "pyg_lib"), _ball),
        ("fps", ("torch_cluster", "pyg_lib"), _farthest),
        ("SAGEConv", ("torch_sparse",), _message_passing),
        ("SplineConv", ("torch_spline_conv", "pyg_lib"), _spline),
        ("NeighborLoader", ("torch_sparse", "pyg_lib"), _loader),
    ):
        there = [each for each in providers if each in installed]
        if there:
            examiner.holds(
                f"PyG.{name}", lambda run=run, there=there: _through(examiner, run, there), unless="requires"
            )


def switched_off(typing: object, installed: Collection[str]) -> list[str]:
    """The installed extensions that PyG does not use."""
    return [name for name, switch in SWITCHES.items() if name in installed and not getattr(typing, switch, True)]


def _through(examiner: Examiner, run: Callable[[Examiner], object], providers: list[str]) -> None:
    names: set[str] = set()
    with trace.traced(examiner.torch, names):
        ran = run(examiner)
    if ran is False:
        return  # this PyG has no such function
    starts = tuple(trace.NAMESPACES[each] + "::" for each in providers)
    insist(
        any(name.startswith(starts) for name in names),
        f"right, but by code of PyG's own: it runs no operator of {' or '.join(providers)}",
    )


def _close(got: Tensor, want: Tensor, what: str) -> None:
    got, want = got.detach().cpu().double(), want.detach().cpu().double()
    insist(got.shape == want.shape, f"{what}: shape {list(got.shape)}, not {list(want.shape)}")
    error = float((got - want).abs().max() / want.abs().max().clamp(min=1.0))
    insist(error <= TOLERANCE, f"{what} is off by {error:.1e}, {TOLERANCE:.0e} is allowed: {shown(got)}")


def _segment(examiner: Examiner) -> bool:
    utils = importlib.import_module("torch_geometric.utils")
    if not hasattr(utils, "segment"):
        return False
    torch = examiner.torch
    groups = (examiner.order(scatter.ROWS) % scatter.GROUPS).sort().values
    ends = scatter.members(torch, groups, scatter.GROUPS).sum(1).cumsum(0)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), ends])
    source = examiner.draw(scatter.ROWS, scatter.WIDTH).float()
    for reduce in ("sum", "mean", "min", "max"):
        found = utils.segment(*examiner.here((source, offsets)), reduce=reduce)
        _close(found, scatter.dense(torch, reduce, source.double(), groups), f"segment({reduce})")
    return True


def _points(examiner: Examiner) -> tuple[Tensor, Tensor]:
    x = examiner.uniform(40, 3).float()
    return x, examiner.torch.cdist(x.double(), x.double())


def _nearest(examiner: Examiner) -> None:
    functions = importlib.import_module("torch_geometric.nn")
    x, distances = _points(examiner)
    found = functions.knn(*examiner.here((x, x)), 4)
    insist_nearest(found, distances, 4, "float32")
    insist_nearest(functions.knn_graph(examiner.here(x), 4).flip(0), distances, 4, "float32", itself=False)


def _ball(examiner: Examiner) -> None:
    functions = importlib.import_module("torch_geometric.nn")
    x, distances = _points(examiner)
    found = functions.radius_graph(examiner.here(x), 0.4, max_num_neighbors=40)
    near = (distances < 0.4).fill_diagonal_(False)
    doubtful = ((distances - 0.4).abs() < 1e-5).sum()
    insist(abs(found.size(1) - int(near.sum())) <= int(doubtful), f"{found.size(1)} pairs, {int(near.sum())} are near")
    insist(bool((distances[found[0].cpu(), found[1].cpu()] < 0.4 + 1e-5).all()), "a pair is too far apart")


def _farthest(examiner: Examiner) -> None:
    functions = importlib.import_module("torch_geometric.nn")
    x, _ = _points(examiner)
    found = functions.fps(examiner.here(x), ratio=0.25).tolist()
    insist(len(set(found)) == len(found) == 10, f"{len(set(found))} points of 40 at ratio 0.25")


def _message_passing(examiner: Examiner) -> None:
    """A convolution over a SparseTensor gives what it gives over a list of edges, gradients too."""
    torch, graph = examiner.torch, walks.draw_graph(examiner)
    layers, sparse = importlib.import_module("torch_geometric.nn"), importlib.import_module("torch_sparse")
    layer = layers.SAGEConv(6, 5).to(examiner.device)
    x = examiner.here(examiner.draw(walks.NODES, 6).float())
    row, col = examiner.here((graph.row, graph.col))
    matrix = sparse.SparseTensor(row=row, col=col, sparse_sizes=(walks.NODES, walks.NODES))
    slopes, results = [], []
    for edges in (matrix, torch.stack([col, row])):
        source = x.clone().requires_grad_()
        results.append(layer(source, edges))
        slopes.append(torch.autograd.grad(results[-1].square().sum(), source)[0])
    reached = torch.nn.functional.one_hot(graph.row, walks.NODES).t().double()
    mean = reached @ x.detach().cpu().double()[graph.col] / reached.sum(1, keepdim=True)
    weights = {name: each.detach().cpu().double() for name, each in layer.named_parameters()}
    wanted = mean @ weights["lin_l.weight"].t() + weights["lin_l.bias"]
    wanted = wanted + x.detach().cpu().double() @ weights["lin_r.weight"].t()
    _close(results[0], wanted, "SAGEConv over a SparseTensor")
    _close(slopes[0], slopes[1], "its gradient")


def _spline(examiner: Examiner) -> None:
    layers, graph = importlib.import_module("torch_geometric.nn"), walks.draw_graph(examiner)
    layer = layers.SplineConv(4, 3, dim=2, kernel_size=5).to(examiner.device)
    edges = examiner.here(examiner.torch.stack([graph.row, graph.col]))
    places = examiner.here(examiner.uniform(len(graph.row), 2).float())
    found = layer(examiner.here(examiner.draw(walks.NODES, 4).float()), edges, places)
    insist(bool(examiner.torch.isfinite(found).all()), "the result has values that are no numbers")


def _loader(examiner: Examiner) -> None:
    """Batches have edges of the graph, as many as were asked for."""
    loaders, classes = (
        importlib.import_module("torch_geometric.loader"),
        importlib.import_module("torch_geometric.data"),
    )
    graph, torch = walks.draw_graph(examiner), examiner.torch
    edges = torch.stack([graph.col, graph.row])  # messages go from the neighbour to the node
    data = classes.Data(x=torch.arange(walks.NODES).view(-1, 1), edge_index=edges, num_nodes=walks.NODES)
    seeds = torch.arange(0, walks.NODES, 3)
    known, seen = set(graph.edges), 0
    for batch in loaders.NeighborLoader(data, [walks.FAN_OUT, 2], input_nodes=seeds, batch_size=5):
        names = batch.x.view(-1)
        pairs = list(zip(names[batch.edge_index[1]].tolist(), names[batch.edge_index[0]].tolist()))
        insist(all(pair in known for pair in pairs), "an edge comes back that is not in the graph")
        insist(len(set(pairs)) == len(pairs), "an edge comes back twice")
        for node in names[: batch.batch_size].tolist():
            came, due = sum(pair[0] == node for pair in pairs), min(walks.FAN_OUT, graph.degree(node))
            insist(came == due, f"node {node}: {due} neighbours are due, {came} came")
        seen += batch.batch_size
    insist(seen == len(seeds), f"{seen} of {len(seeds)} seeds came back")
