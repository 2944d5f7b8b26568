"""What the program in the sandbox says, for eyes: one line now and then, how many files of how many."""

import json
from collections import deque
from collections.abc import Sequence

from graphcrate.host import settings
from graphcrate.host.progress import Progress
from graphcrate.inputs.extensions.diagnosis import first_error

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
        self.failed = ""  #: name of the package
        self.source = ""  #: the file that failed
        self.log = ""  #: what its compiler said, as the program names it
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
        elif event == "compiled":
            self._done += 1
            self._finished += message["weight"]
            self._show()
        elif event == "slower" and name not in self._slower:
            self._slower.add(name)
            self._progress.note(
                f"compiling: {name} wants more than the small headers, in {source} at least; what does gets torch's "
                f"own and takes longer ({first_error(message['said'])})"
            )
        elif event == "fewer":
            self._progress.note(
                f"compiling: the kernel ended a compiler for want of memory; from here {message['jobs']} at a time, "
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
            left = (now - self._begin) * (self._weight - self._finished) / self._finished if self._finished else 0
            about = "" if last or not left else f", about {left:.0f} s left"
            self._progress.note(f"compiling {self._names}: {self._done}/{self._total} files{about}")
