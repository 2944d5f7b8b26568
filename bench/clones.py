"""Runs a command as a newcomer does: in a fresh clone of a commit, with an empty home and little of the environment."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.main_job import working_folder
from bench.page import ROOT, say

#: of this process's environment, what a newcomer needs to reach the network and their wheels
KEPT = (
    *("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "PIP_CERT", "PIP_INDEX_URL", "PIP_FIND_LINKS"),
    *("http_proxy", "https_proxy", "no_proxy"),
)


class Taken(NamedTuple):
    """The time that a command took, in seconds."""

    wall: float
    processor: float  #: of all its processes


def short(revision: str) -> str:
    """The commit that a revision is, as tables name it."""
    return subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", revision], text=True).strip()


@contextmanager
def clone(commit: str) -> Iterator[Path]:
    """A folder with a clone of a commit in `project`, to be the home of who builds."""
    with working_folder(None) as folder:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "project")], check=True)
        subprocess.run(["git", "-C", str(folder / "project"), "checkout", "--quiet", commit], check=True)
        yield folder


def take(folder: Path, command: Sequence[str], variables: Mapping[str, str] | None = None) -> Taken:
    """Run a command in a clone, and measure it. Ends the bench where it fails."""
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {"HOME": str(folder), **(variables or {})}
    say(" ".join(command))
    os.sync()  # what was left to be written is not this one's
    begin = time.monotonic()
    process = subprocess.Popen(command, cwd=folder / "project", env=environment, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return Taken(wall, usage.ru_utime + usage.ru_stime)
