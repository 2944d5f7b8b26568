"""Convolutions over B-splines, against splines built from truncated powers and the full tensor product."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import torch as torch_types

    from proof.operators.examiner import Examiner

    Tensor = torch_types.Tensor

EDGES, NODES, WIDTH_IN, WIDTH_OUT = 25, 8, 3, 4
#: control points and whether the spline is open, in each dimension; degree
SPLINES = (((5, 4), (1, 0), 1), ((5, 4), (0, 1), 2), ((5, 6), (1, 0), 3), ((4,), (1,), 1))
KINDS = ("float64", "float32")  #: the package has no code for float16


def check(examiner: Examiner, library: ModuleType, extension: str) -> None:
    """Every operator of the family that `library` has."""
    for counts, is_open, degree in SPLINES:
        # On a GPU the packages launch a kernel without blocks for no edges, which CUDA refuses.
        for edges in (EDGES, 0) if examiner.device.type == "cpu" else (EDGES,):
            _basis(examiner, library, extension, counts, is_open, degree, edges)
    _weighting(examiner, library, extension)
    if hasattr(library, "spline_conv"):
        _convolution(examiner, library, extension)


def curve(torch: ModuleType, degree: int, at: Tensor) -> Tensor:
    """The B-spline of whole knots 0 … degree + 1, by truncated powers."""
    total = torch.zeros_like(at)
    for knot in range(degree + 2):
        share = (-1) ** knot * math.comb(degree + 1, knot) / math.factorial(degree)
        total = total + share * (at - knot).clamp(min=0) ** degree
    return torch.where((at > 0) & (at < degree + 1), total, torch.zeros_like(at))


def full_basis(
    torch: ModuleType, places: Tensor, counts: tuple[int, ...], is_open: tuple[int, ...], degree: int
) -> Tensor:
    """[edges, control points]: the weight of every control point; the first dimension runs fastest."""
    product = torch.ones(len(places), 1, dtype=places.dtype)
    for dim, (count, is_open_here) in enumerate(zip(counts, is_open)):
        at = places[:, dim] * (count - degree * is_open_here)
        offsets = at.view(-1, 1) + degree - torch.arange(count).view(1, -1)
        weights = sum(curve(torch, degree, offsets + turn * count) for turn in (-1, 0, 1))
        product = (weights.unsqueeze(2) * product.unsqueeze(1)).flatten(1)
    return product


def _places(examiner: Examiner, edges: int, dimensions: int) -> Tensor:
    return 0.02 + 0.96 * examiner.uniform(edges, dimensions)


def _basis(
    examiner: Examiner,
    library: ModuleType,
    extension: str,
    counts: tuple[int, ...],
    is_open: tuple[int, ...],
    degree: int,
    edges: int,
) -> None:
    torch = examiner.torch

    def call(places: Tensor, sizes: Tensor, opened: Tensor) -> Tensor:
        weights, points = library.spline_basis(places, sizes, opened, degree)
        return weights.new_zeros(len(places), math.prod(counts)).scatter_add(1, points, weights)

    examiner.compare(
        f"{extension}.spline_basis",
        call,
        lambda places, sizes, opened: full_basis(torch, places, counts, is_open, degree),
        [_places(examiner, edges, len(counts))],
        [torch.tensor(counts), torch.tensor(is_open, dtype=torch.uint8)],
        kinds=KINDS,
    )


def _weighting(examiner: Examiner, library: ModuleType, extension: str) -> None:
    torch = examiner.torch
    points = torch.stack([examiner.order(9)[:4] for _ in range(EDGES)])

    def wanted(x: Tensor, weight: Tensor, basis: Tensor, points: Tensor) -> Tensor:
        spread = torch.zeros(EDGES, 9, dtype=basis.dtype).scatter_add(1, points, basis)
        return torch.einsum("ek,ei,kio->eo", spread, x, weight)

    examiner.compare(
        f"{extension}.spline_weighting",
        # The package reads `basis` as if it lay together, whatever it is told; spline_basis never gives another.
        lambda x, weight, basis, points: library.spline_weighting(x, weight, basis.contiguous(), points),
        wanted,
        [examiner.draw(EDGES, WIDTH_IN), examiner.draw(9, WIDTH_IN, WIDTH_OUT), examiner.uniform(EDGES, 4)],
        [points],
        kinds=KINDS,
    )


def _convolution(examiner: Examiner, library: ModuleType, extension: str) -> None:
    torch = examiner.torch
    counts, is_open, degree = SPLINES[0]
    edges = torch.stack([examiner.order(EDGES) % NODES, examiner.order(EDGES) % (NODES - 1)])

    def call(x: Tensor, places: Tensor, weight: Tensor, root: Tensor, bias: Tensor, *rest: Tensor) -> Tensor:
        edges, sizes, opened = rest
        return library.spline_conv(x, edges, places, weight, sizes, opened, degree, True, root, bias)

    def wanted(x: Tensor, places: Tensor, weight: Tensor, root: Tensor, bias: Tensor, *rest: Tensor) -> Tensor:
        basis = full_basis(torch, places, counts, is_open, degree)
        messages = torch.einsum("ek,ei,kio->eo", basis, x[edges[1]], weight)
        reached = torch.nn.functional.one_hot(edges[0], NODES).t().to(x.dtype)
        return reached @ messages / reached.sum(1).clamp(min=1).view(-1, 1) + x @ root + bias

    examiner.compare(
        f"{extension}.spline_conv",
        call,
        wanted,
        [
            examiner.draw(NODES, WIDTH_IN),
            _places(examiner, EDGES, len(counts)),
            examiner.draw(math.prod(counts), WIDTH_IN, WIDTH_OUT),
            examiner.draw(WIDTH_IN, WIDTH_OUT),
            examiner.draw(WIDTH_OUT),
        ],
        [edges, torch.tensor(counts), torch.tensor(is_open, dtype=torch.uint8)],
        kinds=KINDS,
    )
