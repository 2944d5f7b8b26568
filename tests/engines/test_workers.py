"""Worker processes: results and errors cross, none outlives the parent, Ctrl-C and kills leave a clear end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphcrate.host.workers import Pool
from graphcrate.model.errors import BuildError, HostError
from tests.conftest import ROOT
from tests.engines.workplace import is_running, until


def double(advance, number):
    advance(number)
    return os.getpid(), number * 2


def fail(advance, what):
    if what:
        raise BuildError(what, cause="Because.", next_step="do it")
    os.kill(os.getpid(), signal.SIGKILL)


def dawdle(advance, marker):
    # whole or absent: the worker may be ended at any moment
    Path(f"{marker}.new").write_text(str(os.getpid()))
    Path(f"{marker}.new").rename(marker)
    try:
        time.sleep(600)
    finally:
        Path(marker + ".cleaned").touch()


def test_results_come_back_from_other_processes():
    advanced = []
    with Pool(3, advanced.append) as pool:
        for number in range(8):
            pool.submit(number, double, number, of=number)
        results = dict(pool.results())
        assert {number: value for number, (_, value) in results.items()} == {n: 2 * n for n in range(8)}
        pids = {pid for pid, _ in results.values()}
        assert len(pids) <= 3
        assert os.getpid() not in pids
        pool.submit(0, double, 1)
        for of, value in pool.results():
            if of is None:  # more can be submitted while results come
                pool.submit(0, double, value[1], of="last")
        assert value[1] == 4
    assert sum(advanced) == sum(range(8)) + 1 + 2
    with Pool(1) as pool:  # the heaviest first
        for weight in (1, 3, 2):
            pool.submit(weight, double, weight, of=weight)
        assert [weight for weight, _ in pool.results()] == [3, 2, 1]
    until(lambda: not any(is_running(pid) for pid in pids))


def test_expected_errors_cross_with_cause_and_next_step(tmp_path):
    marker = str(tmp_path / "slow")
    with Pool(2) as pool:
        pool.submit(2, dawdle, marker)
        pool.submit(1, fail, "no")
        with pytest.raises(BuildError) as caught:
            list(pool.results())
    assert (caught.value.what, caught.value.cause, caught.value.next_step) == ("no", "Because.", "do it")
    if Path(marker).exists():
        assert not is_running(int(Path(marker).read_text()))
        assert Path(marker + ".cleaned").exists()


def test_a_worker_that_the_kernel_kills_is_an_error_not_a_wait():
    with Pool(2) as pool:
        pool.submit(0, fail, "")
        with pytest.raises(HostError, match="worker process was killed"):
            list(pool.results())


PARENT = """
import sys
sys.path.insert(0, sys.argv[2])
from graphcrate.host.workers import Pool
from tests.engines.test_workers import dawdle
with Pool(1) as pool:
    pool.submit(0, dawdle, sys.argv[1])
    list(pool.results())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_workers_clean_up_and_end_with_their_parent(tmp_path, number):
    """Ctrl-C, which goes to the whole group, is the parent's to answer."""
    marker = tmp_path / "slow"
    command = [sys.executable, "-c", PARENT, str(marker), str(ROOT)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
        until(marker.exists)
        (os.killpg if number == signal.SIGINT else os.kill)(parent.pid, number)
        said = parent.communicate(timeout=60)[1]
    assert said.count("Traceback") == said.count("KeyboardInterrupt") == (number == signal.SIGINT)
    until(lambda: not is_running(int(marker.read_text())))
    assert Path(f"{marker}.cleaned").exists()
