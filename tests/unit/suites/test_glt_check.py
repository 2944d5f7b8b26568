"""The parts of the GLT check that need neither torch nor other processes; the rest runs in every image with GLT."""

import functools
import os
import signal
import socket
import sys
import weakref
from types import SimpleNamespace
from unittest import mock

import glt_check
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof import glt, graphs, machine, neighbours, parts, sage
from proof.neighbours import Sample
from proof.verdict import Fault, Layer, Proof

from tests import ROOT

#: a star with a tail: 0 - 1, 0 - 2, 0 - 3, 3 - 4; numbers 0 … 3, turned around 4 … 7
STAR = neighbours.link([(0, 1), (0, 2), (0, 3), (3, 4)], 5)
FROM_1 = Sample([1], [1, 0, 2, 3], [(1, 0, 4), (0, 1, 0), (0, 2, 1), (0, 3, 2)])


def changed(sample=FROM_1, **fields):
    return Sample(**{**vars(sample), **fields})


# What a sampler must bring


@pytest.mark.parametrize(
    ("sample", "fan_outs", "objection"),
    [
        (FROM_1, (3, 3), None),
        (Sample([0], [0, 1], [(0, 1, 0), (0, 1, 0)]), (2,), None),  # with a smaller fan-out one may come twice
        (changed(edges=FROM_1.edges[:-1], nodes=[1, 0, 2]), (3, 3), "hop 2: node 0 has 3 neighbours and fan-out 3 bro"),
        (changed(edges=[*FROM_1.edges[:-1], (0, 2, 1)], nodes=[1, 0, 2]), (3, 3), "neighbours came twice"),
        (changed(edges=[*FROM_1.edges[:-1], (0, 4, 2)]), (3, 3), "edge 2 came as 0 → 4, which the graph does not have"),
        (changed(edges=[*FROM_1.edges, (3, 4, 8)]), (3, 3), "edge 8 came as 3 → 4"),
        (FROM_1, (3,), "1 nodes were expanded that are 1 or more hops from a seed"),
        (changed(nodes=[0, 1, 2, 3]), (3, 3), "the batch does not begin with its seeds"),
        (changed(nodes=[1, 0, 2, 3, 3]), (3, 3), "nodes are listed twice"),
        (changed(nodes=[1, 0, 2, 3, 4]), (3, 3), "1 nodes are listed without an edge"),
        (Sample([0], [0, 1, 2, 3], [(0, 1, 0), (0, 2, 1), (0, 3, 2)]), (2,), "fan-out 2 brought 3 of them, not 2"),
    ],
)
def test_invalid_neighbour_batch_has_objections(sample, fan_outs, objection):
    found = neighbours.objections(sample, STAR, fan_outs)
    assert any(objection in each for each in found) if objection else found == [], found
    assert len(found) <= neighbours.MOST
    assert neighbours.abroad(FROM_1, {1, 2}) == 3, "edges of the other part"


def first_neighbours(links, seeds, fan_outs):
    """A right batch: of each node the first neighbours, as many as the fan-out."""
    edges, nodes, frontier = [], list(seeds), list(seeds)
    for fan_out in fan_outs:
        fresh = []
        for one in frontier:
            for number in links.leaving[one][:fan_out]:
                edges.append((one, links.targets[number], number))
                fresh.append(links.targets[number])
        frontier = [one for one in dict.fromkeys(fresh) if one not in set(nodes)]
        nodes += frontier
    return Sample(seeds, nodes, edges)


@functools.cache
def generated():
    graph = graphs.generate()
    return neighbours.link(graph.edges, len(graph.labels))


@given(st.lists(st.integers(0, 2707), min_size=1, max_size=5, unique=True), st.integers(1, 2))
def test_whole_graph_as_a_sample_has_no_objections(seeds, hops):
    links = generated()
    fan_outs = (links.highest_degree,) * hops
    sample = first_neighbours(links, seeds, fan_outs)
    assert neighbours.objections(sample, links, fan_outs) == []
    if sample.edges:
        assert neighbours.objections(changed(sample, edges=sample.edges[1:]), links, fan_outs)


# The machine


