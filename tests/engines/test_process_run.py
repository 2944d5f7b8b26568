"""Real child processes: nothing but a POSIX shell is needed."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphcrate.host import process
from graphcrate.model.errors import BuildError
from tests.engines.workplace import is_running, until

pytestmark = pytest.mark.engine("sh")


def test_lines_of_both_streams_come_while_the_process_runs_and_the_last_are_kept(tmp_path):
    gate = tmp_path / "gate"
    script = f"echo one; echo two >&2; while [ ! -e {gate} ]; do sleep 0.05; done; echo three; exit 3"
    done = process.run(["sh", "-c", script], on_line=lambda _: gate.touch(), timeout=60)
    assert done == process.Completed(3, ("one", "two", "three"))
    assert process.run(["seq", "300"]).lines == tuple(str(number) for number in range(101, 301))
    done = process.run(["sh", "-c", "sleep 30 & echo $!"], timeout=20)  # a daemon that holds the pipe
    os.kill(int(done.lines[0]), signal.SIGKILL)
    assert done.returncode == 0


def test_output_is_stdout_alone_and_failure_shows_stderr():
    data = b"0123456789abcde\n" * 20_000  # more than a pipe holds
    assert process.output(["sh", "-c", "cat; echo err >&2"], stdin=data).encode() == data
    with pytest.raises(BuildError, match="no such thing"):
        process.output(["sh", "-c", "echo no such thing >&2; exit 1"])


def test_timeout_ends_the_whole_group(tmp_path):
    child = tmp_path / "child"
    with pytest.raises(BuildError, match="did not finish within 1 s"):
        process.run(["sh", "-c", f"sleep 1000 & echo $! > {child}; wait"], timeout=1)
    until(lambda: not is_running(child.read_text().strip()), 5)


def test_what_speaks_now_and_then_goes_on_and_what_falls_silent_is_ended(tmp_path):
    child = tmp_path / "child"
    talking = "for i in 1 2 3 4 5; do sleep 0.4; echo $i; done"
    assert process.run(["sh", "-c", talking], silence=1.5).lines == ("1", "2", "3", "4", "5")
    with pytest.raises(process.SilenceError, match="said nothing for 1 s"):
        process.run(["sh", "-c", f"sleep 1000 & echo $! > {child}; wait"], silence=1)
    until(lambda: not is_running(child.read_text().strip()), 5)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_in_the_listener_and_an_interrupt_end_the_group(error):
    seen = []

    def listen(line):
        seen.append(int(line))
        if error is RuntimeError:
            raise RuntimeError
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(error):
        process.run(["sh", "-c", "echo $$; exec sleep 1000"], on_line=listen)
    until(lambda: not is_running(seen[0]), 5)


def test_another_threads_process_can_be_ended():
    started = threading.Event()
    with ThreadPoolExecutor(1) as side:
        running = side.submit(process.run, ["sh", "-c", "echo on; exec sleep 1000"], on_line=lambda line: started.set())
        assert started.wait(20)
        process.end_all()
        assert running.result(20).returncode == -signal.SIGTERM


HUNG_UP = """
import os, signal
from graphcrate.host import process
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with process.uninterrupted():
        for number in (signal.SIGHUP, signal.SIGINT):
            os.kill(os.getpid(), number)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_is_not_lost_beside_a_hangup_that_is_ignored(project):
    """In a process of its own: beside other threads Python may tell of a harmless race."""
    done = subprocess.run([sys.executable, "-c", HUNG_UP], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout == "interrupted\n"
