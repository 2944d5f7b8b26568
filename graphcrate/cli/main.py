"""The command line: arguments to calls. Stdout carries results, stderr the rest; errors end in `exit`.

Stages are imported where a command needs them: an unchanged image is answered in less time than rich takes to load.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from graphcrate import __version__
from graphcrate.cli import cache, check, options, publish, test
from graphcrate.cli import exit as ending
from graphcrate.cli.options import config, cuda_version, gpu_list, here, named, write
from graphcrate.host import defects, settings, streams, trace
from graphcrate.model import command as commands
from graphcrate.model.command import command, is_recipe_file
from graphcrate.model.compression import Compression
from graphcrate.model.errors import DifferenceError, UsageError

if TYPE_CHECKING:
    from graphcrate.compat.request import BuildRequest

app = typer.Typer(
    cls=ending.Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Name = Annotated[
    str,
    typer.Argument(help="Recipe, such as pyg (`list` has all), or the file of one of your own.", metavar="NAME"),
]
Requirements = Annotated[
    list[Path] | None, typer.Option(help="A requirements.txt, environment.yml or pyproject.toml to add.")
]
BuildApt = Annotated[list[str] | None, typer.Option(help="Debian packages to compile sources with; not in the image.")]
BuildEnv = Annotated[
    list[str] | None,
    typer.Option(
        help="A variable to compile sources with, which is in the lock; again for more.", metavar="NAME=VALUE"
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="Packages to add: names, ./folder, ./file.whl, git+https://…@COMMIT; again for more."),
]
Ref = Annotated[str, typer.Argument(help="NAME:TAG below dist/, or the path of an OCI layout.", metavar="REF")]
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
PygLib = Annotated[
    str | None,
    typer.Option(help="Sources of pyg_lib where it has no wheel: a clone with its submodules; git; a server's URL."),
]
Flavour = Annotated[
    Literal["runtime", "devel", "jupyter"],
    typer.Option(help="devel: keep compiler and CUDA toolkit in the image; jupyter: JupyterLab, matplotlib, pandas."),
]
Slim = Annotated[
    Literal["no", "yes", "all"],
    typer.Option(help="Cut libraries to the GPUs of --gpu or --target; all: NVIDIA's too (docs/slim.md)."),
]
Locked = Annotated[
    bool, typer.Option("--locked", help="Build from committed locks alone; where a file of one is nowhere, refuse.")
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Run the tests too where the audit says that the image cannot work.")
]
Pack = Annotated[
    str,
    typer.Option(
        help="Compress layers for a SIF while they are written: gzip, zstd, or the kernel that mounts it, such as 5.14."
    ),
]
PlanOnly = Annotated[bool, typer.Option("--plan", "--dry-run", help="Print what would be built, and build nothing.")]
Engine = Annotated[
    str, typer.Option(help="auto, embedded, docker, podman, apptainer or singularity; auto: embedded where it works.")
]


def _version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"graphcrate {__version__}\n")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Container images for CUDA + PyTorch + PyG: from a recipe to a tested image, without a daemon or root."""


