"""Parts that the examples share and that need no torch: the generated graph, the verdict, the look at the stack."""

import hashlib
import json
import math
import os
import signal
import sys
import threading
import warnings
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof import graphs, stack, verdict
from proof.verdict import Fault, Layer, Proof

GRAPH_SHA256 = "769814c5e8a4d5a67c54ad2c2faff49abeb82bce918d3d9bc01af5c2417ad5ec"


def prove(body, capsys, limit=None):
    """The exit code, the lines before the verdict, and the verdict."""
    code = verdict.prove("dna", body, limit)
    *lines, last = capsys.readouterr().out.splitlines()
    return code, lines, json.loads(last)


# The generated graph


def test_generated_graph_has_its_golden_digest():
    graph = graphs.generate()
    told = json.dumps([graph.words, graph.edges, graph.labels], separators=(",", ":"))
    assert hashlib.sha256(told.encode()).hexdigest() == GRAPH_SHA256


@given(st.lists(st.integers(0, 6), min_size=1, max_size=200), st.integers(0, 2**32))
def test_graph_split_has_each_node_once_in_proportion_by_class(labels, seed):
    split = graphs.split(labels, seed)
    assert sorted((*split.train, *split.validation, *split.test)) == list(range(len(labels)))
    for label, size in Counter(labels).items():
        for part in (split.train, split.validation):
            assert sum(labels[node] == label for node in part) == round(size / 5)


# The verdict


def test_passed_proof_prints_its_verdict(capsys):
    def body(proof):
        proof.enter("training on cpu", Layer.TORCH)
        proof.device = "cpu"
        proof.metrics["last_loss"] = 0.5
        proof.extra["epochs"] = 39

    code, lines, told = prove(body, capsys)
    assert (code, lines) == (0, ["Phase: training on cpu (torch)"])
    wanted = {"suite": "dna", "status": "passed", "device": "cpu", "epochs": 39, "reason": "", "layer": None}
    assert {**told, **wanted, "metrics": {"last_loss": 0.5}} == told


@pytest.mark.parametrize(
    ("error", "layer", "seen"),
    [
        (Fault(Layer.DATA, "no network"), "data", "data: no network (while training)"),
        (RuntimeError("something odd"), "torch", "RuntimeError: something odd"),
        (KeyboardInterrupt(), "machine", "interrupted"),
        (SystemExit(0), "torch", "SystemExit"),
        (ValueError("x" * 10_000), "torch", "…"),
    ],
)
def test_failed_proof_has_layer_and_phase(error, layer, seen, capsys):
    def body(proof):
        proof.enter("training", Layer.TORCH)
        raise error

    code, _, told = prove(body, capsys)
    assert (code, told["status"], told["layer"], told["phase"]) == (1, "failed", layer, "training")
    assert seen in told["reason"]
    assert len(told["reason"]) < 600


def test_nan_and_infinity_in_a_verdict_are_words(capsys):
    def body(proof):
        proof.metrics.update(last_loss=math.nan, losses=[0.5, math.inf], best={"loss": (-math.inf, 1)})
        proof.extra["sm"] = math.nan
        raise Fault(Layer.TRAINING, "the loss is nan")

    code, _, told = prove(body, capsys)
    assert (code, told["status"], told["layer"], told["sm"]) == (1, "failed", "training", "nan")
    assert told["metrics"] == {"last_loss": "nan", "losses": [0.5, "inf"], "best": {"loss": ["-inf", 1]}}


def raised_from(error, cause):
    try:
        raise error from cause
    except type(error) as raised:
        return raised


FRAMES = "".join(f'  File "spawn.py", line {number}, in _wrap\n' for number in range(100))
ANOTHERS = f"\n\n-- Process 0 terminated:\nTraceback (most recent call last):\n{FRAMES}"
ANOTHERS += "RuntimeError: Unable to find address\n"


def test_explained_error_has_its_causes_and_the_end_of_a_foreign_traceback():
    error = raised_from(OSError("Could not load this library: a.so"), OSError("a.so: undefined symbol: init"))
    told = "OSError: Could not load this library: a.so; from OSError: a.so: undefined symbol: init"
    assert verdict.explained(error) == told
    glibc = raised_from(OSError("Could not load it"), OSError("version `GLIBC_2.38' not found"))
    assert verdict.blame(glibc, Layer.EXTENSION) is Layer.SYSTEM
    told = "RuntimeError: -- Process 0 terminated: RuntimeError: Unable to find address"
    assert verdict.explained(RuntimeError(ANOTHERS)) == told
    assert verdict.blame(RuntimeError(ANOTHERS), Layer.TORCH) is Layer.NETWORK


def test_sigterm_gives_a_failed_verdict(capsys):
    before = signal.getsignal(signal.SIGTERM)
    code, _, told = prove(lambda proof: signal.raise_signal(signal.SIGTERM), capsys)
    assert (code, "SIGTERM" in told["reason"]) == (1, True)
    assert signal.getsignal(signal.SIGTERM) is before


