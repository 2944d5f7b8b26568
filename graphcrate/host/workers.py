"""Work side by side in other processes: hashing, inflating and compressing hold the interpreter's lock.

The standard library's executor, whose workers here end with their parent however it ends (PR_SET_PDEATHSIG) and leave
Ctrl-C to it. They are spawned, since this process has threads, so the main script must do nothing when it is imported.
"""

import ctypes
import heapq
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from graphcrate.host import trace
from graphcrate.model.errors import HostError

Advance = Callable[[int], None]
_Work = tuple[int, int, object, Callable[..., Any], tuple[object, ...]]

_LOOK_SECONDS = 0.2  #: between two looks at what the workers have advanced
_PR_SET_PDEATHSIG = 1
_ENDED = 128 + signal.SIGTERM  #: exit code of a worker that got SIGTERM


def default_jobs() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


class Pool:
    """At most `jobs` worker processes; with 0 all work is done in this process. For one thread.

    Leaving the `with` block ends the workers, even busy ones. `advance` gets the bytes that the work is done with.
    """

    def __init__(self, jobs: int, advance: Advance = lambda _: None) -> None:
        self._jobs, self._advance = jobs, advance
        self._queue: list[_Work] = []
        self._waiting: list[tuple[Sequence[Future[Any]], _Work]] = []
        self._numbers = itertools.count()
        self._running: dict[Future[Any], object] = {}
        self._context = _Context()
        self._advanced = self._context.Value("q", 0) if jobs else None
        self._seen = 0
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._executor is None:
            return
        if self._running:  # else they end by themselves
            for process in self._context.started:
                process.terminate()
        self._executor.shutdown(cancel_futures=True)

    def submit(
        self,
        weight: int,
        call: Callable[..., Any],
        *arguments: object,
        of: object = None,
        after: Sequence[Future[Any]] = (),
    ) -> None:
        """Have `call(advance, *arguments)` done: heavier work first, among equals the first submitted.

        `call` is a function of a module, arguments and result can be pickled. `of` comes back with the result.
        An argument that is a future is waited for, and handed over as its result; `after`: others to wait for.
        """
        futures = [argument for argument in arguments if isinstance(argument, Future)]
        self._waiting.append(([*after, *futures], (-weight, next(self._numbers), of, call, arguments)))

    def results(self) -> Iterator[tuple[Any, Any]]:
        """(`of`, result) of all that is submitted, as it is done; more may be submitted meanwhile.

        Raises the first error, that of what work waits for too; HostError for a worker that was killed.
        """
        while self._queue or self._running or self._waiting:
            awaited = self._admit()
            if not self._queue and not self._running:
                wait(awaited, return_when=FIRST_COMPLETED)
                continue
            if not self._jobs:
                _, _, of, call, arguments = heapq.heappop(self._queue)
                with _span(call):
                    result = call(self._advance, *arguments)
                yield of, result
                continue
            while self._queue and len(self._running) < self._jobs:
                self._start()
            done, _ = wait({*self._running, *awaited}, _LOOK_SECONDS, FIRST_COMPLETED)
            self._report()
            for future in done & self._running.keys():
                of = self._running[future]
                try:
                    result = future.result()
                except BrokenProcessPool:
                    raise _killed() from None
                del self._running[future]
                yield of, result

    def _admit(self) -> set[Future[Any]]:
        """Queue the work that need not wait any more; return what the other work waits for."""
        still, awaited = [], set[Future[Any]]()
        for after, work in self._waiting:
            if absent := [future for future in after if not future.done()]:
                still.append((after, work))
                awaited.update(absent)
            else:
                for future in after:
                    future.result()
                arguments = [each.result() if isinstance(each, Future) else each for each in work[-1]]
                heapq.heappush(self._queue, (*work[:-1], tuple(arguments)))
        self._waiting = still
        return awaited

    def _start(self) -> None:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                self._jobs, self._context, _begin, (os.getpid(), self._advanced, trace.path())
            )
        _, _, of, call, arguments = heapq.heappop(self._queue)
        try:
            self._running[self._executor.submit(_work, call, arguments)] = of
        except BrokenProcessPool:
            raise _killed() from None

    def _report(self) -> None:
        assert self._advanced is not None
        advanced = self._advanced.value
        if advanced > self._seen:
            self._advance(advanced - self._seen)
            self._seen = advanced


class _Context(SpawnContext):
    """Remembers the processes that the executor starts, which does not end them at once by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: ANN401, N802
        self.started.append(SpawnProcess(*arguments, **options))
        return self.started[-1]


def _killed() -> HostError:
    return HostError(
        "a worker process was killed before its work was done",
        cause="Most often the kernel does that because the machine, or this job's limit, ran out of memory.",
        next_step="run the same command again with fewer things running, or with a higher memory limit",
    )


_total: Any = None  #: bytes that all workers are done with
_is_working = False  #: this process is in a piece of work, not in the executor's own code


def _begin(parent: int, advanced: Any, traced: Path | None) -> None:  # noqa: ANN401
    """Make this process a worker. `traced`: the file of its parent's trace."""
    global _total  # an executor hands nothing else from here to its work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    os.dup2(2, 1)  # stdout belongs to results
    _total = advanced
    trace.join(traced)


def _end(number: int, _: object) -> NoReturn:
    """End this worker, with the cleaning up of its work if it has any.

    The executor's own code has none, and an exception there is sent as a result: it would wait for the lock of the
    queue that it took just before the signal came.
    """
    if not _is_working:
        os._exit(_ENDED)
    signal.signal(number, signal.SIG_IGN)  # a second signal must not stop the cleaning up
    sys.exit(_ENDED)  # runs `finally` blocks, so temporary files go


def _span(call: Callable[..., Any]) -> AbstractContextManager[trace.Span]:
    """Note in the trace what a piece of work is, wherever it is done."""
    return trace.span(getattr(call, "__qualname__", "work"))


def _work(call: Callable[..., Any], arguments: tuple[object, ...]) -> Any:  # noqa: ANN401
    def advance(amount: int) -> None:
        with _total.get_lock():
            _total.value += amount

    global _is_working
    try:
        _is_working = True
        with _span(call):
            return call(advance, *arguments)
    except SystemExit:  # the executor would take it for a result and wait for more work
        os._exit(_ENDED)
    finally:
        _is_working = False