@app.command()
def image(
    name: Name,
    cuda: options.Cuda = None,
    platform: options.Platform = "",
    with_: With = None,
    requirements: Requirements = None,
    apt: Annotated[list[str] | None, typer.Option(help="Debian packages to add.")] = None,
    build_apt: BuildApt = None,
    build_env: BuildEnv = None,
    gpu: options.Gpus = None,
    driver: options.Driver = "",
    target: options.Target = "",
    channel: Channel = None,
    mirror: Mirror = None,
    wheels: Wheels = None,
    output: options.Output = Path("dist"),
    smoke: Annotated[bool, typer.Option(help="Run the smoke test inside the image.")] = True,
    device: options.Device = "auto",
    rerun: Annotated[bool, typer.Option("--rerun", help="Run again what passed on such a machine before.")] = False,
    keep_going: KeepGoing = False,
    engine: Engine = "auto",
    extensions: Extensions = "auto",
    toolkit: Toolkit = None,
    pyg_lib: PygLib = None,
    flavour: Flavour = "runtime",
    slim: Slim = "no",
    locked: Locked = False,
    pack: Pack = "",
    plan: PlanOnly = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Build an image and test it by a training run inside."""
    from graphcrate.cli.requests import build_request
    from graphcrate.compat.request import SourceOptions, SuiteOptions
    from graphcrate.compat.targets import MachineRequest

    target = target or ("" if gpu or driver else config().target)
    machine = MachineRequest(target=target, gpu=gpu_list(gpu), driver=driver)
    sources = SourceOptions(channel=channel, mirror=mirror, wheels=wheels, toolkit=toolkit, pyg_lib=pyg_lib)
    sources = msgspec.structs.replace(sources, extensions=extensions, devel=flavour == "devel", locked=locked)
    request = build_request(
        "image",
        name,
        cuda,
        platform=platform,
        machine=machine,
        sources=sources,
        packages=with_ or (),
        requirements=requirements or (),
        apt=apt or (),
        flavour=flavour,
        build_apt=build_apt or (),
        build_env=build_env or (),
    )
    suites = SuiteOptions(run=smoke, device=device, rerun=rerun, keep_going=keep_going)
    packs = _packs(pack, engine)
    request = msgspec.structs.replace(request, slim=slim, suites=suites, engine=engine, output=output, packs=packs)
    _build(request, as_json, plan_only=plan, quiet=quiet)


def _packs(pack: str, engine: str) -> Compression | None:
    """What `--pack` asks for; None of nothing. Raises UsageError for what is no compression and no kernel."""
    if not pack:
        return None
    if engine not in ("auto", "embedded"):
        raise UsageError(
            f"--pack does not apply to {engine}",
            cause="Only our own builder has layers that a SIF is made of.",
            next_step="leave --pack out",
        )
    if pack in tuple(Compression):
        return Compression(pack)
    from graphcrate.artifacts.convert import choose_compression

    return choose_compression(pack)


def _build(request: "BuildRequest", as_json: bool, *, plan_only: bool, quiet: bool) -> None:
    """Build the image and print it; then how it was tested, and what to type next. Or print its plan alone."""
    from graphcrate.assembly import pipeline, summary
    from graphcrate.host import settings

    start, ctx = settings.now(), here(quiet=quiet)
    if plan_only:
        lines_of_plan, value = pipeline.plan_image(request, ctx)
        write(value, "".join(f"{line}\n" for line in lines_of_plan), as_json=as_json)
        return
    report = pipeline.build_image(request, ctx)
    write(report, f"{report.reference}\n", as_json=as_json)
    lines = summary.warnings(report) if quiet else summary.lines(report, settings.now() - start)
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    options.tidy(ctx)


@app.command()
def matrix(
    name: Annotated[str, typer.Argument(help="Recipe; all if left out.", metavar="[NAME]")] = "",
    cuda: Annotated[str | None, typer.Option(callback=cuda_version, help="CUDA version; all if left out.")] = None,
    candidate: Annotated[str, typer.Option(help="Candidate, such as pypi; all if left out.")] = "",
    platform: Annotated[
        str,
        typer.Option(callback=options.platform_name, help="Platform; each that has locks if left out."),
    ] = "",
    disk: Annotated[str, typer.Option(help="What cache and images may take together, such as 40GB; else all.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Build and test again what is proved.")] = False,
    output: options.Output = Path("dist"),
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Build, check and test all images in turn. Prints what was proved; the same command goes on with what was not."""
    from graphcrate.assembly import matrix as proving
    from graphcrate.cli import tables

    request = proving.MatrixRequest(
        recipe=name,
        cuda=cuda or "",
        candidate=candidate,
        platform=platform,
        disk=options.bytes_of(disk),
        again=again,
        output=output,
    )
    here().require_checkout("its locks and their proofs")
    results = proving.run(request, here(quiet=quiet))
    write(results, "".join(f"{line}\n" for line in tables.proofs(results)), as_json=as_json)
    proving.raise_if_failed(results)


@app.command("list")
def list_(
    gpus: Annotated[bool, typer.Option("--gpus", help="Show which GPUs run which CUDA version.")] = False,
    as_json: options.Json = False,
) -> None:
    """List stacks and their variants."""
    from graphcrate.cli import tables
    from graphcrate.compat import catalog

    ctx = here()
    recipes = catalog.all_recipes(ctx)
    if as_json:
        write(tables.described(ctx, recipes), "", as_json=True)
        return
    from rich.console import Console

    from graphcrate.compat.support import MARKS, support

    if not gpus:
        sys.stdout.write("".join(f"{line}\n" for line in tables.variants(ctx, recipes)))
        return
    console = Console(soft_wrap=True, highlight=False)
    for recipe in recipes:
        console.print(tables.heat_map(support(recipe)), end="\n\n")
    console.print("   ".join(f"{mark} {meaning}" for mark, meaning in MARKS.values()))


@app.command()
def lock(
    name: Annotated[
        str,
        typer.Argument(
            help="Recipe, or the file of one of your own; with --check all committed locks if left out.",
            metavar="[NAME]",
        ),
    ] = "",
    cuda: options.Cuda = None,
    platform: options.Platform = "",
    channel: Channel = None,
    mirror: Mirror = None,
    wheels: Wheels = None,
    extensions: Extensions = "auto",
    toolkit: Toolkit = None,
    pyg_lib: PygLib = None,
    check_only: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Lock nothing: look whether every file of the committed locks is still there, of all CUDA versions "
            "if --cuda is left out.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --check: print one JSON value on stdout.")] = False,
) -> None:
    """Resolve a variant again and write its lock. Prints the path: images/NAME/VARIANT/CANDIDATE.lock.json.

    With --check: prints where the files of locks are, what has updates since and what was yanked, and ends with 18
    where a file is nowhere any more.
    """
    if check_only:
        given = {"channel": channel, "wheels": wheels, "toolkit": toolkit, "pyg-lib": pyg_lib}
        _refuse(**given, extensions=extensions.replace("auto", ""))
        _check_locks(name, cuda, platform, mirror, as_json)
        return
    if not name:
        raise UsageError("lock needs a recipe", next_step=f"{command('lock', 'pyg', cuda='11.8')}    (list has all)")
    if as_json:
        raise UsageError("--json goes with --check alone", next_step=f"{command('lock', name)}    (prints a path)")
    from graphcrate.assembly import pipeline
    from graphcrate.cli.requests import build_request
    from graphcrate.compat.request import SourceOptions

    sources = SourceOptions(
        channel=channel, mirror=mirror, wheels=wheels, extensions=extensions, toolkit=toolkit, pyg_lib=pyg_lib
    )
    request = build_request("lock", name, cuda, platform=platform, sources=sources)
    sys.stdout.write(f"{pipeline.write_lock(request, here())}\n")


