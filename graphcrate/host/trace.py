"""A trace of what a command does and when: GRAPHCRATE_TRACE=FILE, which Perfetto and chrome://tracing open.

The file is the JSON array of the Trace Event Format, a line for each event, appended when the event ends; worker
processes append to it too. What was killed leaves an array without its end, which both of those read.
"""

import contextlib
import contextvars
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from graphcrate.host import defects
from graphcrate.model.errors import UsageError

VARIABLE = "GRAPHCRATE_TRACE"
_TICKS = os.sysconf("SC_CLK_TCK")

_path: Path | None = None
_began = 0  #: microseconds of the monotonic clock, which all processes of a machine share


@dataclass
class Span:
    """A span of work. `bytes` and `processor_seconds` may be added to until it ends."""

    bytes: int = 0
    processor_seconds: float = 0.0


_current: contextvars.ContextVar[Span | None] = contextvars.ContextVar("span", default=None)


def begin(environment: Mapping[str, str], typed: list[str]) -> None:
    """Begin the file that the environment names; nothing without one. Raises UsageError where it cannot be written.

    Commands of ours that this one starts (`update`, jobs of Slurm) do not get the variable: each would begin the file.
    """
    global _path, _began  # the whole process has one trace, as it has one stderr
    if not (name := environment.get(VARIABLE, "")):
        return
    os.environ.pop(VARIABLE, None)
    path = Path(name).absolute()
    try:
        path.write_text("[\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the trace cannot be written to {path}: {error.strerror}",
            cause=f"{VARIABLE} names a file, which this command writes what it does to.",
            next_step=f"export {VARIABLE}=/tmp/trace.json; or: unset {VARIABLE}",
        ) from error
    _path, _began = path, _now()
    _append({"ph": "M", "name": "process_name", "args": {"name": defects.redacted(" ".join(["graphcrate", *typed]))}})


def path() -> Path | None:
    """The file of the trace; None without one."""
    return _path


def so_far() -> bytes:
    """The events until now, as a whole array; empty without a trace."""
    if _path is None:
        return b""
    try:
        return _path.read_bytes().rstrip(b",\n") + b"\n]\n"
    except OSError:
        return b""


def join(path: Path | None) -> None:
    """Let this worker process append to its parent's trace."""
    global _path
    _path = path
    if path is not None:
        _append({"ph": "M", "name": "process_name", "args": {"name": "worker"}})


@contextlib.contextmanager
def span(name: str) -> Iterator[Span]:
    """Trace what is done in the block. Processor seconds are its own thread's, and what is added to the span."""
    made = Span()
    if _path is None:
        yield made
        return
    start, used = _now(), time.thread_time()
    outer = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(outer)
        seconds = round(time.thread_time() - used + made.processor_seconds, 3)
        more = {"bytes": made.bytes} if made.bytes else {}
        _append(
            {
                "ph": "X",
                "name": name,
                "ts": start,
                "dur": _now() - start,
                "args": {"processor_seconds": seconds, **more},
            }
        )


def current() -> Span | None:
    """Return this thread's innermost span; None without a trace. Who starts threads for it adds what they take."""
    return _current.get()


def note(message: str) -> None:
    """Trace a line that the user sees."""
    if _path is not None:
        _append({"ph": "i", "s": "p", "name": message, "ts": _now()})


def end() -> None:
    """End the array, with one event for the whole command: processor seconds of it and of all that it started."""
    global _path
    if _path is None:
        return
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = round(sum(each.ru_utime + each.ru_stime for each in used), 3)
    args = {"processor_seconds": seconds}
    _append({"ph": "X", "name": "all", "ts": _began, "dur": _now() - _began, "args": args}, last=True)
    _path = None


def processor_seconds(pid: int) -> float:
    """Of a process that has ended and was not waited for yet, with all that it waited for; 0 where that is not known.

    Its line of /proc/PID/stat (proc(5)): after the name in brackets, fields 14 to 17 in clock ticks.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS
    except (OSError, ValueError):
        return 0.0


def _now() -> int:
    return time.monotonic_ns() // 1000


def _append(event: Mapping[str, object], *, last: bool = False) -> None:
    """Append a line in one call, so that lines of several processes do not mix. What cannot be written ends nothing."""
    global _path
    assert _path is not None
    whole = {"pid": os.getpid(), "tid": threading.get_native_id(), "cat": "graphcrate", **event}
    line = json.dumps(whole, ensure_ascii=False) + ("\n]\n" if last else ",\n")
    try:
        handle = os.open(_path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        with os.fdopen(handle, "wb", buffering=0) as file:
            file.write(line.encode(errors="replace"))
    except OSError as error:
        sys.stderr.write(f"the trace {_path} is not continued: {error.strerror}\n")
        _path = None
