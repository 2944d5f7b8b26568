"""The suites as far as they need no torch: usage, judging, what is blamed. tests/engines runs them in images."""

import contextlib
import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import ddp
import dna
import glt_check
import glt_distributed
import nccl
import ops
import pytest
import torch_check
from hypothesis import given
from hypothesis import strategies as st
from proof import curve, gcn, graphs, parts, sampling
from proof.curve import Point
from proof.verdict import Fault, Layer, Proof

from graphcrate.model.suite import SUITES
from graphcrate.smoke import suites
from tests import ROOT

PARSERS = {
    f"{program.__name__}.py": program.arguments
    for program in (dna, torch_check, ops, ddp, glt_check, glt_distributed, nccl)
}


def points(*accuracies, loss=0.5):
    return [Point(3 * number, loss, share, share, share) for number, share in enumerate(accuracies, 1)]


@pytest.mark.parametrize("name", SUITES)
def test_suite_commands_parse_with_their_programs(name):
    suite = SUITES[name]
    for on_gpu in (False, True):
        argv = suites.command(suite, name, on_gpu=on_gpu, limit=300)
        assert argv[1] == f"/opt/graphcrate/suites/{suite.program}"
        options = PARSERS[suite.program](argv[2:])
        assert (options.device, options.limit) == ("cuda" if on_gpu else "cpu", 300)


@pytest.mark.parametrize(
    ("program", "argv"),
    [
        *[("dna.py", argv) for argv in (["--epochs", "0"], ["--every", "0"], ["--device", "tpu"])],
        *[("ddp.py", argv) for argv in (["--ranks", "0"], ["--ranks", "9"], ["--limit", "soon"], ["--what"])],
        *[("ops.py", argv) for argv in (["--require", "torch_scater"], ["--device", "tpu"])],
        *[("glt_check.py", argv) for argv in (["--seed", "x"], ["--ports", "1"])],
    ],
)
def test_suite_program_with_invalid_arguments_exits_with_2(program, argv, capsys):
    with pytest.raises(SystemExit) as caught:
        PARSERS[program](argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err


def test_the_page_on_smoke_tests_has_the_bands():
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("smoke.md", "dev/suites.md"))
    for name, suite in {"dna": dna, "ddp": ddp, "glt": glt_check, "glt-distributed": glt_distributed}.items():
        low, high = suite.ACCURACY_BAND
        assert f"| `{name}` | {low:.2f} … {high:.2f} |" in page
        assert 0.69 < low < 1 - graphs.STRAYS < high < 1.0, "words alone give 0.69"
    assert f"{glt_check.SHARED_MEMORY >> 20} MiB" in page
    for kind, band in ops.BANDS.items():
        assert f"| `{kind}` | {band:.0e} |" in page


# DNAConv


def test_dna_is_proven_by_two_accurate_evaluations_in_a_row_and_a_fallen_loss():
    low, high = dna.PROVEN_ACCURACY - 0.01, dna.PROVEN_ACCURACY
    assert dna.is_proven(points(low, high, high), 1.9)
    for seen, loss in (((high, low, high), 0.5), ((high,), 0.5), ((), 0.5), ((high, high), 1.8)):
        assert not dna.is_proven(points(*seen, loss=loss), 1.9)
    blind = [Point(point.epoch, point.loss, point.train, point.validation, 0.0) for point in points(0.9, 0.9)]
    assert dna.is_proven(blind, 1.9)  # it never looks at test nodes


@pytest.mark.parametrize(
    ("first", "last", "accuracy", "objection"),
    [
        (1.9, 0.6, 0.85, None),
        (1.9, 0.6, 0.31, "test accuracy 0.3100 is outside"),
        (1.9, 0.6, 0.999, "test accuracy 0.9990 is outside"),
        (1.9, 1.9, 0.85, "the loss went from 1.9000 to 1.9000"),
        (1.9, float("nan"), 0.85, "the loss went from 1.9000 to nan"),
        (float("nan"), 0.5, 0.85, "the loss went from nan"),
    ],
)
def test_training_objections_name_accuracy_or_loss(first, last, accuracy, objection):
    for found in (dna.objections(points(accuracy, loss=last), first), ddp.objections(first, last, accuracy)):
        assert (found == []) if objection is None else (len(found) == 1 and objection in found[0])


