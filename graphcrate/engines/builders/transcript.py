"""What an engine says while it builds: its steps for the eye, every line for the log, the last ones for an error.

Three dialects: classic Docker (`Step 3/9 : RUN …`), BuildKit (`#7 [build 2/4] RUN …`, steps side by side) and buildah
(`[1/2] STEP 3/9: RUN …`).
"""

import re
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from graphcrate.model.errors import BuildError

KEPT_LINES = 20
_SHOWN = 110  #: characters of an instruction
#: the steps' names are the engines', their numbers too
_CLASSIC = re.compile(r"Step (\d+/\d+) : (.*)")
_BUILDAH = re.compile(r"((?:\[\d+/\d+\] )?)STEP (\d+/\d+): (.*)")
_BUILDKIT = re.compile(r"#(\d+) (.*)")
_VERTEX = re.compile(r"\[([^\]]*\d+/\d+|internal)\] (.*)")
_OUTPUT = re.compile(r"\d+\.\d+ (.*)")  #: BuildKit puts seconds before what a command says
_IMAGE = re.compile(r"\s*-{2,3}> (?:Using cache )?([0-9a-f]{8,64})")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  #: classic Docker prints stderr in red
_CODE = re.compile(r"(?:non-zero code|exit code|exit status):? (\d+)")
_CONTAINER = re.compile(r"\s*---> Running in ([0-9a-f]{12,64})")


@dataclass
class Step:
    """One instruction as the engine works on it. `number` as the engine counts ("3/9", "build 2/4")."""

    number: str
    instruction: str
    start: float
    failed: bool = False
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    def __str__(self) -> str:
        instruction = re.sub(r"\s+", " ", self.instruction.replace("\\\n", " ")).strip()
        return f"{self.number} {instruction if len(instruction) <= _SHOWN else instruction[: _SHOWN - 1] + '…'}"


class Transcript:
    """Takes a build's output line by line. `say` hears of each step when it begins and when it took a second."""

    def __init__(
        self,
        log: TextIO,
        say: Callable[[str], None],
        clock: Callable[[], float],
        *,
        prefix: str,
        secrets: Collection[str] = (),
    ) -> None:
        """`prefix`, the engine's command, begins what is said. `secrets` (passwords in addresses) appear nowhere."""
        self._log, self._say, self._clock, self._prefix = log, say, clock, prefix
        self._secrets = secrets
        self._rest = ""
        self._steps: dict[str, Step] = {}  # BuildKit's, by vertex
        self.step: Step | None = None  #: the latest
        self.images: list[str] = []  #: ids that steps ended with, cached ones too
        self.containers: list[str] = []  #: ids that steps ran in
        self.last: deque[str] = deque(maxlen=KEPT_LINES)  #: what belongs to no step of BuildKit's

    def feed(self, text: str) -> None:
        """Take any piece of the output."""
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines:
            self.line(line)

    def finish(self) -> None:
        """The output has ended."""
        if self._rest:
            self.feed("\n")
        self._done(self.step if not self._steps else None)

    def line(self, line: str) -> None:
        """Take one line."""
        line = self._clean(line)
        self._log.write(f"{line}\n")
        self._log.flush()
        if found := _BUILDKIT.fullmatch(line):
            self._vertex(found[1], found[2])
            return
        if found := _CLASSIC.fullmatch(line):
            self._begin(found[1], found[2])
        elif found := _BUILDAH.fullmatch(line):
            self._begin(f"{found[1]}{found[2]}", found[3])
        elif found := _CONTAINER.match(line):
            self.containers.append(found[1])
        elif line.startswith("Removing intermediate container "):
            return
        elif found := _IMAGE.match(line):
            self.images.append(found[1])
        elif line.strip():
            self.last.append(line)
            if self.step is not None and not self._steps:
                self.step.lines.append(line)

    def _clean(self, line: str) -> str:
        line = _COLOUR.sub("", line)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line

    def _begin(self, number: str, instruction: str) -> None:
        self._done(self.step)
        self.step = Step(number, instruction, self._clock())
        self._say(f"{self._prefix} {self.step}")

    def _done(self, step: Step | None) -> None:
        if step is not None and (seconds := self._clock() - step.start) >= 1:
            self._say(f"{self._prefix} {step.number} took {seconds:.1f} s")

    def _vertex(self, key: str, text: str) -> None:
        """A line of BuildKit. A vertex is named before it says anything; some are named twice."""
        if (step := self._steps.get(key)) is None:
            if found := _VERTEX.fullmatch(text):
                step = self._steps[key] = Step(found[1], found[2], self._clock())
                self.step = step
                if step.number != "internal":
                    self._say(f"{self._prefix} {step}")
            return
        if found := _OUTPUT.fullmatch(text):
            step.lines.append(found[1])
            self.step = step
        elif text.startswith("DONE ") and step.number != "internal":
            self._done(step)
        elif text.startswith("ERROR"):
            step.lines.append(text)
            step.failed = True

    def failure(self, what: str, message: str, log: Path) -> BuildError:
        """The error of a build that failed with this message: the step, its last lines, where the rest is."""
        step = next((step for step in self._steps.values() if step.failed), self.step)
        if self._steps and step is not None and not step.failed:
            step = None  # BuildKit failed before or after all steps
        lines = list(step.lines if step is not None else self.last)
        where = f" at step {step}" if step is not None else ""
        tail = "".join(f"\n    {line}" for line in lines[-KEPT_LINES:])
        message = self._clean(message)
        if step is not None and (found := _CODE.search(message)):
            message = f"The command ended with exit code {found[1]}."
        cause, next_step = message, f"less {log}    has the whole output"
        if step is not None and (image := missing_base(step)):
            cause = f"The base image {image} cannot be had: {message}"
            next_step = f"{self._prefix} pull {image}    shows why (no such image, no network, a login); " + next_step
        return BuildError(f"{what} failed{where}{tail}", cause=cause, next_step=next_step)


def missing_base(step: Step) -> str:
    """The image that a failed step could not get; empty if it was another kind of step."""
    if step.number == "internal" and step.instruction.startswith("load metadata for "):
        return step.instruction.removeprefix("load metadata for ")
    words = step.instruction.split()
    return words[1] if len(words) > 1 and words[0].upper() == "FROM" else ""
