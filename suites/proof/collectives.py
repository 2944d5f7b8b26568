"""Measures collectives of torch.distributed at growing sizes, each result held against what it has to be.

All ranks make the same calls: how often one is repeated, and where to stop, they agree on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from proof import rates
from proof.rates import ITEM, Row
from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import torch as torch_types

    from proof.verdict import Proof

CYCLE, RANKS = 13, 16  #: number i of rank r is i % CYCLE + r % RANKS: sums of 65,536 ranks are exact in float32
PIECE = CYCLE << 20  #: numbers that are written or compared at once
MOST_REPEATS = 100
WARM_UP = 4  #: calls, besides the one whose result is compared and the one that is timed for the number of repeats
QUICK = 0.05  #: seconds of a call below which there is a warm-up
SLOW = 5.0  #: seconds of a call after which no larger size is tried
#: what torch raises where a backend lacks an operation, of any release
_LACKS = ("does not support", "not supported", "not implemented", "no backend", "unsupported")


class Elsewhere(Fault):
    """A fault that another rank found, which can say more of it."""


class Group(NamedTuple):
    """All ranks, as one of them sees them."""

    torch: ModuleType
    rank: int
    world: int
    device: torch_types.device
    backend: str  #: nccl or gloo

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def largest(self, value: float) -> float:
        """Return the largest value of all ranks; also where all wait for each other."""
        return self._agreed(value, self.torch.distributed.ReduceOp.MAX)

    def mean(self, value: float) -> float:
        """Return the mean of all ranks."""
        return self._agreed(value, self.torch.distributed.ReduceOp.SUM) / self.world

    def _agreed(self, value: float, operator: Any) -> float:  # noqa: ANN401  torch's
        found = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.torch.distributed.all_reduce(found, op=operator)
        return float(found[0])


class Buffers:
    """Memory for the largest size, of which each size takes the beginning."""

    def __init__(self, group: Group, largest: int) -> None:
        self._group = group
        numbers = largest // ITEM
        self._whole = group.torch.empty(numbers, dtype=group.torch.float32, device=group.device)
        self._part = group.torch.empty(numbers // group.world, dtype=group.torch.float32, device=group.device)

    def call(self, operation: str, size: int) -> Callable[[], None]:
        """Return a function that makes one call."""
        distributed, group = self._group.torch.distributed, self._group
        whole, part = self.whole(size), self.part(size)
        if operation == "all_reduce":
            return lambda: distributed.all_reduce(whole)
        if operation == "reduce_scatter":
            scatter = _either(distributed, "reduce_scatter_single", "reduce_scatter_tensor")
            return lambda: scatter(part, whole)
        if group.backend == "nccl":
            gather = _either(distributed, "all_gather_single", "all_gather_into_tensor")
            return lambda: gather(whole, part)
        pieces = list(whole.chunk(group.world))  # gloo gathers into tensors of their own alone, in older releases
        return lambda: distributed.all_gather(pieces, part)

    def whole(self, size: int) -> torch_types.Tensor:
        """Return the numbers that all ranks have together."""
        return self._whole[: size // ITEM]

    def part(self, size: int) -> torch_types.Tensor:
        """Return those of one rank."""
        return self._part[: size // ITEM // self._group.world]

    def fill(self, operation: str, size: int) -> None:
        """Write this rank's numbers into what is sent."""
        sent = self.part(size) if operation == "all_gather" else self.whole(size)
        for begin, piece in self._pieces(sent):
            piece.copy_(self._ramp(begin, len(piece)))
            piece += self._group.rank % RANKS

    def error(self, operation: str, size: int) -> str:
        """Compare what came with what has to come; empty: it is right."""
        world, rank = self._group.world, self._group.rank
        others = float(sum(each % RANKS for each in range(world)))
        if operation == "all_gather":
            chunk = size // ITEM // world
            for each in range(world):
                found = self.whole(size)[each * chunk : (each + 1) * chunk]
                if wrong := self._difference(found, 0, 1.0, each % RANKS):
                    return f"of rank {each}, {wrong}"
            return ""
        if operation == "all_reduce":
            return self._difference(self.whole(size), 0, float(world), others)
        found = self.part(size)
        return self._difference(found, rank * len(found), float(world), others)

    def _difference(self, found: torch_types.Tensor, first: int, times: float, plus: float) -> str:
        """Compare numbers, the first of which is number `first`, with (number % CYCLE) * times + plus."""
        for begin, piece in self._pieces(found):
            correct = self._ramp(first + begin, len(piece)) * times + plus
            same = piece == correct
            if not bool(same.all()):
                number = int((~same).nonzero()[0])
                return f"number {first + begin + number} is {float(piece[number])}, not {float(correct[number])}"
        return ""

    def _pieces(self, numbers: torch_types.Tensor) -> list[tuple[int, torch_types.Tensor]]:
        return [(begin, numbers[begin : begin + PIECE]) for begin in range(0, len(numbers), PIECE)]

    def _ramp(self, first: int, count: int) -> torch_types.Tensor:
        torch = self._group.torch
        begin = first % CYCLE
        return (torch.arange(begin, begin + count, device=self._group.device) % CYCLE).to(torch.float32)


def _either(module: Any, name: str, older: str) -> Callable[..., Any]:  # noqa: ANN401  torch's
    """Return a function by the name that it has from torch 2.13 on, or by its older one."""
    return getattr(module, name, None) or getattr(module, older)


def measure(group: Group, largest: int, seconds: float, proof: Proof) -> tuple[list[Row], dict[str, str]]:
    """Measure every operation; the rows, and why an operation has none or not all of them, by its name. Raises Fault.

    `seconds`: to repeat a size for, about.
    """
    buffers = Buffers(group, rates.sizes(largest, group.world)[-1])
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for operation in rates.OPERATIONS:
        for size in rates.sizes(largest, group.world):
            proof.phase = f"{operation} of {rates.human(size)} over {group.world} processes with {group.backend}"
            try:
                row, slowest = one_size(group, buffers, operation, size, seconds)
            except RuntimeError as error:
                if group.backend == "nccl" or not any(words in str(error).lower() for words in _LACKS):
                    raise
                left_out[operation] = f"{group.backend} of torch {group.torch.__version__} has none"
                break
            rows.append(row)
            if slowest > SLOW and size < largest:
                left_out[operation] = f"beyond {rates.human(size)}: a call of that took {slowest:.0f} s"
                break
    return rows, left_out


def one_size(group: Group, buffers: Buffers, operation: str, size: int, seconds: float) -> tuple[Row, float]:
    """Measure one size; the row, and the seconds of one call on the slowest rank."""
    call = buffers.call(operation, size)
    buffers.fill(operation, size)
    call()
    group.synchronize()
    wrong = buffers.error(operation, size)
    if group.largest(float(bool(wrong))):
        what = f"{operation} of {size} bytes over {group.world} processes is wrong"
        raise Fault(Layer.NETWORK, f"{what}: {wrong} (rank {group.rank})") if wrong else Elsewhere(Layer.NETWORK, what)
    slowest = group.largest(_timed(group, call, 1))
    if slowest < QUICK:
        _timed(group, call, WARM_UP)
    repeats = max(1, min(MOST_REPEATS, int(seconds / slowest))) if slowest > 0 else MOST_REPEATS
    group.largest(0.0)  # all begin together
    mean = group.mean(_timed(group, call, repeats) / repeats)
    return Row(operation, size, mean, repeats, group.world), slowest


def _timed(group: Group, call: Callable[[], None], repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    group.synchronize()
    return time.perf_counter() - begin
