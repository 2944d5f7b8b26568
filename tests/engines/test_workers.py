"""Worker processes: results and errors cross, nobody outlives the parent, Ctrl-C and kills leave a clear end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphcrate.errors import BuildError, HostError
from graphcrate.host.workers import Processes

ROOT = Path(__file__).resolve().parents[2]


def double(advance, number):
    advance(number)
    return os.getpid(), number * 2


def refuse(advance, what):
    raise BuildError(what, cause="Because.", next_step="do it")


def stumble(advance):
    raise ZeroDivisionError("oops")


def die(advance):
    os.kill(os.getpid(), signal.SIGKILL)


def dawdle(advance, marker):
    # whole or absent: the worker may be ended at any moment
    Path(f"{marker}.new").write_text(str(os.getpid()))
    Path(f"{marker}.new").rename(marker)
    try:
        time.sleep(600)
    finally:
        Path(marker + ".cleaned").touch()


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_results_come_back_from_other_processes():
    advanced, results = [], []
    with Processes(3, advanced.append) as crew:
        for number in range(8):
            crew.submit(number, double, number, then=results.append)
        crew.finish()
        assert sorted(value for _, value in results) == [2 * number for number in range(8)]
        assert len({pid for pid, _ in results} | {os.getpid()}) <= 4
        assert os.getpid() not in {pid for pid, _ in results}
        # A crew that has finished can be given more; what follows work may be submitted when it is done.
        crew.submit(0, double, 1, then=lambda value: crew.submit(0, double, value[1], then=results.append))
        crew.finish()
    assert results[-1][1] == 4
    assert sum(advanced) == sum(range(8)) + 1 + 2
    wait_for(lambda: not any(alive(pid) for pid, _ in results))


def test_the_heaviest_work_goes_first():
    order = []
    with Processes(1) as crew:
        for weight in (1, 3, 2):
            crew.submit(weight, double, weight, then=lambda value: order.append(value[1] // 2))
        crew.finish()
    assert order == [3, 2, 1]


def test_expected_errors_cross_with_cause_and_next_step(tmp_path):
    marker = str(tmp_path / "slow")
    with Processes(2) as crew:
        crew.submit(2, dawdle, marker, then=print)
        crew.submit(1, refuse, "no", then=print)
        with pytest.raises(BuildError) as caught:
            crew.finish()
    assert (caught.value.what, caught.value.cause, caught.value.next_step) == ("no", "Because.", "do it")
    if Path(marker).exists():
        assert not alive(int(Path(marker).read_text()))


def test_unexpected_errors_show_where_they_came_from():
    with Processes(1) as crew:
        crew.submit(0, stumble, then=print)
        with pytest.raises(RuntimeError, match=r"(?s)in stumble.*ZeroDivisionError: oops"):
            crew.finish()


def test_a_worker_that_the_kernel_kills_is_an_error_not_a_wait():
    with Processes(2) as crew:
        crew.submit(0, die, then=print)
        with pytest.raises(HostError, match="signal SIGKILL"):
            crew.finish()


PARENT = """
import sys
sys.path.insert(0, sys.argv[2])
from graphcrate.host.workers import Processes
from tests.engines.test_workers import dawdle
with Processes(1) as crew:
    crew.submit(0, dawdle, sys.argv[1], then=print)
    crew.finish()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_workers_clean_up_and_end_with_their_parent(tmp_path, number):
    marker = tmp_path / "slow"
    command = [sys.executable, "-c", PARENT, str(marker), str(ROOT)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as parent:
        wait_for(lambda: marker.exists() and marker.read_text())
        worker = int(marker.read_text())
        parent.send_signal(number)
        parent.wait(60)
    wait_for(lambda: not alive(worker))
    assert Path(f"{marker}.cleaned").exists()


def test_ctrl_c_on_the_whole_group_is_the_parents_to_answer(tmp_path):
    marker = tmp_path / "slow"
    command = [sys.executable, "-c", PARENT, str(marker), str(ROOT)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
        wait_for(lambda: marker.exists() and marker.read_text())
        os.killpg(parent.pid, signal.SIGINT)
        said = parent.communicate(timeout=60)[1]
    assert said.count("KeyboardInterrupt") == 1
    assert said.count("Traceback") == 1
    wait_for(lambda: not alive(int(marker.read_text())))
