"""Records what is read of an image while programs start: graphcrate/compat/data/read_set.toml.

    python -m tools.read_set REF [--run "import torch"]

Runs Python in the image, as `run` does, and asks what is in its memory then: modules in the order in which they were
imported, and of each library the pages that are there. Libraries that the record has, by their beginnings, are
replaced; small files are added after those that it has. Record where nothing else needs memory, and look at the
difference.
"""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphcrate.artifacts.formats import early
from graphcrate.artifacts.formats.early import UNIT, LibraryReads, Recorded
from sifsquash.packer import BLOCKS
from tools.generate import ROOT

RECORD = ROOT / "graphcrate" / "compat" / "data" / "read_set.toml"
PROGRAM = """
import torch
try:
    import torch_geometric.datasets, torch_geometric.loader, torch_geometric.nn
except ImportError:
    pass
"""
#: what the guest ends with: a page is in memory where bit 63 or 62 of its entry is set (proc_pid_pagemap(5))
_ASK = """
import hashlib, json, os, re, struct, sys
PAGE, libraries = 4096, {}
modules = [getattr(module, "__cached__", None) for module in list(sys.modules.values())]
small = [(path, os.path.getsize(path)) for path in modules if isinstance(path, str) and os.path.exists(path)]
with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb") as pages:
    for line in maps:
        found = re.match(r"(\\w+)-(\\w+) \\S+ (\\w+) \\S+ [1-9]\\d* +(/.*)", line)
        if not found or not os.path.isfile(found[4]):
            continue
        first, last, offset = (int(found[number], 16) for number in (1, 2, 3))
        pages.seek(first // PAGE * 8)
        here = struct.iter_unpack("<Q", pages.read((last - first) // PAGE * 8))
        units = libraries.setdefault(found[4], set())
        units.update((offset + number * PAGE) // UNIT for number, (entry,) in enumerate(here) if entry >> 62)
told = []
for path, units in libraries.items():
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if head.startswith(b"\\x7fELF"):
        told.append((path, os.path.getsize(path), hashlib.sha256(head).hexdigest(), sorted(units)))
print("recorded", json.dumps({"small": small, "libraries": told}))
"""
HEAD = """\
# What is read of an image while Python imports torch and PyG, for the writers of SIF and squashfs. Written by
# `python -m tools.read_set REF`. measured: `library`: by the SHA-256 of its first 64 KiB, the units of 128 KiB that
# were in memory then; `small`: files by folders, in the order in which they were read.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="NAME:TAG below dist/, or what else `run` takes")
    parser.add_argument("--run", default=PROGRAM, help="what Python does in the image")
    given = parser.parse_args()
    guest = f"{given.run}\nUNIT, HEAD = {UNIT}, {early.HEAD}\n{_ASK}"
    command = [sys.executable, "-m", "graphcrate.cli.main", "run", given.ref, "--", "python", "-B", "-c", guest]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("recorded "))
    RECORD.write_text(text(renewed(early.recorded(), json.loads(line.removeprefix("recorded ")))), "utf-8")


def renewed(record: Recorded, told: Mapping[str, Any]) -> Recorded:
    """Return the record with what a guest told."""
    least = min(BLOCKS.values())
    libraries = {library.head: library for library in record.library}
    small = [path for path, size in told["small"] if size < least]
    for path, size, head, units in told["libraries"]:
        if size < least:
            small.append(path)
        elif units:
            libraries[head] = LibraryReads(path.rpartition("/")[2], head, " ".join(_runs(units)))
    paths = dict.fromkeys([*record.ranks(), *(path.lstrip("/") for path in small)])
    return Recorded(tuple(sorted(libraries.values(), key=lambda each: (each.name, each.head))), tuple(_folders(paths)))


def _runs(numbers: Sequence[int]) -> Iterable[str]:
    """Yield runs of sorted numbers: "0-3", "7"."""
    for _, found in itertools.groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        run = [number for _, number in found]
        yield f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}"


def _folders(paths: Iterable[str]) -> Iterable[tuple[str, ...]]:
    """Yield folders with the names of files that follow one another."""
    for folder, found in itertools.groupby(paths, lambda path: path.rpartition("/")[0]):
        yield folder, *(path.rpartition("/")[2] for path in found)


def text(record: Recorded) -> str:
    """Return the text of the file."""
    lines = [f"    {json.dumps(list(names), ensure_ascii=False)}," for names in record.small]
    tables = [
        f"[[library]]\nname = {json.dumps(each.name)}\nhead = {json.dumps(each.head)}\nread = {json.dumps(each.read)}"
        for each in record.library
    ]
    return "\n".join([HEAD + "small = [", *lines, "]\n", "\n\n".join(tables)]) + "\n"


if __name__ == "__main__":
    main()
