"""Measures how long others take to build what we build: `python -m bench.peers`, as root on Debian.

Docker, buildah and Apptainer install the packages of our lock (names and versions, no compiled extensions) by uv into a
Debian that is made for them before, each from an empty store, one after the other; ours begins with a fresh clone and
an empty home. apt-get installs what is missing. Half an hour, 25 GB of disk. Writes the section `peers` of
docs/performance.md. `--compile`: PyG's four extensions are compiled, too; that is the section `peers compiling`.
`--packages numpy==1.25.2` tries the peers with a small stack, without ours, and prints the table alone.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import peer_files
from bench.main_job import working_folder
from bench.page import ROOT, Section, machine, say, today
from bench.peer_files import BuildContext
from bench.peer_ways import PEERS, Step, StepError, Way, install
from graphcrate.host.context import Context
from tools.prepare import StopError, apt_install

SECTION = Section("peers", "bench/peers.py")
COMPILING = Section("peers compiling", "bench/peers.py")
LOCK = ROOT / "images/pyg/cu118/compatible.lock.json"  #: whose base a trial has
OURS = "graphcrate"
BUILD = ".venv/bin/python -E -s build.py"
COLUMNS = ("", "gives", "wall", "processor", "wall to ours", "result", "disk then", "most on disk")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, help="where to work (default: a new folder below TMPDIR)")
    options.add_argument("--only", nargs="+", choices=list(PEERS), default=list(PEERS), help="not all three")
    options.add_argument("--compile", action="store_true", help="PyG's extensions too, from source: hours")
    options.add_argument("--packages", nargs="+", metavar="NAME==VERSION", help="of these, without ours: a trial")
    given = options.parse_args()
    if os.geteuid():
        sys.exit("the daemon and the stores are root's: run it as root")
    try:
        apt_install([] if Path("/usr/bin/mmdebstrap").exists() else ["mmdebstrap"])
    except StopError as stop:
        sys.exit(f"{stop}\nnext:  {stop.following}")
    with working_folder(given.folder) as folder:
        steps, lock = ([], json.loads(LOCK.read_bytes())) if given.packages else ours(folder, given.compile)
        wanted = given.packages or peer_files.wheels(lock)
        context = peer_files.write(folder / "context", lock, wanted, compiling=given.compile)
        say("the Debian that the others begin with")
        seconds = [peer_files.debian(context, name, lock) for name in context.bases]
        for name in given.only:
            steps += peer(name, folder, context)
    if given.packages:
        sys.stdout.write(table(steps))
    else:
        section = COMPILING if given.compile else SECTION
        section.write(f"{about(lock, seconds, given.compile)}\n\n{table(steps)}")


def about(lock: dict[str, Any], seconds: Sequence[float], compiling: bool) -> str:
    """The sentences before the table."""
    count = len(peer_files.wheels(lock)) + (len(peer_files.sdists(lock)) if compiling else 0)
    made = " and ".join(f"{each:.0f} s" for each in seconds)
    return (
        f"{today()}, `make {' '.join(settings(compiling))}` and the same {count} packages by others, each once, "
        f"{'the four extensions compiled by each, ' if compiling else ''}"
        f"{machine(Context.here(), on_gpu=False)}. mmdebstrap took {made} for the Debian "
        f"({len(peer_files.base_packages(lock))} packages) that the others begin with, which no row has."
    )


def settings(compiling: bool) -> list[str]:
    """Of make."""
    return ["image", "CUDA=11.8", *([] if compiling else ["EXTENSIONS=none"])]


# --- ours and theirs --------------------------------------------------------------------------------------------------


def ours(folder: Path, compiling: bool) -> tuple[list[Step], dict[str, Any]]:
    """Our own steps, and the lock of what they built. Ends the bench where one fails."""
    untested = f"tools/prepare run && exec {BUILD} image pyg --cuda 11.8 --no-smoke"
    untested += "" if compiling else " --extensions none"
    try:
        with new_clone(folder) as (way, project):
            tested = way.take(["make", *settings(compiling)], project, project / "dist")
            (layout,) = {path.resolve() for path in project.glob("dist/pyg/*/oci")}  # short names are links
            lock = json.loads(layout.with_name("lock.json").read_bytes())
        with new_clone(folder) as (way, project):
            layout = project / "dist/pyg" / layout.parent.name / "oci"
            image = way.take(["sh", "-c", untested], project, layout)
            sif = way.folder / "pyg.sif"
            convert = [*BUILD.split(), "convert", f"pyg:{layout.parent.name}", "--to", "sif", "--output", str(sif)]
            converted = way.take(convert, project, sif)
    except StepError as error:
        sys.exit(f"our own build failed: {error}")
    return [
        Step(f"{OURS}, `make image`", "OCI layout, tested by training runs", "image", tested),
        Step(f"{OURS}, `--no-smoke`", "OCI layout", "image", image, measure=True),
        Step("… and `convert --to sif`", "SIF", "sif", converted, measure=True),
    ], lock


@contextmanager
def new_clone(folder: Path) -> Iterator[tuple[Way, Path]]:
    """A way with a clone of this commit and an empty home, for as long as the block."""
    with working_folder(folder) as own:
        project = own / "project"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(project)], check=True)
        yield Way(own), project


def peer(name: str, folder: Path, context: BuildContext) -> list[Step]:
    """A peer's steps, in a folder that is removed after; the last has the reason where one failed."""
    steps: list[Step] = []
    with working_folder(folder) as own:
        try:
            install(name)
            for step in PEERS[name](Way(own), context):
                say(f"{step.name}: {step.cost.seconds if step.cost else 0:.0f} s by then")
                steps.append(step)
        except (StepError, StopError) as error:
            steps.append(Step(name, "", "image", None, " ".join(str(error).split())))
    return steps


# --- the table --------------------------------------------------------------------------------------------------------


def table(steps: Sequence[Step]) -> str:
    """The steps as rows, each beside our untested way to the same end; what adds up begins with each way."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [f"| {' | '.join(cells(step, ratio(step, steps)))} |" for step in steps]
    return "\n".join([*lines, ""])


def ratio(step: Step, steps: Sequence[Step]) -> str:
    """Wall time to that of ours to the same end; empty where there is no such time."""
    measure = next((each.cost for each in steps if each.measure and each.end == step.end), None)
    return f"{step.cost.seconds / measure.seconds:.1f}" if step.cost and measure else ""


def cells(step: Step, to_ours: str) -> list[str]:
    """A row. A step that failed says why where it would have said what it gives."""
    if step.cost is None:
        return [step.name, f"not measured: {step.reason}", *("",) * (len(COLUMNS) - 2)]
    cost = step.cost
    size = "" if cost.size is None else gigabytes(cost.size)
    times = [f"{cost.seconds:.0f} s", f"{cost.processor:.0f} s", to_ours]
    return [step.name, step.gives, *times, size, gigabytes(cost.disk), gigabytes(cost.most)]


def gigabytes(size: int) -> str:
    """To two places."""
    return f"{size / 1e9:.2f} GB"


if __name__ == "__main__":
    main()
