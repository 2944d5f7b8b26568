"""Programs that a user talks to: they get this process's own stdin, stdout, stderr and terminal."""

import contextlib
import getpass
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from graphcrate.host import process, settings
from graphcrate.host.arguments import Argv
from graphcrate.model.errors import UsageError

_USUAL_PORTS = range(8888, 8988)  #: of Jupyter


def run(
    argv: Argv,
    *,
    descriptors: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    ends: Callable[[], bool] | None = None,
) -> int:
    """Run a program to its end; its exit code, -N after signal N. It gets `descriptors` open, under the same numbers.

    Ctrl-C at the terminal comes to the program too, and what follows is the program's to say, as in a shell. It starts
    with SIGINT ignored. SIGTERM, or SIGINT without a terminal, ends it. `environment`: else what all children get.
    `ends`: asked again and again; when it says so, the program is ended. For the main thread.
    """
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        variables = settings.child_environment() if environment is None else environment
        with subprocess.Popen(argv, env=variables, pass_fds=tuple(descriptors)) as program:
            if not any(os.isatty(descriptor) for descriptor in (0, 1, 2)):
                signal.signal(signal.SIGINT, handler)
            try:
                while ends is not None and not ends():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return program.wait(process.POLL_SECONDS)
                if ends is not None:
                    _end(program)
                return program.wait()
            except BaseException:
                _end(program)
                raise
    finally:
        signal.signal(signal.SIGINT, handler)


def _end(program: "subprocess.Popen[bytes]") -> None:
    program.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        program.wait(process.GRACE_SECONDS)
    program.kill()


def free_port(asked: int = 0) -> int:
    """Return a free port of loopback: the one asked for, else the first from 8888 on.

    Raises UsageError.
    """
    for port in (asked,) if asked else _USUAL_PORTS:
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise UsageError(f"port {asked or _USUAL_PORTS[0]} is in use", next_step="--jupyter 9000, or any other")


def has_terminal() -> bool:
    """Return whether both ends of a program that a user talks to are at a terminal."""
    return os.isatty(0) and os.isatty(1)


def ask_password(prompt: str) -> str | None:
    """Ask the user; None where there is no terminal to type at, or the user gives up."""
    try:
        return getpass.getpass(prompt) if sys.stdin.isatty() else None
    except EOFError:
        return None