@pytest.mark.parametrize(("accuracy", "proven"), [(0.85, True), (0.3, False)])
def test_dna_run_outside_the_accuracy_band_is_a_fault(monkeypatch, accuracy, proven):
    size = SimpleNamespace(size=lambda _: 3)
    graph = SimpleNamespace(y=[0, 0, 1], x=size, edge_index=size, classes=2)
    training = SimpleNamespace(points=points(accuracy, loss=0.9), first_loss=1.9, epoch=3, seconds=[9.0, 1.0, 2.0])
    for name in ("load_torch", "load_pyg", "choose_device", "raise_complaints"):
        monkeypatch.setattr(dna.stack, name, lambda *_: [])
    monkeypatch.setattr(dna.graphs, "tensors", lambda *_: graph)
    monkeypatch.setattr(dna, "Training", lambda *_: training)
    monkeypatch.setattr(dna, "train", lambda *_: "proven")
    proof = Proof("dna")
    with contextlib.nullcontext() if proven else pytest.raises(Fault, match=r"test accuracy 0\.3000 is outside"):
        dna.run(dna.arguments([]), proof)
    assert proof.metrics["accuracy_band"] == list(dna.ACCURACY_BAND)
    assert proof.metrics["seconds_per_epoch"] == 1.5  # the first one warms up


@given(st.lists(st.tuples(*[st.floats(0, 10)] * 2, *[st.floats(0, 1)] * 2), max_size=5), st.text())
def test_curve_svg_is_xml_with_all_points_in_its_frame(rows, title):
    title = "".join(letter for letter in title if letter.isprintable())
    drawn = curve.svg([Point(i, row[0], row[1] / 10, row[2], row[3]) for i, row in enumerate(rows, 1)], title)
    lines = [each for each in ET.fromstring(drawn) if each.tag.endswith("polyline")]
    assert len(lines) == len(curve.COLOURS)
    for each in lines:
        assert len(each.get("points").split()) == len(rows)
        for pair in each.get("points").split():
            x, y = map(float, pair.split(","))
            assert curve.MARGIN <= x <= curve.WIDTH - curve.MARGIN
            assert curve.MARGIN <= y <= curve.HEIGHT - curve.MARGIN


