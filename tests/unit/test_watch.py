"""Processes that watch each other, as threads on loopback; tests/engines has them as processes."""

import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "suites"))

from proof import watch, wires
from proof.ranks import Place
from proof.verdict import Fault, Layer, Proof
from proof.watch import Watch

from tests.engines.ports import free_ports


@pytest.fixture
def port():
    return free_ports(1)[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watch, "SECONDS_TO_LEARN", 0.5)
    monkeypatch.setattr(wires, "SECONDS_BETWEEN", 0.05)
    monkeypatch.setattr(watch, "SECONDS_BETWEEN", 0.05)


class Job:
    """Ranks of one job, each in a thread; `left` has the faults of those that were ended from outside it, or in it."""

    def __init__(self, port, world):
        self.port, self.world, self.left = port, world, {}

    def watch(self, rank, patience=10.0, world=None, address="127.0.0.1", backends=None):
        place = Place(rank, world or self.world, rank, self.world, address, self.port, "test")
        proof = Proof("ddp")
        proof.enter("training", Layer.TORCH)

        def leave(proof, fault):
            self.left.setdefault(rank, fault)
            seen.ended.set()

        seen = Watch(place, proof, patience, f"n{rank}", leave, backends[rank] if backends else "")
        seen.ended = threading.Event()
        return seen

    def run(self, *bodies, **kwargs):
        """What each rank's body came to: its result, or the Fault."""
        seen_of = {}

        def one(rank):
            seen_of[rank] = self.watch(rank, **kwargs)
            try:
                with seen_of[rank] as seen:
                    return bodies[rank](seen)
            except (Fault, RuntimeError) as error:
                if error is seen_of[rank].fault:
                    self.left.setdefault(rank, error)
                return error

        with ThreadPoolExecutor(self.world) as pool:
            return list(pool.map(one, range(len(bodies))))


def die(seen):
    """As a process that is killed: its connections close, and nothing is said."""
    seen._over = True
    seen._close()
    seen._give_up = lambda error: None
    raise RuntimeError("it is dead")


def hang(seen):
    """Busy until the watch ends the process, however long that takes here."""
    assert seen.ended.wait(60)


def test_one_process_opens_nothing(port):
    with Watch(Place(port=port), Proof("ddp")) as seen:
        assert [str(each) for each in seen.members] == [str(seen.me)]
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_all_know_each_other_and_part(port):
    job = Job(port, 3)
    lists = job.run(*[lambda seen: [each.host for each in seen.members]] * 3)
    assert lists == [["n0", "n1", "n2"]] * 3
    assert job.left == {}


def test_the_port_is_free_again_after_a_clean_end(port):
    for _ in range(3):
        assert Job(port, 2).run(*[lambda seen: seen.address] * 2) == ["127.0.0.1"] * 2


def test_rank_0_hands_values_over(port):
    def body(seen):
        return seen.tell("store", 4711) if seen.place.leads else seen.hear("store")

    assert Job(port, 2).run(body, body) == [None, 4711]


def test_rank_0_waits_for_those_that_take_longer(port):
    start = time.monotonic()
    assert Job(port, 2).run(lambda seen: "first", lambda seen: time.sleep(0.6)) == ["first", None]
    assert time.monotonic() - start >= 0.6


def test_a_rank_that_dies_is_named_by_all_others(port):
    job = Job(port, 3)
    job.run(hang, die, hang)
    assert set(job.left) == {0, 2}
    for fault in job.left.values():
        assert str(fault).startswith("rank 1 (n1, pid ")
        assert "died: it was killed, crashed" in str(fault)
        assert fault.layer is Layer.MACHINE


def test_the_end_of_rank_0_is_noticed(port):
    job = Job(port, 3)
    job.run(die, hang, hang)
    assert {str(job.left[rank]).partition(",")[0] for rank in (1, 2)} == {"rank 0 (n0"}


def test_a_fault_is_handed_over_with_its_layer(port):
    def fail(seen):
        raise Fault(Layer.DATA, "the file is gone")

    job = Job(port, 3)
    results = job.run(hang, fail, hang)
    assert str(results[1]) == "the file is gone"
    assert set(job.left) == {0, 2}
    for fault in job.left.values():
        assert fault.layer is Layer.DATA
        assert str(fault).startswith("rank 1 (n1, pid ")
        assert str(fault).endswith("failed: the file is gone")


def test_a_fault_of_rank_0_reaches_the_others(port):
    def fail(seen):
        raise RuntimeError("CUDA out of memory")

    job = Job(port, 2)
    job.run(fail, hang)
    assert "rank 0 (n0" in str(job.left[1])
    assert "RuntimeError: CUDA out of memory" in str(job.left[1])
    assert job.left[1].layer is Layer.MACHINE


