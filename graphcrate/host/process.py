"""Child processes: one way to start them, with streamed lines, a time-out, and nothing left running.

Each child leads a process group of its own, so that an interrupt or an error here ends it with all it started.
"""

import codecs
import contextlib
import io
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from graphcrate.host import settings
from graphcrate.model.errors import BuildError, HostError

KEPT_LINES = 200
LINE_LIMIT = 1 << 16  #: characters; a longer line is cut in pieces, so that a program without newlines fits in memory
POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0  #: between the request to end (SIGTERM: programs remove what they made) and SIGKILL
#: Debian's package of a program, where the names differ
PACKAGES = {
    "unshare": "util-linux",
    "mount": "mount",
    "newuidmap": "uidmap",
    "newgidmap": "uidmap",
    "unsquashfs": "squashfs-tools",
    "python3": "python3",
    "ldconfig": "libc-bin",
}
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_running: set[subprocess.Popen[bytes]] = set()


class Completed(msgspec.Struct, frozen=True):
    """A finished process. `returncode` is -N when signal N ended it; `lines` are the last 200 of stdout and stderr."""

    returncode: int
    lines: tuple[str, ...]


def run(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout: float | None = None,
    descriptors: Sequence[int] = (),
) -> Completed:
    """Run a program; whatever its exit code, return it. stdout and stderr come merged, line by line, to `on_line`.

    `environment` defaults to `settings.child_environment()`.
    `descriptors`: files that the program gets open, under the same numbers.
    Raises HostError when the program is missing, BuildError after `timeout` seconds.
    """
    kept: deque[str] = deque(maxlen=KEPT_LINES)

    def take(line: str) -> None:
        kept.append(line)
        if on_line is not None:
            on_line(line)

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with _started(argv, environment, cwd, stdin, **pipes, descriptors=descriptors) as process:
        assert process.stdout is not None
        _supervise(process, {process.stdout: _Lines(take).feed}, argv, timeout)
    return Completed(process.returncode, tuple(kept))


def output(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
) -> str:
    """The program's stdout as text. Raises BuildError with the last lines of stderr when it fails."""
    collected = bytearray()
    complaints: deque[str] = deque(maxlen=20)
    with _started(argv, environment, cwd, stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        sinks = {process.stdout: collected.extend, process.stderr: _Lines(complaints.append).feed}
        _supervise(process, sinks, argv, timeout)
    if process.returncode:
        raise failure(argv, process.returncode, complaints)
    return collected.decode("utf-8", "replace")


def end_all() -> None:
    """Ask every process that other threads have started to end: for an interrupt, which the main thread alone gets."""
    for process in list(_running):
        _signal_group(process, signal.SIGTERM)


def interrupt_on_terminate() -> None:
    """Make SIGTERM (a batch system's, systemd's) end this program as Ctrl-C does: cleaned up, with its children."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off what would end this program (Ctrl-C, SIGTERM, a closed terminal) until the end of what is done here.

    For what may not be left in the middle, and takes seconds: a second Ctrl-C ends it all the same. Programs that are
    started meanwhile are spared too, but for scripts of a shell that lets go of what is held back from it (dash).
    """
    if threading.current_thread() is not threading.main_thread():  # interrupts come to the main thread alone
        yield
        return
    came: list[int] = []

    def catch_up() -> None:
        for number in dict.fromkeys(came):  # the first may be one that is ignored
            signal.raise_signal(number)

    def note(number: int, _: object) -> None:
        if number == signal.SIGINT and number in came:
            raise KeyboardInterrupt
        came.append(number)

    with contextlib.ExitStack() as stack:
        stack.callback(catch_up)
        for number in _ENDING:
            stack.callback(signal.signal, number, signal.signal(number, note))
        # A child inherits the mask, and a terminal's Ctrl-C goes to it too. The mask alone would not do here: another
        # thread would take the signal, and Python would handle it in this one.
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING))
        yield


def find(program: str) -> str | None:
    """Absolute path of a program, looked for in PATH and the system's folders; None where there is none."""
    return shutil.which(program, path=settings.child_environment()["PATH"])