def test_curve_with_a_bad_path_or_without_matplotlib_is_a_fault(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name, said in (
        ("curve.pdf", r"\.svg or \.png"),
        ("absent/curve.svg", "there is no folder"),
        ("curve.png", "needs matplotlib"),
    ):
        with pytest.raises(Fault, match=said):
            curve.check(tmp_path / name)
    curve.draw(points(0.5, 0.6), "DNAConv", tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")


# Several processes


class Vector(tuple):
    """The part of a tensor of one dimension, or of rows, that `check` uses."""

    def __sub__(self, other):
        return Vector(a - b for a, b in zip(self, other, strict=True))

    def abs(self):
        return Vector(map(abs, self))

    def max(self):
        return max(self)

    def mean(self, dim):
        return Vector(sum(column) / len(self) for column in zip(*self, strict=True))

    def double(self):
        return self


@pytest.mark.parametrize(("together", "proven"), [((2.0, 3.0), True), ((2.0, 3.01), False), ((1.0, 2.0), False)])
def test_ddp_gradients_that_are_not_the_mean_are_a_fault(monkeypatch, together, proven):
    alone = ((1.0, 2.0), (3.0, 4.0))
    model = SimpleNamespace(module="alone", parameters=list)
    training = SimpleNamespace(
        torch=SimpleNamespace(cat=Vector, stack=Vector), model=model, world=2, rank=0,
        _gradient=lambda of, rank: Vector(together if of is model else alone[rank]),
    )  # fmt: skip
    monkeypatch.setattr(gcn, "check_equal", lambda *_: None)
    with contextlib.nullcontext() if proven else pytest.raises(Fault, match="not the mean over 2 processes"):
        gcn.Training.check(training, Proof("ddp"))


@given(st.integers(1, 300), st.integers(1, 40))
def test_sampling_share_gives_each_rank_equally_many_nodes(count, world):
    shares = [sampling.share(list(range(count)), rank, world) for rank in range(world)]
    assert {node for share in shares for node in share} == set(range(count))
    assert len({len(share) for share in shares}) == 1
    assert sum(map(len, shares)) < count + world


def test_only_rank_0_prints_progress_lines(capsys):
    for kind, lines in ((parts.Part, 2), (parts.QuietPart, 1)):
        part = kind("ddp")
        part.enter("training", Layer.TORCH)
        part.say("Epoch: 001")
        assert len(capsys.readouterr().out.splitlines()) == lines


# Operators


@pytest.mark.parametrize(
    ("built", "torch_cuda", "wrong"), [(-1, "11.8", True), (11080, "11.8", False), (-1, None, False)]
)
def test_extension_without_cuda_beside_a_cuda_torch_is_wrong(built, torch_cuda, wrong):
    known = SimpleNamespace(torch_scatter=SimpleNamespace(cuda_version=lambda: built))
    torch = SimpleNamespace(ops=known, version=SimpleNamespace(cuda=torch_cuda))
    with pytest.raises(ops.Wrong, match="without CUDA, beside a torch") if wrong else contextlib.nullcontext():
        ops.check_build(torch, "torch_scatter")


def test_extensions_switched_off_by_pyg_are_listed():
    typing = SimpleNamespace(WITH_TORCH_SCATTER=True, WITH_TORCH_SPARSE=False, WITH_PYG_LIB=False)
    # no switch for torch_cluster in this version
    assert ops.switched_off(typing, ["torch_scatter", "torch_sparse", "torch_cluster"]) == ["torch_sparse"]


@pytest.fixture
def stack(monkeypatch):
    """Installed packages by name; each imports, its fault is in `wrong`, and PyG complains."""
    there, wrong, complaints = {}, [], []

    def load(proof):
        proof.versions.update(there)
        return complaints

    def check(torch, device, names, with_pyg, seed, findings, proof):
        for operator in wrong:
            findings.note(operator, "float32 on cpu", "the result is off by 2.5e-01")

    for module, name, value in (
        (ops.stack, "load_torch", lambda proof: SimpleNamespace()),
        (ops.stack, "installed", there.get),
        (ops.stack, "load_pyg", load),
        (ops.stack, "load_extensions", load),
        (ops, "choose_devices", lambda torch, wanted, proof: ["cpu"]),
        (ops, "check_device", check),
    ):
        monkeypatch.setattr(module, name, value)
    return SimpleNamespace(there=there, wrong=wrong, complaints=complaints)


@pytest.mark.parametrize(
    ("there", "argv", "wrong", "said"),
    [
        (["torch_scatter", "torch_sparse"], [], [], None),
        (["torch_scatter", "torch_sparse"], ["--require", "torch-scatter,torch_sparse"], [], None),
        (["torch_scatter"], ["--require", "torch_scatter,torch_sparse,torch_cluster"], [], "torch_sparse, torch_clust"),
        ([], [], [], "nothing to check"),
        (["torch_geometric"], [], [], None),
        (["torch_scatter"], [], ["torch_scatter.scatter_max"], r"scatter_max \(float32 on cpu\): .* off by 2.5e-01"),
    ],
)
def test_ops_run_fails_on_missing_or_wrong_extensions(stack, there, argv, wrong, said):
    stack.there.update(dict.fromkeys(there, "2.1.2"))
    stack.wrong += wrong
    proof = Proof("ops")
    with pytest.raises(Fault, match=said) if said else contextlib.nullcontext() as caught:
        ops.run(ops.arguments(argv), proof)
    assert not said or caught.value.layer is Layer.EXTENSION
    assert [each["operator"] for each in proof.metrics.get("failed", [])] == wrong
    assert "pyg_lib" in proof.metrics["absent"]


def test_ops_run_fails_on_a_pyg_import_warning(stack):
    stack.there.update(torch_scatter="2.1.2", torch_geometric="2.3.1")
    said = "An issue occurred while importing 'torch-sparse'. Disabling its usage. Stacktrace: undefined symbol"
    stack.complaints.append(said)
    with pytest.raises(Fault, match="PyG switched torch-sparse off: undefined symbol"):
        ops.run(ops.arguments([]), Proof("ops"))


@pytest.mark.parametrize("lacking", ["torch_scatter", "torch_sparse", "torch_cluster"])
def test_ops_run_fails_without_an_extension_of_the_lock(stack, lacking):
    """The program is called as the image calls it, by what its lock says is in it."""
    program = suites.suite("ops", on_gpu=False, packages=("torch", "numpy", "torch-sparse", "torch-scatter"))
    stack.there.update(dict.fromkeys({"torch_scatter", "torch_sparse", "torch_cluster"} - {lacking}, "2.1.2"))
    is_locked = lacking != "torch_cluster"
    with pytest.raises(Fault, match=f"{lacking} must be here") if is_locked else contextlib.nullcontext():
        ops.run(ops.arguments(program.argv[2:]), Proof("ops"))


@pytest.fixture
def geometric(monkeypatch):
    """PyG as the check of ClusterData sees it: `parts` of the nodes, or the `error` that it raises."""
    given = SimpleNamespace(parts=[], error=None, sparse=None, files=[], typing=SimpleNamespace())

    def cluster_data(graph, *, num_parts, log):
        if given.error:
            raise given.error
        return graph

    def batch(nodes):
        return SimpleNamespace(x=SimpleNamespace(flatten=lambda: SimpleNamespace(tolist=lambda: nodes)))

    modules = {
        "torch_geometric.loader": SimpleNamespace(
            ClusterData=cluster_data, ClusterLoader=lambda graph, batch_size: map(batch, given.parts)
        ),
        "torch_geometric.data": SimpleNamespace(Data=SimpleNamespace),
        "torch_geometric.typing": given.typing,
    }
    monkeypatch.setattr(ops.importlib, "import_module", modules.__getitem__)
    monkeypatch.setattr(ops.stack, "installed", lambda _: given.sparse)
    monkeypatch.setattr(ops.metadata, "files", lambda _: map(Path, given.files))
    return given


CLUSTERS = [[*range(first, first + 9)] for first in (18, 0, 27, 9)]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (CLUSTERS, None),
        (CLUSTERS[1:], "ClusterLoader gives 27 nodes, not each of 36 once"),
        ([[*range(17)], [17], *CLUSTERS[::2]], "METIS does not find 4 cliques"),
    ],
)
def test_clusters_are_the_cliques_of_the_graph(geometric, parts, says):
    findings, geometric.parts = ops.Findings(), parts
    with pytest.raises(ops.Wrong, match=says) if says else contextlib.nullcontext():
        ops.clusters(SimpleNamespace(tensor=list), findings, Proof("ops"))
    assert findings.checked == ["PyG.ClusterData on cpu"]


