"""The comparison of the suite `ops` in a real image: an operator that is right, and broken in each way that counts."""

import pytest

from graphcrate.host.sandbox import Bind, Exec
from tests.engines.test_doctor import inside  # noqa: F401  the fixture: the small image, opened

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
sys.path.insert(0, "/opt/graphcrate/suites")
import ops, torch

class Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, slope):
        return slope * 1.001

CALLS = {
    "right": lambda x: x * x,
    "off by 0.01 %": lambda x: x * x * 1.0001,
    "gradient off": lambda x: Slope.apply(x * x),
    "no gradient": lambda x: (x * x).detach(),
    "no number": lambda x: x * x * float("nan"),
    "another shape": lambda x: (x * x).t(),
    "another type": lambda x: (x * x).float(),
}
for name, call in CALLS.items():
    operator = ops.Operator("made.up", call, lambda x: x * x, [(5, 3)])
    random = torch.Generator().manual_seed(0)
    drawn = [torch.randn(5, 3, generator=random, dtype=torch.float64)]
    try:
        ops.compare(torch, torch.device("cpu"), operator, "float64", drawn, random)
        print(name, "passes")
    except (ops.Wrong, RuntimeError):
        print(name, "is wrong")
"""


def test_broken_operators_are_found(inside, scratch):  # noqa: F811
    (scratch / "faults.py").write_text(SCRIPT)
    done = inside.run(Exec(["python", "/given/faults.py"], binds=(Bind(scratch, "/given"),)))
    assert done.returncode == 0, done.lines
    assert [line.rpartition(" ")[2] for line in done.lines] == ["passes", *["wrong"] * 6]
