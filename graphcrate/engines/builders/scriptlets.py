"""What Apptainer says while it builds: its steps for the eye, every line for the log, the last ones for an error.

The engine names sections ("Running post scriptlet"); in them a shell names each command before it runs it (`+ …`).
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TextIO

from graphcrate.engines.apptainer import last_word, plain
from graphcrate.model.errors import BuildError

KEPT_LINES = 20
_SHOWN = 110  #: characters of a command
_INFORMED = re.compile(r"INFO:\s+(.*)")
_COMPLAINED = re.compile(r"(?:FATAL|ERROR)\s*:")
_SECTION = re.compile(r"Running (setup|post|test) ?script(?:let)?")
#: commands that are over at once and say little
_DULL = re.compile(r"(?:\[|:|cd|export|set|true|umask)(?: |$)|[A-Za-z_][A-Za-z_0-9]*=")
_UNUSED = re.compile(r"To see mksquashfs output")


class Scriptlets:
    """Takes a build's output line by line. `say` hears of each step as it begins, and of how long it took."""

    def __init__(
        self,
        log: TextIO,
        say: Callable[[str], None],
        clock: Callable[[], float],
        *,
        prefix: str,
        stages: Sequence[str],
        secrets: Collection[str] = (),
    ) -> None:
        """`stages` as the definition names them. `secrets` (passwords in addresses) appear nowhere."""
        self._log, self._say, self._clock, self._prefix = log, say, clock, prefix
        self._stages, self._secrets = stages, secrets
        self._posts = 0  # how many stages have come to their %post
        self._section = ""
        self._began: float | None = None
        self.command = ""
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)  #: of the step that runs, without the engine's own
        self.last: deque[str] = deque(maxlen=10 * KEPT_LINES)  #: of any step

    def line(self, line: str) -> None:
        """Take one line."""
        line = plain(line)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        self._log.write(f"{line}\n")
        self._log.flush()
        self.last.append(line)
        if found := _INFORMED.match(line):
            self._inform(found[1])
        elif line.startswith("+ ") and self._section in ("setup", "post"):
            self._begin(line[2:])
        elif line.strip() and not _COMPLAINED.match(line):
            self.lines.append(line)

    def finish(self) -> None:
        """The output has ended."""
        self._end()

    @property
    def place(self) -> str:
        """The section and the stage that the build is in; empty outside of them."""
        if not self._section:
            return ""
        number = max(self._posts + (self._section == "setup"), 1)
        named = self._stages[number - 1] if number <= len(self._stages) else ""
        return f"%{self._section} of stage {named}" if named and self._section != "test" else f"%{self._section}"

    def failure(self, what: str, log: Path) -> BuildError:
        """The error of a build that failed: the step, its last lines, the engine's words, where the rest is."""
        message = last_word(self.last)
        where = f" in {self.place}" if self.place else ""
        where += f", at: {_short(self.command)}" if self.command else ""
        tail = "".join(f"\n    {line}" for line in self.lines)
        return BuildError(f"{what} failed{where}{tail}", cause=message, next_step=f"less {log}    has the whole output")

    def _inform(self, text: str) -> None:
        if _UNUSED.match(text):
            return
        self._end()
        self.lines.clear()
        self.command = ""
        section = _SECTION.match(text)
        self._section = section[1] if section else ""
        self._posts += self._section == "post"
        self._began = self._clock()
        self._say(f"{self._prefix} {self.place or text}")

    def _begin(self, command: str) -> None:
        self._end()
        self.lines.clear()
        self.command = command
        self._began = self._clock()
        if not _DULL.match(command):
            self._say(f"{self._prefix}   {_short(command)}")

    def _end(self) -> None:
        if self._began is not None and (seconds := self._clock() - self._began) >= 1:
            self._say(f"{self._prefix}   took {seconds:.1f} s")
        self._began = None


def _short(command: str) -> str:
    command = re.sub(r"\s+", " ", command).strip()
    return command if len(command) <= _SHOWN else f"{command[: _SHOWN - 1]}…"
