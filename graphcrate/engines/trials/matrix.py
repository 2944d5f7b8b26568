"""The matrix of images and partitions as a machine of states. Pure: what Slurm says comes in as values.

A cell that has passed is not run again, one that failed is. One whose job is under way is followed, also by a later
call. One whose job ended without a report is lost, and the next call submits it anew.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence

import msgspec

from graphcrate.engines.slurm.parse import HOPELESS, JobView
from graphcrate.model.report import SmokeReport
from graphcrate.model.trial import Cell, Matrix, Order, Resources, Returned, State
from graphcrate.smoke import memory

#: Seconds between the end of a job and the moment when its report is given up: a network file system shows what
#: another node wrote with a delay.
GRACE = 15.0


def new_cell(reference: str, order: Order, resources: Resources) -> Cell:
    """A cell without a job. Its key stands for the image's bytes, the suites and what the job asks for."""
    what = (order.artifact.digest, order.artifact.kind, sorted(order.suites), order.proof, order.device, resources)
    key = hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:16]
    return Cell(key=key, reference=reference, order=order, resources=resources)


def recalled(matrix: Matrix, wanted: Sequence[Cell], *, rerun: bool = False) -> list[Cell]:
    """The wanted cells, each as far as an earlier call got; failures are forgotten, with `rerun` passes too.

    So are passes of what no digest stands for: a tag on a registry.
    """
    known = {cell.key: cell for cell in matrix.cells}
    found = []
    for cell in {cell.key: cell for cell in wanted}.values():  # the same image named twice is one cell
        before = known.get(cell.key)
        found.append(before if before is not None and (before.state.is_open or _holds(before, rerun)) else cell)
    return found


def _holds(cell: Cell, rerun: bool) -> bool:
    """Whether what it has passed is still so."""
    return cell.state is State.PASSED and not rerun and bool(memory.content(cell.order.artifact.digest))


def remembered(matrix: Matrix, cells: Iterable[Cell]) -> Matrix:
    """The matrix with these cells, new ones after those that it has."""
    both = {cell.key: cell for cell in matrix.cells} | {cell.key: cell for cell in cells}
    return msgspec.structs.replace(matrix, cells=tuple(both.values()))


def batches(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells to submit, those together that can be one array: Slurm gives an array one partition and one request."""
    found: dict[Resources, list[Cell]] = {}
    for cell in cells:
        if cell.state is State.NEW:
            found.setdefault(cell.resources, []).append(cell)
    return list(found.values())


def submitted(cell: Cell, job: str, now: float) -> Cell:
    """The cell with its job."""
    return msgspec.structs.replace(cell, state=State.QUEUED, job=job, submitted=now, gone=0.0, why="")


def lost(cell: Cell, why: str) -> Cell:
    """The cell without a report, and why."""
    return msgspec.structs.replace(cell, state=State.LOST, why=why)


def step(
    cell: Cell, view: JobView | None, returned: Returned | None, now: float, patience: float, began: float = 0.0
) -> Cell:
    """The cell after a look at its job.

    `view`: None where Slurm does not know the job. `returned`: what the job gave back, None while it has not.
    `patience`: seconds that it may wait for its start from `began` on, when this call began to follow it.
    """
    if not cell.state.is_open:
        return cell
    if returned is not None:
        return _ended(cell, returned, view)
    if view is not None and view.is_silent:
        return msgspec.structs.replace(cell, why=view.reason, gone=0.0)
    if view is None or view.is_ended:
        gone = cell.gone or now
        if now - gone < GRACE:
            return msgspec.structs.replace(cell, gone=gone)
        how = f"Slurm no longer knows job {cell.job}" if view is None else f"job {cell.job} ended as {view.words}"
        return lost(cell, f"{how} and left no report")
    cell = msgspec.structs.replace(cell, gone=0.0, node=view.node)
    if not view.is_waiting:
        return msgspec.structs.replace(cell, state=State.RUNNING, why="")
    reason = view.reason
    if HOPELESS.search(reason):
        return lost(cell, f"job {cell.job} can never start: {reason}")
    if now - max(cell.submitted, began) > patience:
        return lost(cell, f"job {cell.job} did not start within {patience / 60:g} min: {reason or 'no reason given'}")
    return msgspec.structs.replace(cell, state=State.QUEUED, why=reason)


def _ended(cell: Cell, returned: Returned, view: JobView | None) -> Cell:
    if returned.error:
        return lost(cell, f"job {cell.job} could not run the suites: {returned.error}")
    node = next((suite.node for suite in returned.suites if suite.node), view.node if view else cell.node)
    failed = [suite for suite in returned.suites if suite.status == "failed"]
    return msgspec.structs.replace(
        cell,
        state=State.FAILED if failed else State.PASSED,
        why=f"{failed[0].suite}: {failed[0].reason}" if failed else _remembered(returned.suites),
        node=node,
        suites=returned.suites,
    )


def _remembered(suites: Sequence[SmokeReport]) -> str:
    """`dna: passed on 2026-11-22, not run again`, of those that the node did not run."""
    return "; ".join(
        f"{suite.suite}: passed on {suite.remembered[:10]}, not run again" for suite in suites if suite.remembered
    )


def counts(cells: Collection[Cell]) -> str:
    """`3 passed, 1 running`."""
    numbers = {state: sum(cell.state is state for cell in cells) for state in State}
    return ", ".join(f"{number} {state}" for state, number in numbers.items() if number)
