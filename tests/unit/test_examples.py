"""The parts of the examples that need no torch; the rest runs in every image that is built."""

import array
import ast
import contextlib
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate import smoke

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

import dna  # noqa: E402  examples/ is no package
import glt_check  # noqa: E402
import multi_node  # noqa: E402
import ops  # noqa: E402
import torch_check  # noqa: E402
from glt import check as glt_distributed  # noqa: E402
from proof import curve, data, graphs  # noqa: E402
from proof.curve import Point  # noqa: E402
from proof.verdict import Fault, Layer, Proof  # noqa: E402

PROGRAMS = sorted(EXAMPLES.rglob("*.py"))


def points(*accuracies, loss=0.5):
    return [Point(3 * number, loss, share, share, share) for number, share in enumerate(accuracies, 1)]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_the_oldest_python_of_an_image_reads_them(path):
    source = path.read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 9))
    ours_alone = path.name == "doctor.py"  # for Python 3.6, which does not know it: tests/unit/test_doctor_file.py
    # `int | None` is evaluated otherwise
    assert "from __future__ import annotations" in source or "def " not in source or ours_alone


# DNAConv


def test_the_smoke_suites_fit_the_programs():
    programs = (dna, torch_check, ops, multi_node, glt_check, glt_distributed)
    parsers = {program.__name__.replace(".", "/") + ".py": program.arguments for program in programs}
    for name, suite in smoke.SUITES.items():
        for on_gpu in (False, True):
            argv = smoke.command(suite, name, on_gpu=on_gpu, limit=300)
            assert argv[1] == f"/opt/graphcrate/examples/{suite.program}"
            options = parsers[suite.program](argv[2:])
            assert (options.device, options.limit) == ("cuda" if on_gpu else "cpu", 300)


def test_the_defaults_are_pygs():
    options = dna.arguments([])
    assert (options.epochs, options.dataset, options.device, options.until_proven) == (200, "generated", "auto", False)


@pytest.mark.parametrize("argv", [["--epochs", "0"], ["--dataset", "g.npz", "--until-proven"], ["--device", "tpu"]])
def test_wrong_usage_is_told_before_anything_runs(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        dna.arguments(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err


def test_it_is_proven_by_evaluations_in_a_row_and_a_fallen_loss():
    low, high = dna.PROVEN_ACCURACY - 0.01, dna.PROVEN_ACCURACY
    assert dna.is_proven(points(low, high, high), 1.9)
    assert not dna.is_proven(points(high, low, high), 1.9)
    assert not dna.is_proven(points(high), 1.9)
    assert not dna.is_proven([], 1.9)
    assert not dna.is_proven(points(high, high, loss=1.8), 1.9)


def test_stopping_never_looks_at_test_nodes():
    blind = [Point(point.epoch, point.loss, point.train, point.validation, 0.0) for point in points(0.9, 0.9)]
    assert dna.is_proven(blind, 1.9)


def test_the_first_best_validation_counts():
    assert dna.best(points(0.5, 0.8, 0.8, 0.7)).epoch == 6


@pytest.mark.parametrize(
    ("seen", "loss", "first", "objection"),
    [
        ([0.85], 0.9, 1.9, None),
        ([0.31], 0.9, 1.9, "test accuracy 0.3100 is outside"),
        ([0.999], 0.9, 1.9, "test accuracy 0.9990 is outside"),
        ([0.85], 1.9, 1.9, "the loss went from 1.9000 to 1.9000"),
        ([0.85], float("nan"), 1.9, "the loss went"),
        ([0.85], 0.5, float("nan"), "the loss went"),
    ],
)
def test_what_speaks_against_a_training(seen, loss, first, objection):
    found = dna.objections(points(*seen, loss=loss), first, dna.BANDS["generated"])
    assert (found == []) if objection is None else (len(found) == 1 and objection in found[0])


@pytest.mark.parametrize(("loss", "passes"), [(0.98, True), (1.12, False), (float("nan"), False)])
def test_a_graph_of_ones_own_may_be_learned_slowly(loss, passes):
    band = dna.Band(0.34, 1.0, "better than the largest class", loss_ratio=1.0)
    assert (dna.objections(points(0.95, loss=loss), 1.11, band) == []) is passes


def test_a_band_lies_above_what_words_alone_give_and_below_what_is_possible():
    """0.69 is the most that 60 epochs without edges reached, 0.91 what remains beside strays (docs/smoke.md)."""
    band = dna.BANDS["generated"]
    assert 0.69 < band.low < dna.PROVEN_ACCURACY < 1 - graphs.STRAYS < band.high < 1.0


def test_the_page_on_smoke_tests_has_the_bands():
    page = (ROOT / "docs" / "smoke.md").read_text(encoding="utf-8")
    for name, band in dna.BANDS.items():
        assert f"| `{name}` | {band.low:.2f} … {band.high:.2f} |" in page


class Labels(list):
    """What of a tensor `run` asks of labels."""

    def bincount(self):
        return SimpleNamespace(max=lambda: max(map(self.count, self)))


@pytest.mark.parametrize(("accuracy", "proven"), [(0.85, True), (0.3, False)])
def test_a_run_says_the_band_and_is_judged_by_it(monkeypatch, accuracy, proven):
    size = SimpleNamespace(size=lambda _: 3)
    graph = SimpleNamespace(y=Labels([0, 0, 1]), x=size, edge_index=size, classes=2)
    training = SimpleNamespace(points=points(accuracy, loss=0.9), first_loss=1.9, epoch=3, seconds=[1.0])
    for name in ("load_torch", "load_pyg", "choose_device", "raise_complaints"):
        monkeypatch.setattr(dna.stack, name, lambda *_: [])
    monkeypatch.setattr(dna.data, "load", lambda *_: graph)
    monkeypatch.setattr(dna, "Training", lambda *_: training)
    monkeypatch.setattr(dna, "train", lambda *_: "proven")
    proof = Proof("dna")
    with contextlib.nullcontext() if proven else pytest.raises(Fault, match=r"test accuracy 0\.3000 is outside"):
        dna.run(dna.arguments([]), proof)
    band = dna.BANDS["generated"]
    assert proof.metrics["accuracy_band"] == [band.low, band.high]


def test_a_line_of_the_curve():
    told = dna.describe(Point(10, 1.23456, 0.5, 0.25, 0.125))
    assert told == "Epoch: 010, Loss: 1.2346, Train: 0.5000, Val: 0.2500, Test: 0.1250"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [([9.0, 1.0, 2.0], {"seconds_per_epoch": 1.5}), ([9.0], {"seconds_per_epoch": 9.0}), ([], {})],
)
def test_an_epochs_time_leaves_the_first_one_out(seconds, told):
    """None is trained where a checkpoint has them all."""
    proof = Proof("dna")
    training = SimpleNamespace(epoch=3, first_loss=1.9, points=points(0.8), seconds=seconds)
    dna.record(proof, training)
    assert {name: value for name, value in proof.metrics.items() if "seconds" in name} == told


def test_data_that_is_not_there_is_named(tmp_path):
    with pytest.raises(Fault, match="is neither generated nor cora nor a file"):
        data.load(str(tmp_path / "graph.npz"), tmp_path)


class Array:
    """As much of NumPy's arrays as is asked for; what lies otherwise in memory is put in order by `astype`."""

    def __init__(self, rows):
        self.rows, self.shape = rows, (len(rows), 2)
        self.size = 2 * len(rows)

    def astype(self, kind, order, copy):
        assert (kind, order, copy) == ("float32", "C", False)
        return array.array("f", [number for row in self.rows for number in row])


class Flat(list):
    """A tensor of one dimension, of torch.frombuffer."""

    def view(self, shape):
        return ("tensor", shape, list(self))


def test_arrays_become_tensors_by_their_bytes(monkeypatch):
    def frombuffer(content, dtype):
        assert isinstance(content, bytearray)  # torch warns of memory that it may not write to
        assert content, "torch refuses an empty buffer"
        return Flat(memoryview(content).cast(dtype))

    def empty(shape, dtype):
        return ("tensor", shape, [])

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(float32="f", frombuffer=frombuffer, empty=empty))
    assert data.tensor(Array([[1.0, 2.0], [3.0, 4.0]]), "float32") == ("tensor", (2, 2), [1.0, 2.0, 3.0, 4.0])
    assert data.tensor(Array([]), "float32") == ("tensor", (0, 2), [])


