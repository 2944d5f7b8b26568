"""Calls an operator on one device and holds its result and its gradient against a dense reference in float64.

The reference gets the very numbers that the operator gets, so that the rounding of the input is no difference. Every
comparison is made twice, the second time with the same numbers lying apart in memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from proof.operators.ledger import NO_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    import torch as torch_types

    from proof.operators.ledger import Ledger

    Tensor = torch_types.Tensor
    Results = Any  #: a tensor or several
    Anything = Any

KINDS = ("float64", "float32", "float16")
GRADIENT_KINDS = ("float64", "float32")  #: in float16 a minimum can be reached twice, and its gradient is not one thing


class Wrong(Exception):  # noqa: N818  it is what the operator is
    """A property that does not hold."""


class Examiner:
    """One device; draws input from a seed and notes what it finds in the ledger.

    A `quick` one calls every operator with one kind of number only.
    """

    def __init__(
        self, torch: ModuleType, device: torch_types.device, seed: int, ledger: Ledger, *, quick: bool = False
    ) -> None:
        self.torch = torch
        self.quick = quick
        self.kinds = KINDS[:1] if quick else KINDS
        self.device = device
        self.ledger = ledger
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, *size: int) -> Tensor:
        """Standard normal numbers, float64 on the CPU."""
        return self.torch.randn(*size, generator=self.generator, dtype=self.torch.float64)

    def uniform(self, *size: int) -> Tensor:
        """Numbers within 0 and 1, float64 on the CPU."""
        return self.torch.rand(*size, generator=self.generator, dtype=self.torch.float64)

    def order(self, count: int) -> Tensor:
        """A permutation, on the CPU."""
        return self.torch.randperm(count, generator=self.generator)

    def here(self, value: Anything) -> Anything:
        """A tensor on this device, or several; anything else as it is."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.here(each) for each in value)
        return value.to(self.device) if isinstance(value, self.torch.Tensor) else value

    def compare(
        self,
        operator: str,
        call: Callable[..., Any],
        reference: Callable[..., Any],
        floats: Sequence[Tensor],
        rest: Sequence[Any] = (),
        *,
        kinds: Iterable[str] = KINDS,
        gradient: bool = True,
        may_lack_gradient: bool = False,
        slack: float = 1.0,
    ) -> None:
        """`call(*floats, *rest)` on the device against `reference(*floats, *rest)` on the CPU.

        Both give a tensor or a tuple of them. `floats` are drawn numbers, of which the gradient is taken as well;
        `rest` goes along as it is. Whatever is wrong goes to the ledger. Where the result of an operator that
        `may_lack_gradient` is cut off from its input, that is noted and no fault.
        """
        self.ledger.begin(operator)
        for kind in kinds:
            if self.quick and kind not in self.kinds:
                continue
            for apart in (False,) if self.quick else (False, True):
                inputs = [self._place(each, kind, apart) for each in floats]
                slopes = (gradient and kind in GRADIENT_KINDS, may_lack_gradient)
                try:
                    fine = self._once(operator, call, reference, inputs, rest, kind, slopes, slack)
                    if not fine and apart:
                        self.ledger.wrong(operator, self._where(kind), "so only where the input lies apart in memory")
                except Exception as error:
                    self._failed(operator, kind, error)
                    break
                if not fine:
                    break

    def _once(
        self,
        operator: str,
        call: Callable[..., Any],
        reference: Callable[..., Any],
        inputs: Sequence[Tensor],
        rest: Sequence[Any],
        kind: str,
        slopes_wanted: tuple[bool, bool],
        slack: float,
    ) -> bool:
        gradient, may_lack_gradient = slopes_wanted
        exact = [each.detach().cpu().double().requires_grad_(gradient) for each in inputs]
        for each in inputs:
            each.requires_grad_(gradient)
        wanted = self._tuple(reference(*exact, *rest))
        found = self._tuple(call(*inputs, *self.here(tuple(rest))))
        fine = True
        for number, (got, want) in enumerate(zip(found, wanted)):
            what = "the result is" if len(wanted) == 1 else f"result {number + 1} is"
            fine = self._judge(operator, kind, what, got, want, slack) and fine
        if len(found) != len(wanted):
            self.ledger.wrong(operator, self._where(kind), f"gives {len(found)} results, not {len(wanted)}")
            return False
        if gradient and may_lack_gradient and not any(each.requires_grad for each in found):
            self.ledger.left_out[f"{operator}, gradient"] = "the result is cut off from its input"
            return fine
        if not gradient:
            return fine
        directions = [self.draw(*want.shape) for want in wanted]
        wanted_slopes = self._slopes(wanted, exact, directions)
        slopes = self._slopes(found, inputs, [self.here(each).to(got.dtype) for each, got in zip(directions, found)])
        for number, (got, want) in enumerate(zip(slopes, wanted_slopes)):
            what = "the gradient is" if len(slopes) == 1 else f"the gradient of input {number + 1} is"
            fine = self._judge(operator, kind, what, got, want, slack) and fine
        return fine

    def _slopes(
        self, results: Sequence[Tensor], inputs: Sequence[Tensor], directions: Sequence[Tensor]
    ) -> list[Tensor]:
        pairs = [pair for pair in zip(results, directions) if pair[0].requires_grad]
        if not pairs:
            return [self.torch.zeros_like(each) for each in inputs]
        outputs, along = zip(*pairs)
        slopes = self.torch.autograd.grad(outputs, inputs, along, allow_unused=True)
        return [self.torch.zeros_like(each) if slope is None else slope for each, slope in zip(inputs, slopes)]

    def _judge(self, operator: str, kind: str, what: str, got: Tensor, want: Tensor, slack: float) -> bool:
        if got.shape != want.shape:
            shapes = f"of shape {list(got.shape)}, not {list(want.shape)}"
            self.ledger.wrong(operator, self._where(kind), f"{what} {shapes}")
            return False
        if str(got.dtype) != f"torch.{kind}" or got.device.type != self.device.type:
            self.ledger.wrong(operator, self._where(kind), f"{what} {got.dtype} on {got.device.type}")
            return False
        return self.ledger.measured(operator, kind, str(self.device), what, self.distance(got, want), slack)

    def distance(self, got: Tensor, want: Tensor) -> float:
        """Largest difference as a share of the largest wanted entry, or of 1 where that is smaller."""
        if want.numel() == 0:
            return 0.0
        got, want = got.detach().cpu().double(), want.detach()
        if not bool(self.torch.isfinite(got).all()):
            return math.inf
        return float((got - want).abs().max() / want.abs().max().clamp(min=1.0))

    def _tuple(self, results: Results) -> tuple[Tensor, ...]:
        return tuple(results) if isinstance(results, (list, tuple)) else (results,)

    def _place(self, drawn: Tensor, kind: str, apart: bool) -> Tensor:
        placed = drawn.to(self.device, getattr(self.torch, kind))
        if not apart or not placed.dim():
            return placed.clone()
        return self.torch.stack([placed, self.torch.full_like(placed, 77.0)], dim=-1)[..., 0]

    def _where(self, kind: str) -> str:
        return f"{kind} on {self.device}"

    def _failed(self, operator: str, kind: str, error: Exception) -> None:
        if "CUDA error" in str(error):
            raise error  # it sticks to the process: every later operator would be blamed
        if kind == "float16" and NO_CODE.search(str(error)):
            self.ledger.has_no_code(operator, kind, str(self.device))
            return
        self.ledger.wrong(operator, self._where(kind), f"{type(error).__name__}: {error}")

    def holds(self, operator: str, check: Callable[[], object], *, unless: str = "") -> None:
        """Run `check`, which raises Wrong where a property does not hold.

        An error whose text has `unless` says that this build leaves the operator out; that is noted, not blamed.
        """
        self.ledger.begin(operator)
        try:
            check()
        except Wrong as wrong:
            self.ledger.wrong(operator, f"on {self.device}", str(wrong))
        except Exception as error:
            if "CUDA error" in str(error):
                raise
            if unless and unless in str(error):
                self.ledger.left_out[operator] = " ".join(str(error).split("\n", 1)[0].split())
                self.ledger.checked[operator.partition(".")[0]].discard(operator.partition(".")[2])
                return
            self.ledger.wrong(operator, f"on {self.device}", f"{type(error).__name__}: {error}")

    def same(self, operator: str, call: Callable[..., Any], wanted: Callable[..., Any], *rest: Tensor) -> None:
        """`call(*rest)` on the device gives exactly what `wanted(*rest)` gives on the CPU."""

        def check() -> None:
            results, references = self._tuple(call(*self.here(rest))), self._tuple(wanted(*rest))
            for got, want in zip(results, references):
                if got.shape != want.shape or not bool((got.cpu() == want).all()):
                    raise Wrong(f"gives {shown(got)}, not {shown(want)}")

        self.holds(operator, check)


def shown(tensor: Tensor) -> str:
    """A tensor's first numbers."""
    numbers = tensor.flatten()[:8].tolist()
    return f"{numbers}{' …' if tensor.numel() > len(numbers) else ''} {list(tensor.shape)}"


def insist(condition: object, what: str) -> None:
    """Raise Wrong unless the condition holds."""
    if not condition:
        raise Wrong(what)
