"""An engine's output while it builds: every line for the log, its steps for the eye, the last lines for an error."""

import re
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from graphcrate.host import process
from graphcrate.model.command import for_shell
from graphcrate.model.errors import BuildError
from graphcrate.model.words import visible, with_mark

LOG = "build.log"  #: in an order's folder
SHOWN_LINES = 20  #: in an error
KEPT_LINES = 200
_SHOWN = 110  #: characters of a step
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_COMPLAINT = re.compile(r"(?:FATAL|ERROR|Error)\s*:\s*(.*)")


@dataclass
class Output:
    """Takes a build's output line by line. `secrets` (passwords in addresses) appear nowhere."""

    log: TextIO
    note: Callable[[str], None]
    steps: re.Pattern[str]  #: a line with which a step begins; its groups name the step
    prefix: str
    secrets: Collection[str] = ()
    step: str = ""  #: the latest
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    _noted: set[str] = field(default_factory=set)

    def line(self, line: str) -> None:
        """Take one line."""
        line = COLOUR.sub("", line)
        for secret in self.secrets:
            line = line.replace(secret, "***")
        self.log.write(f"{visible(line)}\n")
        self.log.flush()
        if line.strip():
            self.lines.append(line)
        if match := self.steps.fullmatch(line):
            step = " ".join(" ".join(filter(None, match.groups())).split())
            self.step = step if len(step) <= _SHOWN else f"{step[: _SHOWN - 1]}…"
            if step not in self._noted:  # BuildKit names some twice
                self._noted.add(step)
                self.note(f"{self.prefix} {self.step}")

    def failure(self, what: str, log: Path) -> BuildError:
        """The error of a build that failed: the step, the last lines, the engine's words, where the rest is."""
        where = f" at step {self.step}" if self.step else ""
        tail = with_mark(list(self.lines)[-SHOWN_LINES:])
        next_step = f"less {for_shell(log)}    has the whole output"
        return BuildError(f"{what} failed{where}{tail}", cause=last_word(self.lines), next_step=next_step)


def last_word(lines: Collection[str]) -> str:
    """Return the engine's own message in these lines: its last complaint, else the last line."""
    texts = [text for line in lines if (text := COLOUR.sub("", line).strip())]
    complaints = [match[1] for text in texts if (match := _COMPLAINT.match(text))]
    return (complaints or texts or [""])[-1]


def ends_with_us() -> tuple[str, ...]:
    """Return the prefix of an engine's command that asks it to end even when we are killed."""
    return ("setpriv", "--pdeathsig", "TERM", "--") if process.find("setpriv") else ()
