"""Write dist/docs/faults.md from what a run of all rows recorded: python -m tests.faults.page FOLDER."""

import importlib
import json
import os
import sys
import textwrap
from pathlib import Path

from tests import ROOT
from tests.faults.rows import ALL, GROUPS, ROWS

PAGE = ROOT / "dist" / "docs" / "faults.md"
MODULES = ("wheels", "layers", "network", "host", "killed", "streams", "same")
HEAD = """# Faults
What happens to graphcrate on machines and networks that fail. Each row is a real run of the command line against real
bytes: an image of 13 MB whose base has a Python, built without a daemon, from a registry and a package index on the
same machine. `make faults` runs them all and writes this page; {form}.

A fault is survived when nothing is wrong or lost: the same command ends well afterwards with the same digest, no tag
names a blob that is missing, no half-written file, mount or process is left, and a failure is one sentence with its
next step and an exit code of its own ([list](../../docs/settings.md)). The last column: seconds of the slowest command
that ended well, which has made up for the fault, on {cores} cores with a load of {load:.0f} (in the quarter of an hour
before the end; two of it are the run's own).
"""
FORM = {False: "`FAULTS=all` is the longer form", True: "this is its longer form, `FAULTS=all`"}


def notes():
    """The text below a heading, by the group."""
    from tests.faults.test_same import FACTORS

    drawn = "; ".join(f"{name}: {', '.join(values)}" for name, values in FACTORS.items())
    return {
        "Base and layers": "Debian's packages count only if Debian has signed for their hash: no hostile one gets to "
        "the command line. Unit tests and `make fuzz` read such ones. They begin with a small corpus, which is kept as "
        "text (deflated, in base 85) so that a change of it is a line of a diff.",
        "Same bytes": f"A mix has one value of each of these, each as often as the others. {drawn}. In a run that "
        "decides on a change there are two mixes of each Python, with `FAULTS=all` there are 25.",
    }


def load():
    """Every row, in the order of the page."""
    for name in MODULES:
        importlib.import_module(f"tests.faults.test_{name}")
    return sorted(ROWS.items(), key=lambda item: GROUPS.index(item[1].group))


def text(records):
    """The page. `records`: what each row recorded, by its name."""
    parts, group = [HEAD.format(form=FORM[ALL], cores=os.cpu_count(), load=os.getloadavg()[2])], ""
    for name, row in load():
        if row.group != group:
            group = row.group
            note = f"{textwrap.fill(notes()[group], 120)}\n\n" if group in notes() else ""
            parts.append(
                f"\n## {group}\n{note}| fault | what was done | how it ended | seconds |\n| --- | --- | --- | --- |\n"
            )
        seconds = records[name]["seconds"]
        cells = (row.fault, row.done, records[name]["how"], "" if seconds is None else f"{seconds:.1f}")
        parts.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n")
    return "".join(parts)


def main(folder):
    told = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    records = {one["name"]: one for one in told}
    if missing := sorted({name for name, _ in load()} - set(records)):
        sys.exit(f"no record of {', '.join(missing)}: {PAGE.name} is not written")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text(records), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: {len(records)} faults\n")


if __name__ == "__main__":
    main(sys.argv[1])
