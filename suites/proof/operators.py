"""Operators of PyG's extensions that have a gradient, as rows: how each is called, and what plain PyTorch gives.

`compare` holds the result and the gradient of a row against its reference. Operators that choose are `proof.choices`.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    import torch as torch_types

    Tensor = torch_types.Tensor

#: largest error allowed, as a share of the largest entry (or of 1, where that is smaller); docs/dev/suites.md
BANDS = {"float64": 1e-10, "float32": 2e-5}
TF32 = 100.0  #: products on a GPU may be taken with 10 bits of each factor, as torch's own: a wider band
ROWS, WIDTH, OUT, GROUPS = 40, 8, 12, 7  #: widths that are multiples of 4, which pyg_lib's code for GPUs wants
BOUNDS = (0, 5, 5, 17, ROWS)  #: of segments; the second is empty
REDUCTIONS = ("sum", "mean", "min", "max")


class Wrong(Exception):  # noqa: N818  it is what the operator is
    """An operator that gives something else than it should."""


@dataclass(frozen=True)
class Operator:
    """One operator: `call(*floats)` on the device and `reference(*floats)` in float64 on the CPU give the same tensor.

    `sizes`: of the numbers that are drawn. `slack` widens the band on a GPU. `slopes`: whether it has a gradient.
    """

    name: str
    call: Callable[..., Any]
    reference: Callable[..., Any]
    sizes: Sequence[Sequence[int]]
    kinds: Sequence[str] = ("float64", "float32")
    slack: float = 1.0
    slopes: bool = True


def compare(
    torch: ModuleType,
    device: torch_types.device,
    operator: Operator,
    kind: str,
    random: torch_types.Generator,
) -> float:
    """The larger error of result and gradients, as a share. Raises Wrong beyond the band."""
    drawn = [torch.randn(*size, generator=random, dtype=torch.float64) for size in operator.sizes]
    inputs = [each.to(device, getattr(torch, kind)).requires_grad_(operator.slopes) for each in drawn]
    # the very numbers that the operator gets: the rounding of the input is no difference
    exact = [each.detach().cpu().double().requires_grad_(operator.slopes) for each in inputs]
    got, want = operator.call(*inputs), operator.reference(*exact)
    pairs = [("the result", got, want)]
    if operator.slopes and got.shape == want.shape:
        if not got.requires_grad:
            raise Wrong(f"the result of {operator.name} has no gradient")
        direction = torch.randn(*want.shape, generator=random, dtype=torch.float64)
        slopes = torch.autograd.grad(got, inputs, direction.to(got.device, got.dtype))
        wanted = torch.autograd.grad(want, exact, direction)
        names = [f"the gradient of input {number}" for number in range(1, len(inputs) + 1)]
        pairs += zip(names, slopes, wanted)
    allowed = BANDS[kind] * (operator.slack if device.type == "cuda" else 1.0)
    worst = 0.0
    for what, mine, right in pairs:
        if mine.shape != right.shape or str(mine.dtype) != f"torch.{kind}" or mine.device.type != device.type:
            raise Wrong(f"{what} of {operator.name} is {mine.dtype} {list(mine.shape)} on {mine.device}")
        error = distance(torch, mine, right)
        if not error <= allowed:
            size = f"off by {error:.1e}" if math.isfinite(error) else "not a number where the reference is one"
            raise Wrong(f"{what} of {operator.name} in {kind} is {size}, {allowed:.0e} is allowed")
        worst = max(worst, error)
    return worst


def distance(torch: ModuleType, got: Tensor, want: Tensor) -> float:
    """Largest difference as a share of the largest expected entry, or of 1 where that is smaller."""
    got, want = got.detach().cpu().double(), want.detach()
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got - want).abs().max() / want.abs().max().clamp(min=1.0))


# Sums, means and so on over groups of rows


def reduced(torch: ModuleType, there: Tensor, how: str) -> Callable[[Tensor], Tensor]:
    """Return the reference of a reduction: of each row of `there` over the entries that it has."""
    neutral = {"sum": 0.0, "mean": 0.0, "mul": 1.0, "min": math.inf, "max": -math.inf}[how]
    reach, count = there.unsqueeze(-1), there.sum(1).view(-1, 1)

    def reference(source: Tensor) -> Tensor:
        """`source`: an entry for each column of `there`, or for each of its cells."""
        each = torch.where(reach, source, source.new_tensor(neutral))
        if how == "mul":
            return each.prod(1)
        if how in ("min", "max"):
            return torch.where(count > 0, each.amin(1) if how == "min" else each.amax(1), source.new_zeros(()))
        return each.sum(1) / (count.clamp(min=1) if how == "mean" else 1)

    return reference


def _first(result: Any) -> Any:  # noqa: ANN401  a tensor, or a tuple of them
    """The values, of an operator that gives their places too."""
    return result[0] if isinstance(result, tuple) else result


def _groups(torch: ModuleType) -> tuple[Tensor, Tensor, Tensor]:
    """The group of each row, not in order, the same in order, and where each group begins; the last has no member."""
    groups = torch.arange(ROWS) * 5 % (GROUPS - 1)
    ordered = groups.sort().values
    return groups, ordered, torch.cat([groups.new_zeros(1), torch.bincount(groups, minlength=GROUPS).cumsum(0)])


def torch_scatter(torch: ModuleType, device: torch_types.device) -> Iterator[Operator]:
    """All reductions of torch_scatter, by each of its three ways to name groups, and the ways back."""
    library = importlib.import_module("torch_scatter")
    groups, ordered, bounds = _groups(torch)
    here, here_ordered, here_bounds = (each.to(device) for each in (groups, ordered, bounds))
    numbers = torch.arange(GROUPS).view(-1, 1)
    calls = {  # the ending of a name: how it is called
        "scatter_{}": lambda do, x: do(x, here, 0, dim_size=GROUPS),
        "segment_{}_coo": lambda do, x: do(x, here_ordered, dim_size=GROUPS),
        "segment_{}_csr": lambda do, x: do(x, here_bounds),
    }
    for form, call in calls.items():
        for how in (*REDUCTIONS, "mul") if form.startswith("scatter") else REDUCTIONS:
            there = numbers == (groups if form.startswith("scatter") else ordered)
            name = form.format(how)
            yield Operator(
                f"torch_scatter.{name}",
                lambda x, call=call, name=name: _first(call(getattr(library, name), x)),
                reduced(torch, there, how),
                [(ROWS, WIDTH)],
            )
    for how in (*REDUCTIONS, "mul"):
        yield Operator(
            f"torch_scatter.scatter, {how}",
            lambda x, how=how: library.scatter(x, here, 0, dim_size=GROUPS, reduce=how),
            reduced(torch, numbers == groups, how),
            [(ROWS, WIDTH)],
        )
    for name, places in (("gather_coo", here_ordered), ("gather_csr", here_bounds)):
        yield Operator(
            f"torch_scatter.{name}",
            lambda x, name=name, places=places: getattr(library, name)(x, places),
            lambda x: x[ordered],
            [(GROUPS, WIDTH)],
        )


# Sparse matrices


def edges(torch: ModuleType, rows: int = ROWS, columns: int = GROUPS) -> tuple[Tensor, Tensor]:
    """Rows and columns of a matrix, in order; some rows are empty."""
    there = (torch.arange(rows).view(-1, 1) * 5 + torch.arange(columns) * 3) % 11 < 3
    row, col = there.nonzero().t()
    return row.contiguous(), col.contiguous()


class Matrix:
    """A sparse matrix with given places: of torch_sparse on the device, and whole for the reference."""

    def __init__(self, torch: ModuleType, device: torch_types.device) -> None:
        self.library = importlib.import_module("torch_sparse")
        self.row, self.col = edges(torch)
        self.here = torch.stack([self.row, self.col]).to(device)
        self.there = torch.zeros(ROWS, GROUPS, dtype=torch.bool)
        self.there[self.row, self.col] = True

    def sparse(self, values: Tensor) -> Any:  # noqa: ANN401  a SparseTensor
        """As torch_sparse has it."""
        row, col = self.here
        return self.library.SparseTensor(row=row, col=col, value=values, sparse_sizes=(ROWS, GROUPS), is_sorted=True)

    def dense(self, values: Tensor) -> Tensor:
        """With its zeros."""
        return values.new_zeros(ROWS, GROUPS).index_put((self.row, self.col), values)

    def filled(self, found: tuple[Tensor, Tensor], rows: int, columns: int) -> Tensor:
        """With its zeros, from the places and values that an operator gives."""
        (row, col), values = found
        return values.new_zeros(rows, columns).index_put((row, col), values, accumulate=True)


def torch_sparse(torch: ModuleType, device: torch_types.device) -> Iterator[Operator]:
    """Products of a sparse matrix by each reduction, and what gives another matrix."""
    one = Matrix(torch, device)
    count = len(one.row)
    for how in REDUCTIONS:
        entries = reduced(torch, one.there, how)
        yield Operator(
            f"torch_sparse.spmm_{how}",
            lambda values, other, how=how: one.library.matmul(one.sparse(values), other, how),
            lambda values, other, entries=entries: entries(one.dense(values).unsqueeze(-1) * other),
            [(count,), (GROUPS, WIDTH)],
        )
        yield Operator(
            f"torch_sparse.{how}",
            lambda values, how=how: getattr(one.library, how)(one.sparse(values), dim=1).view(-1, 1),
            lambda values, entries=entries: entries(one.dense(values).unsqueeze(-1)),
            [(count,)],
        )
    yield Operator(
        "torch_sparse.spmm",
        lambda values, other: one.library.spmm(one.here, values, ROWS, GROUPS, other),
        lambda values, other: one.dense(values) @ other,
        [(count,), (GROUPS, WIDTH)],
    )
    yield Operator(
        "torch_sparse.spspmm",
        lambda first, second: one.library.matmul(one.sparse(first), one.sparse(second).t()).to_dense(),
        lambda first, second: one.dense(first) @ one.dense(second).t(),
        [(count,)] * 2,
        slack=TF32,
        slopes=False,  # torch_sparse has none
    )
    for name, (call, reference) in {**_other_places(torch, one), **_diagonals(torch, one)}.items():
        yield Operator(f"torch_sparse.{name}", call, reference, [(count,)])


def _other_places(torch: ModuleType, one: Matrix) -> dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Any]]]:
    """Operators that put the values of a matrix into other places: the call, and its reference."""
    library, row, col = one.library, *one.here
    return {
        "t": (lambda values: one.sparse(values).t().to_dense(), lambda values: one.dense(values).t()),
        "transpose": (
            lambda values: one.filled(library.transpose(one.here, values, ROWS, GROUPS), GROUPS, ROWS),
            lambda values: one.dense(values).t(),
        ),
        "coalesce": (
            lambda values: one.filled(
                library.coalesce(one.here.repeat(1, 2), torch.cat([values, values]), ROWS, GROUPS), ROWS, GROUPS
            ),
            lambda values: 2 * one.dense(values),
        ),
        "cat": (
            lambda values: library.cat([one.sparse(values), one.sparse(values)], dim=0).to_dense(),
            lambda values: one.dense(values).repeat(2, 1),
        ),
        "masked_select_nnz": (
            lambda values: library.masked_select_nnz(one.sparse(values), row > col, layout="coo").to_dense(),
            lambda values: one.dense(values).tril(-1),
        ),
        "index_select": (
            lambda values: library.index_select(one.sparse(values), 0, row[::9]).to_dense(),
            lambda values: one.dense(values)[one.row[::9]],
        ),
    }


def _diagonals(torch: ModuleType, one: Matrix) -> dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Any]]]:
    """Operators that change values or the diagonal: the call, and its reference."""
    library, places = one.library, (torch.arange(GROUPS), torch.arange(GROUPS))

    def diagonal(values: Tensor, value: float) -> Tensor:
        return one.dense(values).index_put(places, values.new_full((GROUPS,), value))

    return {
        "mul": (
            lambda values: library.mul(one.sparse(values), values.new_full((ROWS, 1), 3.0)).to_dense(),
            lambda values: 3 * one.dense(values),
        ),
        "fill_diag": (
            lambda values: library.fill_diag(one.sparse(values), 2.0).to_dense(),
            lambda values: diagonal(values, 2.0),
        ),
        "set_diag": (
            lambda values: library.set_diag(one.sparse(values)).to_dense(),
            lambda values: diagonal(values, 1.0),
        ),
        "remove_diag": (
            lambda values: library.remove_diag(one.sparse(values)).to_dense(),
            lambda values: diagonal(values, 0.0),
        ),
    }


# Splines


def _splines(torch: ModuleType, name: str, call: Callable[..., Any]) -> Operator:
    """Degree 1 in one dimension: between two control points their weights are mixed."""
    row, col = torch.arange(ROWS) % GROUPS, torch.arange(ROWS) * 3 % GROUPS
    places = (torch.arange(ROWS) + 0.37) / ROWS * (OUT - 1)
    low = places.floor().long()

    def whole(x: Tensor, weight: Tensor) -> Tensor:
        pseudo = (places / (OUT - 1)).to(x).view(-1, 1)
        sizes, opened = torch.tensor([OUT], device=x.device), torch.ones(1, dtype=torch.uint8, device=x.device)
        return call(x, torch.stack([row, col]).to(x.device), pseudo, weight, sizes, opened)

    def reference(x: Tensor, weight: Tensor) -> Tensor:
        share = (places.to(x) - low).view(-1, 1, 1)
        mixed = (1 - share) * weight[low] + share * weight[low + 1]
        messages = torch.einsum("ei,eio->eo", x[col], mixed)
        return torch.nn.functional.one_hot(row, GROUPS).t().to(x) @ messages

    # the place is rounded to float32 before it is a share: in float64 both see the same number
    return Operator(name, whole, reference, [(GROUPS, WIDTH), (OUT, WIDTH, 3)], ("float32",))


def torch_spline_conv(torch: ModuleType, device: torch_types.device) -> Iterator[Operator]:
    """The convolution of torch_spline_conv."""
    library = importlib.import_module("torch_spline_conv")
    yield _splines(
        torch,
        "torch_spline_conv.spline_conv",
        lambda x, edges, pseudo, weight, sizes, opened: library.spline_conv(
            x, edges, pseudo, weight, sizes, opened, 1, False, None, None
        ),
    )


# pyg_lib


def pyg_lib(torch: ModuleType, device: torch_types.device) -> Iterator[Operator]:
    """Products, softmax and splines of pyg_lib, as far as the installed release has them."""
    library = importlib.import_module("pyg_lib").ops
    offsets = torch.tensor(BOUNDS, device=device)
    parts = list(zip(BOUNDS, BOUNDS[1:]))
    kinds = ("float32",) if device.type == "cuda" else ("float64", "float32")

    def pieces(source: Tensor) -> list[Tensor]:
        return [source[low:high] for low, high in parts if high > low]

    yield Operator(
        "pyg_lib.segment_matmul",
        lambda source, weight: library.segment_matmul(source, offsets, weight),
        lambda source, weight: torch.cat([source[low:high] @ each for (low, high), each in zip(parts, weight)]),
        [(ROWS, WIDTH), (len(parts), WIDTH, OUT)],
        kinds,
        slack=TF32,
    )
    yield Operator(
        "pyg_lib.grouped_matmul",
        lambda source, weight: torch.cat(library.grouped_matmul(pieces(source), [*weight])),
        lambda source, weight: torch.cat([one @ each for one, each in zip(pieces(source), weight)]),
        [(ROWS, WIDTH), (len(parts) - 1, WIDTH, OUT)],
        kinds,
        slack=TF32,
    )
    if hasattr(library, "softmax_csr") and device.type == "cpu":  # no release has it for GPUs
        yield Operator(
            "pyg_lib.softmax_csr",
            lambda source: library.softmax_csr(source, offsets, 0),
            lambda source: torch.cat([each.softmax(0) for each in pieces(source)]),
            [(ROWS, WIDTH)],
            ("float32",),  # it begins with float64's least number, as a float32
        )
    if hasattr(library, "spline_basis"):

        def spline(x: Tensor, edges: Tensor, pseudo: Tensor, weight: Tensor, sizes: Tensor, opened: Tensor) -> Tensor:
            basis, places = library.spline_basis(pseudo, sizes, opened, 1)
            messages = library.spline_weighting(x[edges[1]], weight, basis, places)
            return x.new_zeros(GROUPS, messages.size(1)).index_add(0, edges[0], messages)

        yield _splines(torch, "pyg_lib.spline_weighting", spline)


def message_passing(torch: ModuleType, device: torch_types.device) -> Iterator[Operator]:
    """Convolutions of PyG's, by way of whichever extension it uses: the mean of the neighbours, and splines."""
    layers = importlib.import_module("torch_geometric.nn")
    row, col = edges(torch)
    square = row < GROUPS
    pairs = torch.stack([col[square], row[square]])
    layer = layers.SAGEConv(WIDTH, OUT, bias=False).to(device)
    weights = [layer.lin_l.weight.detach().cpu().double(), layer.lin_r.weight.detach().cpu().double()]

    def reference(x: Tensor) -> Tensor:
        reached = torch.nn.functional.one_hot(pairs[1], GROUPS).t().to(x)
        mean = reached @ x[pairs[0]] / reached.sum(1, keepdim=True).clamp(min=1)
        return mean @ weights[0].t() + x @ weights[1].t()

    yield Operator(
        "PyG.SAGEConv", lambda x: layer(x, pairs.to(device)), reference, [(GROUPS, WIDTH)], ("float32",), slack=TF32
    )
    if wanted_by_pyg("torch_spline_conv")[1]:
        splines = layers.SplineConv(WIDTH, 3, dim=1, kernel_size=OUT, aggr="add", root_weight=False, bias=False)

        def spline(x: Tensor, edges: Tensor, pseudo: Tensor, weight: Tensor, *_: Tensor) -> Tensor:
            del splines.weight  # a Parameter, whose place the given weights take
            splines.weight = weight
            return splines.to(x.device)(x, edges.flip(0), pseudo)

        yield _splines(torch, "PyG.SplineConv", spline)


def wanted_by_pyg(library: str) -> tuple[str, bool]:
    """The library by which this PyG does what `library` did in older ones, and whether it is installed."""
    typing = importlib.import_module("torch_geometric.typing")
    wanted = "pyg_lib" if hasattr(typing, "WITH_KNN") else library
    return wanted, importlib.util.find_spec(wanted) is not None


#: library → its rows
OPERATORS = {
    "pyg_lib": pyg_lib,
    "torch_scatter": torch_scatter,
    "torch_sparse": torch_sparse,
    "torch_spline_conv": torch_spline_conv,
    "PyG": message_passing,
}
