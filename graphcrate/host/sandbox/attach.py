"""Programs that a user talks to: they get this process's own stdin, stdout, stderr and terminal."""

import contextlib
import getpass
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from graphcrate.host import process, settings
from graphcrate.host.arguments import Argv


def run(argv: Argv, *, descriptors: Sequence[int] = (), environment: Mapping[str, str] | None = None) -> int:
    """Run a program to its end; its exit code, -N after signal N. It gets `descriptors` open, under the same numbers.

    Ctrl-C at the terminal comes to the program too, and what follows is the program's to say, as in a shell. It starts
    with SIGINT ignored. SIGTERM, or SIGINT without a terminal, ends it. `environment`: else what all children get.
    For the main thread.
    """
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        variables = settings.child_environment() if environment is None else environment
        with subprocess.Popen(argv, env=variables, pass_fds=tuple(descriptors)) as program:
            if not any(os.isatty(descriptor) for descriptor in (0, 1, 2)):
                signal.signal(signal.SIGINT, handler)
            try:
                return program.wait()
            except BaseException:
                program.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(process.GRACE_SECONDS)
                program.kill()
                raise
    finally:
        signal.signal(signal.SIGINT, handler)


def has_terminal() -> bool:
    """Return whether both ends of a program that a user talks to are at a terminal."""
    return os.isatty(0) and os.isatty(1)


def ask_password(prompt: str) -> str | None:
    """Ask the user; None where there is no terminal to type at, or the user gives up."""
    try:
        return getpass.getpass(prompt) if sys.stdin.isatty() else None
    except EOFError:
        return None
