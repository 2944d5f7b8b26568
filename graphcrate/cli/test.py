"""The commands `test` and `job`."""

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here, named, present, write
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import UsageError
from graphcrate.model.runtime import JOBS, RUNNERS
from graphcrate.model.words import either, in_lines, listed

if TYPE_CHECKING:
    from graphcrate.host.context import Context
    from graphcrate.model.trial import TrialReport
    from graphcrate.render.job import Job

Runner = Annotated[str, typer.Option(help=f"{either(RUNNERS)}; auto: by what REF is.")]
Account = Annotated[str, typer.Option(help="Slurm: account.")]
IsMatrix = Annotated[
    bool, typer.Option("--matrix", help="Slurm: every REF on every partition; the same call goes on where it stopped.")
]
Rerun = Annotated[
    bool, typer.Option("--rerun", help="Run also what the image passed on such a node before; cells of a matrix too.")
]
_DEFAULT_CORES = (
    "the cores of partition {} are not known: the job gets Slurm's default, often one; --cpus N asks for N for each GPU"
)
JobImage = Annotated[
    str,
    typer.Argument(
        help="NAME:TAG below dist/, the path of a .sif or .sqsh, or a reference on a registry.", metavar="REF"
    ),
]
Mount = Annotated[
    list[str] | None,
    typer.Option(
        "--mount", help="SOURCE:TARGET[:ro], for data; PAI: id of a dataset and its path; Kubernetes: a claim."
    ),
]
Notebook = Annotated[bool, typer.Option("--jupyter", help="Slurm: start JupyterLab; the job's output has its address.")]
OnePartition = Annotated[
    str,
    typer.Option(help="Slurm: partition; else the only one of --target. Its cores for each GPU come from targets/."),
]
Target = Annotated[
    str, typer.Option(help="The machine of targets/, or a file like those: its partition and its network.")
]
PerGpu = Annotated[
    bool | None,
    typer.Option(help="A process for each GPU, else for each node; default: for each GPU where pyxis has many nodes."),
]


def try_image(
    refs: Annotated[
        list[str],
        typer.Argument(
            help="NAME:TAG below dist/, a layout, a .sif, a .sqsh, a tar, docker:NAME, podman:NAME.", metavar="REF"
        ),
    ],
    runner: Runner = "auto",
    suite: Annotated[str, typer.Option(help="Suites, such as dna,ops; else those of the recipe.")] = "",
    device: options.Device = "auto",
    partition: Annotated[str, typer.Option(help="Slurm: partition; several with --matrix, such as dgx2,a100.")] = "",
    gres: Annotated[str, typer.Option(help="Slurm: generic resources, such as gpu:1.")] = "",
    time: Annotated[str, typer.Option(help="Slurm: time limit; else what the suites may take.")] = "",
    account: Account = "",
    qos: Annotated[str, typer.Option(help="Slurm: quality of service.")] = "",
    cpus: Annotated[int, typer.Option(help="Slurm: cores; else the partition's default.")] = 0,
    nodes: Annotated[int, typer.Option(help="Slurm: machines, over which the suites nccl and ddp spread.")] = 1,
    wait: Annotated[float, typer.Option(help="Slurm: minutes that a job may wait for its start.")] = 60.0,
    matrix: IsMatrix = False,
    rerun: Rerun = False,
    platform: options.AnyPlatform = "",
    output: options.Output = Path("dist"),
    as_json: options.Json = False,
) -> None:
    """Run an image's test suites, here or as Slurm jobs."""
    from graphcrate.engines import run_suites, slurm_jobs
    from graphcrate.engines.trials import artifact, progress
    from graphcrate.engines.trials import matrix as jobs
    from graphcrate.model.trial import Matrix, Resources

    ctx = here()
    suites, partitions = ([name for name in text.split(",") if name] for text in (suite, partition))
    refs = [present(ref, output, platform) for ref in refs]
    _check(refs, runner, partitions, time, matrix=matrix, nodes=nodes)
    find = functools.partial(
        artifact.find,
        suites=suites,
        ctx=ctx,
        output=output,
        device=device,
        rerun=rerun,
        platform=options.platform_of(platform),
    )
    if not matrix and runner != "slurm":
        order = find(refs[0], runner)
        _print(run_suites.run_suites(order, ctx), order.folder, as_json)
        return
    scheduler = slurm_jobs.connect(ctx, output, partitions)
    pyxis = scheduler.slurm.has_pyxis()
    orders = [find(ref, "slurm", pyxis=pyxis, nodes=nodes) for ref in refs]
    requests = [
        Resources(partition=name, gres=gres, time=time, account=account, qos=qos, cpus=cpus) for name in partitions
    ]
    cells = [jobs.new_cell(order, request) for order in orders for request in requests]
    if not matrix:
        _print(jobs.run_job(cells[0], scheduler, ctx, wait * 60), cells[0].order.folder, as_json)
        return
    ended = jobs.run_matrix(cells, scheduler, ctx, wait * 60)
    write(Matrix(cells=tuple(ended)), progress.text(ended), as_json=as_json)
    jobs.raise_if_failed(ended, scheduler)


