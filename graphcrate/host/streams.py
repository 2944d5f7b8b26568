"""The standard streams, whatever a user, a service or cron has started this program with."""

import contextlib
import io
import os
import sys
from typing import Any

_STREAMS = {0: ("stdin", "r"), 1: ("stdout", "w"), 2: ("stderr", "w")}


def prepare() -> None:
    """Open what is closed of descriptors 0, 1 and 2; let no full disk and no lost terminal behind stderr end the work.

    Before any other file is opened: it would get the number of the stream that is not there, and a child process would
    write into it. What goes to a closed stream goes nowhere, as with `>/dev/null`.
    """
    for number, (name, mode) in _STREAMS.items():
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(number, True)  # child processes expect theirs to be open, too
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")  # what the locale cannot write does not end a command
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_Forgiving(2, "w", closefd=False)),
            encoding=sys.stderr.encoding,
            errors="backslashreplace",
            line_buffering=True,
        )


def give_up_stdout() -> None:
    """Send what is still to be written to stdout nowhere: nobody reads it, or there is no room for it."""
    with contextlib.suppress(OSError, ValueError):  # or Python would try once more at its own end, and end with 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Forgiving(io.FileIO):
    """A file that loses what it has no room for. A reader who closes a pipe is still an error."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (a buffer; it has no name before Python 3.12)
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes
