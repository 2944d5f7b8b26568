"""Submit the jobs of cells and poll them to their end."""

from collections.abc import Callable, Sequence

from graphcrate.engines.slurm.parse import JobView
from graphcrate.engines.slurm.submit import Scheduler
from graphcrate.engines.trials import matrix
from graphcrate.model.errors import HostError
from graphcrate.model.trial import Cell, State


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
    `say` the lines that jobs print. A refused cell is lost, and the others go on. Raises HostError when Slurm no
    longer answers.
    """
    began = scheduler.now()
    current = {cell.key: cell for cell in cells}

    def put(cell: Cell) -> None:
        if current[cell.key] != cell:
            current[cell.key] = cell
            changed(list(current.values()))

    changed(list(current.values()))
    for batch in matrix.batches(cells):
        with scheduler.uninterrupted():  # nobody could cancel or find a job whose id was never recorded
            for cell in _submit(batch, scheduler):
                put(cell)
    while pending := [cell for cell in current.values() if cell.state.is_open]:
        views = scheduler.look([cell.job for cell in pending])
        for cell in pending:
            after = _poll(cell, views.get(cell.job), scheduler, began, patience)
            for line in scheduler.new_lines(cell.job):
                say(line)
            put(after)
            if after.state.is_finished:  # and recorded
                scheduler.remove_result(cell.job)
        if any(cell.state.is_open for cell in current.values()):
            scheduler.pause()
    return list(current.values())


def _submit(batch: Sequence[Cell], scheduler: Scheduler) -> list[Cell]:
    try:
        jobs = scheduler.submit([cell.order for cell in batch], batch[0].resources)
    except HostError as error:
        return [matrix.lost(cell, error.what) for cell in batch]
    return [matrix.submitted(cell, job, scheduler.now()) for cell, job in zip(batch, jobs, strict=True)]


def _poll(cell: Cell, view: JobView | None, scheduler: Scheduler, began: float, patience: float) -> Cell:
    """Return the cell after a look at its job; cancel a job that is given up."""
    try:
        returned = scheduler.result(cell.job)
    except HostError as error:
        return matrix.lost(cell, f"{error.what} ({error.next_step})")
    after = matrix.step(cell, view, returned, scheduler.now(), patience, began)
    if after.state is State.LOST and view is not None and not view.is_ended:
        scheduler.cancel([cell.job])
    return after
