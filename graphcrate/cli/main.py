"""Arguments → pipeline. With `cli_end` the only place that catches errors and exits; stdout carries results, stderr the
rest.

Stages are imported where a command needs them: an unchanged image is answered in less time than rich takes to load.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphcrate import __version__
from graphcrate.cli import cache, check, explain, pages, publish, test
from graphcrate.cli import exit as cli_end
from graphcrate.cli.options import CudaOrNone, Gpus, cuda_version, joined

if TYPE_CHECKING:
    from graphcrate.compat.request import BuildRequest
    from graphcrate.host.context import Context
    from graphcrate.model.recipe import Additions

app = typer.Typer(
    cls=cli_end.Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Name = Annotated[
    str,
    typer.Argument(help="Recipe: pyg, glt or torch (see `list`), or the file of one of your own.", metavar="NAME"),
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="Packages to add: names, ./folder, ./file.whl, git+https://…@COMMIT; again for more."),
]
Requirements = Annotated[list[Path] | None, typer.Option(help="A requirements file of packages to add.")]
Apt = Annotated[list[str] | None, typer.Option(help="Debian packages to add.")]
Ref = Annotated[str, typer.Argument(help="NAME:TAG below dist/, or the path of an OCI layout.", metavar="REF")]
Driver = Annotated[str, typer.Option(help="NVIDIA driver that it must run with, such as 450.80.02.")]
Target = Annotated[str, typer.Option(help="Machine that it must run on, by its name in targets/, such as dgx2.")]
Channel = Annotated[str | None, typer.Option(help="Use only candidates of this channel (pytorch, pypi, local).")]
Mirror = Annotated[str | None, typer.Option(help="sjtu, aliyun, nju, tuna, or the URL of a mirror.")]
Wheels = Annotated[Path | None, typer.Option(help="Folder of wheels for the local channel.")]
Extensions = Annotated[
    Literal["auto", "wheels", "source", "none"],
    typer.Option(help="Compiled extensions of PyG; auto: wheels, else from source."),
]
Toolkit = Annotated[
    Literal["debian", "pypi", "image"] | None,
    typer.Option(help="CUDA toolkit to compile them with; else the first that fits."),
]
Flavour = Annotated[
    Literal["runtime", "devel", "jupyter"],
    typer.Option(help="devel: keep compiler and CUDA toolkit in the image; jupyter: JupyterLab, matplotlib, pandas."),
]
Slim = Annotated[
    Literal["no", "yes", "all"],
    typer.Option(
        help="Cut libraries to the GPUs of --gpu or --target; all: NVIDIA's too (docs/slim.md has the terms)."
    ),
]
Smoke = Annotated[bool, typer.Option(help="Run the smoke test inside the image.")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="What the smoke test runs on; auto: a GPU where there is one.")
]
Rerun = Annotated[bool, typer.Option("--rerun", help="Run again what passed on such a machine before.")]
PlanOnly = Annotated[bool, typer.Option("--plan", "--dry-run", help="Print what would be built, and build nothing.")]
Engine = Annotated[
    str, typer.Option(help="auto, embedded, docker, podman, apptainer or singularity; auto: embedded where it works.")
]
Output = Annotated[Path, typer.Option(help="Where images are written.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"graphcrate {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Container images for CUDA + PyTorch + PyG: from a recipe to a tested image, without a daemon or root."""


def _context() -> "Context":
    from graphcrate.cli.config import here

    return here()


def _own(
    name: str,
    cuda: str | None,
    packages: list[str] | None = None,
    requirements: list[Path] | None = None,
    apt: list[str] | None = None,
    flavour: str = "",
) -> "tuple[str, str | None, Path | None, Additions]":
    """The stack, its CUDA version, the file of a person's own recipe, and what is added to the stack."""
    from graphcrate.compat import own

    additions = own.given(packages or (), requirements or (), apt or (), flavour)
    if not own.is_recipe(name):
        return name, cuda, None, additions
    recipe, more = own.load(Path(name))
    return recipe.extends, cuda or recipe.cuda or None, Path(name), own.joined(more, additions)


@app.command()
def image(
    name: Name,
    cuda: CudaOrNone = None,
    with_: With = None,
    requirements: Requirements = None,
    apt: Apt = None,
    gpu: Gpus = None,
    driver: Driver = "",
    target: Target = "",
    channel: Channel = None,
    mirror: Mirror = None,
    wheels: Wheels = None,
    output: Output = Path("dist"),
    smoke: Smoke = True,
    device: Device = "auto",
    rerun: Rerun = False,
    engine: Engine = "auto",
    extensions: Extensions = "auto",
    toolkit: Toolkit = None,
    flavour: Flavour = "runtime",
    slim: Slim = "no",
    plan: PlanOnly = False,
    as_json: Json = False,
) -> None:
    """Build an image and test it by a training run inside."""
    from graphcrate.build import pipeline
    from graphcrate.cli.config import config
    from graphcrate.compat.request import BuildRequest
    from graphcrate.model.lock import encode

    stack, cuda, recipe, additions = _own(name, cuda, with_, requirements, apt, flavour)
    request = BuildRequest(
        name=stack,
        additions=additions,
        recipe=recipe,
        cuda=cuda,
        gpu=joined(gpu),
        driver=driver,
        target=target or ("" if gpu or driver else config().target),
        channel=channel,
        mirror=mirror or config().mirror or None,
        wheels=wheels,
        output=output,
        smoke=smoke,
        rerun=rerun,
        device=device,
        engine=engine,
        extensions=extensions,
        toolkit=toolkit,
        devel=flavour == "devel",
        slim=slim,
    )
    if plan:
        lines, value = pipeline.plan_image(request, _context())
        sys.stdout.write(encode(value).decode() if as_json else "".join(f"{line}\n" for line in lines))
        return
    _build(request, as_json)


