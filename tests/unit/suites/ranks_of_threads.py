"""Stands in for torch and its collectives: ranks are threads, tensors are views of arrays of floats."""

import operator
import threading
from array import array
from types import SimpleNamespace


class Tensor:
    """As much of torch's as the suite `nccl` uses, in one dimension."""

    def __init__(self, view):
        self.view = view

    def __len__(self):
        return len(self.view)

    def __iter__(self):
        return iter(self.view)

    def __getitem__(self, key):
        return Tensor(self.view[key]) if isinstance(key, slice) else self.view[key]

    def _each(self, apply, other):
        others = other.view if isinstance(other, Tensor) else [other] * len(self)
        return made(apply(mine, its) for mine, its in zip(self.view, others, strict=True))

    def __mod__(self, other):
        return self._each(operator.mod, other)

    def __add__(self, other):
        return self._each(operator.add, other)

    def __mul__(self, other):
        return self._each(operator.mul, other)

    def __eq__(self, other):
        return self._each(operator.eq, other)

    def __hash__(self):
        return id(self)

    def __invert__(self):
        return self._each(operator.eq, 0)

    def __iadd__(self, other):
        return self.copy_(self + other)

    def copy_(self, other):
        for place, value in enumerate(other):
            self.view[place] = value
        return self

    def to(self, _):
        return self

    def all(self):
        return all(self.view)

    def nonzero(self):
        return [place for place, value in enumerate(self.view) if value]

    def chunk(self, count):
        size = len(self) // count
        return [self[begin : begin + size] for begin in range(0, len(self), size)]


def made(values):
    return Tensor(memoryview(array("d", values)))


class World:
    """Ranks that make the same calls. `spoil(operation, rank, tensor)` may change what a call brought.

    `is_new`: with the names of torch 2.13.
    """

    def __init__(self, size, lacks=(), spoil=lambda *_: None, is_new=False):
        self.size, self.lacks, self.spoil, self.is_new = size, lacks, spoil, is_new
        self.calls, self._given = [], [None] * size
        self._barrier = threading.Barrier(size, timeout=10)

    def _meet(self, rank, given):
        self._given[rank] = given
        self._barrier.wait()
        every = [list(each) for each in self._given]
        self._barrier.wait()
        return every

    def torch(self, rank):
        """torch as this rank sees it."""

        def note(name, tensor):
            if name in self.lacks:
                raise RuntimeError(f"ProcessGroupGloo does not support {name}")
            if rank == 0:
                self.calls.append((name, len(tensor)))

        def all_reduce(tensor, op="sum"):
            note("all_reduce", tensor)
            every = self._meet(rank, tensor)
            tensor.copy_([{"sum": sum, "max": max}[op](column) for column in zip(*every, strict=True)])
            self.spoil("all_reduce", rank, tensor)

        def all_gather(pieces, part):
            note("all_gather", part)
            for piece, its in zip(pieces, self._meet(rank, part), strict=True):
                piece.copy_(its)
            self.spoil("all_gather", rank, pieces[-1])

        def reduce_scatter(part, whole):
            note("reduce_scatter", whole)
            summed = [sum(column) for column in zip(*self._meet(rank, whole), strict=True)]
            part.copy_(summed[rank * len(part) : (rank + 1) * len(part)])
            self.spoil("reduce_scatter", rank, part)

        def gather_whole(whole, part):
            all_gather(whole.chunk(self.size), part)

        return SimpleNamespace(
            __version__="2.13.0",
            float32="float32",
            float64="float64",
            empty=lambda count, **_: made([0.0] * count),
            arange=lambda first, last, **_: made(range(first, last)),
            tensor=lambda values, **_: made(values),
            distributed=SimpleNamespace(
                ReduceOp=SimpleNamespace(SUM="sum", MAX="max"),
                all_reduce=all_reduce,
                all_gather=all_gather,
                **{
                    ("all_gather_single" if self.is_new else "all_gather_into_tensor"): gather_whole,
                    ("reduce_scatter_single" if self.is_new else "reduce_scatter_tensor"): reduce_scatter,
                },
            ),
        )

    def run(self, body):
        """Call `body(rank, torch)` on each rank; what it returned or raised, by rank."""
        results = [None] * self.size

        def of(rank):
            try:
                results[rank] = body(rank, self.torch(rank))
            except BaseException as error:
                results[rank] = error
                if not isinstance(error, Exception):
                    self._barrier.abort()

        threads = [threading.Thread(target=of, args=(rank,), daemon=True) for rank in range(self.size)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(20)
        return results
