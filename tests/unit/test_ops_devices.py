"""What the suite `ops` asks of which device: what packages cannot do on a GPU would end the whole run there.

The operators themselves run in images, and those for GPUs where there is one.
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

import ops  # noqa: E402  examples/ is no package
from proof.operators import matrices, sparse, spline  # noqa: E402
from proof.operators.ledger import Ledger  # noqa: E402
from proof.verdict import Proof  # noqa: E402

DEVICES = ("cpu", "cuda")


class Drawn(tuple):
    """The size of numbers that nobody draws."""

    def __rmul__(self, factor):
        return self

    __radd__ = __rmul__


class Told:
    """An examiner that keeps what it is asked to compare, and calls nothing."""

    def __init__(self, device):
        self.torch, self.device, self.ledger = MagicMock(), SimpleNamespace(type=device), Ledger()
        self.asked = []

    def draw(self, *size):
        return Drawn(size)

    uniform = draw

    def order(self, count):
        return MagicMock()

    def compare(self, operator, call, reference, floats, rest=(), **more):
        self.asked.append((operator, call, floats, more))

    def holds(self, operator, check, **more):
        pass

    def named(self, operator):
        return [each for each in self.asked if each[0] == operator]


class Apart:
    """As much of a tensor that lies apart in memory as the calls below ask for."""

    lies_together = False

    def __mul__(self, other):
        return self

    __add__ = __rmul__ = __mul__

    def sign(self):
        return self

    def contiguous(self):
        together = Apart()
        together.lies_together = True
        return together


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [0, 30])
def test_no_gradient_is_asked_of_a_gpu_over_no_entries(device, count):
    """torch_sparse launches a kernel for the values' gradient with as many blocks as there are entries."""
    told = Told(device)
    places = SimpleNamespace(row=[0] * count, col=[0] * count, height=11, breadth=9, index=None)
    sparse._products(told, MagicMock(), places)
    for reduce in ("sum", "mean", "min", "max"):
        wanted = count > 0 or (device == "cpu" and reduce in ("sum", "mean"))
        asked = told.named(f"torch_sparse.spmm_{reduce}")
        assert [more["gradient"] for *_, more in asked] == [wanted, wanted]


@pytest.mark.parametrize("device", DEVICES)
def test_no_spline_is_asked_of_a_gpu_over_no_edges(device):
    told = Told(device)
    spline.check(told, SimpleNamespace(), "torch_spline_conv")
    edges = {floats[0][0] for _, _, floats, _ in told.named("torch_spline_conv.spline_basis")}
    assert edges == ({spline.EDGES, 0} if device == "cpu" else {spline.EDGES})


@pytest.mark.parametrize("device", DEVICES)
def test_a_softmax_that_is_for_the_cpu_is_left_out_on_a_gpu(device):
    told = Told(device)
    matrices._by_segment(told, SimpleNamespace(softmax_csr=None))
    assert [bool(told.asked), bool(told.ledger.left_out)] == [device == "cpu", device == "cuda"]
    assert set(told.ledger.left_out) <= {"pyg_lib.softmax_csr"}
    assert told.ledger.checked == {}


def test_pyg_lib_gets_input_that_lies_together_where_it_refuses_another():
    def operator(*given):
        assert all(each.lies_together for each in given if isinstance(each, Apart))
        return "called"

    names = [f"sampled_{name}" for name in ("add", "sub", "mul", "div")]
    told = Told("cpu")
    operators = SimpleNamespace(softmax_csr=operator, **dict.fromkeys(names, operator))
    matrices._sampled(told, operators)
    matrices._by_segment(told, operators)
    assert [each[0] for each in told.asked] == [f"pyg_lib.{name}" for name in (*names, "softmax_csr")]
    for _, call, floats, _ in told.asked:
        assert call(*[Apart() for _ in floats], *(["rest"] * (2 if len(floats) == 2 else 1))) == "called"


def test_each_gpu_is_the_current_one_while_it_is_checked():
    """pyg_lib launches on the current device, wherever its input lies."""
    chosen = []
    torch = SimpleNamespace(cuda=SimpleNamespace(set_device=chosen.append))
    devices = [
        SimpleNamespace(type="cpu"),
        SimpleNamespace(type="cuda", index=0),
        SimpleNamespace(type="cuda", index=1),
    ]
    for device in devices:
        ops.check_device(torch, device, [], False, 0, Ledger(), Proof("ops"), set())
    assert chosen == devices[1:]
