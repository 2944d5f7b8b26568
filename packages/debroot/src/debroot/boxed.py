"""Programs run in a tree by nsbox, a program of its own: what `debroot.install` calls on the command line."""

import importlib.util
import subprocess
import sys
from collections import deque

from debroot.errors import DebrootError
from debroot.install import Ended, Program

_KEPT = 50  #: lines of output that an error may show
_NOT_STARTED = 125  #: nsbox's exit code where nothing was run


def command_line(program: Program) -> list[str]:
    """The command line of nsbox for a program. Raises DebrootError for a path that it cannot name."""
    argv = [sys.executable, "-m", "nsbox", "--write", "--set-user-id"]
    for name, value in program.environment.items():
        argv += ["--env", f"{name}={value}"]
    for source, target, is_read_only in program.binds:
        if ":" in f"{source}{target}":
            raise DebrootError(f"{source} has a colon, which ends a path for nsbox", next_step="name another folder")
        argv += ["--bind", f"{source}:{target}:{'ro' if is_read_only else 'rw'}"]
    return [*argv, "--", str(program.root), *program.argv]


def run(program: Program) -> Ended:
    """Run a program to its end. Raises DebrootError where nothing can be isolated, or without nsbox."""
    if importlib.util.find_spec("nsbox") is None:
        raise DebrootError(
            "nsbox is not installed: packages are set up in a sandbox", next_step="install nsbox beside debroot"
        )
    lines: deque[str] = deque(maxlen=_KEPT)
    with subprocess.Popen(
        command_line(program), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        for line in process.stdout or ():
            text = line.decode("utf-8", "replace").rstrip("\n")
            lines.append(text)
            program.on_line(text)
    if process.returncode == _NOT_STARTED:
        raise DebrootError("packages cannot be set up: " + " ".join(line.strip() for line in lines))
    return Ended(process.returncode, tuple(lines))
