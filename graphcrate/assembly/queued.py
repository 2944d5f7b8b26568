"""A matrix on many machines: each takes rows from a queue, which is a folder that all of them see.

`ends/ROW.json` has the outcome of a row, `leases/` who does what. Rows that compile go first, and no two machines
compile the same: who takes a row takes the keys of what is to be compiled for it, too. A machine that is lost loses a
row, which another takes when its lease expires, or Slurm says that its job has ended.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.assembly import matrix, pipeline
from graphcrate.assembly.matrix import Build, MatrixRequest, MatrixRow, Result
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.engines import on_node, slurm_step
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.inputs import extensions as wheelhouse
from graphcrate.inputs.shared.leases import Lease, LeaseFolder, Leases
from graphcrate.model import codec
from graphcrate.model.command import TYPED_PATH
from graphcrate.model.errors import UNREADABLE
from graphcrate.model.lock import encode
from graphcrate.model.trial import CommandOrder, JobCell, Resources, State

PAUSE = 5.0  #: seconds between two looks at what others do
MOST_TASKS = 8  #: of an array, unless the user says
FOLDER = "matrix"  #: below that of Slurm's jobs


@dataclass(frozen=True)
class Queue:
    """The folder of a queue."""

    folder: Path

    def leases(self, owner: str) -> Leases:
        """Return the leases of a taker."""
        return Leases(self._leases, owner)

    def free(self, is_over: Callable[[Lease], bool]) -> None:
        """Free the leases of others of which one knows that they are over."""
        self.leases("").free(self._leases.names(), is_over)

    @property
    def _leases(self) -> LeaseFolder:
        return LeaseFolder(self.folder / "leases")

    def end(self, row: MatrixRow) -> Result | None:
        """Return the outcome of a row; None while it has no readable one."""
        try:
            return codec.decode(self._file(row).read_bytes(), Result)
        except (OSError, *UNREADABLE):
            return None

    def put(self, row: MatrixRow, result: Result) -> None:
        """Write the outcome of a row."""
        write_file(self._file(row), encode(result))

    def begin(self, rows: Sequence[MatrixRow]) -> None:
        """Forget outcomes of earlier runs: what was proved has its proof, all else is tried once more."""
        for row in rows:
            self._file(row).unlink(missing_ok=True)
        self.free(lambda lease: lease.state == "done")

    def _file(self, row: MatrixRow) -> Path:
        return self.folder / "ends" / f"{name_of(row)}.json"


def name_of(row: MatrixRow) -> str:
    """Return the name of a row's files."""
    return re.sub(r"[^\w.+-]+", "-", row.title)


def keys(row: MatrixRow, ctx: Context) -> list[str]:
    """Return the keys of what is compiled for a row and is not in the cache."""
    steps = compile_steps(row.lock) if row.lock else ()
    shelves = [shelf for step in steps for shelf in wheelhouse.shelves(step, ctx.cache).values()]
    return sorted(shelf.wheel.name for shelf in shelves if shelf.made is None)


def work(
    queue: Queue,
    request: MatrixRequest,
    ctx: Context,
    build: Build = pipeline.build_image,
) -> list[Result]:
    """Take rows until all have ended, by this machine or others; return the outcomes of all."""
    rows = matrix.rows(ctx, request)
    where = slurm_step.here().get("node") or os.uname().nodename
    leases = queue.leases(slurm_step.own_job() or f"{where}-{os.getpid()}")
    known: dict[str, Result] = {}
    while len(known) < len(rows):
        for row in rows:
            if name_of(row) not in known and (ended := queue.end(row) or matrix.proved_before(row, request, ctx)):
                known[name_of(row)] = ended
        left = [row for row in rows if name_of(row) not in known]
        taken = next(_taken(left, leases, ctx), None)
        if taken is None:
            settings.wait(PAUSE if left else 0)
            continue
        row = taken
        try:
            if queue.end(row) is None:  # the last one that had it may have ended meanwhile
                ctx.progress.note(f"matrix: {row.title} on {where}, {len(left)} of {len(rows)} left")
                with leases.beating():
                    result = matrix.prove(row, left, request, ctx, build)
                queue.put(row, result)
                ctx.progress.note(f"matrix: {row.title}: {result.state} on {where}")
                if result.proof is not None:
                    leases.leave("done")
        finally:
            leases.leave()
    return [known[name_of(row)] for row in rows]


def _taken(left: Sequence[MatrixRow], leases: Leases, ctx: Context) -> Iterator[MatrixRow]:
    """Yield the first row that is free, taken with what is compiled for it; those that compile come first."""
    missing = {name_of(row): keys(row, ctx) for row in left}
    for row in sorted(left, key=lambda row: not missing[name_of(row)]):
        own, compiled = f"row-{name_of(row)}", [f"key-{key}" for key in missing[name_of(row)]]
        looks = [leases.is_open(name) for name in (own, *compiled)]  # each is looked at: it expires by being watched
        if all(looks) and leases.take(own):
            if all(leases.is_done(key) or leases.take(key) for key in compiled):
                yield row
                return
            leases.leave()  # another was faster


def on_slurm(
    request: MatrixRequest, words: Sequence[str], resources: Resources, tasks: int, ctx: Context, typed: str = ""
) -> list[Result]:
    """Prove the rows by an array of jobs of Slurm, which take them from a queue; return the outcomes of all.

    `words`: of the command for one of them; `typed`: the whole command as the user typed it. Ctrl-C cancels the jobs;
    the same command goes on.
    """
    rows = matrix.rows(ctx, request)
    scheduler, resources = on_node.connected(resources, ctx, request.output)
    queue = Queue(scheduler.folder / FOLDER)
    queue.begin(rows)
    left = [row for row in rows if matrix.proved_before(row, request, ctx) is None]
    taking, folder = (*words, "--queue", str(queue.folder)), str(Path().absolute())
    order = CommandOrder(words=taking, program=TYPED_PATH, typed=typed, folder=folder)
    ended: Sequence[JobCell] = []
    if left:
        tasks = min(tasks or MOST_TASKS, len(left))
        ended = on_node.follow_array(order, resources, scheduler, tasks, show=_freeing(queue, ctx), say=_of_matrix(ctx))
    return [queue.end(row) or matrix.proved_before(row, request, ctx) or matrix.lost(row, _why(ended)) for row in rows]


def _of_matrix(ctx: Context) -> Callable[[str], None]:
    """Return a function that shows the lines of jobs on rows: all others are in their logs."""

    def say(line: str) -> None:
        if line.startswith("matrix: "):
            ctx.progress.note(line)

    return say


def _freeing(queue: Queue, ctx: Context) -> Callable[[Sequence[JobCell]], None]:
    """Return a function that notes jobs that were lost, and frees what they had taken."""
    over, changes = set[str](), on_node.changes(ctx.progress.note)

    def show(cells: Sequence[JobCell]) -> None:
        changes(cells)
        ended = {cell.job: cell for cell in cells if not cell.state.is_open and cell.job not in over}
        if not ended:
            return
        over.update(ended)
        queue.free(lambda lease: lease.state == "held" and lease.owner in ended)
        for cell in ended.values():
            if cell.state is State.LOST:
                ctx.progress.warn(f"matrix: {cell.why}; others go on with its row")

    return show


def _why(cells: Sequence[JobCell]) -> str:
    lost = [cell.why for cell in cells if cell.why]
    return lost[0] if lost else "no job took it"