def test_too_little_shared_memory_is_a_machine_fault_with_shm_size(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=16, f_blocks=64, f_frsize=1 << 20))
    said = "(?s)16 of 64 MiB free, and this needs 48.*docker run --shm-size=1g"
    with pytest.raises(Fault, match=said) as caught:
        machine.check_shared_memory(48 << 20, tmp_path)
    assert caught.value.layer is Layer.MACHINE
    monkeypatch.undo()
    assert machine.check_shared_memory(1, tmp_path) > 0
    with pytest.raises(Fault, match=r"there is no shared memory at .* --shm-size=1g"):
        machine.check_shared_memory(1, tmp_path / "shm")


def test_free_ports_are_reserved_and_reusable_by_torch():
    with machine.free_ports(2) as ports:
        assert len(set(ports)) == 2
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError):
                other.bind((machine.LOOPBACK, port))
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("0.0.0.0", port))
                server.listen()
    with socket.socket() as other:
        other.bind((machine.LOOPBACK, ports[0]))


def test_missing_loopback_is_a_network_fault(monkeypatch):
    monkeypatch.setattr(socket, "create_connection", mock.Mock(side_effect=OSError(101, "Network is unreachable")))
    said = r"cannot reach one another over 127\.0\.0\.1: .*Network is unreachable"
    with pytest.raises(Fault, match=said) as caught, machine.free_ports(1):
        pass
    assert caught.value.layer is Layer.NETWORK


def test_shared_memory_segments_are_found_by_creator_pid():
    table = "key shmid perms size cpid lpid nattch uid\n0 0 1600 167 311 340 0 0\n0 32769 1600 167 999 340 2 0\n"
    found = [machine.segments(text, who) for text, who in ((table, {311, 312}), (table, {1}), ("", {311}))]
    assert found == [[0], [], []]


# The parts


def part(name="process 1", verdict=None, **fields):
    usual = {"phase": "starting", "suspect": Layer.GLT, "verdict": verdict, "pid": 7, "rounds_dead": 0, "heard": False}
    return SimpleNamespace(name=name, **{**usual, **fields})


def test_phase_of_the_leading_part_becomes_that_of_the_proof(capsys):
    proof, leader = Proof("glt"), part("process 0")
    parts.hear(leader, '{"phase": "training on cpu", "layer": "torch"}', proof, True)
    parts.hear(part(), '{"phase": "testing", "layer": "GLT"}', proof, False)
    parts.hear(leader, "Epoch: 01", proof, True)
    parts.hear(part(), "Epoch: 02", proof, False)
    parts.hear(part(), "{no JSON", proof, False)
    verdict = '{"suite": "glt", "status": "failed", "device": "cpu", "versions": {"pyg": "2.3.1"}}'
    parts.hear(leader, verdict, proof, True)  # is not printed
    assert (leader.verdict["status"], proof.device, proof.versions) == ("failed", "cpu", {"pyg": "2.3.1"})
    assert (proof.phase, proof.suspect, leader.phase) == ("training on cpu", Layer.TORCH, "training on cpu")
    said = capsys.readouterr().out.splitlines()
    assert said == ["Phase: training on cpu (torch)", "Epoch: 01", "process 1: Epoch: 02", "process 1: {no JSON"]


def test_part_that_ends_without_a_verdict_has_a_layer_by_its_exit():
    for code, layer, text in (
        (-signal.SIGBUS, Layer.MACHINE, "was ended by SIGBUS; /dev/shm or memory may be too small"),
        (-signal.SIGKILL, Layer.MACHINE, "was ended by SIGKILL; the machine may have run out of memory"),
        (-signal.SIGSEGV, Layer.EXTENSION, "was ended by SIGSEGV"),
        (3, Layer.EXTENSION, "ended with exit code 3 and without a verdict"),
    ):
        assert parts.ending(code, Layer.EXTENSION) == (layer, text)


