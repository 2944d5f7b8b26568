"""Workers without their processes: how many there are, and what is said of one that was killed."""

import os
import signal
import threading
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from unittest import mock

import pytest

from graphcrate.host import workers
from graphcrate.model.errors import HostError
from tests.made import refused


@pytest.mark.parametrize("cores", [{0}, {3, 7}, set(range(16))])
def test_default_jobs_is_the_number_of_cores_of_the_job(monkeypatch, cores):
    """A job of Slurm has some of its node's: with more workers each would wait for the others."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: cores)
    assert workers.default_jobs() == len(cores)


class Killed:
    """An executor whose worker number `at` is killed; the others do their work."""

    at = 0

    def __init__(self, *_):
        self.number = 0

    def submit(self, work, call, arguments):
        done = Future()
        if self.number == self.at:
            done.set_exception(BrokenProcessPool("A process in the process pool was terminated abruptly"))
        else:
            done.set_result(call(lambda _: None, *arguments))
        self.number += 1
        return done

    def shutdown(self, **_):
        pass


def double(advance, number):
    return 2 * number


@pytest.mark.parametrize("at", range(3))
def test_pool_with_a_killed_worker_is_a_host_error_after_the_results_before_it(monkeypatch, at):
    monkeypatch.setattr(workers, "ProcessPoolExecutor", Killed)
    monkeypatch.setattr(Killed, "at", at)
    results = []
    with refused(HostError, "killed before its work was done", "memory"), workers.Pool(1) as pool:
        for number in range(3):
            pool.submit(3 - number, double, number, of=number)
        for result in pool.results():
            results.append(result)
    assert results == [(number, 2 * number) for number in range(at)]
    monkeypatch.setattr(Killed, "at", -1)
    with workers.Pool(1) as pool:
        for number in range(3):
            pool.submit(3 - number, double, number, of=number)
        assert list(pool.results()) == [(0, 0), (1, 2), (2, 4)]


def test_pool_waits_for_what_work_needs_and_hands_it_over():
    late, there, other = Future(), Future(), Future()
    there.set_result(4)
    with workers.Pool(0) as pool:
        pool.submit(9, double, late, of="late")
        pool.submit(1, double, there, of="there", after=[other])
        pool.submit(0, double, 1, of="at once")
        results = pool.results()
        assert next(results) == ("at once", 2)
        other.set_result(None)
        assert next(results) == ("there", 8)
        threading.Timer(0.05, late.set_result, (7,)).start()
        assert list(results) == [("late", 14)]


@pytest.mark.parametrize("jobs", [0, 1])
def test_pool_raises_the_error_of_what_work_waits_for(monkeypatch, jobs):
    monkeypatch.setattr(workers, "ProcessPoolExecutor", Killed)
    monkeypatch.setattr(Killed, "at", -1)
    late, never = Future(), Future()
    with workers.Pool(jobs) as pool:
        pool.submit(1, double, late)
        pool.submit(1, double, never)
        threading.Timer(0.05, late.set_exception, (ValueError("it was not there"),)).start()
        with pytest.raises(ValueError, match="it was not there"):
            list(pool.results())


class Ended(BaseException):
    """Stands for the end of the process, which `os._exit` is."""


def test_signal_while_a_result_is_sent_ends_the_worker_at_once(monkeypatch):
    """An exception would be sent as a result, by the lock that the process may hold already."""
    monkeypatch.setattr(os, "_exit", mock.Mock(side_effect=Ended))
    with pytest.raises(Ended):
        workers._end(signal.SIGTERM, None)


def test_signal_within_work_lets_it_clean_up_and_ends_the_worker(monkeypatch):
    monkeypatch.setattr(os, "_exit", mock.Mock(side_effect=Ended))
    monkeypatch.setattr(signal, "signal", mock.Mock())
    cleaned = []

    def work(_):
        try:
            workers._end(signal.SIGTERM, None)
        finally:
            cleaned.append("done")

    with pytest.raises(Ended):
        workers._work(work, ())
    assert cleaned == ["done"]
    assert not workers._is_working
