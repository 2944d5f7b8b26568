"""Runs pip inside the sandbox of a build, and ends what a back-end leaves behind: a program of the build's own Python.

pip reads what a back-end says to the end of the pipe. Processes that the back-end has left, and that hold it, would
have it wait for as long as the build may take, although nothing is built any more.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LEFT_SECONDS = 5.0  #: for what is left to end by itself
_PR_SET_CHILD_SUBREAPER = 36  #: prctl(2): whoever loses its parent becomes our child
_POLL_SECONDS = 0.2


def parents() -> dict[int, int]:
    """Each process that has not ended → its parent (proc(5), stat)."""
    tree = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):  # it has ended meanwhile
            continue
        if state not in "ZX":
            tree[int(path.parent.name)] = int(parent)
    return tree


def left_behind(tree: dict[int, int], own: int, front_end: int) -> list[int]:
    """Processes that lost their parents, where the front end waits for nobody else; empty while it does."""
    if front_end in tree.values():
        return []
    return [number for number, parent in tree.items() if parent == own and number != front_end]


def main(words: list[str]) -> int:
    """Run pip with these words; its exit code."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    process = subprocess.Popen([sys.executable, "-m", "pip", *words])
    since = None
    while process.poll() is None:
        time.sleep(_POLL_SECONDS)
        left = left_behind(parents(), os.getpid(), process.pid)
        since = (since or time.monotonic()) if left else None
        if since is not None and time.monotonic() - since > LEFT_SECONDS:
            for number in left:
                os.kill(number, signal.SIGKILL)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
