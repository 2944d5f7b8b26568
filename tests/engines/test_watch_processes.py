"""Processes that watch each other, as real processes: what is killed is named by the others, whatever they hang in."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import program
from tests.engines.ports import free_ports

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "suites"
pytestmark = pytest.mark.engine("python3")

#: a rank that, when all are there, waits in the C library for a lock that nobody opens, as NCCL would for its peer
HANGS = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from proof.ranks import from_environment
from proof.verdict import Layer, exit_with, prove
from proof.watch import watching

def body(proof):
    proof.enter("training", Layer.TORCH)
    with watching(from_environment(os.environ), proof, patience=20):
        print("all are there", flush=True)
        semaphore = ctypes.create_string_buffer(64)
        library = ctypes.CDLL(None)
        library.sem_init(semaphore, 0, 0)
        while True:
            library.sem_wait(semaphore)

exit_with(prove("ddp", body, None))
"""


class Ranks:
    """Processes of one job, started by hand."""

    def __init__(self, world, address="127.0.0.1", prefixes=((),) * 3):
        (self.port,) = free_ports(1)
        self.address = address
        self.processes = [self.start(rank, world, prefixes[rank]) for rank in range(world)]

    def start(self, rank, world, prefix):
        names = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "MASTER_ADDR": self.address}
        names = {name: str(value) for name, value in {**names, "MASTER_PORT": self.port}.items()}
        return subprocess.Popen(
            [*prefix, sys.executable, "-c", HANGS, str(EXAMPLES)],
            env={**os.environ, **names},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )

    def wait(self):
        """Until each has said that all are there."""
        for process in self.processes:
            while (line := process.stdout.readline()) != "all are there\n":
                assert line, process.wait()

    def verdict(self, rank):
        """Its exit code and its last line."""
        out = self.processes[rank].communicate(timeout=40)[0]
        return self.processes[rank].returncode, json.loads(out.splitlines()[-1])


@pytest.fixture
def ranks():
    job = Ranks(3)
    yield job
    for process in job.processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("dead", [0, 2])
def test_the_others_name_the_one_that_was_killed(ranks, dead):
    ranks.wait()
    ranks.processes[dead].kill()
    start = time.monotonic()
    for rank in {0, 1, 2} - {dead}:
        code, told = ranks.verdict(rank)
        assert (code, told["status"], told["layer"], told["phase"]) == (1, "failed", "machine", "training")
        assert f"rank {dead} ({socket.gethostname()}, pid {ranks.processes[dead].pid}) died" in told["reason"]
    assert time.monotonic() - start < 10


def test_one_that_is_stopped_from_outside_says_so_itself(ranks):
    """It hangs in the C library: Python's handler of the signal has its turn when that call is interrupted."""
    ranks.wait()
    ranks.processes[1].send_signal(signal.SIGTERM)
    code, told = ranks.verdict(1)
    assert code == 1
    assert "ended from outside by SIGTERM" in told["reason"]
    for rank in (0, 2):
        assert "failed: ended from outside by SIGTERM" in ranks.verdict(rank)[1]["reason"]


def test_one_that_is_only_slow_is_not_dead(ranks):
    ranks.wait()
    ranks.processes[1].send_signal(signal.SIGSTOP)  # as while it imports something large from a slow disk
    time.sleep(4)
    assert [process.poll() for process in ranks.processes] == [None] * 3
    ranks.processes[1].send_signal(signal.SIGCONT)
    time.sleep(0.5)
    assert [process.poll() for process in ranks.processes] == [None] * 3


@pytest.fixture
def hosts():
    """Two network namespaces with a cable between them: (names, address of the first)."""
    names = [f"graphcrate{os.getpid()}{letter}" for letter in "ab"]
    cables = [f"gc{os.getpid() % 100000}{letter}" for letter in "ab"]

    def ip(*arguments, check=True):
        subprocess.run([program("ip"), *arguments], check=check, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        for number, (name, cable) in enumerate(zip(names, cables, strict=True), 1):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "address", "add", f"10.213.7.{number}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
        yield names, "10.213.7.1", lambda: ip("-n", names[1], "link", "set", cables[1], "down")
    finally:
        for name in names:
            ip("netns", "delete", name, check=False)


@pytest.mark.engine("root", "ip")
def test_a_host_that_vanishes_is_noticed_on_both_sides(hosts):
    names, address, cut = hosts
    job = Ranks(2, address, [(program("ip"), "netns", "exec", name) for name in names])
    try:
        job.wait()
        cut()
        start = time.monotonic()
        for rank in (0, 1):
            code, told = job.verdict(rank)
            assert (code, told["layer"]) == (1, "network")
            assert f"rank {1 - rank} ({socket.gethostname()}, pid " in told["reason"]
            assert "its host is silent for 15 s" in told["reason"]
        assert time.monotonic() - start < 25
    finally:
        for process in job.processes:
            process.kill()
            process.communicate()
