"""Waiting for another run of graphcrate, with a word about it: a command that says nothing looks as if it hung."""

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 2.0  #: seconds of waiting that are not reported
_AGAIN = 60.0  #: seconds between two lines
_LOOK = 0.05
_LOCKS = Path("/proc/locks")


def until(acquired: Callable[[], bool], path: Path, what: str) -> None:
    """Return once `acquired` gives True; say on stderr what is waited for, and which process has the lock `path`."""
    start = time.monotonic()
    reported = start + PATIENCE - _AGAIN
    while not acquired():
        now = time.monotonic()
        if now - reported >= _AGAIN:
            reported = now
            passed = f", {now - start:.0f} s so far" if now - start > _AGAIN else ""
            sys.stderr.write(f"waiting for {_who(path)}, which {what}{passed} ({path})\n")
        time.sleep(_LOOK)


def _who(path: Path) -> str:
    """Name the process that holds a file's lock, where the kernel says so: one of another container has no number."""
    try:
        status = path.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        held = re.search(rf"^\d+: (?:FLOCK|POSIX|OFDLCK) .* (\d+) {device} ", _LOCKS.read_text(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        held = None
    return f"another run of graphcrate (process {held[1]})" if held and held[1] != "0" else "another run of graphcrate"
