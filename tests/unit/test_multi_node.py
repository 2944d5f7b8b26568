"""multi_node.py as far as it needs no torch; tests/engines has it in an image, with several processes."""

import contextlib
import json
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import multi_node  # noqa: E402  examples/ is no package
from proof import gcn, group, machine, parts, sampling  # noqa: E402
from proof.ranks import Place  # noqa: E402
from proof.verdict import Fault, Layer, Proof  # noqa: E402
from proof.watch import Member  # noqa: E402

NAMES = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}


# Options


def test_the_tutorials_options_are_taken():
    told = [
        "--hidden_channels",
        "32",
        "--lr",
        "0.1",
        "--epochs",
        "2",
        "--batch_size",
        "16",
        "--fan_out",
        "5",
        "--ngpu_per_node",
        "4",
    ]
    options = multi_node.arguments(told)
    assert (options.hidden, options.lr, options.epochs) == (32, 0.1, 2)
    assert (options.batch_size, options.fan_out, options.ngpu_per_node) == (16, 5, 4)


@pytest.mark.parametrize(
    "argv",
    [
        *(["--ranks", "0"], ["--ranks", "65"], ["--epochs", "0"], ["--batch_size", "-1"], ["--fan_out", "0"]),
        *(["--lr", "0"], ["--lr", "nan"], ["--lr", "x"], ["--hidden", "0"], ["--layers", "0"], ["--graph-nodes", "0"]),
        *(["--port", "70000"], ["--patience", "0"], ["--limit", "-1"], ["--ngpu_per_node", "0"], ["--sampler", "x"]),
        *(["--device", "tpu"], ["--what"], ["--ngpu_per_node"]),
    ],
)
def test_wrong_usage_ends_with_2(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        multi_node.arguments(argv)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_who_a_process_is():
    assert multi_node.place_of(multi_node.arguments([]), NAMES).rank == 1
    assert multi_node.place_of(multi_node.arguments(["--port", "7"]), NAMES).port == 7
    place = multi_node.place_of(multi_node.arguments(["--ranks", "3", "--part", "2", "--port", "7"]), NAMES)
    assert place == Place(2, 3, 2, 3, "127.0.0.1", 7, "--ranks on one machine")


def test_processes_are_started_once():
    with pytest.raises(Fault, match="this is rank 1 of 2 by RANK and MASTER_ADDR already: leave --ranks out"):
        multi_node.place_of(multi_node.arguments(["--ranks", "2"]), NAMES)


def test_half_set_variables_are_a_verdict(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert multi_node.main([]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["suite"], told["status"], told["layer"]) == ("ddp", "failed", "network")
    assert told["phase"] == "finding out who this process is"
    assert "RANK=0 but no WORLD_SIZE and no LOCAL_RANK and no MASTER_ADDR" in told["reason"]


def test_only_rank_0_speaks_until_something_is_wrong(capsys):
    quiet = multi_node.kind_of(Place(rank=1, world=2), None)("ddp")
    quiet.enter("training", Layer.TORCH)
    quiet.tell(None)
    assert capsys.readouterr().out == ""
    quiet = multi_node.kind_of(Place(rank=1, world=2), None)("ddp")
    quiet.tell(Fault(Layer.NETWORK, "rank 0 died"))
    told = json.loads(capsys.readouterr().out)
    assert (told["rank"], told["layer"]) == (1, "network")
    assert type(multi_node.kind_of(Place(rank=0, world=2), None)("ddp")) is Proof


def test_where_a_program_listens_only_rank_0_speaks_to_people(capsys):
    for rank, lines in ((0, 2), (1, 1)):
        part = multi_node.kind_of(Place(rank=rank, world=2), rank)("ddp")
        assert isinstance(part, parts.Part)
        part.enter("training", Layer.TORCH)
        part.say("Epoch: 001")
        assert len(capsys.readouterr().out.splitlines()) == lines


# Judging


def judged(capsys, **metrics):
    proof = Proof("ddp")
    proof.metrics.update({"first_loss": 1.0, "last_loss": 0.4, "test_accuracy": 0.85, **metrics})
    multi_node.judge(multi_node.arguments([]), 78, proof)
    return proof.metrics["accuracy_band"]


def test_what_speaks_against_a_training(capsys):
    assert judged(capsys) == list(multi_node.ACCURACY_BAND)
    with pytest.raises(Fault, match=r"the loss went from 1\.0000 to 0\.9000"):
        judged(capsys, last_loss=0.9)
    with pytest.raises(Fault, match=r"test accuracy 0\.3000 is outside"):
        judged(capsys, test_accuracy=0.3)


class Vector(tuple):
    """What of a tensor of one dimension, or of rows, `check` asks."""

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
def test_gradients_that_are_not_the_mean_over_all_are_told(monkeypatch, together, proven):
    alone = ((1.0, 2.0), (3.0, 4.0))
    model = SimpleNamespace(module="alone", parameters=list)
    training = SimpleNamespace(
        torch=SimpleNamespace(cat=Vector, stack=Vector), model=model, world=2, rank=0,
        _gradient=lambda of, rank: Vector(together if of is model else alone[rank]),
    )  # fmt: skip
    monkeypatch.setattr(gcn.group, "check_equal", lambda *_: None)
    with contextlib.nullcontext() if proven else pytest.raises(Fault, match="not the mean over 2 processes"):
        gcn.Training.check(training, Proof("ddp"))


@pytest.mark.parametrize("argv", [["--epochs", "1"], ["--dataset", "random"], ["--hidden", "8"]])
def test_a_training_of_ones_own_has_no_band(argv):
    proof = Proof("ddp")
    multi_node.judge(multi_node.arguments(argv), 78, proof)
    assert proof.metrics == {}
    assert not multi_node.is_plain(multi_node.arguments([]), multi_node.FEWEST_STEPS - 1)


def test_the_page_on_smoke_tests_has_the_band():
    low, high = multi_node.ACCURACY_BAND
    assert f"| `ddp` | {low:.2f} … {high:.2f} |" in (ROOT / "docs" / "smoke.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--dataset", "random", "--graph-nodes", "2"], "the graph has 2 nodes"),
        (["--dataset", "cora"], "--dataset: cora is neither generated nor random nor a file"),
        (["--dataset", "/nowhere/g.npz"], "g.npz is neither"),
    ],
)
def test_data_that_is_not_there_is_told_before_processes_are_started(argv, said, capsys):
    assert multi_node.main(["--ranks", "2", *argv]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["layer"], told["seconds"] < 2) == ("data", True)
    assert said in told["reason"]


