"""Who compiles next: the half of the program in the sandbox that deals out turns, and how its processes ask for one.

Knows the standard library; Python 3.9 and newer.
"""

import contextlib
import heapq
import json
import os
import re
import selectors
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS = "/tmp/graphcrate-turns"
#: what compilers and drivers say when a part of them was ended by a signal, which is the kernel's want of memory
KILLED = re.compile(r"[Kk]illed|signal 9|SIGKILL|out of memory|[Cc]annot allocate memory|bad_alloc")
POLL = 0.2
#: Seconds without a new file after which the first turns are dealt: else those that ask first would have them.
SETTLED = 1.0


def was_killed(log: str) -> bool:
    """Whether the kernel ended a program whose output this is."""
    return KILLED.search(Path(log).read_text(encoding="utf-8", errors="replace")) is not None


def tell(event: str, **about: Any) -> None:  # noqa: ANN401
    """Have the dealer say something of this package."""
    with connected() as dealer:
        dealer.send({"event": event, **about})


class Line:
    """A connection with messages, one JSON value a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._begun = b""
        self._whole: list[bytes] = []

    def send(self, message: Any) -> None:  # noqa: ANN401
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:  # noqa: ANN401
        """The next message; None when the other side has gone."""
        while not self._whole:
            if not self.gather():
                return None
        return json.loads(self._whole.pop(0))

    def gather(self) -> bool:
        """Read what has come, at least something. False when the other side has gone."""
        try:
            data = self.connection.recv(1 << 16)
        except ConnectionError:
            data = b""
        *whole, self._begun = (self._begun + data).split(b"\n")
        self._whole += whole
        return bool(data)

    def come(self) -> list[Any]:
        """The messages that have come whole."""
        whole, self._whole = self._whole, []
        return [json.loads(line) for line in whole]


@contextlib.contextmanager
def connected() -> "Iterator[Line]":
    """A line to the dealer, which knows from the first message whose it is."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(TURNS)
    line = Line(connection)
    line.send({"package": os.environ["GRAPHCRATE_PACKAGE"]})
    try:
        yield line
    finally:
        connection.close()


class Worker:
    """A process that waits for its turn or has it."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.package = ""
        self.about: dict[str, Any] = {}


class Dealer:
    """Deals out turns and says on stdout what goes on."""

    def __init__(self, server: socket.socket, jobs: int) -> None:
        self.server, self.jobs = server, jobs
        self.packages: dict[int, str] = {}
        self.waiting: list[tuple[int, int, Worker]] = []
        self.running = 0
        self.counter = 0
        self.asked = time.monotonic()
        self.selector = selectors.DefaultSelector()
        self.selector.register(server, selectors.EVENT_READ, None)

    def serve(self) -> int:
        """Until every package is done, or the first has failed."""
        while self.packages:
            for key, _ in self.selector.select(POLL):
                if key.data is None:
                    worker = Worker(Line(self.server.accept()[0]))
                    self.selector.register(worker.line.connection, selectors.EVENT_READ, worker)
                elif not self.hear(key.data):
                    return 1
            if self.running or time.monotonic() - self.asked > SETTLED:
                self.deal()
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended in self.packages:
                name = self.packages.pop(ended)
                if status:
                    report("failed", package=name)
                    return 1
                report("built", package=name)
        return 0

    def hear(self, worker: Worker) -> bool:
        """Take a worker's messages. False when its file cannot be compiled."""
        there = worker.line.gather()
        # More than one can have come: what a selector does not tell again.
        good = [self.take(worker, message) for message in worker.line.come()]
        if not there:
            self.selector.unregister(worker.line.connection)
            worker.line.connection.close()
        return all(good)

    def take(self, worker: Worker, message: dict[str, Any]) -> bool:
        if "event" in message:
            report(**message, package=worker.package)
        elif "package" in message:
            worker.package = message["package"]
        elif "failed" in message:
            return self.finish(worker, message)
        else:
            worker.about = message
            self.queue(worker)
        return True

    def queue(self, worker: Worker) -> None:
        self.counter += 1
        self.asked = time.monotonic()
        heapq.heappush(self.waiting, (-worker.about["weight"], self.counter, worker))

    def finish(self, worker: Worker, result: dict[str, Any]) -> bool:
        self.running -= 1
        if not result["failed"]:
            report("compiled", package=worker.package, **worker.about, **result)
            return True
        killed = was_killed(result["log"])
        if killed and self.jobs > 1:
            self.jobs //= 2
            report("fewer", package=worker.package, source=worker.about["source"], jobs=self.jobs)
            self.queue(worker)
            return True
        report("failed", package=worker.package, source=worker.about["source"], killed=killed, log=result["log"])
        return False

    def deal(self) -> None:
        while self.waiting and self.running < self.jobs:
            _, _, worker = heapq.heappop(self.waiting)
            self.running += 1
            worker.line.send("go")


def report(event: str, **about: Any) -> None:  # noqa: ANN401
    """A line for the wheelhouse."""
    print(json.dumps({"event": event, **about}), flush=True)
