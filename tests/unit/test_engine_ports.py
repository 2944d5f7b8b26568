"""Ports that engines' tests give to daemons: nobody else comes to have them."""

import socket
from pathlib import Path

import pytest

from tests.engines import ports


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(ports, "_given", set())

    def become(name):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", name)

    return become


def test_workers_have_ranges_of_their_own_below_those_of_connections(worker):
    found = []
    for name in ("gw5", "gw6"):
        worker(name)
        found += [set(ports.free_ports(100))]
    assert not found[0] & found[1]
    assert [len(some) for some in found] == [100, 100]
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(found[0] | found[1]) < min(low, 20_000)  # multi_node's jobs take 20000 and more


def test_a_port_is_given_once_and_only_if_it_is_free(worker, monkeypatch):
    worker("gw7")  # of which nobody else has ports
    (taken,) = ports.free_ports(1)
    with socket.socket() as door:
        door.bind(("127.0.0.1", taken))
        door.listen()
        monkeypatch.setattr(ports.random, "sample", lambda numbers, _: [numbers[-1], numbers[-1], taken])
        monkeypatch.setattr(ports, "_given", set())
        assert ports.free_ports(1) == [19_999]
        with pytest.raises(IndexError):
            ports.free_ports(1)
