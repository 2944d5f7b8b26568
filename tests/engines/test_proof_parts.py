"""The processes of a proof in parts, as real processes: in any case none is left, nor what they had taken."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from proof import machine, parts
from proof.verdict import Fault, Layer, Proof

from tests.engines.workplace import is_running, until

pytestmark = pytest.mark.engine("python3")

PASSES = 'print(\'{"phase": "testing", "layer": "GLT"}\\n{"suite": "glt", "status": "passed", "metrics": {}}\')'
DIES = "import os, time; time.sleep(0.5); os.kill(os.getpid(), 9)"
#: a process with one of its own, deaf to polite words, that holds a segment of shared memory
STUBBORN = """
import ctypes, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ctypes.CDLL(None).shmget(0, 4096, 0o1600)
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
"""
FORSAKEN = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 7)"])
time.sleep(600)
"""


def run(*programs, deadline=None):
    """Run them as parts."""
    commands = {f"process {n}": [sys.executable, "-c", text] for n, text in enumerate(programs)}
    return parts.run(commands, Proof("glt"), deadline)


@pytest.fixture
def started(monkeypatch):
    """The numbers of the parts that were started."""
    numbers = []
    start = parts.Running.__init__

    def note(self, *arguments):
        start(self, *arguments)
        numbers.append(self.pid)

    monkeypatch.setattr(parts.Running, "__init__", note)
    yield numbers
    assert numbers
    assert not any(parts.living(number) for number in numbers)  # init fetches its new children when it likes
    assert machine.segments(machine.SEGMENTS.read_text(), numbers) == []


def test_two_parts_that_pass_return_their_results(started, capsys):
    assert set(run(PASSES, PASSES)) == {"process 0", "process 1"}
    assert capsys.readouterr().out == "Phase: testing (GLT)\n"


def test_a_part_that_dies_takes_the_others_with_it(started):
    with pytest.raises(Fault, match="process 1 was ended by SIGKILL") as caught:
        run("import time; time.sleep(600)", DIES)
    assert caught.value.layer is Layer.MACHINE


def test_part_that_ignores_sigterm_is_killed_at_the_time_limit(started, monkeypatch):
    monkeypatch.setattr(parts, "SECONDS_TO_END", 0.5)
    with pytest.raises(Fault, match="not finished within the limit"):
        run(STUBBORN, deadline=time.monotonic() + 3)


def test_a_part_that_would_wait_for_a_dead_process_of_its_own(started, monkeypatch):
    monkeypatch.setattr(parts, "SECONDS_BETWEEN", 0.2)
    with pytest.raises(Fault, match="that process 0 had started was ended by SIGBUS; /dev/shm") as caught:
        run(FORSAKEN)
    assert caught.value.layer is Layer.MACHINE


def test_part_ends_when_its_parent_is_killed():
    inner = "import sys; sys.path.insert(0, sys.argv[1]); from proof import parts; parts.die_with_parent(); "
    inner += "print('ready', flush=True); import time; time.sleep(600)"
    outer = "import os, subprocess, sys; p = subprocess.Popen([sys.executable, '-c', *sys.argv[1:]], stdout=-1); "
    outer += "p.stdout.readline(); print(p.pid, flush=True); os.kill(os.getpid(), 9)"
    examples = Path(parts.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", outer, inner, examples], stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: not is_running(int(done.stdout)), 10)