ABSENT = (
    RuntimeError("Not compiled with METIS support"),
    ImportError("'ClusterData' requires either 'pyg-lib' or 'torch-sparse'"),
    ImportError("'SparseTensor' requires 'torch-sparse'"),
)


@pytest.mark.parametrize(
    ("about", "brings"),
    [
        ({}, False),
        ({"sparse": "0.6.18", "files": ["torch_sparse-0.6.18.dist-info/LICENSE"]}, False),
        ({"sparse": "0.6.18", "files": ["torch_sparse-0.6.18.dist-info/licenses/LICENSE.METIS.txt"]}, True),
        ({"sparse": "0.6.18+pt20cu118"}, True),
        ({"typing": {"WITH_METIS": True}}, True),
        ({"typing": {"WITH_METIS": False}}, False),
    ],
)
@pytest.mark.parametrize("error", ABSENT, ids=str)
def test_absent_metis_is_noted_or_wrong_where_the_image_is_to_have_it(geometric, about, brings, error):
    geometric.error, geometric.sparse, geometric.files = error, about.get("sparse"), about.get("files", [])
    vars(geometric.typing).update(about.get("typing", {}))
    findings, proof = ops.Findings(), Proof("ops")
    with pytest.raises(ops.Wrong, match="should bring") if brings else contextlib.nullcontext():
        ops.clusters(SimpleNamespace(tensor=list), findings, proof)
    assert findings.checked == []
    assert proof.metrics.get("without", []) == ([] if brings else ["METIS"])


def test_other_errors_of_cluster_data_are_raised(geometric):
    geometric.error = RuntimeError("an index is out of range")
    with pytest.raises(RuntimeError, match="out of range"):
        ops.clusters(SimpleNamespace(tensor=list), ops.Findings(), Proof("ops"))


