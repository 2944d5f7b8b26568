"""The examples: programs that a researcher copies stand alone, and find their place in a job."""

import ast
import os
import re
import sys
from types import SimpleNamespace

import dna as suite
import pytest

from tests import ROOT, imports

COPIED = sorted((ROOT / "examples").glob("*.py"))
PROGRAMS = [*COPIED, *sorted((ROOT / "examples" / "glt").glob("*.py")), *sorted((ROOT / "suites").rglob("*.py"))]


def test_examples_parse_with_python_3_9():
    for path in PROGRAMS:
        source = path.read_text(encoding="utf-8")
        ast.parse(source, feature_version=(3, 9))
        # `int | None` is evaluated otherwise
        assert "from __future__ import annotations" in source or "| None" not in source, path


def test_copied_examples_import_no_project_modules():
    allowed = {*sys.stdlib_module_names, "graphlearn_torch", "numpy", "torch", "torch_geometric"}
    for path in COPIED:
        text = path.read_text(encoding="utf-8")
        assert {name.partition(".")[0] for name in imports(ast.parse(text))} <= allowed, path
        assert len(text.splitlines()) <= 145, path


STEP = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "12"}
STEP["SLURM_STEP_NODELIST"] = "n1"
TORCHRUN = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n7", "MASTER_PORT": "29400"}


@pytest.mark.parametrize(
    ("variables", "place", "meeting"),
    [
        ({}, (0, 0, 1), "127.0.0.1:29500"),
        (TORCHRUN, (1, 1, 2), "n7:29400"),
        ({**STEP, "SLURM_STEP_NODELIST": "n[01-02,7]"}, (3, 1, 4), "n01:20012"),
        ({**STEP, "SLURM_STEP_NODELIST": "login,n1"}, (3, 1, 4), "login:20012"),
        ({**STEP, "MASTER_ADDR": "10.0.0.1"}, (3, 1, 4), "10.0.0.1:20012"),
        ({**STEP, "RANK": "3", "LOCAL_RANK": "1"}, (3, 1, 4), "n1:20012"),  # as pyxis without enroot's hook
        ({**STEP, **TORCHRUN}, (1, 1, 2), "n7:29400"),  # a job script's, under srun
        # a batch script outside of srun is one process
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "12"}, (0, 0, 1), "127.0.0.1:29500"),
    ],
)
def test_multi_node_example_reads_its_rank(variables, place, meeting, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(variables))
    assert function("multi_node.py", "find_place", os=os, re=re)() == place
    assert f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}" == meeting


def function(program, name, **scope):
    """A function of an example, without what the program imports."""
    tree = ast.parse((ROOT / "examples" / program).read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    exec(compile(tree, program, "exec"), scope)
    return scope[name]


WAYS_ON_A_NODE = ("0[7000] -> 1[f000] via SHM/direct/direct", "0[7000] -> 1[f000] via P2P/IPC/read")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        # as NCCL 2.14, 2.19, 2.21 and 2.27 word them
        (
            ("Using network IB", "3[c7000] -> 0[7000] [receive] via NET/IB/0/GDRDMA", *WAYS_ON_A_NODE),
            "network IB, ways NET/IB/GDRDMA, SHM, P2P",
        ),
        (
            ("Using network IB", "0[0] -> 1[0] [send] via NET/IB/0/GDRDMA", "0[0] -> 1[0] [send] via NET/IB/1"),
            "network IB, ways NET/IB/GDRDMA, NET/IB",
        ),
        (("Using network Socket", "0[0] -> 1[0] [send] via NET/Socket/1"), "network Socket, ways NET/Socket"),
        (
            ("Using network AWS Libfabric", "0[0] -> 8[0] [send] via NET/AWS Libfabric/0(3)/GDRDMA/Shared"),
            "network AWS Libfabric, ways NET/AWS Libfabric/GDRDMA",
        ),
        ((), "network not known, ways none"),
    ],
)
def test_multi_node_example_reads_its_transport_in_the_log_of_nccl(lines, said):
    log = "".join(f"n1:21:60 [0] NCCL INFO {line}\n" for line in lines)
    assert function("multi_node.py", "transport", re=re)(log) == said


def test_multi_node_example_times_the_sum_of_its_gradients():
    calls = []
    dist = SimpleNamespace(all_reduce=lambda _: calls.append("sum"))
    torch = SimpleNamespace(zeros=lambda number, device: [0.0] * number)
    clock = SimpleNamespace(perf_counter=iter((3.0, 5.0)).__next__)
    model = SimpleNamespace(parameters=lambda: [SimpleNamespace(numel=lambda: 30), SimpleNamespace(numel=lambda: 20)])
    time_of_sum = function("multi_node.py", "time_of_sum", torch=torch, dist=dist, time=clock)
    assert time_of_sum(model, "cpu", repeats=4) == (200, 0.5)
    assert calls == ["sum"] * 5  # the first one, which connects, is not counted


def test_dna_example_and_suite_have_the_same_network():
    """README copies one and says that the build trained the other: the same layers and the same optimizer."""
    tree = ast.parse((ROOT / "examples" / "dna.py").read_text(encoding="utf-8"))
    made = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    calls = {ast.unparse(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    width = [value.value for value in made.args.defaults]
    assert width == [suite.CHANNELS, suite.LAYERS, suite.HEADS, suite.GROUPS]
    assert calls["DNAConv"].args[3].value == suite.ATTENTION_DROPOUT
    rates = {word.arg: word.value.value for word in calls["torch.optim.Adam"].keywords}
    assert rates == {"lr": suite.LEARNING_RATE, "weight_decay": suite.WEIGHT_DECAY}
