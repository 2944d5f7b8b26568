"""Child processes: one way to start them, with streamed lines, a time-out, and nothing left running.

Each child leads a process group of its own, so that an interrupt or an error here ends it with all it started.
"""

import codecs
import contextlib
import fcntl
import io
import math
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from graphcrate.host import settings, trace
from graphcrate.host.arguments import Argv
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.words import with_mark

KEPT_LINES = 200
LINE_LIMIT = 1 << 16  #: characters; a longer line is cut in pieces, so that a program without newlines fits in memory
POLL_SECONDS = 0.1
_LOOK_SECONDS = 0.005  #: between two looks whether a program that has closed its stdout has ended
GRACE_SECONDS = 5.0  #: between the request to end (SIGTERM: programs remove what they made) and SIGKILL
#: Debian's package of a program, where the names differ
PACKAGES = {
    "unshare": "util-linux",
    "unsquashfs": "squashfs-tools",
    "ldconfig": "libc-bin",
}
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_running: set[subprocess.Popen[bytes]] = set()


class SilenceError(BuildError):
    """A program said nothing for longer than it ever should, and was ended."""


class _Silence(subprocess.TimeoutExpired):
    """The same, before the program is ended."""


class Completed(msgspec.Struct, frozen=True):
    """A finished process. `returncode` is -N when signal N ended it; `lines` are the last 200 of stdout and stderr."""

    returncode: int
    lines: tuple[str, ...]


def run(
    argv: Argv,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout: float | None = None,
    silence: float = math.inf,
    descriptors: Sequence[int] = (),
    title: str = "",
) -> Completed:
    """Run a program, as `arguments.line` writes it, and return the result; any exit code will do.

    stdout and stderr come merged, line by line, to `on_line`.

    `environment` defaults to `settings.child_environment()`; `descriptors`: files that the program gets open; `title`:
    what a trace calls it.
    Raises HostError when the program is missing, BuildError after `timeout` seconds, SilenceError after `silence`
    seconds without a word of it.
    """
    kept: deque[str] = deque(maxlen=KEPT_LINES)

    def take(line: str) -> None:
        kept.append(line)
        if on_line is not None:
            on_line(line)

    with (
        trace.span(title or Path(argv[0]).name) as span,
        _started(argv, environment, stderr=subprocess.STDOUT, cwd=cwd, pass_fds=tuple(descriptors)) as process,
    ):
        _follow(process, _Lines(take).feed, timeout, silence, span if trace.path() else None)
    return Completed(process.returncode, tuple(kept))


def output(
    argv: Argv,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout: float | None = None,
) -> str:
    """The program's stdout as text. Raises BuildError with the last lines of stderr when it fails."""
    options = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": cwd}
    with trace.span(Path(argv[0]).name), _started(argv, environment, **options) as process:
        stdout, stderr = process.communicate(stdin, timeout)
    if process.returncode:
        raise failure(argv, process.returncode, stderr.decode("utf-8", "replace").splitlines())
    return stdout.decode("utf-8", "replace")


