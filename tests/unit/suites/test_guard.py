"""The guard around unit tests forbids what it says it forbids."""

import os
import socket
import subprocess

import pytest

from tests.unit.conftest import ForbiddenError, guard, is_local


def connect():
    with socket.socket() as client:
        client.connect(("192.0.2.1", 80))


def test_process_or_network_in_a_unit_test_is_an_error():
    for attempt in (
        lambda: subprocess.run(["true"], check=True),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        os.fork,
        lambda: os.system("true"),
        connect,
        lambda: socket.getaddrinfo("example.org", 80),
    ):
        with pytest.raises(ForbiddenError):
            attempt()
        assert guard.seen
        guard.seen.clear()


def test_loopback_in_a_unit_test_is_allowed():
    assert is_local(("::1", 80, 0, 0))
    assert socket.getaddrinfo("127.0.0.1", 80)
