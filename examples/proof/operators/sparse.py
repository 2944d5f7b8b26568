"""torch_sparse's matrices: products, sums, changes of form; each against the matrix written out in full."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proof.operators.examiner import insist

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import torch as torch_types

    from proof.operators.examiner import Examiner

    Tensor = torch_types.Tensor
    Matrix = Any  #: a SparseTensor

HEIGHT, BREADTH, WIDTH, ENTRIES = 11, 9, 5, 30


@dataclass(frozen=True)
class Places:
    """Where a matrix has its entries, by row and column."""

    row: Tensor
    col: Tensor
    height: int
    breadth: int

    @property
    def index(self) -> Tensor:
        """[2, entries]."""
        return self.row.new_empty(0).new_tensor([self.row.tolist(), self.col.tolist()])


def draw_places(examiner: Examiner, height: int, breadth: int, entries: int) -> Places:
    """Distinct places, in order; the third row and the fifth column have none."""
    free = [place for place in range(height * breadth) if place // breadth != 2 and place % breadth != 4]
    chosen = sorted(free[each] for each in examiner.order(len(free))[:entries].tolist())
    at = examiner.torch.tensor(chosen, dtype=examiner.torch.long)
    rows = examiner.torch.div(at, breadth, rounding_mode="floor")
    return Places(rows, at % breadth, height, breadth)


def full(values: Tensor, places: Places) -> Tensor:
    """The matrix with all its zeros."""
    return values.new_zeros(places.height, places.breadth).index_put((places.row, places.col), values, accumulate=True)


def check(examiner: Examiner, library: ModuleType) -> None:
    """Every operator on matrices. `library` is torch_sparse."""
    places = draw_places(examiner, HEIGHT, BREADTH, ENTRIES)
    _products(examiner, library, places)
    _products(examiner, library, draw_places(examiner, HEIGHT, BREADTH, 0))
    _matrices(examiner, library, places)
    _index_functions(examiner, library, places)
    _methods(examiner, library, places)
    _diagonals(examiner, library)
    _forms(examiner, library, places)


def matrix_of(library: ModuleType, values: Tensor | None, row: Tensor, col: Tensor, size: tuple[int, int]) -> Matrix:
    """A SparseTensor of entries that are in order."""
    return library.SparseTensor(row=row, col=col, value=values, sparse_sizes=size, is_sorted=True)


def _products(examiner: Examiner, library: ModuleType, places: Places) -> None:
    torch, size = examiner.torch, (places.height, places.breadth)
    count = len(places.row)
    # Over no entries torch_sparse 0.6 looks for that of a minimum (IndexError), and on a GPU launches a kernel without
    # blocks for the gradient of a sum: CUDA refuses, and whoever launches next gets the blame.
    sums = ("sum", "mean") if examiner.device.type == "cpu" else ()
    there = torch.zeros(size, dtype=torch.bool)
    there[places.row, places.col] = True

    def wanted(reduce: str, values: Tensor, other: Tensor) -> Tensor:
        matrix = full(values, places)
        if reduce in ("sum", "mean"):
            found = matrix @ other
            return found / there.sum(1).clamp(min=1).view(-1, 1) if reduce == "mean" else found
        end = matrix.new_tensor(float("inf") if reduce == "min" else float("-inf"))
        products = torch.where(there.unsqueeze(-1), matrix.unsqueeze(-1) * other.unsqueeze(0), end)
        best = products.amin(1) if reduce == "min" else products.amax(1)
        return torch.where(there.any(1).view(-1, 1), best, best.new_zeros(()))

    for reduce in ("sum", "mean", "min", "max"):
        examiner.compare(
            f"torch_sparse.spmm_{reduce}",
            lambda values, other, row, col, reduce=reduce: library.matmul(
                matrix_of(library, values, row, col, size), other, reduce
            ),
            lambda values, other, row, col, reduce=reduce: wanted(reduce, values, other),
            [examiner.draw(count), examiner.draw(places.breadth, WIDTH)],
            [places.row, places.col],
            gradient=count > 0 or reduce in sums,
        )
        examiner.compare(
            f"torch_sparse.spmm_{reduce}",  # a matrix of ones, without values
            lambda other, row, col, reduce=reduce: matrix_of(library, None, row, col, size).matmul(other, reduce),
            lambda other, row, col, reduce=reduce: wanted(reduce, torch.ones(count, dtype=other.dtype), other),
            [examiner.draw(places.breadth, WIDTH)],
            [places.row, places.col],
            gradient=count > 0 or reduce in sums,
        )
    examiner.compare(
        "torch_sparse.spmm",
        lambda values, other, index: library.spmm(index, values, *size, other),
        lambda values, other, index: full(values, places) @ other,
        [examiner.draw(count), examiner.draw(places.breadth, WIDTH)],
        [places.index],
    )


def _matrices(examiner: Examiner, library: ModuleType, places: Places) -> None:
    other = draw_places(examiner, BREADTH, 7, 20)
    size, other_size = (places.height, places.breadth), (other.height, other.breadth)
    values = [examiner.draw(len(places.row)), examiner.draw(len(other.row))]

    def product(left: Tensor, right: Tensor, row: Tensor, col: Tensor, row_2: Tensor, col_2: Tensor) -> Tensor:
        first, second = (
            matrix_of(library, left, row, col, size),
            matrix_of(library, right, row_2, col_2, other_size),
        )
        return (first @ second).to_dense()

    def by_index(left: Tensor, right: Tensor, index: Tensor, index_2: Tensor) -> Tensor:
        found, entries = library.spspmm(index, left, index_2, right, HEIGHT, BREADTH, 7)
        return entries.new_zeros(HEIGHT, 7).index_put((found[0], found[1]), entries)

    def wanted(left: Tensor, right: Tensor, *rest: Tensor) -> Tensor:
        return full(left, places) @ full(right, other)

    # torch_sparse 0.6.18 takes the product's values in a way that PyTorch does not differentiate.
    for name, call, where in (
        ("spspmm_sum", product, [places.row, places.col, other.row, other.col]),
        ("spspmm", by_index, [places.index, other.index]),
    ):
        examiner.compare(f"torch_sparse.{name}", call, wanted, values, where, may_lack_gradient=True)


def _index_functions(examiner: Examiner, library: ModuleType, places: Places) -> None:
    """The functions that take and give entries by index and value."""
    torch = examiner.torch
    size = (HEIGHT, BREADTH)
    values = [examiner.draw(ENTRIES)]

    def written(found: tuple[Tensor, Tensor], height: int, breadth: int) -> Tensor:
        index, entries = found
        flat = index[0] * breadth + index[1]
        insist(bool((flat[1:] > flat[:-1]).all()), "the entries are not in order, or not distinct")
        return entries.new_zeros(height, breadth).index_put((index[0], index[1]), entries)

    shuffled = examiner.order(ENTRIES)
    examiner.compare(
        "torch_sparse.transpose",
        lambda values, index: written(library.transpose(index, values, *size), BREADTH, HEIGHT),
        lambda values, index: full(values, places).t(),
        values,
        [places.index],
    )
    twice = torch.cat([places.index, places.index], 1)[:, torch.cat([shuffled, shuffled + ENTRIES])]
    first, second = shuffled, shuffled + ENTRIES
    back = shuffled.argsort()
    for reduce in ("add", "mean", "min", "max"):

        def merged(values: Tensor, index: Tensor, reduce: str = reduce) -> Tensor:
            pairs = torch.stack([values[:ENTRIES][back], values[ENTRIES:][back]])
            if reduce in ("add", "mean"):
                return full(pairs.sum(0) / (2 if reduce == "mean" else 1), places)
            return full(pairs.amin(0) if reduce == "min" else pairs.amax(0), places)

        examiner.compare(
            "torch_sparse.coalesce",
            lambda values, index, reduce=reduce: written(library.coalesce(index, values, *size, op=reduce), *size),
            merged,
            [examiner.draw(len(first) + len(second))],
            [twice],
        )
    other = draw_places(examiner, HEIGHT, BREADTH, 25)
    if hasattr(library, "spadd"):
        examiner.compare(
            "torch_sparse.spadd",
            lambda a, b, index, index_2: written(library.spadd(index, a, index_2, b, *size), *size),
            lambda a, b, index, index_2: full(a, places) + full(b, other),
            [examiner.draw(ENTRIES), examiner.draw(25)],
            [places.index, other.index],
        )

    def unit() -> None:
        index, entries = library.eye(6, dtype=torch.float64, device=examiner.device)
        found = entries.new_zeros(6, 6).index_put((index[0], index[1]), entries).cpu()
        insist(torch.equal(found, torch.eye(6, dtype=torch.float64)), "it is no unit matrix")

    examiner.holds("torch_sparse.eye", unit)


def _method(
    examiner: Examiner,
    library: ModuleType,
    name: str,
    places: Places,
    use: Callable[..., Any],
    wanted: Callable[[Tensor], Tensor],
) -> None:
    """A method of a SparseTensor: `use(matrix)` against `wanted(full matrix)`."""
    size = (places.height, places.breadth)
    examiner.compare(
        f"torch_sparse.{name}",
        lambda values, row, col: _written_out(use(matrix_of(library, values, row, col, size))),
        lambda values, row, col: wanted(full(values, places)),
        [examiner.draw(len(places.row))],
        [places.row, places.col],
        kinds=("float64", "float32"),
    )


def _written_out(found: Matrix) -> Tensor:
    return found.to_dense() if hasattr(found, "sparse_sizes") else found


def _methods(examiner: Examiner, library: ModuleType, places: Places) -> None:
    torch = examiner.torch
    chosen, rows, columns = torch.tensor([7, 0, 2, 7]), examiner.order(HEIGHT) < 6, examiner.order(BREADTH) < 4
    square = draw_places(examiner, BREADTH, BREADTH, 25)
    order = examiner.order(BREADTH)
    here = examiner.here
    factors = examiner.draw(HEIGHT, 1)

    def scaled(matrix: Matrix, factors: Tensor) -> Matrix:
        return library.mul(matrix, here(factors).to(matrix.storage.value().dtype))

    for name, use, wanted in (
        ("t", lambda m: m.t(), lambda d: d.t()),
        ("t", lambda m: m.t().t(), lambda d: d),
        ("narrow", lambda m: library.narrow(m, 0, 3, 5), lambda d: d[3:8]),
        ("narrow", lambda m: library.narrow(m, 1, 2, 4), lambda d: d[:, 2:6]),
        ("select", lambda m: library.select(m, 0, 5), lambda d: d[5:6]),
        ("index_select", lambda m: library.index_select(m, 0, here(chosen)), lambda d: d[chosen]),
        ("index_select", lambda m: library.index_select(m, 1, here(chosen)), lambda d: d[:, chosen]),
        ("masked_select", lambda m: library.masked_select(m, 0, here(rows)), lambda d: d[rows]),
        ("masked_select", lambda m: library.masked_select(m, 1, here(columns)), lambda d: d[:, columns]),
        ("cat", lambda m: library.cat([m, m], 0), lambda d: torch.cat([d, d], 0)),
        ("cat", lambda m: library.cat([m, m], 1), lambda d: torch.cat([d, d], 1)),
        ("cat", lambda m: library.cat([m, m], (0, 1)), lambda d: torch.block_diag(d, d)),
        ("sum", lambda m: library.sum(m, 0), lambda d: d.sum(0)),
        ("sum", lambda m: library.sum(m, 1), lambda d: d.sum(1)),
        ("mean", lambda m: library.mean(m, 1), lambda d: d.sum(1) / (d != 0).sum(1).clamp(min=1)),
        ("mul", lambda m: scaled(m, factors), lambda d: d * factors),
        ("add", lambda m: m + m.set_value(m.storage.value() * 2, layout="coo"), lambda d: 3 * d),
    ):
        if name == "select" or hasattr(library, name):
            _method(examiner, library, name, places, _select(use) if name == "select" else use, wanted)
    for reduce in ("min", "max"):
        for dim in (0, 1):
            _method(
                examiner,
                library,
                reduce,
                places,
                lambda m, reduce=reduce, dim=dim: getattr(library, reduce)(m, dim),
                lambda d, reduce=reduce, dim=dim: _least_or_most(torch, d, reduce, dim),
            )
    _method(
        examiner, library, "permute", square, lambda m: library.permute(m, here(order)), lambda d: d[order][:, order]
    )


def _select(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`select` gives a matrix of one row, or in some versions the row."""

    def row_of(matrix: Matrix) -> Tensor:
        found = _written_out(use(matrix))
        return found.view(1, -1)

    return row_of