def test_failure_of_a_part_has_its_layer_once():
    def failure(code, verdict=None, known="testing"):
        running = part(verdict=verdict, process=SimpleNamespace(wait=lambda: code), phase="testing")
        return parts.Running.failure(running, known)

    verdict = {"status": "failed", "layer": "network", "reason": "network: refused (while testing)"}
    assert (failure(1, verdict).layer, str(failure(1, verdict))) == (Layer.NETWORK, "process 1: refused")
    assert failure(0, {"status": "passed"}) is None
    assert failure(-11, {"status": "passed"}).layer is Layer.GLT
    assert str(failure(-11)) == "process 1 was ended by SIGSEGV"
    assert str(failure(-11, known="training")) == "process 1 was ended by SIGSEGV (while testing)"
    crash, lost, wrong = Fault(Layer.MACHINE, "killed"), Fault(Layer.NETWORK, "reset"), Fault(Layer.GLT, "wrong")
    assert parts.first_to_blame([(lost, False), (crash, True)]) is crash, "it explains what others complain of"
    assert parts.first_to_blame([(lost, False), (wrong, False)]) is wrong


def test_proc_stat_of_a_process_with_parentheses_is_parsed():
    told = "12 (a (b) c) Z 1 77 77" + " 0" * 45
    assert parts.parse_stat(f"{told} 9") == parts.Member(12, "Z", 77, -9)
    assert parts.parse_stat(f"{told} 256").code == 1


# The verdict


def figures(**changes):
    sound = {"first_loss": 1.9, "last_loss": 0.3, "right": 80, "tested": 100, "weights": 10.0}
    return {**sound, "edges_compared": 5, "remote_edges": 2, **changes}


def test_sound_glt_training_passes():
    proof = Proof("glt")
    glt_check.judge([figures(), figures(right=90)], proof)
    assert (proof.metrics["test_accuracy"], proof.metrics["remote_edges"]) == (0.85, 4)
    low, high = proof.metrics["accuracy_band"]
    assert low <= proof.metrics["test_accuracy"] <= high


def test_glt_training_with_bad_loss_accuracy_or_weights_is_a_fault():
    for changes, objection in (
        ({"last_loss": 1.8}, "the loss of process 1 went from 1.9000 to 1.8000"),
        ({"last_loss": float("nan")}, "the loss of process 1 went"),
        ({"right": 10}, "test accuracy 0.4500 is outside"),
        ({"weights": 11.0}, "did not train one model"),
        ({"weights": float("nan")}, "did not train one model"),
    ):
        (found,) = sage.objections([figures(), figures(**changes)], glt_check.ACCURACY_BAND, glt_check.LOSS_RATIO)
        assert objection in found


# The command line


def test_glt_part_command_passes_seed_folder_device_and_ports(tmp_path):
    options = glt_check.arguments(["--seed", "3"])
    argv = glt_check.command(options, "1", tmp_path, "cpu", [4001, 4002])
    told = glt_check.arguments(argv[3:])
    assert argv[:3] == [sys.executable, "-u", str(ROOT / "suites" / "glt_check.py")]
    assert (told.part, told.folder, told.device, told.seed) == ("1", tmp_path, "cpu", 3)
    assert told.ports == [4001, 4002]


def test_glt_for_another_torch_is_a_fault_with_the_fitting_version(monkeypatch):
    with pytest.raises(Fault, match="graphlearn-torch is not installed"):
        glt.load_glt(Proof("glt"))
    error = ImportError("/venv/py_graphlearn_torch.so: undefined symbol: _ZN3c10")
    monkeypatch.setattr(glt.stack, "installed", lambda _: "0.2.4")
    monkeypatch.setattr(glt.importlib, "import_module", mock.Mock(side_effect=error))
    with pytest.raises(Fault, match=r"built for another torch.*0\.2\.2 fit torch 1\.13") as caught:
        glt.load_glt(Proof("glt"))
    assert caught.value.layer is Layer.GLT


class Channel:
    """Stands for GLT's queue in shared memory."""


class Loader:
    def __init__(self, pin_memory):
        self.worker_options = SimpleNamespace(pin_memory=pin_memory)
        self._channel, self._mp_producer = Channel(), object()

    def shutdown(self):
        pass


@pytest.mark.parametrize("pin_memory", [False, True])
def test_a_closed_loader_gives_its_channel_back_unless_cuda_has_pinned_it(pin_memory, monkeypatch):
    monkeypatch.setattr(glt, "PINNED", [])
    loader = Loader(pin_memory)
    channel = weakref.ref(loader._channel)
    glt.clear(loader)
    assert (channel() is not None) is pin_memory
    assert not hasattr(loader, "_mp_producer")