# Splits


@given(st.integers(3, 10_000))
def test_a_split_has_every_node_once_and_no_empty_part(count):
    first, second = sampling.cut(count)
    assert 0 < first < second < count
    if count >= 100:
        assert abs(first - 0.6 * count) <= 1
        assert abs(second - 0.8 * count) <= 1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_nodes_are_told(count):
    with pytest.raises(Fault, match="and a 60/20/20 split needs 3 or more") as caught:
        sampling.cut(count)
    assert caught.value.layer is Layer.DATA


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 64))
def test_all_ranks_train_as_many_batches(count, world, size):
    nodes = list(range(count))
    shares = [sampling.share(nodes, rank, world) for rank in range(world)]
    assert {node for share in shares for node in share} == set(nodes)
    assert len({sampling.batches(len(share), size) for share in shares}) == 1
    assert all(shares)
    assert sum(map(len, shares)) < count + world


@given(st.integers(0, 300), st.integers(1, 40))
def test_each_node_is_tested_once(count, world):
    nodes = [node for rank in range(world) for node in sampling.own(list(range(count)), rank, world)]
    assert sorted(nodes) == list(range(count))


# Timing


class Clock:
    """Each iteration takes 2 s, the first ten 5 s."""

    def __init__(self):
        self.now, self.done = 0.0, 0

    def work(self):
        self.done += 1
        self.now += 5.0 if self.done <= gcn.WARM_UP else 2.0


@pytest.mark.parametrize(
    ("epochs", "iterations", "counted", "each"),
    [(2, 15, 20, 2.0), (1, 1, 1, 5.0), (1, 2, 1, 5.0), (3, 4, 11, None), (4, 5, 10, 2.0), (2, 10, 10, 2.0)],
)
def test_the_timing_leaves_the_warm_up_out_and_divides_by_no_zero(epochs, iterations, counted, each):
    clock = Clock()
    watch = gcn.Stopwatch(lambda: None, epochs * iterations, lambda: clock.now)
    for _ in range(epochs):
        watch.begin()
        for _ in range(iterations):
            clock.work()
            watch.tick()
        watch.end()
        clock.now += 100.0  # testing is not training
    assert watch._counted == counted
    if each:
        assert watch.iterations_per_second == pytest.approx(1 / each)
    assert watch.seconds_per_epoch > 0
    assert len(watch.epochs) == epochs


def test_no_iteration_is_no_speed():
    assert gcn.Stopwatch(lambda: None, 0).iterations_per_second == 0.0
    assert gcn.Stopwatch(lambda: None, 0).seconds_per_epoch == 0.0


# Nodes and GPUs


def members(*places):
    return [Member(rank, len(places), local, host, 100 + rank) for rank, (host, local) in enumerate(places)]