def _build(request: "BuildRequest", as_json: bool) -> None:
    """Build the image, print it, and say last what of it has to be the last word."""
    import msgspec

    from graphcrate.build import pipeline, summary
    from graphcrate.compat import fallback
    from graphcrate.host import settings
    from graphcrate.model.lock import encode

    start = settings.now()
    report = pipeline.build_image(request, _context())
    sys.stdout.write(encode(report).decode() if as_json else f"{report.reference}\n")
    sys.stdout.flush()
    seconds = settings.now() - start
    sys.stderr.write("".join(f"{_context().as_typed(line)}\n" for line in summary.lines(report, seconds)))
    if report.fallback:
        insisting = msgspec.structs.replace(request, cuda=report.cuda, channel=report.fallback.channel)
        lines = fallback.closing(report, insisting.command())
        sys.stderr.write("".join(f"{_context().as_typed(line)}\n" for line in lines))


@app.command("list")
def list_(
    gpus: Annotated[bool, typer.Option("--gpus", help="Show which GPUs run which CUDA version.")] = False,
    as_json: Json = False,
) -> None:
    """List stacks and their variants."""
    from graphcrate.compat import catalog

    ctx = _context()
    recipes, locked = catalog.all_recipes(ctx), catalog.committed(ctx)
    if as_json:
        sys.stdout.write(json.dumps(catalog.describe(recipes, locked), indent=2) + "\n")
        return
    from rich.console import Console

    from graphcrate.cli import tables
    from graphcrate.compat.support import MARKS, support

    if not gpus:
        sys.stdout.write("".join(f"{line}\n" for line in tables.variants(recipes, locked)))
        return
    console = Console(soft_wrap=True, highlight=False)
    for recipe in recipes:
        console.print(tables.heat_map(support(recipe)), end="\n\n")
    console.print("   ".join(f"{mark} {meaning}" for mark, meaning in MARKS.values()))


@app.command()
def lock(
    name: Name,
    cuda: CudaOrNone = None,
    channel: Channel = None,
    mirror: Mirror = None,
    wheels: Wheels = None,
    extensions: Extensions = "auto",
    toolkit: Toolkit = None,
) -> None:
    """Resolve a variant again and write its lock. Prints the path: images/NAME/VARIANT/CANDIDATE.lock.json."""
    from graphcrate.build import pipeline
    from graphcrate.cli.config import config
    from graphcrate.compat.request import BuildRequest

    stack, wanted, recipe, additions = _own(name, cuda)
    request = BuildRequest(
        name=stack,
        additions=additions,
        recipe=recipe,
        cuda=wanted,
        channel=channel,
        mirror=mirror or config().mirror or None,
        wheels=wheels,
        extensions=extensions,
        toolkit=toolkit,
    )
    sys.stdout.write(f"{pipeline.write_lock(request, _context())}\n")


@app.command()
def render(
    name: Annotated[
        str | None, typer.Argument(help="Recipe, or the file of one of your own; all if left out.", metavar="NAME")
    ] = None,
    cuda: Annotated[str | None, typer.Option(callback=cuda_version, help="CUDA version; all if left out.")] = None,
    base: Annotated[
        Literal["debian", "python", "nvidia"], typer.Option(help="python: Docker's images; nvidia: CUDA images.")
    ] = "debian",
    output: Annotated[Path | None, typer.Option(help="Folder for NAME/VARIANT/…; images/ if left out.")] = None,
) -> None:
    """Write Dockerfiles and Singularity definitions. Prints the folders that changed."""
    from graphcrate.compat import own
    from graphcrate.engines.render import files

    if name is not None and own.is_recipe(name):
        from graphcrate.build import pipeline
        from graphcrate.compat.request import BuildRequest
        from graphcrate.model.errors import UsageError

        if base != "debian":
            raise UsageError(
                f"a recipe of your own has no text with --base {base}", next_step=f"./build.py render {name}"
            )
        stack, cuda, recipe, additions = _own(name, cuda)
        request = BuildRequest(name=stack, additions=additions, recipe=recipe, cuda=cuda)
        sys.stdout.write(f"{pipeline.render_own(request, _context(), output or Path('images'))}\n")
        return
    for folder in files.render_all(_context(), name, cuda, base, output):
        sys.stdout.write(f"{folder}\n")


