"""spython's client for one program, with our own way to start it.

spython writes the command lines of `build`, `exec` and `inspect`, and reads what `inspect` prints. It always starts
the `singularity` of PATH, with all of our environment and in our folder, reads one pipe while the other one fills, and
waits without end; so what it would start goes through `host.process`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import spython.main
import spython.main.base
import spython.main.inspect
import spython.utils

from graphcrate.host import arguments, process
from graphcrate.host.process import Completed

SECONDS = 60  #: for `inspect`, which reads a few kilobytes


class SpythonClient(spython.main.base.Client):  # type: ignore[misc]
    """spython's client, whose commands `start` runs; `completed` is what became of the latest one."""

    #: spython would take them from the environment, and add options.
    quiet = debug = False
    completed: Completed

    def __init__(self, program: str, start: Callable[[Sequence[str]], Completed]) -> None:
        self._program, self._start = program, start

    def _init_command(self, action: str, flags: Sequence[str] | None = None) -> list[str]:
        return [self._program, *(flags or ()), action]

    def _run_command(self, cmd: Sequence[str], **_: object) -> Completed:
        self.completed = self._start(cmd)
        return self.completed


def _output_of(cmd: Sequence[str], **_: object) -> dict[str, Any]:
    """Return what `spython.utils.run_command` would. Raises BuildError with the engine's last lines."""
    return {"message": [process.output(arguments.line(*cmd), timeout=SECONDS)], "return_code": 0}


# spython has no method to override for these. Before each command it asks the `singularity` of PATH for its version,
# with no time limit, and ignores the answer.
spython.utils.check_install = spython.main.inspect.check_install = lambda: True
spython.main.inspect.run_command = _output_of
