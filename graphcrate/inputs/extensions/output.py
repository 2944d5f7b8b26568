"""Events of the program that compiles in the sandbox: progress for eyes, and which package failed at which file."""

import json
from collections import deque
from collections.abc import Sequence

from graphcrate.compat.failures.first_error import first_error
from graphcrate.host import settings
from graphcrate.host.progress import Progress

SECONDS = 20.0  #: between two lines


class Watcher:
    """Read the events that the program in the sandbox writes. Other lines (a traceback, a complaint) are strays."""

    def __init__(self, names: Sequence[str], progress: Progress) -> None:
        self._names, self._progress = ", ".join(names), progress
        self._uncounted, self._slower = set(names), set[str]()
        self._total = self._done = 0
        self._weight = self._finished = 0.0  #: of all files that are known, of those that are compiled
        self._begin = self._shown = settings.now()
        self.built: set[str] = set()
        self.weights = dict.fromkeys(names, 0.0)  #: of the files of each package
        self.failed = ""  #: name of the package
        self.source = ""  #: the file that failed
        self.log = ""  #: with its compiler's output, as the program names it
        self.strays: deque[str] = deque(maxlen=200)

    def read(self, line: str) -> None:
        """Read a line: an event as JSON, or a stray."""
        try:
            message = json.loads(line)
            event = message["event"]
        except (ValueError, TypeError, KeyError):
            self.strays.append(line)
            return
        name, source = message.get("package", ""), message.get("source", "")
        if event == "files":
            self._uncounted.discard(name)
            self._total += message["count"]
            self._weight += message["weight"]
            self.weights[name] = self.weights.get(name, 0.0) + message["weight"]
        elif event == "compiled":
            self._done += 1
            self._finished += message["weight"]
            self._show()
        elif event == "slower" and name not in self._slower:
            self._slower.add(name)
            self._progress.note(
                f"compiling: {name} needs more than the small headers, in {source} at least; what does gets torch's "
                f"own and takes longer ({first_error(message['output'])})"
            )
        elif event == "fewer":
            self._progress.note(
                f"compiling: the kernel ended a compiler for lack of memory; from here {message['jobs']} at a time, "
                f"and {source} again"
            )
        elif event == "built":
            self.built.add(name)
        elif event == "failed" and not self.failed:
            self.failed, self.source, self.log = name, source, message.get("log", "")

    def _show(self) -> None:
        now = settings.now()
        last = not self._uncounted and self._done == self._total
        if last or now - self._shown >= SECONDS:
            self._shown = now
            estimable = self._finished * 10 >= self._weight > 0  # before a tenth is done it would be a guess
            left = (now - self._begin) * (self._weight - self._finished) / self._finished if estimable else 0
            about = "" if last or not left else f", about {left:.0f} s left"
            self._progress.note(f"compiling {self._names}: {self._done}/{self._total} files{about}")
