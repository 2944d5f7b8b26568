"""Work side by side in other processes: hashing, inflating and compressing hold the interpreter's lock.

Workers are plain children that run functions named by the parent, one at a time. They end with their parent however
it ends (PR_SET_PDEATHSIG, and a closed connection), leave Ctrl-C to it, and report advance, result or error. The
`multiprocessing` pools are not used: they import the main script again in each child, and wait for ever for a child
that the kernel killed.
"""

import contextlib
import ctypes
import heapq
import itertools
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from graphcrate.errors import GraphcrateError, HostError
from graphcrate.host import settings

Advance = Callable[[int], None]

_REPORT_EVERY = 1 << 23  #: bytes of advance in one message
_GRACE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_PROGRAM = "import sys; sys.path[:0] = {path!r}; from graphcrate.host.workers import serve; serve({fd}, {parent})"


class Crew(Protocol):
    """Does work in any order that `submit` allows."""

    def submit(self, weight: int, call: Callable[..., Any], *arguments: object, then: Callable[[Any], object]) -> None:
        """Have `call(advance, *arguments)` done, heavier work first, then `then(result)` in this process.

        `call` is a function of a module, arguments and result can be pickled. `then` may submit more.
        """

    def finish(self) -> None:
        """Return when nothing is left. Raises the first error; nothing else is started after it."""


class Inline:
    """A crew of one: this process."""

    def __init__(self, advance: Advance = lambda _: None) -> None:
        self._advance = advance
        self._queue = _Queue()

    def submit(self, weight: int, call: Callable[..., Any], *arguments: object, then: Callable[[Any], object]) -> None:
        """As `Crew.submit`."""
        self._queue.put(_Work(call, arguments, then), weight)

    def finish(self) -> None:
        """As `Crew.finish`."""
        while work := self._queue.take():
            work.then(work.call(self._advance, *work.arguments))


class Processes:
    """A crew of at most `jobs` child processes. Leaving the `with` block ends them, whatever they do."""

    def __init__(self, jobs: int, advance: Advance = lambda _: None) -> None:
        self._jobs, self._advance = jobs, advance
        self._queue = _Queue()
        self._idle: list[_Worker] = []
        self._busy: dict[Connection[Any, Any], _Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        everyone = [*self._idle, *self._busy.values()]
        for worker in self._busy.values():
            worker.interrupt()
        for worker in everyone:
            worker.connection.close()
        deadline = time.monotonic() + _GRACE_SECONDS
        for worker in everyone:
            worker.end(deadline)

    def submit(self, weight: int, call: Callable[..., Any], *arguments: object, then: Callable[[Any], object]) -> None:
        """As `Crew.submit`."""
        self._queue.put(_Work(call, arguments, then), weight)

    def finish(self) -> None:
        """As `Crew.finish`."""
        while self._queue or self._busy:
            while self._queue and len(self._busy) < self._jobs:
                self._start()
            for connection in wait(list(self._busy)):
                self._hear(self._busy[connection])  # type: ignore[index]

    def _start(self) -> None:
        worker = self._idle.pop() if self._idle else _Worker()
        self._busy[worker.connection] = worker
        worker.give(self._queue.take())

    def _hear(self, worker: "_Worker") -> None:
        kind, value = worker.message()
        if kind == "advance":
            self._advance(value)
            return
        if kind == "failed":
            raise value
        if kind == "broke":
            raise RuntimeError(f"a worker process failed\n{value}")
        del self._busy[worker.connection]
        self._idle.append(worker)
        worker.work.then(value)


@dataclass(frozen=True)
class _Work:
    call: Callable[..., Any]
    arguments: tuple[object, ...]
    then: Callable[[Any], object]


@dataclass
class _Queue:
    """Heaviest first; among equals the first submitted."""

    _heap: list[tuple[int, int, _Work]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def put(self, work: _Work, weight: int) -> None:
        heapq.heappush(self._heap, (-weight, next(self._numbers), work))

    def take(self) -> _Work | None:
        return heapq.heappop(self._heap)[2] if self._heap else None


class _Worker:
    """One child process, seen from the parent."""

    work: _Work

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        root = str(Path(__file__).resolve().parents[2])
        path = [root, *(folder for folder in sys.path if folder and folder != root)]
        program = _PROGRAM.format(path=path, fd=theirs.fileno(), parent=os.getpid())
        self._process = subprocess.Popen(
            [sys.executable, "-E", "-s", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=2,  # stdout belongs to results
            env=settings.environment(),
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def give(self, work: _Work | None) -> None:
        assert work is not None
        self.work = work
        with contextlib.suppress(BrokenPipeError):  # `message` tells why
            self.connection.send((work.call, work.arguments))

    def message(self) -> tuple[str, Any]:
        """The next message. Raises HostError when the process has ended."""
        try:
            message: tuple[str, Any] = self.connection.recv()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise HostError(
                f"a worker process ended before its work was done ({reason})",
                cause="Most often the kernel ended it because the machine, or this job's limit, ran out of memory.",
                next_step="run the same command again with fewer things running, or with a higher memory limit",
            ) from None
        return message

    def interrupt(self) -> None:
        self._process.terminate()

    def end(self, deadline: float) -> None:
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def default_jobs() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def serve(descriptor: int, parent: int) -> NoReturn:
    """A worker's life: take work, do it, report, until the parent ends or asks it to."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    connection: Connection[Any, Any] = Connection(descriptor)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            call, arguments = connection.recv()
            connection.send(_done(connection, call, arguments))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _end(number: int, _: object) -> NoReturn:
    # Python runs `finally` blocks on SystemExit, so temporary files go; a second signal must not stop that.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _done(
    connection: "Connection[Any, Any]", call: Callable[..., Any], arguments: tuple[object, ...]
) -> tuple[str, Any]:
    reporter = _Reporter(connection)
    try:
        result = call(reporter.advance, *arguments)
        reporter.flush()
    except (BrokenPipeError, ConnectionResetError):
        raise
    except GraphcrateError as error:
        return "failed", error
    except Exception:
        return "broke", traceback.format_exc()
    return "done", result


class _Reporter:
    """Gathers small steps into few messages."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection, self._gathered = connection, 0

    def advance(self, amount: int) -> None:
        self._gathered += amount
        if self._gathered >= _REPORT_EVERY:
            self.flush()

    def flush(self) -> None:
        self._connection.send(("advance", self._gathered))
        self._gathered = 0
