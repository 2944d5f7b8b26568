"""The suite `ops` as far as it needs no torch: its ledger, what it demands of samples, how it ends.

`bench/ops_faults.py` breaks real operators and shows that each is found.
"""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

import ops  # noqa: E402  examples/ is no package
from proof.operators import cluster, geometric, trace, walks  # noqa: E402
from proof.operators.examiner import Wrong  # noqa: E402
from proof.operators.ledger import BANDS, MOST_NAMED, NO_CODE, Ledger  # noqa: E402
from proof.verdict import Fault, Layer, Proof  # noqa: E402


class Numbers(list):
    """As much of a tensor as the properties of samples ask for."""

    def tolist(self):
        return list(self)

    def cpu(self):
        return self

    def t(self):
        return Numbers(list(pair) for pair in zip(*self, strict=True))

    def __getitem__(self, at):
        found = super().__getitem__(at)
        return Numbers(found) if isinstance(at, slice) else found


def graph(*edges, nodes=4):
    edges = sorted(edges)
    offsets = [sum(row < node for row, _ in edges) for node in range(nodes + 1)]
    return walks.Graph(Numbers(offsets), Numbers(row for row, _ in edges), Numbers(col for _, col in edges))


#: 0 → 1, 2, 3; 1 → 0; 2 → 3; 3 → 0
SMALL = graph((0, 1), (0, 2), (0, 3), (1, 0), (2, 3), (3, 0))


# The ledger


def test_what_is_within_its_band_is_kept_as_the_largest_error():
    ledger = Ledger()
    assert ledger.measured("torch_scatter.scatter_sum", "float32", "cpu", "the result is", 1e-7)
    assert ledger.measured("torch_scatter.scatter_mul", "float32", "cpu", "the result is", 3e-7)
    assert ledger.metrics()["largest_error"] == {
        "float32": {"error": 3e-7, "of": "torch_scatter.scatter_mul", "allowed": BANDS["float32"]}
    }
    assert ledger.reason() == ""


@pytest.mark.parametrize("kind", BANDS)
@pytest.mark.parametrize(("error", "seen"), [(0.5, "off by 5.0e-01"), (math.inf, "not a number"), (math.nan, "not a")])
def test_what_is_outside_is_named_with_its_size(kind, error, seen):
    ledger = Ledger()
    assert not ledger.measured("torch_sparse.spmm_max", kind, "cuda:0", "the gradient of input 1 is", error)
    assert f"torch_sparse.spmm_max ({kind} on cuda:0): the gradient of input 1 is {seen}" in ledger.reason()
    assert json.dumps(ledger.metrics(), allow_nan=False)


def test_a_wider_band_is_a_matter_of_the_operator():
    ledger = Ledger()
    assert ledger.measured("pyg_lib.segment_matmul", "float32", "cuda:0", "the result is", 1e-4, slack=100.0)
    assert not ledger.measured("pyg_lib.sampled_add", "float32", "cuda:0", "the result is", 1e-4)


def test_the_reason_names_all_operators_and_says_nothing_twice():
    ledger = Ledger()
    for number in range(MOST_NAMED + 3):
        ledger.wrong(f"torch_scatter.operator_{number}", "on cpu", "is\nwrong")
        ledger.wrong(f"torch_scatter.operator_{number}", "on cpu", "is wrong")
    assert len(ledger.findings) == MOST_NAMED + 3
    assert all(f"operator_{number}" in ledger.reason() for number in range(MOST_NAMED + 3))
    assert "and 3 more, of torch_scatter.operator_12" in ledger.reason()
    assert len(ledger.metrics()["failed"]) == MOST_NAMED + 3


def test_operators_are_counted_by_extension():
    ledger = Ledger()
    for name in ("torch_scatter.scatter_sum", "torch_scatter.scatter_sum", "torch_cluster.knn", "torch_scatter.ops.x"):
        ledger.begin(name)
    assert ledger.metrics()["operators"] == {"torch_cluster": 1, "torch_scatter": 2}


def test_half_precision_that_is_not_there_is_no_fault_and_a_missing_cuda_is():
    assert NO_CODE.search("\"basis_fw\" not implemented for 'Half'")
    assert not NO_CODE.search("Not compiled with CUDA support")
    assert not NO_CODE.search("CUDA error: an illegal memory access was encountered")


# Samples


def test_neighbours_that_are_right():
    every = [(number, *edge) for number, edge in enumerate(SMALL.edges)]
    walks.insist_neighbours(SMALL, every, range(4), -1)
    walks.insist_neighbours(SMALL, every, range(4), 3)
    walks.insist_neighbours(SMALL, [every[0], every[2], every[3]], [0, 1], 2)
    walks.insist_neighbours(SMALL, [every[1]] * 2, [0], 2, repeat=True)


