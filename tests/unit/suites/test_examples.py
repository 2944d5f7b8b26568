"""The examples: programs that a researcher copies stand alone, and find their place in a job."""

import ast
import contextlib
import os
import re
import sys
import traceback
from datetime import timedelta
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
        assert len(text.splitlines()) <= 180, path


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


class Store(dict):
    """torch's, for one process that finds what the others have written."""

    def set(self, key, value):
        self[key] = value

    def wait(self, keys, patience):
        assert patience == timedelta(minutes=5)
        if absent := [key for key in keys if key not in self]:
            raise RuntimeError(f"wait timeout, keys: {', '.join(absent)}")


@pytest.fixture
def ended(monkeypatch):
    """A call: how `together` ends a process of two, and what its store holds then; os._exit raises SystemExit."""
    kept = os.dup(2)

    def end(rank, others, body):
        store = Store(dict.fromkeys(others, "yes"))
        dist = SimpleNamespace(rendezvous=lambda url, rank, world: iter([(store, rank, world)]))
        modules = {"os": os, "sys": sys, "traceback": traceback, "timedelta": timedelta}
        together = function(
            "multi_node.py", "together", dist=dist, contextmanager=contextlib.contextmanager,
            suppress=contextlib.suppress, **modules,
        )  # fmt: skip
        monkeypatch.setattr(os, "_exit", sys.exit)

        def whole():
            with together(rank, 2) as given:
                assert given is store
                body()

        with pytest.raises(SystemExit) as caught:
            whole()
        os.dup2(kept, 2)
        return caught.value.code, set(store) - set(others)

    yield end
    os.close(kept)


@pytest.mark.parametrize(
    ("rank", "others", "code", "written"),
    [
        (0, ["done/1", "left/1"], 0, {"done/0"}),
        (1, ["done/0"], 0, {"done/1", "left/1"}),
        (0, ["done/1"], 0, {"done/0"}),  # it was through: who is lost on its way out is no failure of rank 0's
        (0, [], 1, {"done/0"}),
        (1, [], 1, {"done/1"}),
    ],
)
def test_together_ends_a_process_when_all_are_through_and_rank_0_last(rank, others, code, written, ended, capsys):
    assert ended(rank, others, lambda: print("the result")) == (code, written)
    told = capsys.readouterr()
    assert told.out == "the result\n"
    assert (f"keys: done/{1 - rank}" in told.err) is (code == 1)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit("no")])
def test_together_ends_a_process_that_failed_with_1_and_does_not_say_that_it_is_through(error, ended, capsys):
    def fail():
        raise error

    assert ended(0, ["done/1", "left/1"], fail) == (1, set())
    assert f"{type(error).__name__}" in capsys.readouterr().err


def test_examples_of_several_processes_end_in_one_way():
    texts = []
    for program in ("multi_node.py", "glt_train.py"):
        source = (ROOT / "examples" / program).read_text(encoding="utf-8")
        found = [node for node in ast.parse(source).body if getattr(node, "name", "") == "together"]
        texts += [ast.unparse(node) for node in found]
    assert len(texts) == 2
    assert texts[0] == texts[1]


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