def _least_or_most(torch: ModuleType, full_matrix: Tensor, reduce: str, dim: int) -> Tensor:
    there = full_matrix != 0
    end = full_matrix.new_tensor(float("inf") if reduce == "min" else float("-inf"))
    entries = torch.where(there, full_matrix, end)
    best = entries.amin(dim) if reduce == "min" else entries.amax(dim)
    return torch.where(there.any(dim), best, best.new_zeros(()))


def _diagonals(examiner: Examiner, library: ModuleType) -> None:
    torch = examiner.torch
    square = draw_places(examiner, BREADTH, BREADTH, 30)
    off = 1 - torch.eye(BREADTH, dtype=torch.float64)
    for name, use, wanted in (
        ("remove_diag", lambda m: library.remove_diag(m), lambda d: d * off),
        ("set_diag", lambda m: library.set_diag(m), lambda d: d * off + (1 - off)),
        ("fill_diag", lambda m: library.fill_diag(m, 2.5), lambda d: d * off + 2.5 * (1 - off)),
        ("get_diag", lambda m: library.get_diag(m), lambda d: d.diagonal()),
    ):
        if hasattr(library, name):
            _method(examiner, library, name, square, use, wanted)


def _forms(examiner: Examiner, library: ModuleType, places: Places) -> None:
    """Changes of form: offsets and back, PyTorch's own sparse matrices, SciPy's."""
    torch = examiner.torch
    size = (HEIGHT, BREADTH)
    operators = torch.ops.torch_sparse
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(places.row, minlength=HEIGHT).cumsum(0)])
    examiner.same("torch_sparse.ind2ptr", lambda row: operators.ind2ptr(row, HEIGHT), lambda row: offsets, places.row)
    examiner.same(
        "torch_sparse.ptr2ind",
        lambda offsets: operators.ptr2ind(offsets, ENTRIES),
        lambda offsets: places.row,
        offsets,
    )
    values = [examiner.draw(ENTRIES)]

    def through_torch(values: Tensor, index: Tensor) -> Tensor:
        matrix = library.to_torch_sparse(index, values, *size).coalesce()
        index, values = library.from_torch_sparse(matrix)
        return values.new_zeros(size).index_put((index[0], index[1]), values)

    examiner.compare(
        "torch_sparse.to_torch_sparse",
        through_torch,
        lambda values, index: full(values, places),
        values,
        [places.index],
        kinds=("float64", "float32"),
    )
    _method(examiner, library, "from_dense", places, lambda m: library.SparseTensor.from_dense(m.to_dense()), _itself)
    if importlib.util.find_spec("scipy") and examiner.device.type == "cpu":

        def through_scipy() -> None:
            matrix = library.to_scipy(places.index, values[0], *size)
            wanted = full(values[0], places)
            insist(bool((torch.from_numpy(matrix.toarray()) == wanted).all()), "SciPy's matrix differs")
            index, entries = library.from_scipy(matrix)
            insist(bool((full(entries, Places(index[0], index[1], *size)) == wanted).all()), "it differs on return")

        examiner.holds("torch_sparse.to_scipy", through_scipy)


def _itself(full_matrix: Tensor) -> Tensor:
    return full_matrix
