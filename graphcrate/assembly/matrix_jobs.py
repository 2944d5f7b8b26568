"""The rows of a matrix as jobs of other schedulers: two stages for GitHub, or an indexed Job of Kubernetes.

What several rows compile is compiled by one of them, in the first stage, and comes to the others from a shared cache.
An indexed Job has machines that take rows from a queue (`queued`), each until all have ended.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from graphcrate.assembly import queued
from graphcrate.assembly.matrix import MatrixRow
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.compat.variants import catalog
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.inputs import extensions as wheelhouse
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import encode
from graphcrate.render.layout import render_template

QUEUE = "dist/matrix-queue"  #: of an indexed Job, in the folder that its pods share
_MOST_PODS = 8
FORMS = (".json", ".yaml", ".yml")


class MatrixJob(msgspec.Struct, frozen=True, kw_only=True):
    """A row as a job: the options of `matrix` for it, keys of what it compiles, names of jobs that do so before it."""

    name: str
    recipe: str
    cuda: str
    candidate: str
    platform: str
    compiles: tuple[str, ...]
    needs: tuple[str, ...]


class JobStage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that may run side by side, as the matrix of a workflow of GitHub has them."""

    include: tuple[MatrixJob, ...]


class Stages(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a matrix. `then`: those that wait for one of `first`, which compiles the same."""

    first: JobStage
    then: JobStage


def stages(rows: Sequence[MatrixRow], ctx: Context) -> Stages:
    """Divide rows: of those that compile the same the one that compiles most is first, with those that need none."""
    keys = {queued.name_of(row): _keys(row, ctx) for row in rows}
    owners: dict[str, str] = {}
    for name in sorted(keys, key=lambda name: (-len(keys[name]), name)):
        for key in keys[name]:
            owners.setdefault(key, name)
    jobs = [_job(row, keys[queued.name_of(row)], owners) for row in rows]
    return Stages(
        first=JobStage(include=tuple(job for job in jobs if not job.needs)),
        then=JobStage(include=tuple(job for job in jobs if job.needs)),
    )


def _keys(row: MatrixRow, ctx: Context) -> tuple[str, ...]:
    """Return the keys of all that is compiled for a row, also of what this cache has."""
    steps = compile_steps(row.lock) if row.lock else ()
    return tuple(sorted({wheelhouse.key(package, step, ctx.cache) for step in steps for package in step.packages}))


def _job(row: MatrixRow, keys: tuple[str, ...], owners: dict[str, str]) -> MatrixJob:
    name = queued.name_of(row)
    return MatrixJob(
        name=name,
        recipe=row.recipe.name,
        cuda=row.variant.cuda,
        candidate=row.candidate.name,
        platform=catalog.typed_platform(row.platform) or "",
        compiles=keys,
        needs=tuple(sorted({owners[key] for key in keys} - {name})),
    )


def write(path: Path, rows: Sequence[MatrixRow], words: Sequence[str], ctx: Context) -> None:
    """Write rows as jobs, in the form that the file's name ends with. `words`: of the command for machines of a queue.

    Raises UsageError for another ending.
    """
    if path.suffix not in FORMS:
        raise UsageError(
            f"{path} does not end in .json or .yaml",
            next_step="--print jobs.json    (a matrix of two stages for GitHub) or --print jobs.yaml    (Kubernetes)",
        )
    if path.suffix == ".json":
        write_file(path, encode(stages(rows, ctx)))
        return
    values = {
        "words": [str(ctx.root / "build.py"), *words, "--queue", str(ctx.root / QUEUE)],
        "pods": min(_MOST_PODS, len(rows)),
        "root": str(ctx.root),
    }
    write_file(path, render_template("matrix-kubernetes", values).encode())
