"""Measures the README's two commands as a newcomer meets them: `python -m bench.first_commands [REVISION ...]`.

Each command runs in a fresh clone of the revision (HEAD if none is named) with an empty home and empty caches, one
after the other. What apt-get has installed on this machine stays. Ten minutes for HEAD, 25 GB of disk; name an older
revision first to compare in one run. Writes the section `commands` of docs/performance.md.
"""

import argparse
import os
import subprocess
import sys
import time

from bench.main_job import working_folder
from bench.page import ROOT, Section, machine, say, today
from graphcrate.host.context import Context

SECTION = Section("commands", "bench/first_commands.py")
#: command → the goal in seconds, on two idle cores
COMMANDS = {"make image CUDA=11.8": 240, "make test": 300}
#: of this process's environment, what a newcomer needs to reach the network and their wheels
KEPT = ("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "PIP_CERT", "PIP_INDEX_URL", "PIP_FIND_LINKS", "http_proxy")
KEPT += ("https_proxy", "no_proxy")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("revisions", nargs="*", default=["HEAD"], help="commits, the oldest first")
    options.add_argument("--only", choices=list(COMMANDS), action="append", help="not both commands")
    given = options.parse_args()
    rows = []
    for revision in given.revisions:
        commit = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", revision], text=True).strip()
        for command in given.only or COMMANDS:
            say(f"{command} of {commit}")
            seconds, busy = first(command, commit)
            rows.append(f"| `{command}` | {commit} | {seconds:.0f} s | {busy:.0f} s | {COMMANDS[command]} s |\n")
    SECTION.write(
        f"{today()}, each once, {machine(Context.here(), on_gpu=False)}.\n\n"
        "| first command | commit | wall time | processor time | goal, on two idle cores |\n|---|---|---|---|---|\n"
        + "".join(rows)
    )


def first(command: str, commit: str) -> tuple[float, float]:
    """Wall and processor seconds of a command in a new clone; ends the bench where it fails."""
    with working_folder(None) as folder:
        (folder / "home").mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "project")], check=True)
        subprocess.run(["git", "-C", str(folder / "project"), "checkout", "--quiet", commit], check=True)
        environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"HOME": str(folder / "home")}
        os.sync()  # what the run before left to be written is not this one's
        begin = time.monotonic()
        process = subprocess.Popen(command.split(), cwd=folder / "project", env=environment, stdout=sys.stderr)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{command} ended with {process.returncode}")
        return seconds, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
