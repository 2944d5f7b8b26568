"""Measures how fast the tutorials' programs train in images: on the GPU where there is one, and on the CPU.

    .venv/bin/python -m bench.programs pyg:<tag> glt:<tag> --rounds 3

Each is run as its smoke suite runs it, and its own figure is read from the JSON line that it ends with: `dna.py`,
`ddp.py` in two processes, and GLT's training in two parts where the image has GLT. A run that fails has none,
and ends the bench with its reason. Writes its section of docs/performance.md.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench.page import Section, machine, say, spread, today
from graphcrate.engines import table
from graphcrate.engines.trials import artifact
from graphcrate.host.context import Context
from graphcrate.host.sandbox import gpu
from graphcrate.model.report import SmokeReport
from graphcrate.smoke import suites as smoke

SECTION = Section("programs", "bench/programs.py")


class Program(NamedTuple):
    """A suite's program, in words; where among its metrics the figure stands, and what it is."""

    words: str
    metric: str
    unit: str


PROGRAMS: Mapping[str, Program] = {
    "dna": Program("`dna.py`", "seconds_per_epoch", "s/epoch"),
    "ddp": Program("`ddp.py`, 2 processes", "iterations_per_second", "iterations/s"),
    "glt-distributed": Program("`glt/train_distributed.py`, 2 parts", "iterations_per_second", "iterations/s"),
}
#: as the programs call them → as the page does
VERSIONS: Mapping[str, str] = {"torch": "torch", "pyg": "PyG", "graphlearn_torch": "GLT"}


class Measured(NamedTuple):
    """Runs of one suite on one device in one image. `device`: in words."""

    image: str
    suite: str
    device: str
    reports: tuple[SmokeReport, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="+", metavar="NAME:TAG", help="below dist/")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--runner", default="embedded", help="what runs the images: embedded, apptainer, docker, podman"
    )
    parser.add_argument("--output", type=Path, default=Path("dist"))
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds must be 1 or more")
    ctx = Context.here()
    on_gpu = smoke.runs_on_gpu("auto")
    found = [one for image in given.images for one in measured(image, given, ctx, on_gpu)]
    head = f"{today()}, medians of {given.rounds} rounds, {machine(ctx, on_gpu=on_gpu)}"
    SECTION.write(section(head, found))


def measured(image: str, given: argparse.Namespace, ctx: Context, on_gpu: bool) -> list[Measured]:
    """Every suite of the image that has a figure, on every device, round after round."""
    trial = artifact.find(image, given.runner, (), ctx, given.output)
    suites = [name for name in PROGRAMS if name in trial.suites]
    if not suites:
        sys.exit(f"{image} is tested by {', '.join(trial.suites)}, and none of them has a figure")
    devices: Sequence[Literal["cpu", "cuda"]] = ("cuda", "cpu") if on_gpu else ("cpu",)
    cases = [(name, device) for name in suites for device in devices]
    reports: dict[tuple[str, str], list[SmokeReport]] = {case: [] for case in cases}
    runner = table.runner(trial.artifact.engine)
    runner.runtime(ctx.environment)
    with (
        runner.opened(trial.artifact, cache=ctx.cache, progress=ctx.progress) as inside,
        ctx.cache.folder() as folder,
    ):
        for number in range(1, given.rounds + 1):
            for name, device in cases:
                on_gpu = device == "cuda"
                suite = smoke.suite(name, on_gpu=on_gpu, packages=trial.packages)
                report = smoke.run(suite, inside, folder, say=lambda line: None, on_gpu=on_gpu)
                say(f"round {number} of {given.rounds}: {image}: {name} on {device}: {told(report)}")
                reports[name, device].append(report)
    words = {device: gpu.device(ctx.environment, on_gpu=device == "cuda") for device in devices}
    return [Measured(image, name, words[device], tuple(reports[name, device])) for name, device in cases]


def told(report: SmokeReport) -> str:
    """A run's figure in words; ends the bench where it has none."""
    return f"{figure(report):g} {PROGRAMS[report.suite].unit}"


def figure(report: SmokeReport) -> float:
    """Of a run that passed; ends the bench with the reason of one that did not."""
    value = report.metrics.get(PROGRAMS[report.suite].metric)
    if report.status != "passed":
        sys.exit(f"{report.suite} failed: {report.reason}")
    if not isinstance(value, int | float) or not value > 0:
        sys.exit(f"{report.suite} gives no {PROGRAMS[report.suite].metric}: an image of an older version has none")
    return float(value)


def section(head: str, found: Sequence[Measured]) -> str:
    """The section's text."""
    rows = [
        f"| `{one.image}` | {in_words(one.reports[-1].metrics)} | {PROGRAMS[one.suite].words} | {one.device} "
        f"| {spread([figure(report) for report in one.reports])} {PROGRAMS[one.suite].unit} |\n"
        for one in found
    ]
    columns = "| image | with | program | device | median (least … most) |\n|---|---|---|---|---|\n"
    return f"{head}.\n\n{columns}{''.join(rows)}"


def in_words(metrics: Mapping[str, Any]) -> str:
    """Versions and, of several processes, what they talk over: `torch 2.3.1, PyG 2.5.3, gloo`."""
    versions = metrics.get("versions") or {}
    words = [f"{name} {versions[key]}" for key, name in VERSIONS.items() if key in versions]
    return ", ".join([*words, *([metrics["backend"]] if metrics.get("backend") else [])])


if __name__ == "__main__":
    main()
