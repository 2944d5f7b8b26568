"""Cells to jobs, and jobs to their end: submitted, watched, collected. The scheduler is a value."""

from collections.abc import Sequence
from typing import Protocol

from graphcrate.engines.slurm.parse import JobView
from graphcrate.engines.slurm.scheduler import Scheduler
from graphcrate.engines.trials import matrix
from graphcrate.model.errors import HostError
from graphcrate.model.trial import Cell, State


class Watcher(Protocol):
    """Who wants to know."""

    def heard(self, cell: Cell, lines: Sequence[str]) -> None:
        """A cell's job has said something."""

    def changed(self, cells: Sequence[Cell]) -> None:
        """All cells, after something changed with one of them."""


def follow(cells: Sequence[Cell], scheduler: Scheduler, watcher: Watcher, *, patience: float) -> list[Cell]:
    """Submit the new cells and follow all to their end. `patience`: seconds that a job may wait for its start while it
    is followed; an earlier call's do not count.

    What the scheduler refuses is lost, and the others go on. Raises HostError when it no longer answers.
    """
    began = scheduler.now()
    current = {cell.key: cell for cell in cells}

    def put(cell: Cell) -> None:
        if current[cell.key] != cell:
            current[cell.key] = cell
            watcher.changed(list(current.values()))

    watcher.changed(list(current.values()))
    for batch in matrix.batches(cells):
        with scheduler.uninterrupted():  # a job that nobody knows of could not be taken back, nor found again
            for cell in _submit(batch, scheduler):
                put(cell)
    while open_cells := [cell for cell in current.values() if cell.state.is_open]:
        views = scheduler.look([cell.job for cell in open_cells])
        for cell in open_cells:
            after = _looked(cell, views.get(cell.job), scheduler, watcher, began, patience)
            put(after)
            if after.state.is_finished:  # and written down
                scheduler.forget(cell.job)
        if any(cell.state.is_open for cell in current.values()):
            scheduler.pause()
    return list(current.values())


def _submit(batch: Sequence[Cell], scheduler: Scheduler) -> list[Cell]:
    try:
        jobs = scheduler.submit([cell.order for cell in batch], batch[0].resources)
    except HostError as error:
        return [matrix.lost(cell, error.what) for cell in batch]
    return [matrix.submitted(cell, job, scheduler.now()) for cell, job in zip(batch, jobs, strict=True)]


def _looked(
    cell: Cell, view: JobView | None, scheduler: Scheduler, watcher: Watcher, began: float, patience: float
) -> Cell:
    """The cell after a look at its job; a job that is given up leaves the queue."""
    try:
        returned = scheduler.returned(cell.job)
    except HostError as error:
        return matrix.lost(cell, f"{error.what} ({error.next_step})")
    after = matrix.step(cell, view, returned, scheduler.now(), patience, began)
    if lines := scheduler.heard(cell.job):
        watcher.heard(after, lines)
    if after.state is State.LOST and view is not None and not view.is_ended:
        scheduler.cancel([cell.job])
    return after