class Background:
    """A program in a folder of its own, which goes on where the one that started it ends: of `start` and `adopt`.

    It holds a lock on its file `lock`, so that a later process knows whether it still runs.
    """

    def __init__(self, folder: Path, number: int, process: subprocess.Popen[bytes] | None = None) -> None:
        self._folder, self._number, self._process = folder, number, process

    def poll(self) -> int | None:
        """Return its exit code, -1 where another process started it; None while it runs."""
        if self._process is not None:
            return self._process.poll()
        return None if _is_locked(self._folder) else -1

    def end(self, *, insist: bool = False) -> None:
        """Ask it and all that it started to end; `insist`: end them."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._number, signal.SIGKILL if insist else signal.SIGTERM)


def start(argv: Argv, folder: Path, result: str, environment: Mapping[str, str]) -> Background:
    """Start a program in a folder, its stdout in the file `result` there and its stderr behind what `log` has.

    Raises HostError when it is missing.
    """
    program = find(argv[0])
    if program is None:
        raise missing(argv[0])
    with (folder / "lock").open("wb") as lock, (folder / result).open("wb") as out, (folder / "log").open("ab") as log:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process = subprocess.Popen(
            [program, *argv[1:]],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
        )
    return Background(folder, process.pid, process)


def adopt(folder: Path) -> Background | None:
    """Return the program that an earlier process started in a folder; None where it has ended."""
    if not _is_locked(folder):
        return None
    lock = (folder / "lock").stat()
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        # no file says its number: who started it may have been killed before that could be written
        with contextlib.suppress(OSError):
            number = int(entry.parts[2])
            if os.path.samestat(entry.stat(), lock) and os.getsid(number) == number:
                return Background(folder, number)
    return None


def _is_locked(folder: Path) -> bool:
    """Return whether a program holds the lock of its folder."""
    try:
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def end_all() -> None:
    """Ask every process that other threads have started to end: for an interrupt, which the main thread alone gets."""
    for process in list(_running):
        _signal_group(process, signal.SIGTERM)


def interrupt_on_terminate() -> None:
    """Make SIGTERM (a batch system's, systemd's) end this program as Ctrl-C does: cleaned up, with its children."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def interrupt_once() -> list[str]:
    """Make the first SIGTERM or SIGUSR1 interrupt this program; later ones, and those to what it starts, do nothing.

    For a job: Slurm sends them more than once, to every process of it, and what is removed then has to go on being
    removed. Return the list that gets the signal's name.
    """
    came: list[str] = []
    numbers = (signal.SIGTERM, signal.SIGUSR1)

    def interrupt(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        came.append(signal.Signals(number).name)
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)
    return came


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off what would end this program (Ctrl-C, SIGTERM, a closed terminal) until the end of what is done here.

    For what may not be left in the middle, and takes seconds: a second Ctrl-C ends it all the same. Programs that are
    started meanwhile lead sessions of their own, which a terminal's Ctrl-C does not reach. For the main thread, which
    alone gets interrupts; in others it does nothing.
    """
    came: dict[int, None] = {}

    def note(number: int, _: object) -> None:
        if number in came:
            raise KeyboardInterrupt
        came[number] = None

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, note) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:  # the first may be one that is ignored
            signal.raise_signal(late)


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
    names = {number.value: number.name for number in signal.Signals}
    reason = f"exit code {returncode}" if returncode >= 0 else f"signal {names.get(-returncode, -returncode)}"
    tail = with_mark(list(lines)[-20:])
    return BuildError(f"{_short(argv)} failed ({reason}){tail}", next_step=f"try it by hand: {_short(argv, 2000)}")


class _Lines:
    """Cuts bytes into lines at \\n and \\r (progress bars), in any encoding."""

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
    **options: Any,  # noqa: ANN401
) -> Iterator[subprocess.Popen[bytes]]:
    """A program with a pipe as its stdout, waited for at the end; an exception ends its process group."""
    variables = settings.child_environment() if environment is None else dict(environment)
    program = argv[0] if "/" in argv[0] else find(argv[0])
    if program is None or not Path(program).exists():
        raise missing(argv[0])
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **options}
    # No option of a caller's may replace it: `uninterrupted` and `_end_group` count on it.
    with subprocess.Popen([program, *argv[1:]], env=variables, start_new_session=True, **options) as process:
        _running.add(process)
        try:
            yield process
        except subprocess.TimeoutExpired as error:
            _end_group(process)
            if isinstance(error, _Silence):
                raise SilenceError(
                    f"{_short(argv)} said nothing for {error.timeout:.0f} s and was ended",
                    cause="It hangs, or the machine has so little memory left that it does little but page.",
                    next_step=f"try it by hand: {_short(argv, 2000)}",
                ) from None
            raise BuildError(
                f"{_short(argv)} did not finish within {error.timeout:.0f} s and was ended",
                cause="The machine is much slower than expected, or the program waits for something.",
                next_step=f"try it by hand: {_short(argv, 2000)}",
            ) from None
        except BaseException:
            _end_group(process)
            raise
        finally:
            _running.discard(process)


def _follow(
    process: subprocess.Popen[bytes],
    feed: Callable[[bytes], None],
    timeout: float | None,
    silence: float,
    span: trace.Span | None = None,
) -> None:
    """Feed what it says until the process has ended, not waiting for a daemon that holds the pipe open."""
    heard = time.monotonic()
    deadline = heard + (math.inf if timeout is None else timeout)
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            ended = _has_ended(process) if span else process.poll() is not None
            if selector.select(POLL_SECONDS):
                data = os.read(process.stdout.fileno(), 1 << 16)
                heard = time.monotonic()
                feed(data)
                if not data:
                    break
            elif ended:
                feed(b"")
                break
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(process.args, timeout or 0)
            if time.monotonic() > heard + silence:
                raise _Silence(process.args, silence)
    if span:
        while not _has_ended(process) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        span.processor_seconds += trace.processor_seconds(process.pid)
    process.wait(None if timeout is None else max(deadline - time.monotonic(), 0))


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether it has ended; it is not waited for, so that /proc still has what it used."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # where SIGCHLD is ignored there is nothing to wait for
        return True


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


def _short(argv: Sequence[str], limit: int = 160) -> str:
    command = shlex.join(argv)
    return command if len(command) <= limit else command[: limit - 1] + "…"
