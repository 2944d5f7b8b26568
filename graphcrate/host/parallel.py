"""The same work for many items on threads: for what waits for the network or the disk, or lets the interpreter go."""

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from graphcrate.host import trace
from ociregistry.threads import Advance, StoppedError
from ociregistry.threads import parallel as on_threads

__all__ = ["Advance", "StoppedError", "parallel"]

Item = TypeVar("Item")
Result = TypeVar("Result")


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
    span, taken = trace.current(), list[float]()

    def timed(item: Item, advancing: Advance) -> Result:
        before = time.thread_time()
        try:
            return work(item, advancing)
        finally:
            taken.append(time.thread_time() - before)

    count = threads or len(os.sched_getaffinity(0))
    try:
        return on_threads(timed, items, threads=count, advance=advance or (lambda _: None), size=size)
    finally:
        if span is not None:
            span.processor_seconds += sum(taken)
