"""Programs that each image has, in our own sandbox: the doctor, and what the suite `ops` compares."""

import json

import pytest

from graphcrate.engines.embedded import run as embedded
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.oci.layout import read_layout
from nsbox.box import Bind

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("mmdebstrap")]

OPERATORS = """
import sys
sys.path.insert(0, "/opt/graphcrate/suites")
import torch
from proof import operators

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
    operator = operators.Operator("made.up", call, lambda x: x * x, [(5, 3)])
    random = torch.Generator().manual_seed(0)
    try:
        operators.compare(torch, torch.device("cpu"), operator, "float64", random)
        print(name, "passes")
    except (operators.Wrong, RuntimeError):
        print(name, "is wrong")
"""


@pytest.fixture(scope="module")
def inside(built_image, workplace):
    """The small image, unpacked for our own sandbox."""
    with embedded.unpacked(read_layout(built_image.layout), cache=Cache(workplace.cache)) as opened:
        yield opened


def findings(text):
    """By id; of several with one the last."""
    return {each["id"]: each for each in json.loads(text)["findings"]}


def doctor(inside, *options, **more):
    """Exit code and all that it said; what `run` returns has the last lines alone."""
    lines = []
    argv = ["python", "/opt/graphcrate/examples/doctor.py", *options]
    done = inside.run(Exec(argv, on_line=lines.append, **more))
    return done.returncode, "\n".join(lines)


def test_every_image_has_it_and_it_finds_nothing_wrong(inside, built_image):
    code, text = doctor(inside, "--json")
    found = findings(text)
    assert [each for each in found.values() if each["status"] == "fail"] == []
    assert code == 0
    assert f"torch {built_image.report['torch']}" in found["packages"]["seen"]
    assert found["imports"]["seen"].startswith("can be imported: torch")
    assert found["torch-gpu"]["status"] in ("ok", "note")
    assert found["python"]["seen"] == "/opt/venv/bin/python"
    assert "sandbox" in found["container"]["seen"]


def test_operators_with_wrong_results_are_told_from_right_ones(inside, scratch):
    (scratch / "faults.py").write_text(OPERATORS)
    done = inside.run(Exec(["python", "/given/faults.py"], binds=(Bind(scratch, "/given"),)))
    assert done.returncode == 0, done.lines
    assert [line.rpartition(" ")[2] for line in done.lines] == ["passes", *["wrong"] * 6]
