"""Measures the README's two commands as a newcomer meets them: `python -m bench.first_commands [REVISION ...]`.

Each command runs in a fresh clone of the revision (HEAD if none is named) with an empty home and empty caches, one
after the other. What apt-get has installed on this machine stays. Ten minutes for HEAD, 25 GB of disk; name an older
revision first to compare in one run. Writes the section `commands` of docs/performance.md.
"""

import argparse

from bench.clones import clone, short, take
from bench.page import Section, machine, say, today
from graphcrate.host.context import Context

SECTION = Section("commands", "bench/first_commands.py")
#: command → the goal in seconds, on two idle cores
COMMANDS = {"make image CUDA=11.8": 240, "make test": 300}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("revisions", nargs="*", default=["HEAD"], help="commits, the oldest first")
    options.add_argument("--only", choices=list(COMMANDS), action="append", help="not both commands")
    given = options.parse_args()
    rows = []
    for revision in given.revisions:
        commit = short(revision)
        for command in given.only or COMMANDS:
            say(f"{command} of {commit}")
            with clone(commit) as folder:
                taken = take(folder, command.split())
            rows.append(f"| `{command}` | {commit} | {taken.wall:.0f} s | {taken.processor:.0f} s |\n")
    SECTION.write(
        f"{today()}, each once, {machine(Context.here(), on_gpu=False)}. "
        f"Goals: {' and '.join(f'{goal} s' for goal in COMMANDS.values())}.\n\n"
        "| first command | commit | wall | processor |\n|---|---|---|---|\n" + "".join(rows)
    )


if __name__ == "__main__":
    main()