@pytest.mark.parametrize(
    ("edges", "seen"),
    [
        ([(0, 0, 1), (1, 0, 2)], "2 were due|3 were due, 2 came"),
        ([(0, 0, 1), (1, 0, 2), (1, 0, 2)], "twice"),
        ([(0, 0, 1), (1, 0, 2), (2, 0, 2)], r"edge 2 is \(0, 3\)"),
        ([(0, 0, 1), (1, 0, 2), (9, 0, 3)], "no edge 9"),
        ([(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 1, 0)], "not asked"),
    ],
)
def test_a_missing_a_double_a_false_and_an_invented_edge_are_found(edges, seen):
    with pytest.raises(Wrong, match=seen):
        walks.insist_neighbours(SMALL, edges, [0], 3)


HOPS = ([0, 1, 2, 3], ([0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 3, 0], [0, 1, 2, 3, 4, 5]))


def hops(nodes, found, fan_outs):
    walks.insist_hops(SMALL, Numbers(nodes), [Numbers(each) for each in found], Numbers([0]), fan_outs, repeat=False)


def test_a_sample_over_two_hops():
    hops(*HOPS, [-1, -1])
    hops([0, 3], ([0, 1], [1, 0], [2, 5]), [1, 1])


@pytest.mark.parametrize(
    ("nodes", "found", "fan_outs", "seen"),
    [
        ([1, 0, 2, 3], HOPS[1], [-1, -1], "seeds do not come first"),
        ([0, 1, 2, 3, 3], HOPS[1], [-1, -1], "a node comes back twice"),
        ([0, 1, 2, 3], tuple(each[:-1] for each in HOPS[1]), [-1, -1], "node 3 has 1 neighbours, 1 were due, 0 came"),
        ([0, 1, 2, 3], HOPS[1], [-1], "beyond the last hop"),
        ([0, 3, 1], ([0, 1], [1, 0], [2, 5]), [1, 1], "no edge leads to"),
        ([0, 2], ([0, 1], [1, 0], [2, 5]), [1, 1], r"edge 2 is \(0, 3\), not \(0, 2\)"),
    ],
)
def test_a_broken_sample_over_two_hops(nodes, found, fan_outs, seen):
    with pytest.raises(Wrong, match=seen):
        hops(nodes, found, fan_outs)


@given(st.integers(0, 5))
def test_an_induced_subgraph_lacks_no_edge(lost):
    kept = [number for number in range(6) if number != lost]
    nodes, ends = Numbers(range(4)), SMALL.edges
    whole = [Numbers(ends[n][side] for n in range(6)) for side in (0, 1)]
    walks.insist_induced(SMALL, nodes, *whole, Numbers(range(6)))
    with pytest.raises(Wrong, match="5 of 6 edges"):
        walks.insist_induced(SMALL, nodes, *(Numbers(ends[n][side] for n in kept) for side in (0, 1)), Numbers(kept))


PAIRS = graph((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))


@pytest.mark.parametrize("numbers", [[0, 0, 2, 2], [0, 1, 1, 3]])
def test_pairings_that_are_right(numbers):
    cluster.insist_pairing(PAIRS, Numbers(numbers))


@pytest.mark.parametrize(
    ("numbers", "seen"),
    [([0, 0, 0, 1], "3 nodes"), ([0, 1, 0, 1], "no edge"), ([0, 0, 2, 3], "left alone"), ([0, 1, 2, 3], "left alone")],
)
def test_pairings_that_are_wrong(numbers, seen):
    with pytest.raises(Wrong, match=seen):
        cluster.insist_pairing(PAIRS, Numbers(numbers))


DISTANCES = Numbers([Numbers([0.0, 0.1, 0.5, 0.9]), Numbers([0.7, math.inf, 0.2, math.inf])])


def test_nearest_neighbours():
    cluster.insist_nearest(Numbers([[0, 0, 1, 1], [0, 1, 2, 0]]), DISTANCES, 2, "float32")
    cluster.insist_nearest(Numbers([[0, 0, 1, 1], [2, 1, 2, 0]]), DISTANCES, 2, "float32", itself=False)


@pytest.mark.parametrize(
    ("pairs", "seen"),
    [
        ([[0, 0, 1, 1], [0, 2, 2, 0]], r"neighbour 2 of point 0 is 0.5000 away, 0.1000 is due"),
        ([[0, 0, 1], [0, 1, 2]], "point 1 has 1 neighbours, not 2"),
        ([[0, 0, 1, 1], [0, 0, 2, 0]], "twice"),
        ([[0, 0, 1, 1], [0, 1, 2, 3]], "neighbour 3 of point 1 is inf away"),
    ],
)
def test_neighbours_that_are_not_the_nearest(pairs, seen):
    with pytest.raises(Wrong, match=seen):
        cluster.insist_nearest(Numbers(pairs), DISTANCES, 2, "float32")


# PyG and the builds


def test_an_extension_that_pyg_has_switched_off():
    typing = SimpleNamespace(WITH_TORCH_SCATTER=True, WITH_TORCH_SPARSE=False, WITH_PYG_LIB=False)
    installed = ["torch_scatter", "torch_sparse", "torch_cluster"]
    assert geometric.switched_off(typing, installed) == ["torch_sparse"]  # no switch for torch_cluster in this version
    assert geometric.switched_off(SimpleNamespace(), installed) == []