def job(
    ref: JobImage,
    runtime: Annotated[str, typer.Option(help=f"{either(JOBS)}.")],
    command: Annotated[str, typer.Option(help="What is run, as a shell has it; else the image's own program.")] = "",
    jupyter: Notebook = False,
    name: Annotated[str, typer.Option(help="The job's name; else the image's.")] = "",
    partition: OnePartition = "",
    target: Target = "",
    nodes: Annotated[int, typer.Option(help="Machines.")] = 1,
    gpus: Annotated[int | None, typer.Option(help="GPUs on each of them; else 1.")] = None,
    per_gpu: PerGpu = None,
    cpus: Annotated[int, typer.Option(help="Slurm: cores for each GPU.")] = 0,
    time: Annotated[str, typer.Option(help="Slurm: time limit.")] = "",
    account: Account = "",
    mount: Mount = None,
    instance: Annotated[str, typer.Option(help="PAI: type of the nodes; known for 1 and 4 GPUs.")] = "",
    driver: Annotated[str, typer.Option(help="PAI: NVIDIA driver, such as 535.54.03.")] = "",
    workspace: Annotated[str, typer.Option(help="PAI: id of the workspace.")] = "",
    platform: options.AnyPlatform = "",
    output: options.Output = Path("dist"),
) -> None:
    """Print the job that runs an image, its module, bundle or tests. Of PAI DLC a request, of PAI DSW an address."""
    from graphcrate.compat.variants import catalog
    from graphcrate.render import job_image, jobs
    from graphcrate.render.job import Job, read_mount, read_runtime

    ctx = here()
    output = options.place_of(ref, output, platform)
    where, ref = read_runtime(runtime), named(ref, output, platform)
    stacks = catalog.all_recipes(ctx)
    asked = {"--command": command, "--gpus": gpus, "--per-gpu": per_gpu, "--jupyter": jupyter}
    command = _command(where, asked, nodes)
    job_ = Job(
        runtime=where,
        name=name or job_image.default_name(ref, where),
        image=job_image.find_image(ref, where, output),
        command=command or job_image.default_command(ref, output, stacks),
        suites=job_image.default_suites(ref, output, stacks) if JOBS[where].suites else (),
        partition=partition,
        nodes=nodes,
        gpus=1 if gpus is None else gpus,
        per_gpu=JOBS[where].per_gpu and nodes > 1 if per_gpu is None else per_gpu,
        cpus=cpus,
        time=time,
        account=account,
        mounts=tuple(read_mount(text) for text in mount or ()),
        instance=instance,
        driver=driver,
        workspace=workspace,
    )
    job_ = _on_nodes(job_, target, ctx)
    if JOBS[where].is_slurm and not job_.cpus:
        ctx.progress.note(_DEFAULT_CORES.format(partition or "(none named)"))
    if job_image.is_missing(ref):
        ctx.progress.note(f"{ref} is not here: the job opens that path on its cluster")
    sys.stdout.write(jobs.text(job_image.on_base(job_, ctx.environment)))


