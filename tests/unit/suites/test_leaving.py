"""The last to leave, of processes that trained together: rank 0 serves the store in which the others still read."""

import os
import re
import threading
from types import SimpleNamespace

import pytest
from proof import leaving
from proof.ranks import Place
from proof.supervised import Meeting, Worker
from proof.verdict import Proof

from tests import ROOT

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


def waits_for_ever(*_, **__):
    raise AssertionError("this may wait for ever, or for one who has left")


def test_training_parts_by_the_store_alone_though_rank_0_is_through_first():
    """As `glt-distributed` failed at times: Connection reset by peer, in rank 1's rpc.shutdown."""
    torch = SimpleNamespace(distributed=SimpleNamespace(barrier=waits_for_ever, destroy_process_group=waits_for_ever))
    glt = SimpleNamespace(distributed=SimpleNamespace(rpc_is_initialized=lambda: True, shutdown_rpc=waits_for_ever))
    group, order, ends = Store(), [], {}

    def work(rank):
        place = Place(rank, 2, 0, 1, "127.0.0.1", 1, "by node")
        meeting = Meeting(2, rank, 1, "127.0.0.1", 1, 2, 3)
        worker = Worker((torch, glt), place, meeting, None, None, None, Proof("glt"))
        worker.store = group
        try:
            worker.part()
        except AssertionError as error:
            ends[rank] = str(error)

    for each in leavers(group, order, work, 2):
        each.join(5)
    assert (ends, order) == ({}, [1, 0])


def test_rank_0_leaves_unsaid_what_libraries_say_while_the_others_leave_and_nothing_later(capfd):
    class Noisy(Store):
        def wait(self, keys, timeout):
            os.write(2, f"{keys[0]}\n".encode())

    leaving.leave(Noisy(), 0, 2, Proof("glt"))
    os.write(2, b"later\n")
    assert capfd.readouterr() == ("", "done/0\ndone/1\nlater\n")


def test_no_program_of_ours_destroys_a_group_or_shuts_down_rpc():
    """Each may hold Python's lock and wait for a thread that waits for that lock: torch 2.0 with gloo does."""
    programs = [path for folder in ("examples", "suites") for path in (ROOT / folder).rglob("*.py")]
    programs += [ROOT / "docs" / name for name in ("tutorials/multi-node.md", "zh/tutorials/multi-node.md")]
    call = re.compile(r"^\s*[\w.]*(destroy_process_group|shutdown_rpc|rpc\.shutdown)\(", re.MULTILINE)
    assert [path.name for path in programs if call.search(path.read_text(encoding="utf-8"))] == []
