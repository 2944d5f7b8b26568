"""Needs of processes of one machine that work together: shared memory, loopback, ports. And what they may leave."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

SHARED_MEMORY = Path("/dev/shm")
SEGMENTS = Path("/proc/sysvipc/shm")
LOOPBACK = "127.0.0.1"
MEBIBYTE = 1 << 20
IPC_RMID = 0  #: <sys/ipc.h>
SIOCGIFADDR = 0x8915  #: <linux/sockios.h>


def check_shared_memory(needed: int, place: Path = SHARED_MEMORY) -> int:
    """The free bytes of `place`. Raises Fault when it has fewer than `needed`, or cannot be written to.

    A process that runs out of it gets no error: it dies of SIGBUS.
    """
    remedy = (
        "start the container with more: `docker run --shm-size=1g` (or `--ipc=host`), in Kubernetes an emptyDir with "
        "`medium: Memory` at /dev/shm; Singularity takes the host's"
    )
    try:
        status = os.statvfs(place)
    except OSError as error:
        raise Fault(Layer.MACHINE, f"there is no shared memory at {place} ({error.strerror}); {remedy}") from error
    free = status.f_bavail * status.f_frsize
    if free < needed:
        whole = status.f_blocks * status.f_frsize
        raise Fault(
            Layer.MACHINE,
            f"{place} has {free // MEBIBYTE} of {whole // MEBIBYTE} MiB free, and this needs {needed // MEBIBYTE}: "
            f"processes that run out of shared memory die of SIGBUS; {remedy}",
        )
    if not os.access(place, os.W_OK):
        raise Fault(Layer.MACHINE, f"{place} cannot be written to by user {os.getuid()}; {remedy}")
    return free


@contextlib.contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Unused ports of loopback, kept from others until the end. Raises Fault without a loopback interface.

    They stay bound without listening. Who asks for one of them by number and with SO_REUSEADDR, as torch does, gets
    it; who asks for any free one gets another.
    """
    with contextlib.ExitStack() as stack:
        sockets = []
        try:
            for _ in range(count):
                held = stack.enter_context(socket.socket())
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind((LOOPBACK, 0))
                sockets.append(held)
            _check_loopback()
        except OSError as error:
            raise Fault(
                Layer.NETWORK, f"processes of this machine cannot reach one another over {LOOPBACK}: {error}"
            ) from error
        yield [held.getsockname()[1] for held in sockets]


def _check_loopback() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(1)
        with socket.create_connection(listener.getsockname(), timeout=5):
            pass


def gpus() -> int:
    """The number of NVIDIA GPUs that this process may use, by the machine's files and CUDA_VISIBLE_DEVICES."""
    devices = sum(bool(re.fullmatch(r"nvidia\d+", path.name)) for path in Path("/dev").iterdir())
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return devices if chosen is None else min(devices, len([each for each in chosen.split(",") if each.strip()]))


def check_ports(ports: Mapping[str, int]) -> None:
    """Check that this machine can listen on each; keyed by the option that names another. Raises Fault."""
    for option, port in ports.items():
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("", port))
            except OSError as error:
                why = "is in use by another program" if error.errno == errno.EADDRINUSE else f"({error.strerror})"
                raise Fault(
                    Layer.NETWORK,
                    f"port {port} of {socket.gethostname()} {why}: perhaps an earlier training still runs; "
                    f"{option} names another port, the same on all nodes",
                ) from error


def interface_to(address: str) -> str:
    """The name of the interface by which this machine reaches an address; empty where that cannot be told.

    Raises Fault for an address that is none.
    """
    try:
        target = socket.getaddrinfo(address, 9, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
    except OSError as error:
        raise Fault(
            Layer.NETWORK,
            f"the name {address!r} of node 0 cannot be resolved on {socket.gethostname()} ({error}); "
            "--master_addr takes an IP address too",
        ) from error
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # sends nothing
        return interface_of(probe.getsockname()[0])
    return ""


def interface_of(address: str) -> str:
    """The network interface that has an IPv4 address; empty when none has."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                told = fcntl.ioctl(door.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(told[20:24]) == address:
                    return name
    return ""


def segments(table: str, creators: Collection[int]) -> list[int]:
    """Numbers of the System V segments that these processes made, from the text of /proc/sysvipc/shm."""
    lines = table.splitlines()
    if not lines:
        return []
    names = lines[0].split()
    number, creator = names.index("shmid"), names.index("cpid")
    rows = (line.split() for line in lines[1:])
    return [int(row[number]) for row in rows if int(row[creator]) in creators]


def remove_segments(creators: Collection[int]) -> int:
    """Remove what dead processes left in System V shared memory, which outlives them; returns how many there were."""
    removed = 0
    with contextlib.suppress(OSError, ValueError, AttributeError):
        library = ctypes.CDLL(None, use_errno=True)
        for number in segments(SEGMENTS.read_text(encoding="ascii"), creators):
            removed += library.shmctl(number, IPC_RMID, None) == 0
    return removed
