"""Measures what each step of a first image costs: `python -m bench.steps [REVISION ...]`, by `GRAPHCRATE_TRACE`.

Builds `pyg` for CUDA 11.8 in a fresh clone of each revision (HEAD~1 and HEAD if none is named) with an empty cache, one
after the other, then the same image again and a SIF of it, and in another clone one without extensions: an hour, 20 GB
of disk. `--trace COMMIT=FILE` takes a trace that is there instead, for the steps alone. Writes the section `steps` of
docs/performance.md.
"""

import argparse
import json
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.clones import clone, short, take
from bench.page import Section, machine, today
from graphcrate.host.context import Context

SECTION = Section("steps", "bench/steps.py")
COMMAND = ("make", "image", "CUDA=11.8")
COMPILERS, REST, ALL = "compilers, for four extensions", "all else", "all"
#: a step, and how the names of its events begin; no event has another of these in it
STEPS: Mapping[str, tuple[str, ...]] = {
    COMPILERS: ("sandbox: python -s worker.py",),
    "the image's suites": ("sandbox: python dna.py", "sandbox: python ops.py", "sandbox: python ddp.py"),
    "dpkg, in the base and that with a compiler": ("sandbox: sh -c debs",),
    "layers written": ("Workshop.write",),
    "wheels unpacked to compile against": ("unpack_wheel",),
    "bytecode": ("sandbox: python3", "Workshop.compile", "Workshop.inspect"),
    "downloads": ("fetch ",),
    "sdists, nvcc --version, first import of what was compiled": (
        *("sandbox: python -m pip", "sandbox: sh -ec nvcc", "sandbox: python -s trial.py"),
    ),
}


_DOWNLOADS = re.compile(r"fetching \d+ files.*|\w+ \w+: \d+ packages")
FIRST, WITHOUT, AGAIN = "the first image", "the first one, `EXTENSIONS=none`", "the same image again, the least of 5"
SIF_WITHOUT = "the first SIF, `EXTENSIONS=none`"
SIF, SIF_ZSTD = "`make sif` of it", "`make sif COMPRESSION=zstd` of it"
MOST, END = "disk, the most", "disk, at the end"
#: what is measured, with the goal: seconds on two idle cores, and bytes beyond what is downloaded
GOALS: Mapping[str, float] = {
    FIRST: 340,
    WITHOUT: 100,
    SIF_WITHOUT: 108,
    AGAIN: 0.2,
    SIF: 20,
    SIF_ZSTD: 12,
    MOST: 8e9,
    END: 6e9,
}


@dataclass(frozen=True)
class Measured:
    """A commit: the events of its first image, and what else was measured, by the names of `GOALS`."""

    events: Sequence[Mapping[str, Any]]
    figures: Mapping[str, float]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("revisions", nargs="*", help="commits, the oldest first")
    options.add_argument("--trace", action="append", default=[], metavar="COMMIT=FILE", help="a trace that is there")
    given = options.parse_args()
    measured = {
        commit: Measured(json.loads(Path(path).read_bytes()), {})
        for commit, _, path in (one.partition("=") for one in given.trace)
    }
    for revision in given.revisions or ([] if measured else ["HEAD~1", "HEAD"]):
        commit = short(revision)
        measured[commit] = measure(commit)
    about = f"{today()}, `{' '.join(COMMAND)}` from an empty cache, each once, {machine(Context.here(), on_gpu=False)}."
    steps = table({commit: costs(each.events) for commit, each in measured.items()})
    told = {commit: each.figures for commit, each in measured.items() if each.figures}
    SECTION.write("\n\n".join([about, *([goals(told)] if told else []), steps]))


