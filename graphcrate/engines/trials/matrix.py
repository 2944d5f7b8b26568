"""The matrix of images and partitions: submit a job for each cell, and poll them to their end.

A cell that has passed is not run again, one that failed is. One with a pending or running job is followed, also by a
later call. One whose job ended without a report is lost, and the next call submits it again.
"""

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from graphcrate.engines.slurm.parse import HOPELESS, SILENT, JobView
from graphcrate.engines.slurm.submit import Scheduler
from graphcrate.host import process, settings
from graphcrate.model.errors import HostError
from graphcrate.model.trial import Cell, Matrix, Order, Resources, Returned, State
from graphcrate.smoke import memory

#: Seconds from the end of a job until its missing report counts as lost: a network file system shows other nodes' files
#: with a delay.
GRACE = 15.0
PAUSE = 2.0  #: seconds between two polls; the controller serves a whole cluster


def new_cell(reference: str, order: Order, resources: Resources) -> Cell:
    """Make a cell without a job. Its key stands for the image's bytes, the suites and what the job asks for."""
    what = (order.artifact.digest, order.artifact.kind, sorted(order.suites), order.proof, order.device, resources)
    key = hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:16]
    return Cell(key=key, reference=reference, order=order, resources=resources)


def resume(matrix: Matrix, wanted: Sequence[Cell]) -> list[Cell]:
    """Return the wanted cells, each as far as an earlier call got, but for failures and passes to be rerun."""
    cells = {cell.key: cell for cell in wanted}  # the same image named twice is one cell
    for known in matrix.cells:
        if known.key in cells:
            is_pass = known.state is State.PASSED and not cells[known.key].order.rerun
            # of a tag on a registry, which may name another image by now, a pass counts for nothing
            if known.state.is_open or (is_pass and memory.content(known.order.artifact.digest)):
                cells[known.key] = known
    return list(cells.values())


def follow(
    cells: Sequence[Cell],
    scheduler: Scheduler,
    *,
    patience: float,
    changed: Callable[[Sequence[Cell]], None],
    say: Callable[[str], None] = lambda line: None,
) -> list[Cell]:
    """Submit the new cells and poll all to their end.

    `patience`: seconds that a job may wait for its start from now on. `changed` gets all cells after a change of one,
    `say` the lines that jobs print. A refused cell is lost. Raises HostError when Slurm no longer answers.
    """
    began = settings.now()
    current = {cell.key: cell for cell in cells}

    def put(cell: Cell) -> None:
        if current[cell.key] != cell:
            current[cell.key] = cell
            changed(list(current.values()))

    changed(cells)
    new = [cell for cell in cells if cell.state is State.NEW]
    for resources in dict.fromkeys(cell.resources for cell in new):  # an array has one partition and one request
        with process.uninterrupted():  # nobody could cancel or find a job whose id was never recorded
            for cell in _submit([cell for cell in new if cell.resources == resources], scheduler):
                put(cell)
    while pending := [cell for cell in current.values() if cell.state.is_open]:
        views = scheduler.slurm.look([cell.job for cell in pending])
        for cell in pending:
            after = _poll(cell, views.get(cell.job), scheduler, began, patience)
            for line in scheduler.new_lines(cell.job):
                say(line)
            put(after)
            if after.state.is_finished:  # and recorded
                scheduler.remove_result(cell.job)
        if any(cell.state.is_open for cell in current.values()):
            settings.wait(PAUSE)
    return list(current.values())


def _submit(batch: Sequence[Cell], scheduler: Scheduler) -> list[Cell]:
    try:
        jobs = scheduler.submit([cell.order for cell in batch], batch[0].resources)
    except HostError as error:
        return [_lost(cell, error.what) for cell in batch]
    return [
        msgspec.structs.replace(cell, state=State.QUEUED, job=job, submitted=settings.now())
        for cell, job in zip(batch, jobs, strict=True)
    ]


def _lost(cell: Cell, why: str) -> Cell:
    return msgspec.structs.replace(cell, state=State.LOST, why=why)


def _poll(cell: Cell, view: JobView | None, scheduler: Scheduler, began: float, patience: float) -> Cell:
    """Return the cell after a look at its job; cancel a job that is given up."""
    try:
        returned = scheduler.result(cell.job)
    except HostError as error:
        return _lost(cell, f"{error.what} ({error.next_step})")
    after = step(cell, view, returned, settings.now(), patience, began)
    if after.state is State.LOST and view is not None and not view.is_ended:
        scheduler.slurm.cancel([cell.job])
    return after


def step(
    cell: Cell, view: JobView | None, returned: Returned | None, now: float, patience: float, began: float = 0.0
) -> Cell:
    """Return the cell after a look at its job.

    `view`: None where Slurm does not know the job. `returned`: its result, None while there is none. `patience`:
    seconds that it may wait for its start from `began` on, when this call began to follow it.
    """
    if returned is not None:
        return _end(cell, returned, view)
    if view == SILENT:
        return msgspec.structs.replace(cell, why=SILENT.reason, gone=0.0)
    if view is None or view.is_ended:
        gone = cell.gone or now
        if now - gone < GRACE:
            return msgspec.structs.replace(cell, gone=gone)
        how = f"Slurm no longer knows job {cell.job}" if view is None else f"job {cell.job} ended as {view.words}"
        return _lost(cell, f"{how} and left no report")
    cell = msgspec.structs.replace(cell, gone=0.0, node=view.node)
    if not view.is_waiting:
        return msgspec.structs.replace(cell, state=State.RUNNING, why="")
    if HOPELESS.search(view.reason):
        return _lost(cell, f"job {cell.job} can never start: {view.reason}")
    if now - max(cell.submitted, began) > patience:
        reason = view.reason or "no reason given"
        return _lost(cell, f"job {cell.job} did not start within {patience / 60:g} min: {reason}")
    return msgspec.structs.replace(cell, state=State.QUEUED, why=view.reason)


def _end(cell: Cell, returned: Returned, view: JobView | None) -> Cell:
    if returned.error:
        return _lost(cell, f"job {cell.job} could not run the suites: {returned.error}")
    failed = [suite for suite in returned.suites if suite.status == "failed"]
    skipped = [
        f"{suite.suite}: passed on {suite.remembered[:10]}, not run again"
        for suite in returned.suites
        if suite.remembered
    ]
    return msgspec.structs.replace(
        cell,
        state=State.FAILED if failed else State.PASSED,
        why=f"{failed[0].suite}: {failed[0].reason}" if failed else "; ".join(skipped),
        node=next((suite.node for suite in returned.suites if suite.node), view.node if view else cell.node),
        suites=returned.suites,
    )
