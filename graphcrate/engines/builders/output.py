"""An engine's output while it builds: every line for the log, its steps for the eye, the last lines for an error."""

import re
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TextIO

from graphcrate.host import process
from graphcrate.model.errors import BuildError

LOG = "build.log"  #: in an order's folder
SHOWN_LINES = 20  #: in an error
KEPT_LINES = 200
_SHOWN = 110  #: characters of a step
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_COMPLAINT = re.compile(r"(?:FATAL|ERROR|Error)\s*:\s*(.*)")


class Output:
    """Takes a build's output line by line."""

    def __init__(
        self,
        log: TextIO,
        note: Callable[[str], None],
        step_of: Callable[[str], str],
        *,
        prefix: str,
        secrets: Collection[str] = (),
    ) -> None:
        """`step_of` a line: the step that begins with it, or "". `secrets` (passwords in addresses) appear nowhere."""
        self._log, self._note, self._step_of, self._prefix, self._secrets = log, note, step_of, prefix, secrets
        self._noted: set[str] = set()
        self.step = ""  #: the latest
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def line(self, line: str) -> None:
        """Take one line."""
        line = _COLOUR.sub("", line)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        self._log.write(f"{line}\n")
        self._log.flush()
        if line.strip():
            self.lines.append(line)
        if step := re.sub(r"\s+", " ", self._step_of(line)).strip():
            self.step = step if len(step) <= _SHOWN else f"{step[: _SHOWN - 1]}…"
            if step not in self._noted:  # BuildKit names some twice
                self._noted.add(step)
                self._note(f"{self._prefix} {self.step}")

    def complaint(self) -> str:
        """The engine's own message: its last error, else the last line."""
        found = [match[1] for line in self.lines if (match := _COMPLAINT.match(line.strip()))]
        return (found or list(self.lines) or [""])[-1]

    def failure(self, what: str, log: Path) -> BuildError:
        """The error of a build that failed: the step, the last lines, the engine's words, where the rest is."""
        where = f" at step {self.step}" if self.step else ""
        tail = "".join(f"\n    {line}" for line in list(self.lines)[-SHOWN_LINES:])
        next_step = f"less {log}    has the whole output"
        return BuildError(f"{what} failed{where}{tail}", cause=self.complaint(), next_step=next_step)


def ends_with_us() -> tuple[str, ...]:
    """What to write before an engine's command, so that it is asked to end even when we are killed."""
    return ("setpriv", "--pdeathsig", "TERM", "--") if process.find("setpriv") else ()