def _on_nodes(asked: "Job", target: str, ctx: "Context") -> "Job":
    """Send a job to its partition, with what `targets/` tells of it and of the network between its nodes."""
    from graphcrate.compat.variants import catalog
    from graphcrate.compat.variants.targets import MachineRequest
    from graphcrate.render.job_network import in_partition, on_fabric

    if JOBS[asked.runtime].is_slurm and (known := catalog.find_partition(ctx, asked.partition, target)):
        return on_fabric(in_partition(asked, known.name, known.partition), known.fabric)
    if not target:
        return asked
    machine = catalog.find_target(ctx, MachineRequest(target=target))
    if asked.partition and machine.partitions:
        ctx.progress.note(f"{target} has no partition {asked.partition}; it has {listed(machine.partitions)}")
    return on_fabric(asked, machine.fabric)


def _command(where: str, asked: Mapping[str, object], nodes: int) -> str:
    """Return the command that was asked for; empty for the image's own program. Raises UsageError.

    What brings an image alone takes none, and no option of a job that runs something.
    """
    given = [option for option, value in asked.items() if value not in (None, "", False)]
    if given and not JOBS[where].runs:
        raise UsageError(
            f"{where} brings an image, and runs nothing: it has no {given[0]}", next_step=f"leave {given[0]} out"
        )
    if asked["--jupyter"]:
        return _notebook(where, is_alone=not asked["--command"] and nodes == 1 and not asked["--per-gpu"])
    return str(asked["--command"]) if JOBS[where].runs else "python"


def _notebook(where: str, *, is_alone: bool) -> str:
    from graphcrate.render.notebook import notebook

    if not is_alone or not JOBS[where].is_slurm:
        raise UsageError(
            "--jupyter is a job of Slurm's on one node, without a command of its own",
            next_step="--jupyter --runtime singularity, or pyxis",
        )
    return notebook()


def _check(refs: Sequence[str], runner: str, partitions: Sequence[str], time: str, *, matrix: bool, nodes: int) -> None:
    """Raise UsageError for options that do not go together, and for an invalid time limit."""
    from graphcrate.render import slurm_batch

    slurm_batch.check_time(time)
    if matrix and runner not in ("auto", "slurm"):
        raise UsageError(
            f"--matrix runs jobs of Slurm, and the runner is {runner}", next_step="leave --runner out, or --matrix"
        )
    if not matrix and (len(refs) > 1 or len(partitions) > 1):
        raise UsageError("several images or partitions are a matrix", next_step=command(ETC, matrix=True))
    in_slurm = matrix or runner == "slurm"
    if in_slurm and not partitions:
        raise UsageError("--partition is missing", next_step=f"{command(ETC, partition='NAME')}    (sinfo lists them)")
    if partitions and not in_slurm:
        raise UsageError("--partition needs --runner slurm", next_step=command(ETC, runner="slurm"))
    if nodes != 1 and not in_slurm:
        raise UsageError(
            "--nodes needs --runner slurm",
            cause="Other runners start an image on this machine alone.",
            next_step="--runner slurm --partition NAME    (elsewhere torchrun starts /opt/graphcrate/suites/nccl.py)",
        )


def _print(report: "TrialReport", folder: str, as_json: bool) -> None:
    from graphcrate.engines import run_suites
    from graphcrate.engines.trials import progress

    write(report, in_lines(progress.suites_lines(report.suites)), as_json=as_json)
    run_suites.raise_if_failed(report.reference, report.suites, folder)
