"""Work for many items on threads: what begins first, and what an error ends."""

import concurrent.futures
import threading

import pytest

from graphcrate.host import parallel as module
from graphcrate.host.parallel import StoppedError, parallel
from ociregistry import threads


def test_results_are_in_order_and_the_largest_begins_first():
    begun = []

    def work(item, advance):
        begun.append(item)
        advance(item)
        return -item

    done = []
    assert parallel(work, [1, 3, 2], threads=1, size=lambda item: item, advance=done.append) == [-1, -3, -2]
    assert begun == done == [3, 2, 1]


def test_nothing_begins_after_an_error():
    begun = []

    def work(item, _):
        begun.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        parallel(work, range(100), threads=1)
    assert len(begun) < 100, "one more may have begun while the first was looked at"


def test_of_several_errors_that_of_what_began_first_is_raised(monkeypatch):
    def work(item, _):
        raise ValueError(item)

    # as on a busy machine, where many have ended before anyone looks
    monkeypatch.setattr(threads, "wait", lambda futures, **_: concurrent.futures.wait(futures))
    with pytest.raises(ValueError, match=r"^0$"):
        module.parallel(work, range(100), threads=1)


def test_work_that_goes_on_is_stopped_at_its_next_step_after_an_error():
    goes_on, ended = threading.Event(), []

    def work(item, advance):
        if item == "fails":
            goes_on.wait()
            raise ValueError(item)
        goes_on.set()
        try:
            while True:
                advance(1)
        except StoppedError:
            ended.append(item)
            raise

    with pytest.raises(ValueError, match="fails"):
        parallel(work, ["fails", "goes on"], threads=2)
    assert ended == ["goes on"]