def measure(commit: str) -> Measured:
    """Build the image in a new clone, and what `GOALS` names. Ends the bench where that fails."""
    with clone(commit) as folder:
        trace = folder / "trace.json"
        with disk_taken(folder) as taken:
            first = take(folder, COMMAND, {"GRAPHCRATE_TRACE": str(trace)}).wall
        events = json.loads(trace.read_bytes())
        loaded = downloads(events)
        again = min(take(folder, COMMAND).wall for _ in range(5))
        sif = ("make", "sif", *COMMAND[2:])
        figures = {
            FIRST: first,
            AGAIN: again,
            SIF: take(folder, sif).wall,
            SIF_ZSTD: take(folder, (*sif, "COMPRESSION=zstd")).wall,
            MOST: max(taken) - loaded,
            END: taken[-1] - loaded,
        }
    for row, command in ((WITHOUT, COMMAND), (SIF_WITHOUT, sif)):
        with clone(commit) as folder:
            figures[row] = take(folder, (*command, "EXTENSIONS=none")).wall
    return Measured(events, figures)


@contextmanager
def disk_taken(folder: Path) -> Iterator[list[int]]:
    """Bytes that the folder's disk has less than now, looked at all the time, and at the end; others may write, too."""
    before, ended, taken = shutil.disk_usage(folder).free, threading.Event(), list[int]()

    def look() -> None:
        while not ended.wait(0.2):
            taken.append(before - shutil.disk_usage(folder).free)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield taken
    finally:
        ended.set()
        watcher.join()
        os.sync()
        taken.append(before - shutil.disk_usage(folder).free)


def downloads(events: Iterable[Mapping[str, Any]]) -> int:
    """Bytes that a build fetched."""
    return sum(
        int(event["args"].get("bytes", 0))
        for event in events
        if event["ph"] == "X" and _DOWNLOADS.fullmatch(str(event["name"]))
    )


def goals(of_commits: Mapping[str, Mapping[str, float]]) -> str:
    """Return what else was measured as rows, the commits as columns, then the last to the first."""
    first, last = next(iter(of_commits)), list(of_commits)[-1]
    compares = first != last
    more = (f" {last} to {first} |", "---|") if compares else ("", "")
    lines = [
        f"| beyond the downloads, on {os.cpu_count()} cores | goal | {' | '.join(of_commits)} |{more[0]}",
        f"|---|---{'|---' * len(of_commits)}|{more[1]}",
    ]
    for row, goal in GOALS.items():
        figures = [each[row] for each in of_commits.values()]
        ratio = f" {figures[-1] / figures[0]:.2f} |" if compares else ""
        lines.append(f"| {row} | {_figure(goal)} | {' | '.join(map(_figure, figures))} |{ratio}")
    return "\n".join(lines)


def _figure(value: float) -> str:
    """Seconds, or bytes from a million on."""
    if value >= 1e6:
        return f"{value / 1e9:.1f} GB"
    return f"{value:.2f} s" if value < 1 else f"{value:.0f} s"


def costs(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Processor seconds of each step, of all else, and of all."""
    spans = [(str(event["name"]), event["args"]["processor_seconds"]) for event in events if event["ph"] == "X"]
    taken = {step: sum(used for name, used in spans if name.startswith(names)) for step, names in STEPS.items()}
    whole = max(used for name, used in spans if name == ALL)
    return {**taken, REST: whole - sum(taken.values()), ALL: whole}


def table(of_commits: Mapping[str, Mapping[str, float]]) -> str:
    """The steps as rows, the commits as columns."""
    rows: Sequence[str] = (*STEPS, REST, ALL)
    lines = [f"| processor seconds | {' | '.join(of_commits)} |", f"|---{'|---' * len(of_commits)}|"]
    lines += [f"| {row} | {' | '.join(f'{each[row]:.0f}' for each in of_commits.values())} |" for row in rows]
    own = " | ".join(f"**{each[ALL] - each[COMPILERS]:.0f}**" for each in of_commits.values())
    return "\n".join([*lines, f"| **all but the compilers** (goal: 200) | {own} |", ""])


if __name__ == "__main__":
    main()