@app.command()
def update(
    name: Annotated[str, typer.Argument(help="Recipe; all if left out.", metavar="[NAME]")] = "",
    check_only: Annotated[
        bool, typer.Option("--check", help="Write nothing; end with 20 where there is something new.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Build, check and test what changes, too; what fails is held back.")
    ] = False,
    disk: Annotated[
        str, typer.Option(help="With --prove: what cache and images may take together, such as 40GB; else all.")
    ] = "",
    security: Annotated[
        bool, typer.Option("--security", help="Renew only packages and bases of locks that have known vulnerabilities.")
    ] = False,
    mirror: Mirror = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Take new releases into facts, recipes and locks.

    New torches are measured, variants changed, locked and rendered; stdout has what a reviewer has to know. What cannot
    be decided, or does not lock, is held back with its reason, and the rest goes on.
    With --security: locks get the lowest releases that fix what is known, and what these need; nothing else moves.
    """
    from graphcrate.update import review as texts
    from graphcrate.update import run as updating

    options.bytes_of(disk)
    request = updating.UpdateRequest(
        recipe=name,
        check=check_only,
        prove=prove,
        security=security,
        disk=disk,
        mirror=mirror or config().mirror or None,
    )
    request.raise_if_contradictory()
    if security:
        from graphcrate.update import security as renewing
        from graphcrate.update import security_text

        fixes = renewing.run(request, here(quiet=quiet))
        write(fixes, security_text.text(fixes), as_json=as_json)
        if check_only:
            renewing.raise_if_fixable(fixes)
        return
    review = updating.run(request, here(quiet=quiet))
    write(review, texts.text(review), as_json=as_json)
    if check_only:
        updating.raise_if_news(review)


def _refuse(**given: object) -> None:
    """Raises UsageError for options that `lock --check` would ignore."""
    if names := [f"--{name}" for name, value in given.items() if value]:
        raise UsageError(
            f"{' and '.join(names)} is for locking, and --check locks nothing",
            next_step=f"{command('lock', check=True)}, or leave --check out",
        )


def _check_locks(name: str, cuda: str | None, platform: str, mirror: str | None, as_json: bool) -> None:
    """Say what became of committed locks."""
    from graphcrate.assembly import standing
    from graphcrate.cli import tables
    from graphcrate.compat.request import SourceOptions

    sources = SourceOptions(mirror=mirror or config().mirror or None)
    standings = standing.check(name, cuda or "", sources, here(), platform)
    tables.write(standings, tables.standing(standings), as_json=as_json)
    standing.raise_if_gone(standings)


@app.command()
def render(
    name: Annotated[
        str | None, typer.Argument(help="Recipe, or the file of one of your own; all if left out.", metavar="NAME")
    ] = None,
    cuda: Annotated[str | None, typer.Option(callback=cuda_version, help="CUDA version; all if left out.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for NAME/VARIANT/…; images/ if left out.")] = None,
) -> None:
    """Write Dockerfiles and Singularity definitions. Prints the folders that changed."""
    from graphcrate.render import files

    if name is not None and is_recipe_file(name):
        from graphcrate.assembly import pipeline
        from graphcrate.cli.requests import build_request

        request = build_request("render", name, cuda)
        sys.stdout.write(f"{pipeline.render_own(request, here(), output or Path('images'))}\n")
        return
    for folder in files.render_all(here(), name, cuda, output):
        sys.stdout.write(f"{folder}\n")


@app.command()
def inspect(ref: Ref, output: options.Output = Path("dist"), as_json: options.Json = False) -> None:
    """Show an image's layers, packages and environment."""
    from graphcrate.artifacts.locate import find_image
    from graphcrate.cli import tables

    layout, report = find_image(named(ref, output), output)
    tables.write(report, tables.inspect(report, layout.environment), as_json=as_json)


@app.command("report")
def draw(
    ref: Annotated[str, typer.Argument(help="Any image, as for `check`, but of a registry.", metavar="REF")],
    other: Annotated[str | None, typer.Argument(help="Another image to compare it with.", metavar="[OTHER]")] = None,
    output: Annotated[Path | None, typer.Option(help="File to write; else report.html beside the image.")] = None,
    images: options.Output = Path("dist"),
) -> None:
    """Draw a page about an image, or about what differs between two. Prints the path of the HTML file."""
    from graphcrate.artifacts.locate import locate
    from graphcrate.host.atomic import write_file
    from graphcrate.pages import report as pages

    ctx, ref = here(), named(ref, images)
    page = pages.read(ref, ctx, images)
    if other is not None:
        text, target = pages.comparison(page, pages.read(named(other, images), ctx, images)), Path("comparison.html")
    else:
        image = locate(ref, images)
        target = image.path.parent / pages.NAME if image.has_layout else Path(f"{page.name}.{pages.NAME}")
        text = pages.html(page)
    target = output or target
    write_file(target, text.encode())
    sys.stdout.write(f"{target}\n")


@app.command()
def catalog(
    output: Annotated[Path, typer.Option(help="Folder to write.")] = Path("site"), images: options.Output = Path("dist")
) -> None:
    """Write a catalogue of all stacks as static pages. English and Chinese; with what was measured of images here."""
    from graphcrate.pages import catalog as pages

    pages.write(here(), images, output)
    sys.stdout.write(f"{output / 'index.html'}\n")


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
    compression: options.Compression = None,
    kernel: options.MountKernel = None,
    link: Annotated[Path | None, typer.Option(help="Make this a symbolic link to the result.")] = None,
    platform: options.AnyPlatform = "",
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Convert to SIF, enroot squashfs, a docker archive or a folder. Prints the path."""
    from graphcrate.artifacts import convert as converting

    request = converting.ConvertRequest(
        ref=named(ref, Path("dist"), platform, quiet=quiet),
        to=to,
        output=output,
        force=force,
        compression=Compression(compression) if compression else None,
        kernel=kernel,
        link=link,
        hashed=as_json,
        platform=options.platform_of(platform),
    )
    ctx = here(quiet=quiet)
    result = converting.convert(request, ctx)
    write(result, f"{result.path}\n", as_json=as_json)
    options.tidy(ctx)


@app.command()
def diff(
    first: Annotated[
        str, typer.Argument(help="NAME:TAG, a path, docker:NAME, podman:NAME or REGISTRY/NAME:TAG.", metavar="A")
    ],
    second: Annotated[str, typer.Argument(help="The same.", metavar="B")],
    output: options.Output = Path("dist"),
    everything: Annotated[bool, typer.Option("--all", help="List what may differ too, path by path.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Nothing may differ.")] = False,
    plain_http: options.PlainHttp = False,
    as_json: options.Json = False,
) -> None:
    """Compare two images file by file. They may be in any form: layouts, archives, SIF, of an engine or a registry."""
    from graphcrate.artifacts.tree import opening
    from graphcrate.artifacts.tree.compare import ALLOWANCES, lines, summary

    first, second = named(first, output), named(second, output)
    comparison = opening.compare(first, second, here(plain_http=plain_http), () if strict else ALLOWANCES, output)
    text = "".join(f"{line}\n" for line in lines(comparison, everything=everything))
    write(comparison, text, as_json=as_json)
    if comparison.unexpected:
        raise DifferenceError(f"{first} and {second} are not the same: {summary(comparison)}")


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    ref: Ref,
    command: Annotated[list[str], typer.Argument(help="Command and its arguments; `--` before them where in doubt.")],
    network: Annotated[bool, typer.Option(help="Let it use this machine's network, as other runtimes do.")] = True,
    platform: options.AnyPlatform = "",
    output: options.Output = Path("dist"),
) -> None:
    """Run a command inside an image without any engine. This directory is /work inside."""
    from graphcrate.artifacts.locate import find_image
    from graphcrate.engines.embedded.run import run_inside

    layout, _ = find_image(named(ref, output, platform), output, options.platform_of(platform))
    sys.exit(run_inside(layout, command, here(), network=network))


app.command()(check.check)
app.command(hidden=True)(check.validate)
app.command()(check.audit)
app.command()(cache.cache)
app.command()(check.explain)
app.command()(publish.publish)
app.command()(publish.verify)
app.command()(publish.keys)
app.command("test")(test.try_image)
app.command()(test.job)


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def doctor(context: typer.Context) -> None:
    """Diagnose this machine or container, or an error: --explain TEXT. Says what cannot work, why, and what to do."""
    sys.path.insert(0, str(here().root))  # where it lies in an installed package too
    from doctor.__main__ import main as look_around

    arguments, pasted = _pasted(context.args)
    code = look_around(arguments, commands.as_typed)
    if pasted:
        from graphcrate.resolve import libraries

        sys.stdout.writelines(f"apt:   {line}\n" for line in libraries.of_error(pasted, here()))
    sys.exit(code)


def _pasted(arguments: list[str]) -> tuple[list[str], str]:
    """The doctor's arguments, with what stdin has where they say so, and the error that people are to be told of."""
    for number, word in enumerate(arguments):
        option, equals, text = word.partition("=")
        if option == "--explain":
            rest = arguments[number + 1 :]
            text, rest = (text, rest) if equals else ("".join(rest[:1]), rest[1:])
            if text == "-":
                text = sys.stdin.buffer.read().decode("utf-8", "replace")
                arguments = [*arguments[:number], f"--explain={text}", *rest]
            return arguments, "" if "--json" in arguments else text
    return arguments, ""


@app.command()
def schema(
    own: Annotated[bool, typer.Option("--own", help="Of recipes of your own, which extend a stack.")] = False,
) -> None:
    """Print the JSON schema of recipe files, for editors."""
    from graphcrate.compat import toml
    from graphcrate.compat.own import OwnRecipe
    from graphcrate.model.recipe import Recipe

    write(toml.schema(OwnRecipe) if own else toml.schema(Recipe), "", as_json=True)


def main() -> None:
    """Entry point: run, and turn errors into a message and their exit code."""
    from graphcrate.host.process import interrupt_on_terminate

    streams.prepare()
    with defects.guard():
        interrupt_on_terminate()
        with ending.exiting():
            trace.begin(settings.environment(), sys.argv[1:])
            try:
                app()
            finally:
                trace.end()


if __name__ == "__main__":
    main()
