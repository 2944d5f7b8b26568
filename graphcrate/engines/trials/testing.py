"""Test an image here, in a job of Slurm, or as a matrix of jobs; write reports beside the image."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import filelock
import msgspec
from rich.console import Console

from graphcrate.engines import run_suites
from graphcrate.engines.slurm import submit
from graphcrate.engines.slurm.submit import Scheduler
from graphcrate.engines.trials import matrix, progress
from graphcrate.engines.trials.artifact import Subject
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, HostError, SmokeError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.report import SmokeReport
from graphcrate.model.trial import Cell, Device, Matrix, Order, Resources, State, TrialReport
from graphcrate.smoke import suites as smoke

REPORT = "trial.json"
JOBS = "slurm"  #: below the output folder: the jobs' orders, results and logs
STATE = "matrix.json"  #: below the output folder


def run_here(subject: Subject, device: Device, ctx: Context, *, rerun: bool = False) -> TrialReport:
    """Run the subject's suites on this machine and write the report. `rerun`: also those that it passed before."""
    order = subject.order(device, rerun=rerun)
    return _write_report(subject.reference, subject.runner, order, run_suites.run_suites(order, ctx))


def run_in_job(subject: Subject, cell: Cell, scheduler: Scheduler, ctx: Context, patience: float) -> TrialReport:
    """Run the suites as the job of a cell; an interrupt cancels it. Raises HostError for a job without a report."""
    pending: list[str] = []
    last = ""

    def changed(cells: Sequence[Cell]) -> None:
        nonlocal last
        pending[:] = [cell.job for cell in cells if cell.state.is_open]
        if pending and (line := progress.line(cells[0])) != last:
            ctx.progress.note(line)
            last = line

    try:
        (cell,) = matrix.follow([cell], scheduler, patience=patience, changed=changed, say=ctx.progress.note)
    except BaseException:
        scheduler.slurm.cancel(pending)
        raise
    if cell.state is State.LOST:
        where = f"less {scheduler.log(cell.job)}" if cell.node else "sinfo; squeue --me    show what goes on there"
        raise HostError(
            f"{subject.reference} was not tested on {cell.resources.partition}: {cell.why}", next_step=where
        )
    return _write_report(subject.reference, subject.runner, subject.order(cell.order.device), cell.suites)


def run_matrix(cells: Sequence[Cell], scheduler: Scheduler, output: Path, patience: float) -> list[Cell]:
    """Run cells as arrays, recorded in a state file: the same call resumes one that stopped.

    An interrupt leaves the jobs in the queue. Raises UsageError while another process runs the same matrix.
    """
    with _open_state(output / STATE) as (state, record), progress.shown(Console(stderr=True)) as show:

        def changed(cells: Sequence[Cell]) -> None:
            record(cells)
            show(cells)

        ended = matrix.follow(matrix.resume(state, cells), scheduler, patience=patience, changed=changed)
    for cell in ended:
        if cell.state.is_finished:
            _write_report(cell.reference, "slurm", cell.order, cell.suites)
    return ended


def cell_of(subject: Subject, resources: Resources, device: Device, *, rerun: bool = False) -> Cell:
    """Make the cell of a subject on a partition. All paths absolute: a job has another working folder."""
    name = "-".join(part for part in (resources.partition, resources.gres.replace(":", "")) if part)
    artifact = subject.artifact
    if artifact.kind in ("sif", "sqsh"):
        artifact = msgspec.structs.replace(artifact, reference=str(Path(artifact.reference).absolute()))
    order = msgspec.structs.replace(
        subject.order(device, rerun=rerun),
        artifact=artifact,
        folder=str((subject.folder / name).absolute()),
        passes=str(subject.passes.absolute()),
        proof=" ".join(smoke.version_of(suite, subject.packages) for suite in sorted(subject.suites)),
    )
    return matrix.new_cell(subject.reference, order, resources)


def raise_if_unfinished(cells: Sequence[Cell], output: Path) -> None:
    """Raise SmokeError where a suite failed, HostError where a cell has no report."""
    for cell in cells:
        if cell.state is State.FAILED:
            raise SmokeError(
                f"{cell.reference} failed on {cell.resources.partition}: {cell.why}",
                next_step=f"ls {cell.order.folder}    has the logs; the same command runs it again",
            )
    if lost := [cell for cell in cells if cell.state is State.LOST]:
        raise HostError(
            f"{len(lost)} of {len(cells)} cells have no report; the first is {lost[0].reference} on "
            f"{lost[0].resources.partition}: {lost[0].why}",
            next_step=f"the same command runs those again, and only those ({output / STATE} records the others)",
        )


def find_slurm(ctx: Context, output: Path, partitions: Sequence[str]) -> Scheduler:
    """Find this machine's Slurm, with jobs' files below `output`. Raises HostError, UsageError for a partition."""
    slurm = submit.find(ctx.environment)
    known = slurm.partitions()
    if unknown := [name for name in partitions if name not in known]:
        raise UsageError(
            f"there is no partition {unknown[0]!r}; there are {', '.join(known) or 'none that you may use'}",
            next_step=f"--partition {known[0]}" if known else "ask the administrator of this cluster",
        )
    return Scheduler(slurm, output / JOBS, Path(__file__).resolve().parents[3], ctx.environment)


def _write_report(reference: str, runner: str, order: Order, suites: Sequence[SmokeReport]) -> TrialReport:
    report = TrialReport(
        reference=reference, runner=runner, artifact=order.artifact, suites=tuple(suites), layout=order.layout
    )
    write_file(Path(order.folder) / REPORT, encode(report))
    return report


@contextlib.contextmanager
def _open_state(path: Path) -> Iterator[tuple[Matrix, Callable[[Sequence[Cell]], None]]]:
    """Lock the state file for this process; give its value and a function that records cells in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(path.with_name(f".{path.name}.lock"), blocking=False):
            try:
                state = codec.decode(path.read_bytes(), Matrix) if path.exists() else Matrix()
            except (OSError, *UNREADABLE) as error:
                raise UsageError(
                    f"{path} cannot be read: {error}",
                    cause="Another version of graphcrate wrote it, or it was changed by hand.",
                    next_step=f"mv {path} {path}.old    (finished cells are run again then)",
                ) from error

            def record(cells: Sequence[Cell]) -> None:
                merged = {cell.key: cell for cell in (*state.cells, *cells)}
                write_file(path, encode(msgspec.structs.replace(state, cells=tuple(merged.values()))))

            yield state, record
    except filelock.Timeout as error:
        raise UsageError(
            f"another process runs the matrix in {path}",
            next_step="wait for it, or start another matrix: --output FOLDER",
        ) from error
