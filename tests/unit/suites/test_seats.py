"""Places of processes of the suites `ddp` and `nccl`: who starts them, on one node and several, and how they meet."""

from types import SimpleNamespace

import ddp
import nccl
import pytest
from proof import seats
from proof.ranks import Place
from proof.verdict import Fault, Layer, Proof


class Store(dict):
    """torch's, for one process that finds what the others have written."""

    def set(self, key, value):
        self[key] = value.encode()

    get = dict.__getitem__


@pytest.fixture(params=[ddp, nccl], ids=["ddp", "nccl"])
def program(request):
    return request.param


@pytest.fixture
def started(program, monkeypatch):
    """A call: how the program starts its parts, or how it takes part itself, and its proof."""

    def start(place, argv):
        seen = {}

        def run(commands, proof, deadline):
            seen["parts"] = commands
            return {name: {"metrics": {"a": 1}, "world": 2, "suite": "nccl"} for name in commands}

        monkeypatch.setattr(seats.parts, "run", run)
        monkeypatch.setattr(program, "take_part", lambda options, seat, proof: seen.update(seat=seat))
        proof = Proof("of a test")
        seats.begin(program.suite(), program.arguments(argv), argv, place, proof)
        return seen, proof

    return start


def test_program_alone_starts_its_ranks_on_a_port_of_loopback(program, started):
    seen, proof = started(Place(), ["--ranks", "2", "--device", "cpu"])
    assert list(seen["parts"]) == ["rank 0", "rank 1"]
    seat = seats.seat_of(program.arguments(seen["parts"]["rank 1"][3:]))
    assert (seat.address, seat.node, seat.nodes, seat.local, seat.here, seat.leads) == ("127.0.0.1", 0, 1, 1, 2, False)
    assert seat.port > 0
    assert (proof.metrics, proof.extra) == ({"a": 1}, {"world": 2})


def test_program_once_for_each_node_starts_that_node_s_ranks(program, started):
    place = Place(1, 2, 0, 1, "n1", 20000, "srun")
    seen, _ = started(place, ["--ranks", "2", "--per-node"])
    seat = seats.seat_of(program.arguments(seen["parts"]["process 0 of node 1"][3:]))
    assert (seat.address, seat.port, seat.node, seat.nodes, seat.leads) == ("n1", 20000, 1, 2, False)


def test_program_once_for_each_process_is_a_rank(started):
    seen, _ = started(Place(3, 4, 1, 2, "n1", 20000, "torchrun"), [])
    assert "parts" not in seen
    assert (seen["seat"].rank, seen["seat"].world, seen["seat"].local, seen["seat"].leads) == (3, 4, 1, False)


def test_nodes_with_different_numbers_of_gpus_are_counted():
    store = Store({"here/0": b"4", "here/2": b"1"})
    assert seats.count(store, seats.Seat("n1", 1, 1, 3, 0, 2)) == (4, 7)
    assert seats.count(store, seats.Seat("n1", 1, 2, 3, 0, 1)) == (6, 7)


@pytest.mark.parametrize(("rank", "lines"), [(0, True), (1, False)])
def test_only_the_first_gives_a_verdict_and_others_speak_of_failure(program, rank, lines, capsys):
    kind = seats.kind_at(program.arguments(["--per-node"]), Place(rank, 2, 0, 1, "n1", 1, "srun"))
    proof = kind("nccl")
    proof.enter("measuring", Layer.NETWORK)
    proof.tell(None)
    assert bool(capsys.readouterr().out) is lines
    kind("nccl").tell(Fault(Layer.NETWORK, "no way"))
    told = capsys.readouterr().out
    assert told.startswith("{") is lines
    assert ("node 1: network: no way (while starting)" in told) is not lines


def test_group_without_its_library_is_a_fault_of_torch():
    made = []
    distributed = SimpleNamespace(
        is_nccl_available=lambda: False,
        PrefixStore=lambda name, store: name,
        init_process_group=lambda backend, **_: made.append(backend),
    )
    torch = SimpleNamespace(distributed=distributed, __version__="2.0.1")
    with pytest.raises(Fault, match=r"torch 2\.0\.1 was built without NCCL"):
        seats.make_group(torch, "nccl", None, 0, 2, Proof("ddp"))
    seats.make_group(torch, "gloo", None, 0, 2, Proof("ddp"))
    assert made == ["gloo"]


# ddp


@pytest.mark.parametrize(
    ("gpus", "rank", "backend"),
    [(0, None, "gloo"), (1, None, "gloo"), (2, None, "nccl"), (1, 1, "nccl"), (0, 1, "gloo")],
)
def test_ddp_backend_is_nccl_if_each_process_has_a_gpu(gpus, rank, backend):
    seat = seats.Seat("n1", 1, 0, 1, 1, 2, rank, 4)
    assert ddp.backend_for(seat, gpus) == backend


@pytest.mark.parametrize(("others", "agreed"), [([b"nccl"], "nccl"), ([b"gloo"], "gloo")])
def test_ddp_takes_gloo_where_a_node_lacks_gpus(others, agreed):
    store = Store({f"backend/{rank}": other for rank, other in enumerate(others, 1)})
    assert ddp.agree(store, 0, 2, "nccl") == agreed


@pytest.mark.parametrize(("have", "processes", "threads"), [("8", 2, "4"), ("1", 2, "1"), ("", 10**6, "1")])
def test_ddp_processes_share_the_cores_of_their_machine(have, processes, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", have)
    ddp.share_cores(processes)
    assert ddp.os.environ["OMP_NUM_THREADS"] == threads
