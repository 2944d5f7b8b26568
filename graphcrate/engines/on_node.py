"""Carry out a command of ours as a job of Slurm: for what a login node does not allow, or takes too long for.

It runs in the same folder, with the same environment and cache. Its lines come here while it runs.
"""

import math
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from graphcrate.engines import slurm_jobs
from graphcrate.engines.trials import matrix
from graphcrate.host import process, settings
from graphcrate.host.context import Context
from graphcrate.model.command import TYPED_PATH, for_shell, setting
from graphcrate.model.errors import HostError
from graphcrate.model.trial import CommandOrder, JobCell, Resources, State, Stopped

MOST_CORES = 32  #: that are asked for unless the user says: more compile no faster, and wait longer
PRINTED = ".printed"  #: of the file with a command's stdout
MINUTES = 60.0  #: that a job may wait for its start


def run(words: Sequence[str], resources: Resources, ctx: Context, output: Path, typed: str = "") -> tuple[str, int]:
    """Run a command on a node; what it prints on stdout, and its exit code. Ctrl-C cancels the job.

    `typed`: the whole command as the user typed it.

    Raises HostError for a job that was lost, with the reason and what to do.
    """
    scheduler, resources = connected(resources, ctx, output)
    printed = scheduler.folder / f"{uuid.uuid4().hex[:12]}{PRINTED}"
    folder = str(Path().absolute())
    order = CommandOrder(words=tuple(words), program=TYPED_PATH, typed=typed, folder=folder, printed=str(printed))
    cell = JobCell(order=order, resources=resources)
    try:
        show = changes(ctx.progress.note)
        (ended,) = matrix.follow([cell], scheduler, patience=MINUTES * 60, show=show, say=ctx.progress.warn)
        if not (ended.exit_code or ended.state is State.PASSED):
            raise lost(ended, scheduler.log(ended.job))
        return printed.read_text(encoding="utf-8") if printed.is_file() else "", ended.exit_code
    finally:
        printed.unlink(missing_ok=True)


def connected(resources: Resources, ctx: Context, output: Path) -> tuple[slurm_jobs.Scheduler, Resources]:
    """Find this machine's Slurm; with it what a job asks for, by default all cores of a node. Raises HostError."""
    elsewhere = f"log in to the cluster, or do it here: leave {setting(on='slurm').both()} out"
    scheduler = slurm_jobs.connect(ctx, output, [resources.partition] if resources.partition else [], elsewhere)
    cores = resources.cpus or min(scheduler.slurm.cores(resources.partition), MOST_CORES)
    return scheduler, msgspec.structs.replace(resources, cpus=cores)


def follow_array(
    order: CommandOrder,
    resources: Resources,
    scheduler: slurm_jobs.Scheduler,
    tasks: int,
    *,
    show: Callable[[Sequence[JobCell]], None],
    say: Callable[[str], None],
) -> Sequence[JobCell]:
    """Run a command as an array of so many jobs, and follow them until all have ended. Ctrl-C cancels them."""
    with process.uninterrupted():
        jobs = scheduler.submit_array(order, resources, tasks)
    queued = JobCell(order=order, resources=resources, state=State.QUEUED, submitted=settings.now())
    cells = [msgspec.structs.replace(queued, job=job) for job in jobs]
    try:
        # some may wait for as long as others work
        return matrix.follow(cells, scheduler, patience=math.inf, show=show, say=say)
    finally:
        scheduler.forget(jobs)


def changes(note: Callable[[str], None]) -> Callable[[Sequence[JobCell]], None]:
    """Return a function that notes each change of a job: `job 12: running on n7`."""
    noted = set[str]()

    def show(cells: Sequence[JobCell]) -> None:
        for cell in cells:
            node = f" on {cell.node}" if cell.node else ""
            line = f"job {cell.job}: {cell.state}{node}" + (f": {cell.why}" if cell.why else "")
            if cell.state.is_open and line not in noted:
                noted.add(line)
                note(line)

    return show


def lost(cell: JobCell, log: Path) -> HostError:
    """Return the error for a job that did not end its command: why, and what to do."""
    steps = {
        Stopped.TIME: f"{setting(time='08:00:00').both()} gives it eight hours",
        Stopped.MEMORY: f"{setting(cpus=str(2 * cell.resources.cpus)).both()}: most sites give memory by cores",
        Stopped.REFUSED: "sinfo    shows partitions and their nodes",
        Stopped.LATE: "sinfo; squeue --me    show what goes on there",
        Stopped.NEVER: "sinfo; scontrol show partition    show what may be asked for",
    }
    step = steps[cell.stopped] if cell.stopped else f"less {for_shell(log)}    has its lines"
    return HostError(f"no node did it: {cell.why}", next_step=f"{step}; the same command goes on where it stopped")
