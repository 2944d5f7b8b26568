"""pyg_lib: products by segment and by group, sampled arithmetic, sorting, softmax by segment, sampling from a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof.operators import scatter, spline, walks
from proof.operators.examiner import insist

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import torch as torch_types

    from proof.operators.examiner import Examiner

    Tensor = torch_types.Tensor

ROWS, WIDTH_IN, WIDTH_OUT = 24, 8, 12  #: widths that are multiples of 4, which the code for GPUs wants
OFFSETS = (0, 5, 5, 17, ROWS)  #: the second segment is empty
TF32 = 100.0  #: products on a GPU may be taken with 10 bits of each factor, as torch's own


def check(examiner: Examiner, library: ModuleType) -> None:
    """Every operator of pyg_lib that this version has."""
    operators = library.ops
    _products(examiner, operators)
    _sampled(examiner, operators)
    _by_segment(examiner, operators)
    scatter.check(examiner, operators, "pyg_lib")  # from 0.8 on
    if hasattr(operators, "spline_basis"):
        spline.check(examiner, operators, "pyg_lib")
    if examiner.device.type == "cpu":
        sample(examiner, library)


def _products(examiner: Examiner, operators: ModuleType) -> None:
    torch, on_gpu = examiner.torch, examiner.device.type == "cuda"
    # On a GPU these read their input as float32, whatever it is.
    kinds, slack = (("float32",), TF32) if on_gpu else (("float64", "float32"), 1.0)
    offsets = torch.tensor(OFFSETS)

    def by_segment(source: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
        parts = [source[low:high] @ each for low, high, each in zip(OFFSETS, OFFSETS[1:], weight)]
        return torch.cat(parts)

    if hasattr(operators, "segment_matmul"):
        examiner.compare(
            "pyg_lib.segment_matmul",
            lambda source, weight, offsets: operators.segment_matmul(source, offsets, weight),
            by_segment,
            [examiner.draw(ROWS, WIDTH_IN), examiner.draw(len(OFFSETS) - 1, WIDTH_IN, WIDTH_OUT)],
            [offsets],
            kinds=kinds,
            slack=slack,
        )
    if hasattr(operators, "grouped_matmul"):
        examiner.compare(
            "pyg_lib.grouped_matmul",
            lambda a, b, c, d: tuple(operators.grouped_matmul([a, b], [c, d])),
            lambda a, b, c, d: (a @ c, b @ d),
            [
                examiner.draw(5, 16),
                examiner.draw(3, 8),
                examiner.draw(16, 12),
                examiner.draw(8, 4),
            ],
            kinds=kinds,
            slack=slack,
        )


def _sampled(examiner: Examiner, operators: ModuleType) -> None:
    arithmetic: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "add": lambda left, right: left + right,
        "sub": lambda left, right: left - right,
        "mul": lambda left, right: left * right,
        "div": lambda left, right: left / right,
    }
    left_rows, right_rows = examiner.order(20) % 9, examiner.order(20) % 7
    for name, operation in arithmetic.items():
        operator = getattr(operators, f"sampled_{name}", None)
        if operator is None:
            continue
        examiner.compare(
            f"pyg_lib.sampled_{name}",
            lambda left, right, a, b, operator=operator: operator(  # it refuses what lies apart
                left.contiguous(), (right + 3 * right.sign()).contiguous(), a, b
            ),
            lambda left, right, a, b, operation=operation: operation(left[a], (right + 3 * right.sign())[b]),
            [examiner.draw(9, WIDTH_IN), examiner.draw(7, WIDTH_IN)],
            [left_rows, right_rows],
            kinds=("float64", "float32"),
        )


def _by_segment(examiner: Examiner, operators: ModuleType) -> None:
    torch = examiner.torch
    if hasattr(operators, "index_sort"):
        numbers = examiner.order(200) % 50

        def sorts() -> None:
            found, order = (each.cpu() for each in operators.index_sort(examiner.here(numbers), 50))
            insist(torch.equal(found, numbers.sort().values), "the numbers are not in order")
            insist(torch.equal(numbers[order], found), "the places are of other numbers")
            insist(sorted(order.tolist()) == list(range(200)), "a place comes back twice")

        examiner.holds("pyg_lib.index_sort", sorts)
    if hasattr(operators, "softmax_csr") and examiner.device.type != "cpu":
        examiner.ledger.left_out["pyg_lib.softmax_csr"] = "for the CPU alone"
    elif hasattr(operators, "softmax_csr"):
        offsets = torch.tensor(OFFSETS)
        examiner.compare(
            "pyg_lib.softmax_csr",
            lambda source, offsets: operators.softmax_csr(source.contiguous(), offsets, 0),  # as above
            lambda source, offsets: torch.cat([source[low:high].softmax(0) for low, high in zip(OFFSETS, OFFSETS[1:])]),
            [examiner.draw(ROWS, WIDTH_OUT)],
            [offsets],
            kinds=("float64", "float32"),
        )


def sample(examiner: Examiner, library: ModuleType) -> None:
    """The operators that sample, which are for the CPU."""
    graph = walks.draw_graph(examiner)
    start = examiner.order(walks.NODES)[: walks.WALKS]
    sampler = library.sampler

    def neighbours() -> None:
        for fan_outs, repeat in (([walks.FAN_OUT, 2], False), ([walks.FAN_OUT, 2], True), ([-1, -1], False)):
            found = sampler.neighbor_sample(graph.offsets, graph.col, start[:5], fan_outs, replace=repeat)
            row, col, nodes, numbers = found[:4]
            walks.insist_hops(graph, nodes, (row, col, numbers), start[:5], fan_outs, repeat=repeat)
        found = sampler.neighbor_sample(graph.offsets, graph.col, start[:0], [walks.FAN_OUT])
        insist(not found[0].numel() and not found[2].numel(), "no seeds have neighbours")

    def under_names() -> None:
        edge = ("v", "to", "v")
        found = sampler.hetero_neighbor_sample(
            {edge: graph.offsets}, {edge: graph.col}, {"v": start[:5]}, {edge: [walks.FAN_OUT, 2]}
        )
        row, col, nodes, numbers = found[:4]
        edges = (row[edge], col[edge], numbers[edge])
        walks.insist_hops(graph, nodes["v"], edges, start[:5], [walks.FAN_OUT, 2], repeat=False)

    def induced() -> None:
        offsets, col, numbers = sampler.subgraph(graph.offsets, graph.col, start)
        row = start.new_tensor(
            [place for place in range(len(start)) for _ in range(offsets[place], offsets[place + 1])]
        )
        walks.insist_induced(graph, start, row, col, numbers)

    def walk() -> None:
        for p, q in ((1.0, 1.0), (0.5, 2.0)):
            found = sampler.random_walk(graph.offsets, graph.col, start, walks.STEPS, p, q)
            walks.insist_walks(graph, found, start, walks.STEPS)

    for name, run in (
        ("neighbor_sample", neighbours),
        ("hetero_neighbor_sample", under_names),
        ("subgraph", induced),
        ("random_walk", walk),
    ):
        if hasattr(sampler, name):
            examiner.holds(f"pyg_lib.{name}", run)
    if hasattr(library, "partition"):
        examiner.holds("pyg_lib.metis", lambda: _metis(examiner, library), unless="ot compiled with")


def _metis(examiner: Examiner, library: ModuleType) -> None:
    graph = walks.draw_graph(examiner, both_ways=True)
    parts = library.partition.metis(graph.offsets, graph.col, 2)
    insist(set(parts.tolist()) == {0, 1} and len(parts) == walks.NODES, f"parts {sorted(set(parts.tolist()))}")
