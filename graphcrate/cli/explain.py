"""The command `explain`: arguments → `explaining`. `cli` registers it."""

from typing import Annotated

import typer

from graphcrate.cli.options import Gpus, cuda_version, joined

Stack = Annotated[str, typer.Argument(help="Recipe: pyg, glt or torch.", metavar="[STACK]")]
Name = Annotated[str, typer.Option(help="A machine of targets/, such as dgx2, or the path of such a file.")]
Asked = Annotated[str | None, typer.Option(callback=cuda_version, help="Show this CUDA version first.")]
Driver = Annotated[str, typer.Option(help="Its NVIDIA driver, such as 450.80.02.")]
Runtime = Annotated[list[str] | None, typer.Option(help="docker, apptainer, pyxis or pai; again for more.")]
RuntimeVersion = Annotated[str, typer.Option(help="Version of the one runtime; of pyxis that of enroot.")]
Kernel = Annotated[str, typer.Option(help="Its kernel, such as 3.10.")]
Glibc = Annotated[str, typer.Option(help="Its glibc, such as 2.35.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]


def explain(
    stack: Stack = "pyg",
    target: Name = "",
    cuda: Asked = None,
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
    from graphcrate.cli.config import here
    from graphcrate.compat import catalog
    from graphcrate.compat import explain as explaining
    from graphcrate.compat.targets import Said

    ctx = here()
    said = Said(
        target=target,
        gpu=joined(gpu) or "",
        driver=driver,
        runtimes=tuple(runtime or ()),
        runtime_version=runtime_version,
        kernel=kernel,
        glibc=glibc,
    )
    recipe = catalog.find_recipe(ctx, stack)
    if cuda is not None:
        catalog.refuse_unknown_cuda(recipe, cuda)
    found = explaining.explain(recipe, explaining.find_target(ctx, said), said, cuda)
    tables.write(found, explaining.answer(found), as_json=as_json)
    if explaining.chosen_row(found) is None:
        raise explaining.nothing_runs(found)
