"""Connections that carry JSON objects between the processes of a job: who listens, who calls, what silence means."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Iterator

SILENCE = 15  #: seconds without a sign of life from a host
SECONDS_TO_RESOLVE = 10.0  #: until an unknown host name is no longer put down to a name server that comes late
SECONDS_TO_CONNECT = 5.0  #: for one try
SECONDS_BETWEEN = 0.25
LONGEST_LINE = 1 << 20
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Wire:
    """A connection that carries JSON objects, a line each."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._lock = threading.Lock()
        self.here = str(door.getsockname()[0]).replace("::ffff:", "")  # IPv4 over an IPv6 door
        door.settimeout(None)
        keep_alive(door)

    def send(self, **message: Any) -> None:  # noqa: ANN401  whatever JSON holds
        """Send one; a connection that is gone is its reader's business."""
        line = json.dumps(message).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):
            self._door.sendall(line)

    def read(self) -> Iterator[dict[str, Any]]:
        """What comes, until the other side closes. Raises OSError, or ValueError for what is no such line."""
        rest = b""
        while chunk := self._door.recv(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError(line)
                yield message
            if len(rest) > LONGEST_LINE:
                raise ValueError("a line without end")

    def set_timeout(self, seconds: float | None) -> None:
        """Of reading."""
        self._door.settimeout(seconds)

    def close(self) -> None:
        """Close in both directions."""
        shut(self._door)


def shut(door: socket.socket) -> None:
    """Close it, and wake up a thread that waits at it, which would keep it open."""
    with contextlib.suppress(OSError):
        door.shutdown(socket.SHUT_RDWR)
    door.close()


def keep_alive(door: socket.socket) -> None:
    """Have the kernel close a connection whose other host is silent for SILENCE seconds."""
    settings = (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE // 3),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE // 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE * 1000),
    )
    for level, option, value in settings:
        with contextlib.suppress(OSError):  # a sandboxed kernel may not know one
            door.setsockopt(level, option, value)


def reach(address: str, port: int, patience: float, who: str) -> Wire:
    """A connection to rank 0, which may come up later. Raises Fault when it does not. `who`: the caller's name."""
    start = time.monotonic()
    while True:
        try:
            return Wire(socket.create_connection((address, port), timeout=max(1.0, min(patience, SECONDS_TO_CONNECT))))
        except OSError as error:
            waited = time.monotonic() - start
            unknown = isinstance(error, socket.gaierror) and waited > min(patience, SECONDS_TO_RESOLVE)
            if unknown or waited > patience:
                raise Fault(Layer.NETWORK, _unreachable(error, f"{address}:{port}", waited, who)) from error
        time.sleep(SECONDS_BETWEEN)


def _unreachable(error: OSError, where: str, waited: float, who: str) -> str:
    cause = "rank 0 was never started, runs on another host, or a firewall is between"
    if isinstance(error, socket.gaierror):
        cause = "nobody knows this name here: set MASTER_ADDR to an address that all nodes reach"
    what = error.strerror or str(error) or type(error).__name__
    return f"{who} did not reach rank 0 at {where} in {waited:.0f} s; the last try said {what!r}: {cause}"


def listen(address: str, port: int, host: str) -> socket.socket:
    """A door at this port: for this machine alone where the address is. Raises Fault when it cannot be had."""
    kinds: list[tuple[str, dict[str, Any]]] = [("", {})]
    if address in LOOPBACK:
        kinds = [("::1", {"family": socket.AF_INET6})] if address == "::1" else [("127.0.0.1", {})]
    elif socket.has_dualstack_ipv6():
        kinds = [("", {"family": socket.AF_INET6, "dualstack_ipv6": True}), *kinds]
    for place, kind in kinds:
        try:
            return socket.create_server((place, port), backlog=512, **kind)
        except OSError as error:
            if (place, kind) == kinds[-1] or error.errno == errno.EADDRINUSE:
                raise Fault(Layer.NETWORK, _taken(error, port, host)) from error
    raise AssertionError("the last kind raises")


def _taken(error: OSError, port: int, host: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use, by another program or by a run that has not ended yet (`ss -ltnp` names "
            "it); give this job another with --port or MASTER_PORT, the same to all ranks"
        )
    return f"rank 0 cannot listen on port {port} of {host}: {error.strerror or error}"


def elsewhere(address: str) -> str:
    """A hint for rank 0 when the address that the others go to is not its own."""
    try:
        family, _, _, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as door:
            door.bind((where[0], 0))
    except socket.gaierror:
        return f", a name that nobody knows on {socket.gethostname()}"
    except OSError:
        return f", which is no address of {socket.gethostname()}, where rank 0 runs"
    return ""