def test_exceeded_time_limit_gives_a_verdict_with_the_phase(capsys, monkeypatch):
    ended = threading.Event()
    codes = []
    monkeypatch.setattr(verdict.os, "_exit", lambda code: (codes.append(code), ended.set()))

    def body(proof):
        proof.enter("importing pyg_lib", Layer.EXTENSION)
        assert ended.wait(30)

    code = verdict.prove("dna", body, 0.05)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert (codes, code) == ([1], 0)
    assert len(told) == 1, "only the first verdict counts"
    assert "limit of 0.05 s (while importing pyg_lib)" in told[0]["reason"]


def test_closed_stdout_is_no_error_for_a_proof(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        Proof("dna").say("hello")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            stream.flush()
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, writing)
        os.close(devnull)


@pytest.mark.parametrize(
    ("error", "layer"),
    [
        ("CUDA error: no kernel image is available for execution on the device", Layer.TORCH),
        ("The NVIDIA driver on your system is too old (found version 11040).", Layer.DRIVER),
        ("Found no NVIDIA driver on your system.", Layer.DRIVER),
        ("libcuda.so.1: cannot open shared object file", Layer.DRIVER),
        ("libcudnn.so.8: cannot open shared object file: No such file or directory", Layer.CUDA),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", Layer.CUDA),
        ("libnvJitLink.so.12: undefined symbol: __nvJitLinkComplete_12_4", Layer.CUDA),
        ("NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled system error", Layer.NETWORK),
        ("/lib/libc.so.6: version `GLIBC_2.29' not found (required by torch_sparse.so)", Layer.SYSTEM),
        ("torch_scatter/_version_cuda.so: undefined symbol: _ZN3c1017RegisterOperators", Layer.EXTENSION),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", Layer.MACHINE),
        ("DefaultCPUAllocator: can't allocate memory", Layer.MACHINE),
        ("unable to open shared memory object </torch_1> in read-write mode", Layer.MACHINE),
        ("an error nobody has seen", Layer.DATA),
        (MemoryError(), Layer.MACHINE),
        (ModuleNotFoundError("no", name="torch_geometric.nn"), Layer.PYG),
        (ModuleNotFoundError("no", name="numpy"), Layer.DATA),
        (Fault(Layer.CUDA, "libcuda.so"), Layer.CUDA),
    ],
)
def test_error_text_decides_the_blamed_layer(error, layer):
    assert verdict.blame(RuntimeError(error) if isinstance(error, str) else error, Layer.DATA) is layer


# The stack


@pytest.mark.parametrize(
    ("capability", "built", "runs"),
    [
        ((7, 0), ["sm_70", "sm_80"], True),
        ((8, 6), ["sm_70", "sm_80"], True),
        ((8, 0), ["sm_70", "sm_86"], False),
        ((9, 0), ["sm_37", "sm_80", "compute_37"], True),
        ((9, 0), ["sm_90a"], True),
        ((10, 3), ["sm_100a"], False),
        ((10, 3), ["sm_100f"], True),
        ((12, 0), ["sm_90", "compute_90a"], False),
        ((12, 0), ["sm_90", "compute_120"], True),
        ((9, 0), [], False),
        ((9, 0), ["gfx90a"], False),
    ],
)
def test_missing_kernels_names_a_gpu_without_code(capability, built, runs):
    complaint = stack.missing_kernels(capability, built)
    assert (complaint == "") is runs
    if not runs:
        assert f"no kernel image for sm_{capability[0]}{capability[1]}" in complaint


PYG_WARNING = (
    "An issue occurred while importing 'torch-scatter'. Disabling its usage. "
    "Stacktrace: /opt/venv/torch_scatter/_scatter_cuda.so:\n undefined symbol: _ZN2at4_ops"
)


def test_pyg_import_warning_is_caught_despite_ignored_warnings(monkeypatch):
    with warnings.catch_warnings():
        shown = []
        monkeypatch.setattr(warnings, "showwarning", lambda *given, **more: shown.append(given[0]))
        warnings.simplefilter("ignore")
        complaints = stack.listen()
        warnings.warn("something else", stacklevel=1)
        warnings.warn(PYG_WARNING, stacklevel=1)
    with pytest.raises(Fault, match=r"PyG switched torch-scatter off: .*undefined symbol: _ZN2at4_ops") as caught:
        stack.raise_complaints(complaints)
    assert caught.value.layer is Layer.EXTENSION
    assert [str(each) for each in shown] == [PYG_WARNING], "it is still shown, and what was ignored still is"
    assert stack.explain("Disabling its\nusage") == "Disabling its usage"
    assert stack.explain("importing 'x'. Disabling its usage") == "PyG switched x off: no reason given"
    stack.raise_complaints([])
