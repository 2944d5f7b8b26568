"""Measures what each step of a first image costs: `python -m bench.steps [REVISION ...]`, by `GRAPHCRATE_TRACE`.

Builds `pyg` for CUDA 11.8 in a fresh clone of each revision (HEAD~1 and HEAD if none is named) with an empty cache, one
after the other: half an hour, 20 GB of disk. `--trace COMMIT=FILE` takes a trace that is there instead. Writes the
section `steps` of docs/performance.md.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.first_commands import KEPT
from bench.main_job import working_folder
from bench.page import ROOT, Section, machine, say, today
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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("revisions", nargs="*", help="commits, the oldest first")
    options.add_argument("--trace", action="append", default=[], metavar="COMMIT=FILE", help="a trace that is there")
    given = options.parse_args()
    traces = {commit: Path(path).read_bytes() for commit, _, path in (one.partition("=") for one in given.trace)}
    for revision in given.revisions or ([] if traces else ["HEAD~1", "HEAD"]):
        commit = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", revision], text=True).strip()
        say(f"{' '.join(COMMAND)} of {commit}")
        traces[commit] = first(commit)
    about = f"{today()}, `{' '.join(COMMAND)}` from an empty cache, each once, {machine(Context.here(), on_gpu=False)}."
    SECTION.write(f"{about}\n\n{table({commit: costs(json.loads(trace)) for commit, trace in traces.items()})}")


def first(commit: str) -> bytes:
    """Build the image in a new clone; the trace. Ends the bench where that fails."""
    with working_folder(None) as folder:
        trace = folder / "trace.json"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "project")], check=True)
        subprocess.run(["git", "-C", str(folder / "project"), "checkout", "--quiet", commit], check=True)
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= {"HOME": str(folder), "GRAPHCRATE_TRACE": str(trace)}
        done = subprocess.run(COMMAND, cwd=folder / "project", env=environment, stdout=sys.stderr, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(COMMAND)} ended with {done.returncode}")
        return trace.read_bytes()


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
