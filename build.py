#!/usr/bin/env python3
"""Calls graphcrate's command line in the project's own environment, which make prepares on the first call."""

import os
import sys


def start() -> None:
    """Find the Python to run with, and run."""
    for number in (0, 1, 2):  # what is closed would be the number of the next file; `host.streams` says more
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    root = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - pathlib would be a third of the start-up time

    python = f"{root}/.venv/bin/python"
    is_prepared = os.path.realpath(sys.prefix) == os.path.realpath(f"{root}/.venv")
    if sys.argv[1:2] == ["doctor"] and "--network" not in sys.argv:
        explains = any(word.startswith("--explain") for word in sys.argv)
        if explains and not is_prepared and os.access(python, os.X_OK):
            # the environment, where there is one, knows Debian's packages too
            code = os.spawnv(os.P_WAIT, python, [python, "-E", "-s", *sys.argv])
            if code not in (1, 19, 127):  # an environment that is broken, or another machine's
                sys.exit(code if code >= 0 else 128 - code)
        if not (explains and is_prepared):
            # looks at machines that may lack all that the environment needs, with the Python that is there
            sys.dont_write_bytecode = True
            from graphcrate.cli.diagnosis import main as look_around

            sys.exit(look_around(sys.argv[2:]))

    if not is_prepared:
        # a make that called us has flags and variables that are not for this one; stdout is for the result alone
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        quiet = ["make", "--silent", "--no-print-directory", "-C", root, ".venv/ready-run"]
        to_stderr = [(os.POSIX_SPAWN_DUP2, 2, 1)]
        try:
            made = os.posix_spawnp("make", quiet, environment, file_actions=to_stderr)
        except FileNotFoundError:  # make calls this
            program = f"{root}/tools/prepare"
            made = os.posix_spawn(program, [program, "run"], environment, file_actions=to_stderr)
        if os.waitpid(made, 0)[1]:
            sys.exit(7)
        # -E -s: what environment modules leave in PYTHONPATH is not for us
        os.execv(python, [python, "-E", "-s", *sys.argv])  # the path as it was typed: what is printed has it

    from graphcrate.model.command import is_upkeeps

    if is_upkeeps(sys.argv[1:]):
        from upkeep.__main__ import main
    else:
        from graphcrate.cli.start import main

    main()


if __name__ == "__main__":  # worker processes import this file, too
    start()
