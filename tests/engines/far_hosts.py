"""Two hosts that are far apart: network namespaces whose packets take a while to the other, and never the same while.

A program of ours carries the packets between two tun devices, as netem would, which many kernels leave out. Run as a
program it is that carrier: `far_hosts.py NAMESPACE NAMESPACE`. For tests that say `engine("far hosts")`.
"""

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import secrets
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  #: <linux/if_tun.h>
CLONE_NEWNET = 0x40000000  #: <linux/sched.h>
DEVICE = "far0"
SOONEST, LATEST = 0.001, 0.006  #: seconds that a packet takes
LARGEST = 1 << 16
PATIENCE = 20.0  #: seconds from the verdict until all processes have ended: this is what is tried
LIMIT = 600.0  #: seconds for a whole run


@dataclass(frozen=True)
class Ended:
    """A run of several processes: their exit codes (None: it had to be killed) and all that each said."""

    codes: list
    said: list


@dataclass(frozen=True)
class FarHosts:
    """Names of two namespaces, and an address in each."""

    names: tuple
    addresses: tuple

    def at(self, number, *command):
        """Return the command line that runs a command on a host (0 or 1)."""
        return ["ip", "netns", "exec", self.names[number], *map(str, command)]

    def run(self, commands, verdict=""):
        """Start commands of `at`, and wait for all: so long, and not much longer than until one says the verdict."""
        processes = [
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                encoding="utf-8", start_new_session=True,
            )
            for command in commands
        ]  # fmt: skip
        said, told, until = [[] for _ in processes], threading.Event(), time.monotonic() + LIMIT

        def hear(process, lines):
            for line in process.stdout:
                lines.append(line)
                if verdict and verdict in line:
                    told.set()

        ears = [threading.Thread(target=hear, args=pair, daemon=True) for pair in zip(processes, said, strict=True)]
        for each in ears:
            each.start()
        while time.monotonic() < until and any(each.poll() is None for each in processes):
            if told.is_set():
                until, verdict = min(until, time.monotonic() + PATIENCE), ""
                told.clear()
            time.sleep(0.05)
        codes = [each.poll() for each in processes]
        for process, ear in zip(processes, ears, strict=True):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            ear.join(PATIENCE)
            process.stdout.close()
        return Ended(codes, ["".join(lines) for lines in said])


@contextlib.contextmanager
def loaded_cores():
    """Give each core something else to do as well; one more thing where other tests are at work."""
    command = [sys.executable, "-c", "while True: pass"]
    idle = len(os.sched_getaffinity(0)) - int(os.getloadavg()[0])
    busy = [subprocess.Popen(command) for _ in range(max(1, idle))]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


@contextlib.contextmanager
def far_hosts():
    """Make them; take everything away at the end."""
    mark = secrets.token_hex(3)
    names = tuple(f"gc-{mark}-{number}" for number in range(2))
    part = 1 + int(mark, 16) % 250
    addresses = tuple(f"10.232.{part}.{10 + number}" for number in range(2))
    with contextlib.ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
        carrier = subprocess.Popen([sys.executable, __file__, *names], stdout=subprocess.PIPE)
        stack.callback(carrier.stdout.close)
        stack.callback(carrier.wait)
        stack.callback(carrier.send_signal, signal.SIGKILL)
        assert carrier.stdout.readline() == b"ready\n"
        for name, address in zip(names, addresses, strict=True):
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
            _ip("-n", name, "link", "set", DEVICE, "up")
        yield FarHosts(names, addresses)


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def tun(namespace):
    """A descriptor of a tun device in a network namespace: reading it gives the packets that it sends."""
    with Path("/run/netns", namespace).open() as there:
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return device


def carry(devices):
    """Hand packets from each device to the other, for ever; in the order in which they came, as one wire does."""
    waiting, numbers, last = [], itertools.count(), dict.fromkeys(devices, 0.0)
    while True:
        patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for device in select.select(devices, [], [], patience)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = os.read(device, LARGEST)
                    last[device] = max(last[device], time.monotonic() + random.uniform(SOONEST, LATEST))
                    heapq.heappush(waiting, (last[device], next(numbers), device, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(waiting)
            with contextlib.suppress(OSError):  # a device that is down, a queue that is full: the packet is lost
                os.write(devices[1 - devices.index(device)], packet)


if __name__ == "__main__":
    ends = [tun(name) for name in sys.argv[1:]]
    print("ready", flush=True)
    carry(ends)
