"""A proof in parts, each a process of its own: this one only starts them, listens, and ends them all when one fails.

So a crash inside a library is a verdict too, and nothing outlives the proof: each part leads a process group that is
ended as a whole. A part writes lines on stdout; those that begin with `{` are for its starter: what it does now
(`{"phase": …, "layer": …}`) and, last, its verdict as `proof.verdict` writes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proof import machine
from proof.verdict import Fault, Layer, Proof

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS_TO_END = 3.0  #: between asking and killing
SECONDS_TO_AGREE = 1.5  #: after a failure, for the other parts' account: the first to complain is not always to blame
SECONDS_TO_HEAR = 2.0  #: after a part's end, for the rest of its lines
ROUNDS_DEAD = 3  #: looks, SECONDS_BETWEEN apart, at a dead helper process until its part counts as stuck
SECONDS_BETWEEN = 1.0
PR_SET_PDEATHSIG = 1  #: <sys/prctl.h>
HINTS = {
    signal.SIGBUS: "; /dev/shm or memory may be too small",
    signal.SIGKILL: "; the machine may have run out of memory",
    signal.SIGILL: "; the CPU lacks an instruction that a library was built with",
}


class Part(Proof):
    """A part's own view: its phases go to its starter, as lines for programs."""

    def enter(self, phase: str, suspect: Layer) -> None:
        """As a Proof's."""
        self.phase, self.suspect = phase, suspect
        self.say(json.dumps({"phase": phase, "layer": suspect.value}))