@app.command()
def inspect(ref: Ref, output: Output = Path("dist"), as_json: Json = False) -> None:
    """Show an image's layers, packages and environment."""
    from graphcrate.artifacts.locate import find_image
    from graphcrate.model.lock import encode

    layout, report = find_image(ref, output)
    if as_json:
        sys.stdout.write(encode(report).decode())
        return
    from rich.console import Console

    from graphcrate.cli import tables

    console = Console(width=None if sys.stdout.isatty() else 160)
    tables.inspect(console, report, [f"{name}={value}" for name, value in layout.environment.items()])


@app.command()
def convert(
    ref: Ref,
    to: Annotated[
        Literal["sif", "sqsh", "docker", "rootfs", "oci-archive"],
        typer.Option(help="sif: Singularity, Apptainer; sqsh: enroot, pyxis; docker: for `docker load`."),
    ],
    output: Annotated[
        Path | None, typer.Option(help="File to write (rootfs: folder); else beside the layout, named after the image.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    compression: Annotated[
        Literal["gzip", "zstd"] | None, typer.Option(help="Of sif and sqsh; of sqsh zstd if left out.")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(help="Kernel of the machine that mounts a sif: zstd from 4.14 on; gzip where unknown."),
    ] = None,
    link: Annotated[Path | None, typer.Option(help="Make this a symbolic link to the result.")] = None,
    as_json: Json = False,
) -> None:
    """Convert to SIF, enroot squashfs, a docker archive or a folder. Prints the path."""
    from graphcrate.artifacts import convert as converting
    from graphcrate.artifacts.formats.packed import Compression
    from graphcrate.model.lock import encode

    request = converting.Request(
        ref=ref,
        to=to,
        output=output,
        force=force,
        compression=Compression(compression) if compression else None,
        kernel=kernel,
        link=link,
        hashed=as_json,
    )
    result = converting.convert(request, _context())
    sys.stdout.write(encode(result).decode() if as_json else f"{result.path}\n")


@app.command()
def diff(
    first: Annotated[str, typer.Argument(help="NAME:TAG, a path, docker:NAME or podman:NAME.", metavar="A")],
    second: Annotated[str, typer.Argument(help="The same.", metavar="B")],
    output: Output = Path("dist"),
    everything: Annotated[bool, typer.Option("--all", help="List what may differ too, path by path.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Nothing may differ.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two images file by file. They may be layouts, archives, engines' images, SIF, squashfs or folders."""
    from graphcrate.artifacts.tree import opening
    from graphcrate.artifacts.tree.compare import ALLOWANCES, lines, summary
    from graphcrate.model.errors import DifferenceError
    from graphcrate.model.lock import encode

    comparison = opening.compare(first, second, _context(), () if strict else ALLOWANCES, output)
    told = "".join(f"{line}\n" for line in lines(comparison, everything=everything))
    sys.stdout.write(encode(comparison).decode() if as_json else told)
    if comparison.unexpected:
        raise DifferenceError(f"{first} and {second} are not the same: {summary(comparison)}")


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    ref: Ref,
    command: Annotated[list[str], typer.Argument(help="Command and its arguments; `--` before them where in doubt.")],
    network: Annotated[bool, typer.Option(help="Let it use this machine's network, as other runtimes do.")] = True,
    output: Output = Path("dist"),
) -> None:
    """Run a command inside an image without any engine. This directory is /work inside."""
    from graphcrate.artifacts.locate import find_image
    from graphcrate.build import pipeline

    layout, _ = find_image(ref, output)
    sys.exit(pipeline.run_inside(layout, command, _context(), network=network))


app.command()(check.check)
app.command(hidden=True)(check.validate)
app.command()(check.audit)
app.command()(pages.report)
app.command()(pages.catalog)
app.command()(cache.cache)
app.command()(explain.explain)
app.command()(publish.publish)
app.command()(publish.verify)
app.command()(publish.keys)
app.command("test")(test.try_image)
app.command()(test.job)


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def doctor(context: typer.Context) -> None:
    """Diagnose this machine or container, or an error: --explain TEXT. Says what cannot work, why, and what to do."""
    sys.path.insert(0, str(_context().root))  # where it lies in an installed package too
    from doctor.__main__ import main as look_around

    sys.exit(look_around(context.args))


@app.command()
def schema(
    own: Annotated[bool, typer.Option("--own", help="Of recipes of your own, which extend a stack.")] = False,
) -> None:
    """Print the JSON schema of recipe files, for editors."""
    from graphcrate.compat import own as own_recipes
    from graphcrate.compat import recipes

    value = own_recipes.schema() if own else recipes.schema()
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def main() -> None:
    """Entry point: run, and turn expected errors into a message and their exit code."""
    from graphcrate.host.process import interrupt_on_terminate

    interrupt_on_terminate()
    with cli_end.exiting():
        app()


if __name__ == "__main__":
    main()