def test_ranks_by_node():
    both = members(("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1))
    assert group.check_nodes(both, 2) == {"n1": [0, 1], "n2": [2, 3]}
    assert group.nodes(members(("n1", 0), ("n2", 0), ("n1", 1))) == {"n1": [0, 2], "n2": [1]}
    with pytest.raises(Fault, match="n1 has 2 of the 4 processes, and --ngpu_per_node asks for 4"):
        group.check_nodes(both, 4)


def test_two_of_one_local_rank():
    with pytest.raises(Fault, match="ranks 0 and 1 are both local rank 0 of n1: LOCAL_RANK has to differ"):
        group.nodes(members(("n1", 0), ("n1", 0)))


def torch_with(gpus):
    chosen = []
    cuda = SimpleNamespace(device_count=lambda: gpus, set_device=chosen.append)
    return SimpleNamespace(cuda=cuda, device=lambda kind, index: f"{kind}:{index}")


def test_each_local_rank_has_its_gpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    place = Place(3, 4, 3, 4)
    assert group.choose_gpu(torch_with(4), place, False) == "cuda:3"
    with pytest.raises(Fault, match=r"shows 2 GPUs to its local rank 3, which counts from 0.*--gres=gpu:N"):
        group.choose_gpu(torch_with(2), place, False)
    assert group.choose_gpu(torch_with(2), place, True) == "cuda:1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # by Slurm's --gpus-per-task, or $SLURM_LOCALID
    assert group.choose_gpu(torch_with(1), place, False) == "cuda:0"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")  # --gpus-per-task=2
    assert group.choose_gpu(torch_with(2), place, False) == "cuda:1"


def test_a_gpu_for_two_is_told():
    both = members(("n1", 0), ("n1", 1))
    group.check_gpus(both, ["a", "b"])
    with pytest.raises(Fault, match=r"rank 0 \(n1, pid 100\) and rank 1 \(n1, pid 101\) have one GPU in common"):
        group.check_gpus(both, ["a", "a"])


class Store(dict):
    """As much of a TCPStore as joining asks for, one for all ranks; it waits for nobody."""

    port = 1

    def __call__(self, *where, **more):
        return self

    def set(self, key, value):
        self[key] = value.encode()

    def get(self, key):
        return self[key]


def joined(store, backends, monkeypatch):
    """Rank after rank joins, rank 0 last, which looks at all; the ranks that came to make the group."""
    monkeypatch.setattr(group, "gpu_identity", lambda index: f"GPU {index}")
    made = []
    distributed = SimpleNamespace(TCPStore=store, init_process_group=lambda *_, rank, **__: made.append(rank))
    for rank, backend in reversed(list(enumerate(backends))):
        watch = SimpleNamespace(
            place=Place(rank, len(backends)),
            address="127.0.0.1",
            members=members(("n1", 0), ("n2", 0)),
            tell=lambda name, value: None,
            hear=lambda name: 1,
        )
        group.join(SimpleNamespace(distributed=distributed), watch, backend, SimpleNamespace(index=rank), 5)
    return made


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_all_make_the_group_with_one_backend(backend, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert joined(Store(), [backend, backend], monkeypatch) == [1, 0]


@pytest.mark.parametrize("backends", [("nccl", "gloo"), ("gloo", "nccl")])
def test_another_backend_than_rank_0_has_is_told_before_anybody_waits_for_it(backends, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    said = rf"rank 0 \(n1, pid 100\) chose {backends[0]}, rank 1 \(n2, pid 101\) {backends[1]}: .*--device"
    with pytest.raises(Fault, match=said) as caught:
        joined(Store(), backends, monkeypatch)
    assert caught.value.layer is Layer.NETWORK


def test_an_end_of_torchs_groups_that_hangs_is_left_behind(monkeypatch, capsys):
    monkeypatch.setattr(group, "SECONDS_TO_LEAVE", 0.2)
    done, hanging = [], threading.Event()
    distributed = SimpleNamespace(barrier=lambda: done.append("barrier"), destroy_process_group=hanging.wait)
    group.leave(SimpleNamespace(distributed=distributed), Proof("ddp"))
    assert done == ["barrier"]
    assert "destroy_process_group is not done after 0.2 s" in capsys.readouterr().out
    hanging.set()
    group.leave(SimpleNamespace(distributed=distributed), Proof("ddp"))
    assert capsys.readouterr().out == ""


def test_the_interface_of_an_address():
    assert machine.interface_of("127.0.0.1") in {name for _, name in socket.if_nameindex()}
    assert machine.interface_of("192.0.2.1") == ""
