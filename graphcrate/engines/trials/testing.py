"""The story of a trial: here, as a job, or as a matrix of jobs; what it leaves beside the image."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import filelock
import msgspec
from rich.console import Console

from graphcrate.engines import run_suites
from graphcrate.engines.slurm import cluster
from graphcrate.engines.slurm.cluster import Slurm
from graphcrate.engines.slurm.scheduler import Scheduler, SlurmScheduler
from graphcrate.engines.trials import matrix
from graphcrate.engines.trials.artifact import Subject, find
from graphcrate.engines.trials.poll import follow
from graphcrate.engines.trials.progress import Board
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.model.errors import HostError, SmokeError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.report import SmokeReport
from graphcrate.model.trial import Cell, Device, Matrix, Order, Resources, State, TrialReport
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.smoke import suites as smoke
from graphcrate.smoke.memory import Memory

REPORT = "trial.json"
JOBS = "slurm"  #: below the output folder: the jobs' scripts and logs
STATE = "matrix.json"  #: below the output folder


def try_here(subject: Subject, device: Device, ctx: Context, *, rerun: bool = False) -> TrialReport:
    """Run the subject's suites on this machine. The report lies in the subject's folder too.

    What it passed on such a machine before is not run, except with `rerun`; that is so of all trials here.
    """
    suites = run_suites.run_suites(
        subject.artifact,
        subject.suites,
        subject.folder,
        ctx,
        device,
        packages=subject.packages,
        memory=Memory(subject.passes, rerun),
    )
    return _kept(subject, suites)


def try_in_job(
    subject: Subject,
    resources: Resources,
    device: Device,
    scheduler: Scheduler,
    ctx: Context,
    patience: float,
    *,
    rerun: bool = False,
) -> TrialReport:
    """Run the subject's suites as a job, its lines on stderr. An interrupt takes the job back.

    Raises HostError for a job that gave no report.
    """
    watcher = _Voice(ctx.progress.note)
    cell = cell_of(subject, resources, device, rerun=rerun)
    try:
        (cell,) = follow([cell], scheduler, watcher, patience=patience)
    except BaseException:
        scheduler.cancel(watcher.open_jobs)
        raise
    if cell.state is State.LOST:
        raise HostError(
            f"{subject.reference} was not tested on {resources.partition}: {cell.why}",
            next_step=f"less {scheduler.log(cell.job)}"
            if cell.node
            else "sinfo; squeue --me    show what goes on there",
        )
    return _kept(subject, cell.suites)


def try_matrix(
    cells: Sequence[Cell], scheduler: Scheduler, output: Path, patience: float, *, rerun: bool = False
) -> list[Cell]:
    """Run cells as arrays, remembering them in the state file: the same call goes on where another one stopped.

    `rerun`: also cells that have passed. An interrupt leaves the jobs in the queue. Raises UsageError while another
    process works on the same matrix.
    """
    with _state(output / STATE) as state:
        wanted = matrix.recalled(state.value, cells, rerun=rerun)
        with Board(Console(stderr=True)).shown() as board:

            def changed(cells: Sequence[Cell]) -> None:
                state.keep(cells)
                board.show(cells)

            found = follow(wanted, scheduler, _Quiet(changed), patience=patience)
    for cell in found:
        if cell.state.is_finished:
            order = cell.order
            report = TrialReport(
                reference=cell.reference,
                runner="slurm",
                artifact=order.artifact,
                suites=cell.suites,
                layout=order.layout,
            )
            write_file(Path(order.folder) / REPORT, encode(report))
    return found


def cell_of(subject: Subject, resources: Resources, device: Device, *, rerun: bool = False) -> Cell:
    """A subject on a partition. All paths absolute: a job has another working folder."""
    name = "-".join(part for part in (resources.partition, resources.gres.replace(":", "")) if part)
    reference = subject.artifact.reference
    if subject.artifact.kind in ("sif", "sqsh"):
        reference = str(Path(reference).absolute())
    order = Order(
        artifact=msgspec.structs.replace(subject.artifact, reference=reference),
        suites=subject.suites,
        device=device,
        folder=str((subject.folder / name).absolute()),
        packages=subject.packages,
        layout=subject.layout,
        passes=str(subject.passes.absolute()),
        rerun=rerun,
        proof=" ".join(smoke.version_of(suite, subject.packages) for suite in sorted(subject.suites)),
    )
    return matrix.new_cell(subject.reference, order, resources)


def raise_if_failed(reference: str, suites: Sequence[SmokeReport]) -> None:
    """Raises SmokeError for the first suite that failed."""
    for suite in (suite for suite in suites if suite.status == "failed"):
        raise SmokeError(f"smoke test {suite.suite} failed in {reference}: {suite.reason}")


def raise_if_unfinished(cells: Sequence[Cell], output: Path) -> None:
    """Raises SmokeError where a suite failed, HostError where a cell has no report."""
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
            next_step=f"the same command runs those again, and only those ({output / STATE} knows the others)",
        )


def check_partitions(names: Sequence[str], slurm: Slurm) -> None:
    """Raises UsageError for a partition that Slurm does not have, with those that it has."""
    known = slurm.partitions()
    for name in names:
        if name not in [partition.name for partition in known]:
            words = ", ".join(
                f"{partition.name}{'' if partition.is_up else ' (down)'}"
                + (f" ({partition.gres})" if partition.gres else "")
                for partition in known
            )
            raise UsageError(
                f"there is no partition {name!r}; there are {words or 'none that you may use'}",
                next_step=f"--partition {known[0].name}" if known else "ask the administrator of this cluster",
            )


def slurm_here(ctx: Context, output: Path) -> tuple[Slurm, SlurmScheduler]:
    """The Slurm of this machine, and a scheduler whose files lie below `output`. Raises HostError."""
    slurm = cluster.find(ctx.environment)
    return slurm, SlurmScheduler(slurm, output / JOBS, ctx.root, ctx.environment)


def subjects(
    references: Sequence[str], suites: Sequence[str], ctx: Context, output: Path, *, pyxis: bool
) -> list[Subject]:
    """What is to be tried in Slurm. Raises UsageError before anything is submitted."""
    return [find(reference, "slurm", suites, ctx, output, pyxis=pyxis) for reference in references]


def _kept(subject: Subject, suites: Sequence[SmokeReport]) -> TrialReport:
    report = TrialReport(
        reference=subject.reference,
        runner=subject.runner,
        artifact=subject.artifact,
        suites=tuple(suites),
        layout=subject.layout,
    )
    write_file(subject.folder / REPORT, encode(report))
    return report


@dataclass
class _Voice:
    """Says what a job says, and where it stands."""

    say: Callable[[str], None]
    open_jobs: list[str] = field(default_factory=list)
    _last: str = ""

    def heard(self, cell: Cell, lines: Sequence[str]) -> None:
        for line in lines:
            self.say(line)

    def changed(self, cells: Sequence[Cell]) -> None:
        from graphcrate.engines.trials.progress import line

        self.open_jobs = [cell.job for cell in cells if cell.state.is_open]
        for cell in cells:
            told = line(cell)
            if cell.state.is_open and told != self._last:
                self._last = told
                self.say(told)


@dataclass
class _Quiet:
    """Of many jobs at once only the changes; what each says is in its log."""

    changed: Callable[[Sequence[Cell]], None]

    def heard(self, cell: Cell, lines: Sequence[str]) -> None:
        pass


@dataclass
class _State:
    """The state file, open for one process."""

    path: Path
    value: Matrix

    def keep(self, cells: Sequence[Cell]) -> None:
        """Write these cells down, whole or not at all."""
        self.value = matrix.remembered(self.value, cells)
        write_file(self.path, encode(self.value))


@contextlib.contextmanager
def _state(path: Path) -> Iterator[_State]:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(path.with_name(f".{path.name}.lock"), blocking=False):
            yield _State(path, _read(path))
    except filelock.Timeout as error:
        raise UsageError(
            f"another process works on the matrix in {path}",
            next_step="wait for it, or keep another matrix: --output FOLDER",
        ) from error


def _read(path: Path) -> Matrix:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Matrix)
    except FileNotFoundError:
        return Matrix()
    except (OSError, *UNREADABLE) as error:
        raise UsageError(
            f"{path} cannot be read: {error}",
            cause="It is the work of another version of graphcrate, or was changed by hand.",
            next_step=f"mv {path} {path}.old    (finished cells are run again then)",
        ) from error
