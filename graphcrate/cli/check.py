"""The commands that judge images, packages and machines: `check`, `validate`, `audit`, `explain`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from graphcrate.cli.config import config, here
from graphcrate.cli.options import (
    Driver,
    Glibc,
    Gpus,
    Json,
    Kernel,
    Output,
    Runtime,
    RuntimeVersion,
    Target,
    cuda_version,
    joined,
    said,
)

Ref = Annotated[
    str,
    typer.Argument(
        help="NAME:TAG, a path (layout, archive, .sif, .sqsh, folder), docker:NAME or REGISTRY/NAME:TAG.", metavar="REF"
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(help="Wheels, a folder of installed packages, or an image as for `check`.", metavar="REF|WHEEL…"),
]


def check(
    ref: Ref,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="bytes: sizes, digests, archives; runtimes: what Docker, Apptainer, pyxis and PAI require; "
            "binaries: libraries, symbols and GPU code. Again for more; all if left out."
        ),
    ] = None,
    target: Target = "",
    runtime: Runtime = None,
    runtime_version: RuntimeVersion = "",
    gpu: Gpus = None,
    driver: Driver = "",
    kernel: Kernel = "",
    glibc: Glibc = "",
    shm: Annotated[str, typer.Option(help="Size of /dev/shm in containers, such as 64m.")] = "",
    fetch: Annotated[
        Literal["small", "all", "none"],
        typer.Option(help="Layers to download from a registry; small: 1 GB at most."),
    ] = "small",
    everything: Annotated[bool, typer.Option("--all", help="List what passed and what is not known, too.")] = False,
    output: Output = Path("dist"),
    as_json: Json = False,
) -> None:
    """Check any image without running it. Reads its bytes, what runtimes require of it, its programs and libraries."""
    from graphcrate.checks import parts
    from graphcrate.cli import tables
    from graphcrate.compat import explain, targets

    target = target or ("" if gpu or driver or kernel or glibc or runtime else config().target)
    ctx = here()
    machine = explain.find_target(ctx, said(target, gpu, driver, runtime, runtime_version, kernel, glibc))
    found = parts.check(
        ref,
        targets.host_of(machine, shm),
        ctx,
        parts=parts.parts_of(only or ()),
        runtimes=targets.runtimes_of(tuple(machine.runtimes)),
        output=output,
        fetch=fetch,
    )
    tables.write(found, parts.answer(found, everything=everything), as_json=as_json)
    if error := parts.failure(found):
        raise error


def validate(ref: Ref, output: Output = Path("dist")) -> None:
    """Check an image's bytes alone: `check --only bytes`."""
    check(ref, only=["bytes"], output=output)


def audit(
    names: Names,
    base: Annotated[str, typer.Option(help="Image or root file system that wheels or packages are installed in.")] = "",
    gpu: Gpus = None,
    target: Target = "",
    output: Output = Path("dist"),
    as_json: Json = False,
) -> None:
    """Check wheels or installed packages without running them. Says which libraries will not load or run."""
    from graphcrate.checks import wording
    from graphcrate.checks.audit import run as auditing
    from graphcrate.cli import tables
    from graphcrate.compat import explain
    from graphcrate.compat.facts import gpu_models
    from graphcrate.compat.targets import Said
    from graphcrate.model.errors import AuditError

    ctx, named = here(), joined(gpu) or ""
    gpus = gpu_models(named) if named else ()
    if target:
        gpus = explain.find_target(ctx, Said(target=target, gpu=named)).gpus or ()
    found = auditing.run(names, ctx, base=base, gpus=gpus, output=output)
    tables.write(found, wording.audit(found), as_json=as_json)
    if failures := sum(one.severity == "fail" for one in found.findings):
        raise AuditError(f"{found.subject} will not work: {failures} of its findings fail")


def explain(
    stack: Annotated[str, typer.Argument(help="Recipe: pyg, glt or torch.", metavar="[STACK]")] = "pyg",
    target: Target = "",
    cuda: Annotated[str | None, typer.Option(callback=cuda_version, help="Show this CUDA version first.")] = None,
    gpu: Gpus = None,
    driver: Driver = "",
    runtime: Runtime = None,
    runtime_version: RuntimeVersion = "",
    kernel: Kernel = "",
    glibc: Glibc = "",
    as_json: Json = False,
) -> None:
    """Say which CUDA version runs on a machine, and why others do not."""
    from graphcrate.cli import tables
    from graphcrate.compat import catalog
    from graphcrate.compat import explain as explaining

    ctx, machine = here(), said(target, gpu, driver, runtime, runtime_version, kernel, glibc)
    recipe = catalog.find_recipe(ctx, stack)
    if cuda is not None:
        catalog.refuse_unknown_cuda(recipe, cuda)
    found = explaining.explain(recipe, explaining.find_target(ctx, machine), machine, cuda)
    tables.write(found, explaining.answer(found), as_json=as_json)
    if explaining.chosen_row(found) is None:
        raise explaining.nothing_runs(found)
