"""The parts of `host.process` that need no process; the rest is in tests/engines/test_process_run.py."""

import ast
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.host import process
from graphcrate.model.errors import HostError
from tests import nodes_of
from tests.made import refused
from tests.unit.house.test_imports import GUESTS, SOURCES, tree_of


def lines_of(pieces):
    seen = []
    cutter = process._Lines(seen.append)
    for piece in [*filter(None, pieces), b""]:
        cutter.feed(piece)
    return seen


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\rc\r\nd"], ["a", "b", "c", "d"]),
        ([b"a\r", b"\nb"], ["a", "b"]),
        ([b"caf\xe9\n"], ["caf\N{REPLACEMENT CHARACTER}"]),
    ],
)
def test_lines_of_splits_bytes_and_cuts_endless_lines(pieces, lines):
    assert lines_of(pieces) == lines
    endless = lines_of([b"x" * 50_000] * 4)
    assert ("".join(endless), len(endless) > 1) == ("x" * 200_000, True)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), min_size=1), st.integers(1, 7))
def test_lines_of_gives_the_same_for_any_chunks(lines: list[str], step: int):
    data = "".join(line + "\n" for line in lines).encode()
    assert lines_of([data[at : at + step] for at in range(0, len(data), step)]) == lines


def test_missing_or_failed_program_is_a_host_error_with_a_command():
    with refused(HostError, "unsquashfs-that-nobody-has is not installed"):
        process.run(["unsquashfs-that-nobody-has"])
    assert "apt-get install squashfs-tools" in process.missing("unsquashfs").next_step
    error = process.failure(["mmdebstrap", "a b"], -9, ["E: first", "E: last"])
    assert "SIGKILL" in error.what
    assert error.what.endswith("E: last")
    assert "mmdebstrap 'a b'" in error.next_step


@pytest.mark.parametrize("talks", [False, True])
def test_program_beyond_its_timeout_is_killed(talks):
    """One that says nothing, and one that never stops talking."""
    begun, heard = time.monotonic(), []

    def poll():
        assert time.monotonic() < begun + 20, "it would be followed for ever"

    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stdout, os.fdopen(writing, "wb", buffering=0) as out:

        def feed(data):
            heard.append(data)
            out.write(b"and on\n")

        if talks:
            out.write(b"I go on\n")
        running = SimpleNamespace(stdout=stdout, args=["sleep"], poll=poll, wait=lambda timeout: 0)
        with pytest.raises(subprocess.TimeoutExpired):
            process._follow(running, feed, 0.2, 60)
    assert bool(heard) is talks


def test_child_process_group_is_killed_with_it(monkeypatch):
    def start(argv, **options):
        raise InterruptedError(options["start_new_session"])

    sent = []
    monkeypatch.setattr(process.subprocess, "Popen", start)
    with pytest.raises(InterruptedError, match="True"):
        process.run(["/bin/sh"])
    monkeypatch.setattr(os, "killpg", lambda *told: sent.append(told))
    process._end_group(SimpleNamespace(pid=77, wait=lambda seconds=None: 0))
    assert sent == [(77, signal.SIGTERM), (77, signal.SIGKILL)]


def test_start_new_session_cannot_be_overridden(monkeypatch):
    """A Ctrl-C of the terminal would reach it, also while `uninterrupted` puts that off."""
    started = []
    monkeypatch.setattr(process.subprocess, "Popen", lambda argv, **options: started.append(options))
    with (
        pytest.raises(TypeError, match="start_new_session"),
        process._started(["/bin/sh"], {}, start_new_session=False),
    ):
        pass
    assert started == []


def test_subprocess_is_used_in_host_process_and_attach_only():
    starters = {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
    calls = [
        (module, node)
        for module in SOURCES
        if module not in GUESTS
        for node in nodes_of(tree_of(module), ast.Call)
        if isinstance(node.func, ast.Attribute) and node.func.attr in starters
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "subprocess"
    ]
    own = {module for module, node in calls if any(option.arg == "start_new_session" for option in node.keywords)}
    assert own == {"graphcrate.host.process"}
    assert {module for module, _ in calls} - own == {"graphcrate.host.sandbox.attach"}
    assert not [module for module in SOURCES if "from subprocess import" in SOURCES[module].read_text()]


@pytest.fixture
def interruptible():
    """Signals as a terminal's program has them, however the tests were started."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_is_deferred_until_the_end_of_uninterrupted(interruptible, number):
    done = []
    with pytest.raises(KeyboardInterrupt), process.uninterrupted():  # noqa: PT012
        os.kill(os.getpid(), number)
        time.sleep(0.01)
        done.append("written down")
    assert done == ["written down"]
    assert signal.getsignal(number) is signal.default_int_handler


def test_second_interrupt_ends_uninterrupted_at_once(interruptible):
    done = []
    with pytest.raises(KeyboardInterrupt), process.uninterrupted():  # noqa: PT012
        for _ in range(2):
            signal.getsignal(signal.SIGINT)(signal.SIGINT, None)
            done.append("one")
    assert done == ["one"], "it went on"
    with ThreadPoolExecutor(1) as other:
        other.submit(process.uninterrupted().__enter__).result()  # where no handler can be set
