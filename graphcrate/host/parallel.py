"""The same work for many items on threads: for what waits for the network or the disk, or lets the interpreter go."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from graphcrate.host import trace

Item = TypeVar("Item")
Result = TypeVar("Result")
Advance = Callable[[int], None]


class StoppedError(Exception):
    """Another item failed, or the user interrupted."""


def parallel(
    work: Callable[[Item, Advance], Result],
    items: Sequence[Item],
    *,
    threads: int = 0,
    advance: Advance | None = None,
    size: Callable[[Item], int] = lambda _: 0,
) -> list[Result]:
    """The results of `work(item, advance)` for all items, in their order; the largest begin first.

    After the first error, or an interrupt, the `advance` that work got raises StoppedError, nothing else is begun, and
    the error is raised when all have ended. `threads` 0: as many as there are cores.
    """
    stop = threading.Event()
    span, taken = trace.current(), list[float]()

    def advancing(count: int) -> None:
        if stop.is_set():
            raise StoppedError
        if advance is not None:
            advance(count)

    def timed(item: Item) -> Result:
        before = time.thread_time()
        try:
            return work(item, advancing)
        finally:
            taken.append(time.thread_time() - before)

    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        try:
            order = sorted(range(len(items)), key=lambda number: -size(items[number]))
            started = {number: pool.submit(timed, items[number]) for number in order}
            done = wait(started.values(), return_when=FIRST_EXCEPTION).done
            for future in started.values():  # of several errors that of what began first
                if future in done:
                    future.result()
            return [started[number].result() for number in range(len(items))]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            if span is not None:
                span.processor_seconds += sum(taken)