def test_cora_without_a_network_tells_the_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", None)
    with pytest.raises(Fault, match=r"Cora/raw by hand") as caught:
        data.load("cora", tmp_path)
    assert caught.value.layer is Layer.DATA
    assert "ind.cora.x … ind.cora.test.index (there are 0)" in str(caught.value)


# The curve


@given(st.lists(st.tuples(*[st.floats(0, 10)] * 2, *[st.floats(0, 1)] * 2), max_size=5), st.text())
def test_a_curve_is_xml_whatever_is_drawn(rows, title):
    title = "".join(letter for letter in title if letter.isprintable())
    drawn = curve.svg([Point(i, row[0], row[1] / 10, row[2], row[3]) for i, row in enumerate(rows, 1)], title)
    root = ET.fromstring(drawn)
    lines = [each for each in root if each.tag.endswith("polyline")]
    assert len(lines) == len(curve.COLOURS)
    assert all(len(each.get("points").split()) == len(rows) for each in lines)


def test_a_curve_stays_within_its_frame():
    root = ET.fromstring(curve.svg([Point(1, 2.0, 0.1, 0.2, 0.3), Point(200, 0.1, 1.0, 0.9, 0.0)], "a < b"))
    for each in root:
        for pair in (each.get("points") or "").split():
            x, y = map(float, pair.split(","))
            assert curve.MARGIN <= x <= curve.WIDTH - curve.MARGIN
            assert curve.MARGIN <= y <= curve.HEIGHT - curve.MARGIN


def test_a_curve_that_cannot_be_drawn_is_told_at_once(tmp_path, monkeypatch):
    with pytest.raises(Fault, match=r"\.svg or \.png"):
        curve.check(tmp_path / "curve.pdf")
    with pytest.raises(Fault, match="there is no folder"):
        curve.check(tmp_path / "absent" / "curve.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Fault, match="needs matplotlib"):
        curve.check(tmp_path / "curve.png")
    curve.check(tmp_path / "curve.svg")
    curve.draw(points(0.5, 0.6), "DNAConv", tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")


# The check of torch


def test_sums_over_ranks():
    proof = Proof("torch")
    torch_check.check_sums([6.0, 6.0, 6.0], proof, "nccl")
    assert proof.metrics["all_reduce"] == "nccl over 3"
    with pytest.raises(Fault, match="gloo summed to") as caught:
        torch_check.check_sums([3.0, 2.0], proof, "gloo")
    assert caught.value.layer is Layer.NETWORK
