"""Measures the loop on one's own code: `python -m bench.adding [--stack torch --cuda cpu] [PACKAGE ...]`.

A tested image of the stack is made first, in a folder of its own. Then each package is added to it, which ends with a
tested image (goal: 6 s of a pure one), and an edited program is run in it until its first line (goal: 1.5 s; the
import of torch comes beside). Goals are for two idle cores. What a cache knows of a package makes it faster: with
GRAPHCRATE_CACHE on an empty folder each is new.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

from bench.page import ROOT, machine, say, spread
from graphcrate.host.context import Context

PACKAGES = ["einops", "tabulate", "toolz"]  #: pure ones, that no stack has
ADDING, FIRST_LINE = 6.0, 1.5  #: goals in seconds
PROGRAM = """import time
first = time.time()
import torch
print(first, time.time(), "edit {edit}")
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("packages", nargs="*", default=PACKAGES, help="names on the package index")
    options.add_argument("--stack", default="torch")
    options.add_argument("--cuda", default="cpu")
    options.add_argument("--edits", type=int, default=5, help="how often the program is edited and run")
    given = options.parse_args()
    say(machine(Context.here(), on_gpu=False))
    with tempfile.TemporaryDirectory(prefix="bench-adding-") as folder:
        work = Path(folder)
        stack = ["image", given.stack, "--cuda", given.cuda, "--output", str(work / "dist"), "--quiet"]
        image, seconds = build(stack, work)
        say(f"the stack's image, tested: {seconds:.1f} s")
        for package in given.packages:
            image, seconds = build([*stack, "--with", package], work)
            say(f"{package} added, tested: {seconds:.1f} s (goal {ADDING} s)")
        first, imported = zip(*(edit_and_run(work, image, number) for number in range(given.edits + 1)), strict=True)
        # the first run unpacks the image
        say(f"edit to first line: {first[0]:.2f} s, then {spread(first[1:], 2)} s (goal {FIRST_LINE} s)")
        say(f"import of torch beside it: {imported[0]:.2f} s, then {spread(imported[1:], 2)} s")


def build(words: list[str], work: Path) -> tuple[str, float]:
    """Build an image; return its name and the seconds."""
    start = time.monotonic()
    done = subprocess.run([ROOT / "build.py", *words], cwd=work, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip().partition("@")[0], time.monotonic() - start


def edit_and_run(work: Path, image: str, edit: int) -> tuple[float, float]:
    """Save the program and run it; return the seconds to its first line, and those of its import."""
    (work / "train.py").write_text(PROGRAM.format(edit=edit), encoding="utf-8")
    start = time.time()
    words = [str(ROOT / "build.py"), "run", "--output", str(work / "dist"), image, "--", "python", "train.py"]
    done = subprocess.run(words, cwd=work, check=True, stdout=subprocess.PIPE, text=True)
    first, imported, *said = done.stdout.split()
    if said != ["edit", str(edit)]:
        raise SystemExit(f"another program ran: {done.stdout!r}")
    return float(first) - start, float(imported) - float(first)


if __name__ == "__main__":
    main()
