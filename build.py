#!/usr/bin/env python3
"""Calls graphcrate's command line in the project's own environment, which make prepares on the first call."""

import os
import sys

root = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - pathlib would be a third of the start-up time

if os.path.realpath(sys.prefix) != os.path.realpath(f"{root}/.venv"):
    if os.spawnlp(os.P_WAIT, "make", "make", "--silent", "-C", root, ".venv/ready-run"):
        sys.exit(7)
    python = f"{root}/.venv/bin/python"
    # -E -s: what environment modules leave in PYTHONPATH is not for us
    os.execv(python, [python, "-E", "-s", __file__, *sys.argv[1:]])

from graphcrate.cli import main  # noqa: E402

main()