@pytest.mark.parametrize(
    ("built_for", "torch_cuda", "wrong"), [(-1, "11.8", True), (11080, "11.8", False), (-1, None, False)]
)
def test_an_extension_without_cuda_beside_a_torch_with_it(built_for, torch_cuda, wrong):
    torch = SimpleNamespace(
        ops=SimpleNamespace(torch_scatter=SimpleNamespace(cuda_version=lambda: built_for)),
        version=SimpleNamespace(cuda=torch_cuda),
    )
    ledger = Ledger()
    ops.check_build(torch, "torch_scatter", ledger)
    assert bool(ledger.findings) == wrong
    assert ("compiled without CUDA, beside a torch for CUDA 11.8" in ledger.reason()) == wrong


def test_operators_that_nobody_called_are_told(monkeypatch):
    known = {"torch_scatter": {"torch_scatter::scatter_max", "torch_scatter::new", "torch_scatter::cuda_version"}}
    monkeypatch.setattr(trace, "registered", lambda torch, name: known[name])
    proof = Proof("ops")
    ops.report_calls(None, ["torch_scatter"], {"torch_scatter::scatter_max"}, proof)
    assert proof.metrics == {"registered": {"torch_scatter": 3}, "not_called": ["torch_scatter::new"]}


# The whole


@pytest.fixture
def stack(monkeypatch):
    """What is installed by name; each imports, and its check is left to `checks`."""
    there: dict[str, str] = {}

    def load(proof):
        proof.versions.update(there)
        return []

    monkeypatch.setattr(ops.stack, "load_torch", lambda proof: SimpleNamespace())
    monkeypatch.setattr(ops.stack, "installed", there.get)
    monkeypatch.setattr(ops.stack, "load_pyg", load)
    monkeypatch.setattr(ops.stack, "load_extensions", load)
    monkeypatch.setattr(ops, "choose_devices", lambda torch, wanted, proof: ["cpu"])
    monkeypatch.setattr(ops, "report_calls", lambda torch, there, called, proof: None)
    monkeypatch.setattr(ops, "check_device", lambda *arguments: None)
    return there


def test_what_is_not_installed_is_told_and_no_fault(stack):
    stack.update(torch_scatter="2.1.2", torch_sparse="0.6.18")
    proof = Proof("ops")
    ops.run(ops.arguments([]), proof)
    assert proof.metrics["absent"] == ["pyg_lib", "torch_cluster", "torch_spline_conv"]
    ops.run(ops.arguments(["--require", "torch-scatter,torch_sparse"]), proof)


def test_what_is_required_and_not_installed_is_a_fault_of_its_layer(stack):
    stack.update(torch_scatter="2.1.2")
    with pytest.raises(Fault, match=r"torch_sparse, torch_cluster must be here") as caught:
        ops.run(ops.arguments(["--require", "torch_scatter,torch_sparse,torch_cluster"]), Proof("ops"))
    assert caught.value.layer is Layer.EXTENSION


def test_nothing_to_check_is_no_success(stack):
    with pytest.raises(Fault, match="nothing to check"):
        ops.run(ops.arguments([]), Proof("ops"))
    stack.update(torch_geometric="2.3.1")  # its own code is checked
    ops.run(ops.arguments([]), Proof("ops"))


def test_a_wrong_operator_fails_the_suite_and_stands_in_the_metrics(stack, monkeypatch):
    def check(torch, device, there, with_pyg, seed, ledger, proof, called):
        ledger.begin("torch_scatter.scatter_max")
        ledger.measured("torch_scatter.scatter_max", "float32", "cpu", "the result is", 0.25)

    stack.update(torch_scatter="2.1.2")
    monkeypatch.setattr(ops, "check_device", check)
    proof = Proof("ops")
    with pytest.raises(
        Fault, match=r"torch_scatter.scatter_max \(float32 on cpu\): the result is off by 2.5e-01"
    ) as caught:
        ops.run(ops.arguments([]), proof)
    assert caught.value.layer is Layer.EXTENSION
    assert proof.metrics["failed"][0]["operator"] == "torch_scatter.scatter_max"


def test_pygs_complaint_fails_it_too(stack, monkeypatch):
    stack.update(torch_scatter="2.1.2", torch_geometric="2.3.1")
    complaint = "An issue occurred while importing 'torch-sparse'. Disabling its usage. Stacktrace: undefined symbol"
    load = ops.stack.load_extensions
    monkeypatch.setattr(ops.stack, "load_pyg", lambda proof: [*load(proof), complaint])
    with pytest.raises(Fault, match="PyG switched torch-sparse off: undefined symbol"):
        ops.run(ops.arguments([]), Proof("ops"))


@pytest.mark.parametrize("argv", [["--require", "torch_scater"], ["--device", "tpu"], ["--limit", "soon"]])
def test_wrong_usage_is_told(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        ops.arguments(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err


def test_the_page_on_smoke_tests_has_the_bands():
    page = (EXAMPLES.parent / "docs" / "smoke.md").read_text(encoding="utf-8")
    for kind, band in BANDS.items():
        assert f"| `{kind}` | {band:.0e} |" in page
