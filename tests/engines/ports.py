"""Ports for programs that are told a number and take it seconds later.

The kernel gives connections and `bind(0)` ports from 32768 on, so one from there may be somebody else's by then. These
are lower, and each of pytest's workers has a range of its own, above the ports that examples/ takes unasked (11111).
"""

import os
import random
import socket

FIRST, EACH = 12_000, 1_000  #: ports of the first worker, and how many each has
WORKERS = 8
_given = set()


def free_ports(count):
    """Ports that nobody listens on, each given once."""
    first = FIRST + EACH * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS)
    candidates = random.sample(range(first, first + EACH), EACH)
    found = []
    while len(found) < count:
        port = candidates.pop()
        if port not in _given and _is_free(port):
            found.append(port)
            _given.add(port)
    return found


def _is_free(port):
    with socket.socket() as door:
        try:
            door.bind(("", port))
        except OSError:
            return False
    return True
