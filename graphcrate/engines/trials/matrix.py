"""The matrix of images and partitions as a state machine. Pure: Slurm's answers come in as values.

A cell that has passed is not run again, one that failed is. One with a pending or running job is followed, also by a
later call. One whose job ended without a report is lost, and the next call submits it again.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence

import msgspec

from graphcrate.engines.slurm.parse import HOPELESS, SILENT, JobView
from graphcrate.model.trial import Cell, Matrix, Order, Resources, Returned, State
from graphcrate.smoke import memory

#: Seconds from the end of a job until its missing report counts as lost: a network file system shows other nodes' files
#: with a delay.
GRACE = 15.0


def new_cell(reference: str, order: Order, resources: Resources) -> Cell:
    """Make a cell without a job. Its key stands for the image's bytes, the suites and what the job asks for."""
    what = (order.artifact.digest, order.artifact.kind, sorted(order.suites), order.proof, order.device, resources)
    key = hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:16]
    return Cell(key=key, reference=reference, order=order, resources=resources)


def resume(matrix: Matrix, wanted: Sequence[Cell], *, rerun: bool = False) -> list[Cell]:
    """Return the wanted cells, each as far as an earlier call got. Forget failures, with `rerun` passes too.

    A pass without a digest, of a tag on a registry, is forgotten as well: the tag may name another image by now.
    """
    known = {cell.key: cell for cell in matrix.cells}

    def is_valid(cell: Cell) -> bool:
        is_pass = cell.state is State.PASSED and not rerun
        return cell.state.is_open or (is_pass and bool(memory.content(cell.order.artifact.digest)))

    unique = {cell.key: cell for cell in wanted}  # the same image named twice is one cell
    return [known[key] if key in known and is_valid(known[key]) else cell for key, cell in unique.items()]


def update(matrix: Matrix, cells: Iterable[Cell]) -> Matrix:
    """Return the matrix with these cells replaced or added at its end."""
    merged = {cell.key: cell for cell in matrix.cells} | {cell.key: cell for cell in cells}
    return msgspec.structs.replace(matrix, cells=tuple(merged.values()))


def batches(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group the new cells into arrays: Slurm gives an array one partition and one request."""
    groups: dict[Resources, list[Cell]] = {}
    for cell in cells:
        if cell.state is State.NEW:
            groups.setdefault(cell.resources, []).append(cell)
    return list(groups.values())


def submitted(cell: Cell, job: str, now: float) -> Cell:
    """Return the cell with its job."""
    return msgspec.structs.replace(cell, state=State.QUEUED, job=job, submitted=now, gone=0.0, why="")


def lost(cell: Cell, why: str) -> Cell:
    """Return the cell without a report, and why."""
    return msgspec.structs.replace(cell, state=State.LOST, why=why)


def step(
    cell: Cell, view: JobView | None, returned: Returned | None, now: float, patience: float, began: float = 0.0
) -> Cell:
    """Return the cell after a look at its job.

    `view`: None where Slurm does not know the job. `returned`: its result, None while there is none. `patience`:
    seconds that it may wait for its start from `began` on, when this call began to follow it.
    """
    if not cell.state.is_open:
        return cell
    if returned is not None:
        return _end(cell, returned, view)
    if view == SILENT:
        return msgspec.structs.replace(cell, why=SILENT.reason, gone=0.0)
    if view is None or view.is_ended:
        gone = cell.gone or now
        if now - gone < GRACE:
            return msgspec.structs.replace(cell, gone=gone)
        how = f"Slurm no longer knows job {cell.job}" if view is None else f"job {cell.job} ended as {view.words}"
        return lost(cell, f"{how} and left no report")
    cell = msgspec.structs.replace(cell, gone=0.0, node=view.node)
    if not view.is_waiting:
        return msgspec.structs.replace(cell, state=State.RUNNING, why="")
    if HOPELESS.search(view.reason):
        return lost(cell, f"job {cell.job} can never start: {view.reason}")
    if now - max(cell.submitted, began) > patience:
        reason = view.reason or "no reason given"
        return lost(cell, f"job {cell.job} did not start within {patience / 60:g} min: {reason}")
    return msgspec.structs.replace(cell, state=State.QUEUED, why=view.reason)


def _end(cell: Cell, returned: Returned, view: JobView | None) -> Cell:
    if returned.error:
        return lost(cell, f"job {cell.job} could not run the suites: {returned.error}")
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


def counts(cells: Collection[Cell]) -> str:
    """Count cells by state: `3 passed, 1 running`."""
    numbers = {state: sum(cell.state is state for cell in cells) for state in State}
    return ", ".join(f"{number} {state}" for state, number in numbers.items() if number)
