"""The standard streams, as a user, a service or cron may have started this program with.

All that goes to a terminal goes through here: characters that would speak to it are made visible (`words.visible`),
but for those by which our own tables, bars and colours are drawn.
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any, TextIO

from graphcrate.model.words import visible

if TYPE_CHECKING:
    from rich.console import Console

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
    for name in ("stdout", "stderr"):
        if not isinstance(stream := getattr(sys, name), _Visible):
            setattr(sys, name, _Visible(stream))


def write_utf8() -> None:
    """Write stdout in UTF-8 from here on, as JSON is, in any locale."""
    stream = sys.stdout.stream if isinstance(sys.stdout, _Visible) else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8")


def console(**options: Any) -> "Console":  # noqa: ANN401 (rich's own)
    """Return a console of rich's, whose texts are made visible; what it moves and colours itself is as it is.

    rich takes some 40 ms to load, so who needs none does without.
    """
    from rich.console import Console
    from rich.segment import Segment

    class VisibleConsole(Console):
        @property
        def file(self) -> IO[str]:
            # While bars are shown rich stands between us and the stream, and gives ours as that behind it.
            stream = super().file
            return stream.stream if isinstance(stream, _Visible) else stream

        @file.setter
        def file(self, new_file: IO[str]) -> None:
            self._file = new_file

        def on_broken_pipe(self) -> None:
            # rich would end the program with 1, which says that an image is not right.
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

        def _render_buffer(self, buffer: Iterable[Segment]) -> str:
            shown = (each if each.control else Segment(visible(each.text), each.style) for each in buffer)
            return super()._render_buffer(shown)

    return VisibleConsole(**options)


def give_up_stdout() -> None:
    """Discard further output to stdout: its reader is gone, or its disk is full."""
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


class _Visible:
    """A text stream that makes what is written to it visible. `rich_proxied_file`: where rich writes instead."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (all else is the stream's own)
        return getattr(self.stream, name)