def test_operator_exception_is_a_finding_and_a_cuda_error_ends_the_run(monkeypatch):
    torch = SimpleNamespace(Generator=lambda: SimpleNamespace(manual_seed=lambda seed: None), cuda=SimpleNamespace())
    said = "undefined\nsymbol"

    def fail(*_):
        raise RuntimeError(said)

    monkeypatch.setattr(ops, "check", fail)
    monkeypatch.setattr(ops, "check_build", lambda *_: None)
    findings = ops.Findings()
    arguments = (torch, SimpleNamespace(type="cpu"), ["torch_scatter"], False, 0, findings, Proof("ops"))
    ops.check_device(*arguments)
    assert findings.wrong[0]["what"] == "RuntimeError: undefined symbol"
    said = "CUDA error: an illegal memory access"
    with pytest.raises(RuntimeError, match="illegal"):
        ops.check_device(*arguments)
    assert json.dumps(findings.wrong)


@pytest.mark.parametrize(
    ("error", "layer"),
    [
        (ops.Wrong("the result of torch_scatter.scatter_min is off by 1.0e+00"), "extension"),
        (RuntimeError("undefined symbol: _ZN2at"), "extension"),
        (OSError("/lib/libc.so.6: version `GLIBC_2.94' not found"), "C library"),
        (RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED"), "CUDA library"),
    ],
)
def test_wrong_operator_is_named_with_its_layer_and_does_not_hide_the_next(monkeypatch, error, layer):
    rows = [SimpleNamespace(name=f"torch_scatter.scatter_{how}", kinds=("float32",)) for how in ("min", "max")]

    def compare(torch, device, operator, kind, random):
        if operator is rows[0]:
            raise error
        return 0.0

    monkeypatch.setattr(ops, "compare", compare)
    monkeypatch.setitem(ops.OPERATORS, "torch_scatter", lambda torch, device: iter(rows))
    findings = ops.Findings()
    ops.check(SimpleNamespace(), SimpleNamespace(type="cpu"), "torch_scatter", None, findings)
    assert [(each["operator"], each["layer"]) for each in findings.wrong] == [("torch_scatter.scatter_min", layer)]
    assert len(findings.checked) == 2


@pytest.mark.parametrize(
    ("error", "layer"),
    [
        (OSError("/lib/libc.so.6: version `GLIBC_2.94' not found (required by _basis_cuda.so)"), Layer.SYSTEM),
        (OSError("libcudart.so.11.0: cannot open shared object file"), Layer.CUDA),
        (ImportError("_scatter_cuda.so: undefined symbol: _ZN2at"), Layer.EXTENSION),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), Layer.TORCH),
    ],
)
def test_extension_that_cannot_be_imported_is_blamed_by_the_words_of_its_error(monkeypatch, error, layer):
    def fail(name):
        raise error

    monkeypatch.setattr(ops.stack, "installed", lambda name: "2.1.2")
    monkeypatch.setattr(ops.stack.importlib, "import_module", fail)
    with pytest.raises(Fault, match=r"pyg_lib .* cannot be imported") as caught:
        ops.stack.load_extensions(Proof("ops"))
    assert caught.value.layer is layer


def test_nan_output_is_a_fault_of_training():
    training = object.__new__(dna.Training)
    numbers = SimpleNamespace(all=lambda: False)
    training.torch = SimpleNamespace(no_grad=contextlib.nullcontext, isfinite=lambda output: numbers)
    training.model = type("Model", (), {"eval": lambda self: None, "__call__": lambda self, *_: None})()
    training.graph, training.epoch = SimpleNamespace(x=None, edge_index=None), 3
    with pytest.raises(Fault, match="no numbers after epoch 3") as caught:
        training.evaluate()
    assert caught.value.layer is Layer.TRAINING


def test_wrong_all_reduce_sum_is_a_network_fault():
    proof = Proof("torch")
    torch_check.check_sums([6.0, 6.0, 6.0], proof, "nccl")
    assert proof.metrics["all_reduce"] == "nccl over 3"
    with pytest.raises(Fault, match="gloo summed to") as caught:
        torch_check.check_sums([3.0, 2.0], proof, "gloo")
    assert caught.value.layer is Layer.NETWORK