class QuietPart(Part):
    """A part whose lines for people the first part says too."""

    def say(self, line: str) -> None:
        """Say what programs read."""
        if line.startswith("{"):
            super().say(line)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it is gone, however that came about."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Running:
    """One part and what is known of it."""

    def __init__(self, name: str, argv: Sequence[str], lines: queue.Queue[tuple[Running, str]]) -> None:
        self.name = name
        self.phase, self.suspect = "starting Python", Layer.MACHINE
        self.verdict: dict[str, Any] | None = None
        self.rounds_dead = 0
        self.heard = False
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its group is ended as a whole, and Ctrl-C reaches only us
        )
        self.pid = self.process.pid
        self._reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._reader.start()

    def _read(self, lines: queue.Queue[tuple[Running, str]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.put((self, line.decode(errors="replace").rstrip()))

    def is_talking(self) -> bool:
        """Return whether lines may still come; a process that it started may keep its output open."""
        return self._reader.is_alive()

    def has_ended(self) -> bool:
        """Return whether its process has. It stays a zombie, so that the number of its group is not given again."""
        if self.process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> None:
        """End the whole group: politely, then not. Python's own resource tracker is left to the last.

        It removes the semaphores of those that could not.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGTERM)
            if not self._is_alone_within(SECONDS_TO_END):
                for pid in workers(self.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._is_alone_within(SECONDS_TO_END)
            until = time.monotonic() + SECONDS_TO_END
            while living(self.pid) and time.monotonic() < until:
                time.sleep(0.02)
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(SECONDS_TO_HEAR)
        if self.process.stdout is not None and not self._reader.is_alive():
            self.process.stdout.close()

    def _is_alone_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while workers(self.pid) and time.monotonic() < until:
            time.sleep(0.02)
        return not workers(self.pid)

    def failure(self, known: str) -> Fault | None:
        """Explain why it failed, once it has ended; None when it passed. `known`: the phase that is told anyway."""
        code = self.process.wait()
        if self.verdict is not None:
            if self.verdict.get("status") == "passed" and code == 0:
                return None
            layer = next((each for each in Layer if each.value == self.verdict.get("layer")), self.suspect)
            reason = str(self.verdict.get("reason") or f"it ended with exit code {code}")
            reason = reason.removeprefix(f"{layer.value}: ").removesuffix(f" (while {self.phase})")
            what = f"{self.name}: {reason}"
        else:
            layer, how = ending(code, self.suspect)
            what = f"{self.name} {how}"
        return Fault(layer, what if self.phase == known else f"{what} (while {self.phase})")


def ending(code: int, suspect: Layer) -> tuple[Layer, str]:
    """The layer to blame for an end without a verdict, and the end in words."""
    if code >= 0:
        return suspect, f"ended with exit code {code} and without a verdict"
    number = signal.Signals(-code)
    layer = Layer.MACHINE if number in (signal.SIGBUS, signal.SIGKILL) else suspect
    return layer, f"was ended by {number.name}{HINTS.get(number, '')}"


def first_to_blame(faults: Sequence[tuple[Fault, bool]]) -> Fault:
    """Of several parts' faults, each with whether it crashed: crashes explain complaints, of the network above all."""
    return min(faults, key=lambda each: (not each[1], each[0].layer is Layer.NETWORK))[0]


def run(commands: Mapping[str, Sequence[str]], proof: Proof, deadline: float | None) -> dict[str, dict[str, Any]]:
    """Run the parts side by side; returns their verdicts by name. Raises Fault as soon as one fails.

    `deadline` is on the monotonic clock. In any case no process is left.
    """
    lines: queue.Queue[tuple[Running, str]] = queue.Queue()
    running: list[Running] = []
    try:
        for name, argv in commands.items():
            running.append(Running(name, argv, lines))
        _listen(running, lines, proof, deadline)
    finally:
        for each in running:
            each.end()
        machine.remove_segments({each.pid for each in running})
    return {each.name: each.verdict or {} for each in running}


def _listen(
    running: Sequence[Running], lines: queue.Queue[tuple[Running, str]], proof: Proof, deadline: float | None
) -> None:
    next_look = time.monotonic() + SECONDS_BETWEEN
    while not all(each.has_ended() for each in running):
        _hear(lines, proof, running[0], 0.1)
        if deadline is not None and time.monotonic() > deadline:
            doing = "; ".join(f"{each.name} was {each.phase}" for each in running if not each.has_ended())
            raise Fault(Layer.MACHINE, f"not finished within the limit: {doing}")
        if any(each.has_ended() and _failure(each, lines, proof, running[0]) for each in running):
            break
        if time.monotonic() > next_look:
            next_look += SECONDS_BETWEEN
            for each in running:
                _look_for_dead_helpers(each)
    _settle(running, lines, proof)


def _failure(part: Running, lines: queue.Queue[tuple[Running, str]], proof: Proof, leader: Running) -> Fault | None:
    """Explain why an ended part failed, after reading the rest of its output."""
    if not part.heard:
        until = time.monotonic() + SECONDS_TO_HEAR
        while part.verdict is None and part.is_talking() and time.monotonic() < until:
            _hear(lines, proof, leader, 0.05)
        _hear(lines, proof, leader, 0.0)
        part.heard = True
    return part.failure(proof.phase)


def _settle(running: Sequence[Running], lines: queue.Queue[tuple[Running, str]], proof: Proof) -> None:
    """Raise the fault that explains the others, if there is any."""
    until = time.monotonic() + SECONDS_TO_AGREE
    while not all(each.has_ended() for each in running) and time.monotonic() < until:
        _hear(lines, proof, running[0], 0.1)
    faults = []
    for each in running:
        fault = _failure(each, lines, proof, running[0]) if each.has_ended() else None
        if fault is not None:
            faults.append((fault, each.verdict is None))
    if faults:
        raise first_to_blame(faults)


def _hear(lines: queue.Queue[tuple[Running, str]], proof: Proof, leader: Running, seconds: float) -> None:
    """Take all lines that are there, waiting for the first. The leader's phases are the proof's."""
    with contextlib.suppress(queue.Empty):
        part, line = lines.get(timeout=seconds)
        while True:
            hear(part, line, proof, part is leader)
            part, line = lines.get_nowait()


def hear(part: Running, line: str, proof: Proof, leads: bool) -> None:
    """One line of a part: a phase, its verdict, or something for people."""
    told: Any = None
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            told = json.loads(line)
    if isinstance(told, dict) and "suite" in told:
        part.verdict = told
        if leads:
            proof.versions.update(told.get("versions", {}))
            proof.device = told.get("device", proof.device)
    elif isinstance(told, dict) and "phase" in told:
        part.phase = told["phase"]
        part.suspect = next((each for each in Layer if each.value == told.get("layer")), Layer.MACHINE)
        if leads:
            proof.enter(part.phase, part.suspect)
    elif line:
        proof.say(line if leads else f"{part.name}: {line}")


def _look_for_dead_helpers(part: Running) -> None:
    """Raise Fault for a part that waits for a process of its own that is dead: it would wait for ever."""
    dead = [each for each in members(part.pid) if each.state in "ZX" and each.pid != part.pid]
    part.rounds_dead = part.rounds_dead + 1 if dead and not part.has_ended() else 0
    if part.rounds_dead >= ROUNDS_DEAD:
        layer, how = ending(dead[0].code, part.suspect)
        raise Fault(layer, f"a process that {part.name} had started {how}; its last lines are above, if there are any")


class Member(NamedTuple):
    """A process of a group as /proc tells it. State "Z": dead, not yet fetched; then `code` is as Popen's."""

    pid: int
    state: str
    group: int
    code: int


def members(group: int) -> list[Member]:
    """The processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                found.append(parse_stat((entry / "stat").read_text(encoding="utf-8", errors="replace")))
    return [each for each in found if each.group == group]


def parse_stat(text: str) -> Member:
    """From /proc/N/stat (man proc_pid_stat); the program's name in it may hold spaces and brackets."""
    pid, _, rest = text.partition(" ")
    fields = rest.rpartition(")")[2].split()
    status = int(fields[49]) if len(fields) > 49 else 0
    return Member(int(pid), fields[0], int(fields[2]), -(status & 0x7F) or status >> 8)


def living(group: int) -> bool:
    """Return whether any process of the group still runs."""
    return any(each.state not in "ZX" for each in members(group))


def workers(group: int) -> list[int]:
    """The group's processes that still run, without the one that Python keeps to tidy up after them."""
    found = []
    for each in members(group):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{each.pid}/cmdline").read_bytes()
            if each.state not in "ZX" and b"resource_tracker" not in command:
                found.append(each.pid)
    return found


def program(path: str, *arguments: str) -> list[str]:
    """The command for a part: this Python on a program."""
    return [sys.executable, "-u", path, *arguments]