def missing(program: str) -> HostError:
    """The error for a program that this machine lacks."""
    name = Path(program).name
    return HostError(
        f"{name} is not installed",
        cause=f"{program} was found neither in PATH nor in the system's folders.",
        next_step=f"apt-get install {PACKAGES.get(name, name)}    (or ask the administrator of this machine)",
    )


def failure(argv: Sequence[str], returncode: int, lines: Sequence[str]) -> BuildError:
    """The error for a program that ended badly, with its last words."""
    reason = f"exit code {returncode}" if returncode >= 0 else f"signal {_signal_name(-returncode)}"
    tail = "".join(f"\n    {line}" for line in list(lines)[-20:])
    return BuildError(f"{_short(argv)} failed ({reason}){tail}", next_step=f"try it by hand: {_short(argv, 2000)}")


class _Lines:
    """Cuts bytes into lines at \\n and \\r (progress bars), whatever their encoding."""

    def __init__(self, sink: Callable[[str], object]) -> None:
        self._sink = sink
        text = codecs.getincrementaldecoder("utf-8")("replace")
        self._decode = io.IncrementalNewlineDecoder(text, translate=True).decode
        self._rest = ""

    def feed(self, data: bytes) -> None:
        """Take more bytes; an empty `data` ends the stream."""
        text = self._rest + self._decode(data, final=not data)
        *lines, self._rest = text.split("\n")
        for line in lines:
            self._sink(line)
        if self._rest and (not data or len(self._rest) > LINE_LIMIT):
            self._sink(self._rest)
            self._rest = ""


@contextlib.contextmanager
def _started(
    argv: Sequence[str],
    environment: Mapping[str, str] | None,
    cwd: Path | None,
    stdin: bytes | int | None,
    *,
    stdout: int,
    stderr: int,
    descriptors: Sequence[int] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own. Leaving by an exception ends the group. `stdin`: bytes, or `subprocess.PIPE`."""
    variables = settings.child_environment() if environment is None else dict(environment)
    program = argv[0] if "/" in argv[0] else find(argv[0])
    if program is None or not Path(program).exists():
        raise missing(argv[0])
    with contextlib.ExitStack() as stack:
        given: IO[bytes] | int = stdin if isinstance(stdin, int) else subprocess.DEVNULL
        if isinstance(stdin, bytes):
            given = stack.enter_context(tempfile.TemporaryFile())
            given.write(stdin)
            given.seek(0)
        process = subprocess.Popen(
            [program, *argv[1:]],
            stdin=given,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=variables,
            start_new_session=True,
            pass_fds=tuple(descriptors),
        )
        _running.add(process)
        try:
            yield process
        except BaseException:
            _end_group(process)
            raise
        finally:
            _running.discard(process)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def _supervise(
    process: subprocess.Popen[bytes],
    sinks: Mapping[IO[bytes], Callable[[bytes], object]],
    argv: Sequence[str],
    timeout: float | None,
) -> None:
    """Feed the pipes to their sinks until the process has ended, not waiting for a daemon that holds a pipe open."""
    deadline = None if timeout is None else time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for pipe, sink in sinks.items():
            selector.register(pipe, selectors.EVENT_READ, sink)
        while selector.get_map():
            ended = process.poll() is not None
            ready = selector.select(POLL_SECONDS)
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                else:
                    key.data(data)
            if ended and not ready:
                break
            _check(deadline, argv, timeout)
        for sink in sinks.values():
            sink(b"")
    while process.poll() is None:
        _check(deadline, argv, timeout)
        time.sleep(POLL_SECONDS / 10)


def _check(deadline: float | None, argv: Sequence[str], timeout: float | None) -> None:
    if deadline is not None and time.monotonic() > deadline:
        raise BuildError(
            f"{_short(argv)} did not finish within {timeout:.0f} s and was ended",
            cause="The machine is much slower than expected, or the program waits for something.",
            next_step=f"try it by hand: {_short(argv, 2000)}",
        )


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the group to end, then insist."""
    try:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    finally:
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _short(argv: Sequence[str], limit: int = 160) -> str:
    command = shlex.join(argv)
    return command if len(command) <= limit else command[: limit - 1] + "…"