def test_an_error_of_the_network_is_explained_by_the_death_behind_it(port, monkeypatch):
    monkeypatch.setattr(watch, "SECONDS_TO_LEARN", 60.0)
    dead = threading.Event()

    def complain(seen):
        dead.wait()
        raise RuntimeError("[gloo] Connection closed by peer")

    def last(seen):
        dead.set()
        die(seen)

    results = Job(port, 3).run(complain, complain, last)
    for result in results[:2]:
        assert isinstance(result, Fault)
        assert str(result).startswith("rank 2 (n2, pid ")


def test_ranks_that_never_come_are_named(port):
    results = Job(port, 4).run(hang, hang, patience=2.0)
    for result in results:
        assert isinstance(result, Fault)
        assert str(result).startswith("ranks 2, 3 of 4 never came within 2 s (rank 0 (n0, pid ")
        assert "fewer processes were started" in str(result)


def test_a_rank_0_that_is_not_there_is_named(port):
    (result,) = Job(port, 2).run(lambda seen: None, patience=0.5)
    with pytest.raises(Fault, match=rf"rank 1 \(n1, .*did not reach rank 0 at 127.0.0.1:{port} in \d+ s.*refused"):
        wires.reach("127.0.0.1", port, 0.3, "rank 1 (n1, pid 7)")
    assert "rank 1 of 2 never came" in str(result)


def test_an_unknown_host_is_named(monkeypatch, port):
    def unknown(*where, **more):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with pytest.raises(Fault, match="'Name or service not known': nobody knows this name here: set MASTER_ADDR"):
        wires.reach("n1", port, 0.3, "rank 1")


def test_a_port_in_use_is_named(port):
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(Fault, match=f"port {port} of n0 is in use, by another program") as caught:
            Job(port, 2).watch(0).__enter__()
    assert caught.value.layer is Layer.NETWORK


def test_somebody_else_at_the_port_is_told_from_rank_0(port):
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(Fault, match="takes connections, but is no rank 0 of 2"):
            Job(port, 2).watch(1, patience=0.3).__enter__()


def test_strangers_do_no_harm(port):
    def body(seen):
        for line in (b"", b"GET / HTTP/1.1\r\n\r\n", b'{"hello": 3}\n', b"[]\n", b'{"hello": [1, 2]}\n'):
            with socket.create_connection(("127.0.0.1", port)) as door:
                door.sendall(line)
        time.sleep(0.3)

    job = Job(port, 2)
    assert job.run(body, lambda seen: time.sleep(0.3)) == [None, None]
    assert job.left == {}


def test_two_of_one_rank(port):
    def run(rank):
        try:
            with job.watch(rank, patience=5.0) as seen:
                hang(seen)
        except Fault as fault:
            return str(fault)
        return "passed"

    job = Job(port, 3)
    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(run, (0, 1, 1)))
    assert "have the same rank, or are of two jobs that meet at port" in told[0]


def test_worlds_that_differ(port):
    job = Job(port, 2)

    def other():
        with pytest.raises(Fault, match="was told of 4 processes, rank 0"):
            job.watch(1, world=4).__enter__()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(other)
        with pytest.raises(Fault, match=r"was told of 4 processes, rank 0 .* of 2"):
            job.watch(0).__enter__()
        done.result()


def test_backends_that_differ(port):
    job = Job(port, 2)
    results = job.run(hang, hang, backends=("nccl", "gloo"))
    for result in results:
        assert isinstance(result, Fault)
        assert result.layer is Layer.NETWORK
        assert str(result).startswith("rank 1 (n1, pid ")
        assert ") chose gloo, rank 0 (n0, pid " in str(result)
        assert ") nccl: not all see a GPU of their own" in str(result)


def test_one_backend_for_all(port):
    assert Job(port, 2).run(*[lambda seen: seen.me.backend] * 2, backends=("gloo", "gloo")) == ["gloo", "gloo"]


def test_an_address_of_another_machine_is_hinted_at():
    assert wires.elsewhere("127.0.0.1") == ""
    assert "which is no address of" in wires.elsewhere("192.0.2.1")


def test_doors():
    for address in ("127.0.0.1", "localhost", "0.0.0.0", "n1"):
        with wires.listen(address, 0, "n1") as door:
            with socket.create_connection(("127.0.0.1", door.getsockname()[1])):
                here = wires.Wire(door.accept()[0])
                assert here.here == "127.0.0.1"
                here.close()
