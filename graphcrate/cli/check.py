"""The commands `check`, `validate` and `audit`: arguments to `checks`, its answer to stdout. `main` registers them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from graphcrate.cli.options import Gpus, joined

Ref = Annotated[
    str,
    typer.Argument(
        help="NAME:TAG, a path (layout, archive, .sif, .sqsh, folder), docker:NAME or REGISTRY/NAME:TAG.", metavar="REF"
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="bytes: sizes, digests, archives; runtimes: what Docker, Apptainer, pyxis and PAI require; "
        "binaries: libraries, symbols and GPU code. Again for more; all if left out."
    ),
]
Target = Annotated[str, typer.Option(help="A machine of targets/, such as dgx2: its GPUs, driver, kernel, runtimes.")]
Output = Annotated[Path, typer.Option(help="Where images are.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]
Names = Annotated[
    list[str],
    typer.Argument(help="Wheels, a folder of installed packages, or an image as for `check`.", metavar="REF|WHEEL…"),
]
Base = Annotated[str, typer.Option(help="Image or root file system that wheels or packages are installed in.")]


def check(
    ref: Ref,
    only: Only = None,
    target: Target = "",
    runtime: Annotated[
        list[str] | None, typer.Option(help="docker, apptainer, pyxis or pai; again for more; all if left out.")
    ] = None,
    runtime_version: Annotated[str, typer.Option(help="Version of the one runtime; of pyxis that of enroot.")] = "",
    gpu: Gpus = None,
    driver: Annotated[str, typer.Option(help="NVIDIA driver of the host, such as 450.80.02.")] = "",
    kernel: Annotated[str, typer.Option(help="Kernel of the host, such as 3.10.")] = "",
    glibc: Annotated[str, typer.Option(help="glibc of the host, such as 2.35.")] = "",
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
    from graphcrate.cli.config import config, here
    from graphcrate.compat import explain, targets

    ctx = here()
    said = targets.Said(
        target=target or ("" if gpu or driver or kernel or glibc or runtime else config().target),
        gpu=joined(gpu) or "",
        driver=driver,
        runtimes=tuple(runtime or ()),
        runtime_version=runtime_version,
        kernel=kernel,
        glibc=glibc,
    )
    machine = explain.find_target(ctx, said)
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
    base: Base = "",
    gpu: Gpus = None,
    target: Target = "",
    output: Output = Path("dist"),
    as_json: Json = False,
) -> None:
    """Check wheels or installed packages without running them. Says which libraries will not load or run."""
    from graphcrate.checks import wording
    from graphcrate.checks.audit import run as auditing
    from graphcrate.cli import tables
    from graphcrate.cli.config import here
    from graphcrate.compat import explain
    from graphcrate.compat.facts import gpu_models
    from graphcrate.compat.targets import Said
    from graphcrate.model.errors import AuditError

    ctx = here()
    named = joined(gpu) or ""
    gpus = gpu_models(named) if named else ()
    if target:
        gpus = explain.find_target(ctx, Said(target=target, gpu=named)).gpus or ()
    found = auditing.run(names, ctx, base=base, gpus=gpus, output=output)
    tables.write(found, wording.audit(found), as_json=as_json)
    if failures := sum(one.severity == "fail" for one in found.findings):
        raise AuditError(f"{failures} of the findings keep {found.subject} from working")
