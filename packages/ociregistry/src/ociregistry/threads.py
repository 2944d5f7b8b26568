"""Uploads side by side, where a program brings nothing of its own for it."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Advance = Callable[[int], None]


class StoppedError(Exception):
    """Another item failed, or the user interrupted."""


class Parallel(Protocol):
    """The results of `work(item, advance)` for all items, in their order; the largest begin first.

    After the first error, which is raised, the `advance` that work got raises, and nothing else is begun.
    """

    def __call__(
        self,
        work: Callable[[Item, Advance], Result],
        items: Sequence[Item],
        *,
        threads: int,
        advance: Advance,
        size: Callable[[Item], int],
    ) -> list[Result]: ...


def parallel(
    work: Callable[[Item, Advance], Result],
    items: Sequence[Item],
    *,
    threads: int,
    advance: Advance,
    size: Callable[[Item], int],
) -> list[Result]:
    """As `Parallel` says."""
    stop = threading.Event()

    def advancing(count: int) -> None:
        if stop.is_set():
            raise StoppedError
        advance(count)

    with ThreadPoolExecutor(threads) as pool:
        try:
            order = sorted(range(len(items)), key=lambda number: -size(items[number]))
            started = {number: pool.submit(work, items[number], advancing) for number in order}
            done = wait(started.values(), return_when=FIRST_EXCEPTION).done
            for future in started.values():  # of several errors that of what began first
                if future in done:
                    future.result()
            return [started[number].result() for number in range(len(items))]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
