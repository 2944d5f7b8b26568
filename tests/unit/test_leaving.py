"""Who leaves last, of processes that trained together: rank 0 serves the store in which the others still read."""

import threading
import time
from types import SimpleNamespace

import pytest
from proof import leaving
from proof.ranks import Place
from proof.supervised import Meeting, Worker
from proof.verdict import Proof

WORLD = 3


class Store:
    """torch's TCPStore, without a network: it is gone once rank 0 has left."""

    def __init__(self):
        self.keys, self.written, self.gone = set(), threading.Condition(), False

    def _ask(self):
        if self.gone:
            raise RuntimeError("Connection reset by peer")

    def set(self, key, value):
        with self.written:
            self._ask()
            self.keys.add(key)
            self.written.notify_all()

    def wait(self, keys, timeout):
        with self.written:
            if not self.written.wait_for(lambda: self.gone or set(keys) <= self.keys, timeout.total_seconds()):
                raise RuntimeError("Socket Timeout")
            self._ask()


def leavers(store, order, work, world=WORLD):
    """A thread for each rank that does `work`, leaves, and writes its number into `order`; rank 0 ends the store."""

    def run(rank):
        work(rank)
        order.append(rank)
        store.gone = store.gone or rank == 0

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for each in threads:
        each.start()
    return threads


def test_rank_0_leaves_last_and_nobody_before_all_are_done(capsys):
    store, order, slow = Store(), [], threading.Event()

    def work(rank):
        if rank == 2:
            slow.wait(5)
        leaving.leave(store, rank, WORLD, Proof("ddp"))

    threads = leavers(store, order, work)
    threads[0].join(0.1)
    assert order == [], "rank 2 is still in its last barrier"
    slow.set()
    for each in threads:
        each.join(5)
    assert (sorted(order), order[-1], capsys.readouterr().out) == ([0, 1, 2], 0, "")


@pytest.mark.parametrize(
    ("rank", "here", "missing"),
    [(0, ["done/1"], "rank 2"), (0, ["done/1", "done/2", "left/1"], "rank 2"), (1, [], "rank 0")],
)
def test_absent_rank_is_named_and_not_waited_for_longer(rank, here, missing, capsys):
    store = Store()
    store.keys.update(here)
    leaving.leave(store, rank, WORLD, Proof("ddp"), seconds=0.05)
    assert f"rank {rank} leaves without the others" in (told := capsys.readouterr().out)
    assert f"{missing} has not come to its end (Socket Timeout)" in told


def test_store_that_is_gone_ends_no_training(capsys):
    store = Store()
    store.gone = True
    leaving.leave(store, 1, WORLD, Proof("ddp"))
    assert "Connection reset by peer" in capsys.readouterr().out


class Rpc:
    """GLT's RPC: to shut down, each rank reads in a store that ends with the last who holds it in rank 0's process."""

    def __init__(self):
        self.store, self.barrier = Store(), threading.Barrier(2)

    def of(self, rank):
        """The modules as this rank sees them: torch, GLT."""
        served = SimpleNamespace(end=lambda: setattr(self.store, "gone", self.store.gone or rank == 0))
        agent = SimpleNamespace(store=Held(served))
        api = SimpleNamespace(_get_current_rpc_agent=lambda: agent)
        distributed = SimpleNamespace(barrier=self.barrier.wait, rpc=SimpleNamespace(api=api))

        def shutdown_rpc(graceful):
            assert graceful
            time.sleep(0.2 * rank)
            self.store.set(f"active calls/{rank}", "0")
            del agent.store

        glt = SimpleNamespace(rpc_is_initialized=lambda: True, shutdown_rpc=shutdown_rpc)
        return SimpleNamespace(distributed=distributed), SimpleNamespace(distributed=glt)


class Held:
    """A handle of a store; without any its server ends."""

    def __init__(self, served):
        self.served = served

    def __del__(self):
        self.served.end()


def test_training_parts_though_rank_0_is_through_first():
    """As `glt-distributed` failed at times: Connection reset by peer, in rank 1's rpc.shutdown."""
    rpc, group, order, ends = Rpc(), Store(), [], {}

    def work(rank):
        place = Place(rank, 2, 0, 1, "127.0.0.1", 1, "by node")
        worker = Worker(rpc.of(rank), place, Meeting(2, rank, 1, "127.0.0.1", 1, 2, 3), None, None, None, Proof("glt"))
        worker.store = group
        try:
            worker.part()
        except RuntimeError as error:
            ends[rank] = str(error)

    for each in leavers(group, order, work, 2):
        each.join(5)
    assert (ends, order) == ({}, [1, 0])
