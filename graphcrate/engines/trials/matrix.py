"""Run orders as jobs of Slurm, one by one or as a matrix of images and partitions: submit, then poll until all ended.

Nothing is recorded but the report that a job's node writes beside its logs. So the same matrix again finds what passed,
and submits the rest.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from graphcrate.engines import run_suites
from graphcrate.engines.slurm import HOPELESS, SILENT, TAKEN_AWAY, JobView
from graphcrate.engines.slurm_jobs import Scheduler
from graphcrate.engines.trials import progress
from graphcrate.host import process, settings
from graphcrate.host.context import Context
from graphcrate.host.disk.sealed import kept
from graphcrate.model.command import for_shell
from graphcrate.model.errors import HostError, SmokeError
from graphcrate.model.suite import SUITES
from graphcrate.model.trial import (
    CommandOrder,
    JobCell,
    MatrixCell,
    Resources,
    Returned,
    State,
    Stopped,
    TrialOrder,
    TrialReport,
)
from graphcrate.render import slurm_batch
from graphcrate.smoke import memory

#: Seconds from the end of a job until its missing report counts as lost: a network file system shows other nodes' files
#: with a delay.
GRACE = 15.0
PAUSE = 2.0  #: seconds between two polls; the controller serves a whole cluster
Cell = TypeVar("Cell", bound=JobCell)
CLEARING = 9  #: looks at whether a job that gave its result has removed its container, before it is said to be left


def new_cell(order: TrialOrder, resources: Resources) -> MatrixCell:
    """Make a cell without a job, with a folder for its logs and its report."""
    nodes = f"{order.nodes}nodes" if order.nodes > 1 else ""
    name = "-".join(part for part in (resources.partition, resources.gres.replace(":", ""), nodes) if part)
    return MatrixCell(order=msgspec.structs.replace(order, folder=f"{order.folder}/{name}"), resources=resources)


def run_job(cell: MatrixCell, scheduler: Scheduler, ctx: Context, patience: float) -> TrialReport:
    """Run a cell, with the lines that its job prints. Raises HostError for a job without a report."""
    note = ctx.progress.note
    ended = follow([cell], scheduler, patience=patience, show=progress.changes(note), say=note)
    if not ended[0].suites:
        raise_if_failed(ended, scheduler)
    return run_suites.report_of(cell.order, ended[0].suites)


def run_matrix(cells: Sequence[MatrixCell], scheduler: Scheduler, ctx: Context, patience: float) -> list[MatrixCell]:
    """Run the cells without an earlier pass, and show how they go. The same image named twice is one cell."""
    unique = {(cell.order.artifact.digest, cell.resources): cell for cell in cells}
    with progress.shown(ctx.progress.note) as show:
        return follow([recall(cell) for cell in unique.values()], scheduler, patience=patience, show=show)


def recall(cell: MatrixCell) -> MatrixCell:
    """Return the cell as passed where its report says so of the same bytes, kind of device and versions of suites."""
    order = cell.order
    report = kept(Path(order.folder) / run_suites.REPORT, TrialReport)
    # of a tag on a registry, which may name another image by now, a pass counts for nothing
    measures = any(SUITES[name].measures for name in order.suites)
    if report is None or order.rerun or measures or not memory.content(order.artifact.digest):
        return cell
    same = (report.artifact.digest, report.proof) == (order.artifact.digest, run_suites.proof_of(order))
    passed = {suite.suite for suite in report.suites if suite.status == "passed"}
    whole = passed == {suite.suite for suite in report.suites} and passed >= {*order.suites}
    return _end(cell, Returned(suites=report.suites), None) if whole and same else cell


def follow(
    planned: Sequence[Cell],
    scheduler: Scheduler,
    *,
    patience: float,
    show: Callable[[Sequence[Cell]], None],
    say: Callable[[str], None] = lambda line: None,
) -> list[Cell]:
    """Submit the new cells and poll all until they ended. What breaks it off, such as Ctrl-C, cancels the jobs.

    `patience`: seconds that a job may wait for its start. `show` gets all cells after each look at them, `say` the
    lines that jobs print. A refused cell is lost.
    """
    cells = list(planned)
    try:
        for number, cell in enumerate(cells):
            show(cells)
            if cell.state is State.NEW:
                with process.uninterrupted():  # a job whose id was never read could not be cancelled
                    cells[number] = _submit(cell, scheduler)
        show(cells)
        while jobs := [cell.job for cell in cells if cell.state.is_open]:
            views = scheduler.slurm.look(jobs)
            for number, cell in enumerate(cells):
                if cell.state.is_open:
                    cells[number] = _poll(cell, views.get(cell.job), scheduler, patience)
                    for line in scheduler.new_lines(cell.job):
                        say(line)
            show(cells)
            if any(cell.state.is_open for cell in cells):
                settings.wait(PAUSE)
    except BaseException:
        scheduler.cancel([cell.job for cell in cells if cell.state.is_open])
        raise
    return cells


def _submit(cell: Cell, scheduler: Scheduler) -> Cell:
    try:
        job = scheduler.submit(cell.order, cell.resources)
    except HostError as error:
        return _lost(cell, error.what, Stopped.REFUSED)
    return msgspec.structs.replace(cell, state=State.QUEUED, job=job, submitted=settings.now())


def _lost(cell: Cell, why: str, stopped: Stopped | None = None) -> Cell:
    return msgspec.structs.replace(cell, state=State.LOST, why=why, stopped=stopped)


def _poll(cell: Cell, view: JobView | None, scheduler: Scheduler, patience: float) -> Cell:
    """Return the cell after a look at its job; cancel a job that is given up."""
    try:
        returned = scheduler.result(cell.job)
    except HostError as error:
        return _lost(cell, f"{error.what} ({error.next_step})")
    after = step(cell, view, returned, settings.now(), patience)
    if after.state is State.LOST and (node := _left_behind(cell, scheduler, CLEARING if returned else 1)):
        command = slurm_batch.removal(cell.job, node, cell.resources.partition)
        after = _lost(after, f"{after.why}; its container may be left on {node}: {command}", after.stopped)
    if after.state is State.LOST and view is not None and not view.is_ended:
        scheduler.cancel([cell.job])
    return after


def _left_behind(cell: JobCell, scheduler: Scheduler, looks: int) -> str:
    """Return the node on which a lost job has left its container; a job that gave a result clears up after it."""
    for look in range(looks):
        if look:
            settings.wait(PAUSE)
        if not (node := scheduler.left_behind(cell.job)):
            return ""
    return node


def step(cell: Cell, view: JobView | None, returned: Returned | None, now: float, patience: float) -> Cell:
    """Return the cell after a look at its job.

    `view`: None where Slurm does not know the job. `returned`: its result, None while there is none. `patience`:
    seconds that it may wait for its start.
    """
    if returned is not None:
        return _end(cell, returned, view)
    if view == SILENT:
        return msgspec.structs.replace(cell, why=SILENT.reason, gone=0.0)
    if view is None or view.is_ended:
        gone = cell.gone or now
        if now - gone < GRACE:
            return msgspec.structs.replace(cell, gone=gone)
        if view is not None and view.state == "OUT_OF_MEMORY":  # of what ran in it
            why = (
                f"job {cell.job} ended as {view.words}: it needs more memory than Slurm gives it (--cpus, or sbatch's)"
            )
            failed = _lost(cell, why, Stopped.MEMORY)
            return msgspec.structs.replace(failed, state=State.FAILED, node=view.node)
        how = f"Slurm no longer knows job {cell.job}" if view is None else f"job {cell.job} ended as {view.words}"
        is_late = view is not None and view.state == "TIMEOUT"
        return _lost(cell, f"{how} and left no report", Stopped.TIME if is_late else None)
    cell = msgspec.structs.replace(cell, gone=0.0, node=view.node)
    if not view.is_waiting:
        return msgspec.structs.replace(cell, state=State.RUNNING, why="")
    if HOPELESS.search(view.reason):
        return _lost(cell, f"job {cell.job} can never start: {view.reason}", Stopped.NEVER)
    if now - cell.submitted > patience:
        reason = view.reason or "no reason given"
        return _lost(cell, f"job {cell.job} did not start within {patience / 60:g} min: {reason}", Stopped.LATE)
    return msgspec.structs.replace(cell, state=State.QUEUED, why=view.reason)


def _end(cell: Cell, returned: Returned, view: JobView | None) -> Cell:
    is_command = isinstance(cell.order, CommandOrder)
    if returned.error:
        what = "end its command" if is_command else "run the suites"
        return _lost(cell, f"job {cell.job} could not {what}: {returned.error}", returned.stopped)
    if is_command:
        state = State.FAILED if returned.exit_code else State.PASSED
        return msgspec.structs.replace(cell, state=state, exit_code=returned.exit_code)
    failed = [suite for suite in returned.suites if suite.status == "failed"]
    if failed and view is not None and view.state in TAKEN_AWAY and not any(suite.metrics for suite in failed):
        return _lost(cell, f"job {cell.job} ended as {view.words} while {failed[0].suite} ran")
    skipped = [
        f"{suite.suite}: passed on {suite.remembered[:10]}, not run again"
        for suite in returned.suites
        if suite.remembered
    ]
    return msgspec.structs.replace(
        cell,
        state=State.FAILED if failed else State.PASSED,
        job=cell.job or next((suite.job for suite in returned.suites), ""),
        why=f"{failed[0].suite}: {failed[0].reason}" if failed else "; ".join(skipped),
        node=next((suite.node for suite in returned.suites if suite.node), view.node if view else cell.node),
        suites=returned.suites,
    )


def raise_if_failed(cells: Sequence[MatrixCell], scheduler: Scheduler) -> None:
    """Raise SmokeError where a suite failed, HostError where a cell has no report."""
    for cell in cells:
        if cell.state is State.FAILED:
            raise SmokeError(
                f"{cell.order.reference} failed on {cell.resources.partition}: {cell.why}",
                next_step=f"ls {for_shell(cell.order.folder)}    has the logs; the same command runs it again",
            )
    raise_if_lost(cells, scheduler)


def raise_if_lost(cells: Sequence[MatrixCell], scheduler: Scheduler) -> None:
    """Raise HostError for the first cell without a report."""
    lost = [cell for cell in cells if cell.state is State.LOST]
    for cell in lost:
        others = f" ({len(lost)} of {len(cells)} have no report)" if len(cells) > 1 else ""
        where = f"less {scheduler.log(cell.job)}" if cell.node else "sinfo; squeue --me    show what goes on there"
        raise HostError(
            f"{cell.order.reference} was not tested on {cell.resources.partition}: {cell.why}{others}",
            next_step=f"{where}; the same command runs only what has not passed",
        )
