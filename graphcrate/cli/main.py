"""The command line: arguments to calls. Stdout carries results, stderr the rest; errors end in `exit`.

Stages are imported where a command needs them: an unchanged image is answered in less time than rich takes to load.
"""

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from graphcrate import __version__
from graphcrate.cli import adopt, cache, check, look, node, options, project, publish, remote, retyped, run, serve, test
from graphcrate.cli import exit as ending
from graphcrate.cli.options import config, cuda_version, gpu_list, here, of_shared, write
from graphcrate.host import defects, streams
from graphcrate.model import command as commands
from graphcrate.model.answer import folded
from graphcrate.model.command import ETC, command, is_recipe_file, without
from graphcrate.model.errors import UsageError
from graphcrate.model.words import in_lines
from sifsquash.values import Compression

if TYPE_CHECKING:
    from graphcrate.assembly.matrix import MatrixRequest
    from graphcrate.compat.variants.request import BuildRequest
    from graphcrate.host.context import Context

app = typer.Typer(
    cls=ending.ProductCommands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=None if commands.INSTALLED else f"update, catalog and lock --check are upkeep's: {command('update')} --help",
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
PrintJobs = Annotated[
    Path | None,
    typer.Option(
        "--print",
        help="Build nothing, and write the images as jobs: to a .json for GitHub, in two stages, of which the first "
        "compiles what others take; to a .yaml an indexed Job of Kubernetes.",
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="Packages to add: names, ./folder, ./file.whl, git+https://…@COMMIT; again for more."),
]
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
CacheCheck = Annotated[
    str, typer.Option(help="Compile one in so many entries (20) here all the same, and compare the two.")
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
Walled = Annotated[
    bool,
    typer.Option("--walled", help="For others: take names of packages alone, no paths, repositories or indexes."),
]
WithoutSecurity = Annotated[
    bool,
    typer.Option(
        "--without-security",
        help="Lock where no mirror lists the security updates; the image says so.",
    ),
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Run the tests too where the audit says that the image cannot work.")
]
Pack = Annotated[
    str,
    typer.Option(
        help="Compress layers for a SIF while they are written: gzip, zstd, the kernel that mounts it, such as 5.14, "
        "or auto: that of --target, else zstd."
    ),
]
PACK_FOR_TARGET = "auto"
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


@app.command(cls=node.NodeCommand)
def image(
    name: Name,
    cuda: options.Cuda = None,
    platform: options.Platform = "",
    with_: With = None,
    requirements: Requirements = None,
    apt: Annotated[list[str] | None, typer.Option(help="Debian packages to add.")] = None,
    build_apt: BuildApt = None,
    build_env: BuildEnv = None,
    trust_paths: options.TrustPaths = False,
    walled: Walled = False,
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
    shared: options.SharedCache = None,
    cache_trust: options.CacheTrust = None,
    cache_key: options.CacheKey = None,
    cache_check: CacheCheck = "",
    flavour: Flavour = "runtime",
    slim: Slim = "no",
    locked: Locked = False,
    without_security: WithoutSecurity = False,
    pack: Pack = "",
    plan: PlanOnly = False,
    at: remote.At = "",
    save: remote.Save = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Build an image and test it by a training run inside."""
    from graphcrate.cli.requests import build_request
    from graphcrate.compat.variants.request import SourceOptions, SuiteOptions
    from graphcrate.compat.variants.targets import MachineRequest

    machine = MachineRequest(target=target or _usual_target(gpu, driver), gpu=gpu_list(gpu), driver=driver)
    of_lock = SourceOptions(extensions=extensions, locked=locked, without_security=without_security)
    places: dict[str, Any] = {"channel": channel, "mirror": mirror, "wheels": wheels, "toolkit": toolkit}
    places |= {"pyg_lib": pyg_lib, "devel": flavour == "devel", "walled": walled or bool(at)}
    sources = msgspec.structs.replace(of_lock, **places, **of_shared(shared, cache_trust, cache_key, cache_check))
    typed: dict[str, Any] = {"packages": with_ or (), "requirements": requirements or (), "apt": apt or ()}
    typed |= {"build_apt": build_apt or (), "build_env": build_env or (), "flavour": flavour, "platform": platform}
    typed |= {"trust_paths": trust_paths, "machine": machine, "sources": sources}
    request = build_request("image", name, cuda, **typed)
    made = {"engine": engine, "output": output, "packs": _packs(pack, engine, machine.target), "slim": slim}
    made |= {"suites": SuiteOptions(run=smoke, device=device, rerun=rerun, keep_going=keep_going)}
    build = functools.partial(remote.build, at=at, save=save, typed=(mirror, walled)) if at or save else _build
    build(msgspec.structs.replace(request, **made), as_json, plan_only=plan, shown={"quiet": quiet, "verbose": verbose})


def _usual_target(gpu: list[str] | None, driver: str) -> str:
    """Return the configured target, where nothing names a machine."""
    return "" if gpu or driver else config().target


def _packs(pack: str, engine: str, target: str) -> Compression | None:
    """Parse `--pack`; None where it is not given. Raises UsageError for neither a compression nor a kernel."""
    if not pack:
        return None
    if engine not in ("auto", "embedded"):
        raise UsageError(
            f"--pack does not apply to {engine}",
            cause="Only our own builder has layers that a SIF is made of.",
            next_step=without("pack"),
        )
    if pack in tuple(Compression):
        return Compression(pack)
    from graphcrate.artifacts.conversion.compression import choose_compression, kernel_of

    return choose_compression(kernel_of(target, here()) if pack == PACK_FOR_TARGET else pack)


def _build(request: "BuildRequest", as_json: bool, *, plan_only: bool, shown: dict[str, bool]) -> None:
    """Build the image and print it; then how it was tested, and what to type next. Or print its plan alone."""
    from graphcrate.assembly import pipeline, summary
    from graphcrate.host import settings

    start, ctx = settings.now(), here(without_security=request.sources.without_security, **shown)
    if plan_only:
        lines_of_plan, value = pipeline.plan_image(request, ctx)
        width = streams.console().width if sys.stdout.isatty() else 0
        text = in_lines(folded(map(retyped.whole, lines_of_plan), width))
        write(value, text, as_json=as_json)
        if as_json and not ctx.quiet:
            sys.stderr.write(text)
        return
    report = pipeline.build_image(request, ctx)
    write(report, f"{report.reference}\n", as_json=as_json)
    lines = summary.warnings(report) if ctx.quiet else summary.lines(report, settings.now() - start)
    sys.stderr.write(retyped.whole(in_lines(lines)))
    options.tidy(ctx)


@app.command(cls=node.ArrayCommand)
def matrix(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Recipe; all if left out.", metavar="[NAME]")] = "",
    cuda: Annotated[str | None, typer.Option(callback=cuda_version, help="CUDA version; all if left out.")] = None,
    candidate: Annotated[str, typer.Option(help="Candidate, such as pypi; all if left out.")] = "",
    platform: Annotated[
        str,
        typer.Option(callback=options.platform_name, help="Platform; each that has locks if left out."),
    ] = "",
    disk: Annotated[str, typer.Option(help="What cache and images may take together, such as 40GB; else all.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Build and test again what is proved.")] = False,
    queue: Annotated[
        Path | None, typer.Option(help="A folder that other machines see, which take images from it too.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="With --on: jobs that share the images; else at most 8.")] = 0,
    print_: PrintJobs = None,
    shared: options.SharedCache = None,
    cache_trust: options.CacheTrust = None,
    cache_key: options.CacheKey = None,
    cache_check: CacheCheck = "",
    output: options.Output = Path("dist"),
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Build, check and test all images in turn. Prints what was proved; the same command goes on with what was not."""
    from graphcrate.assembly import matrix as proving
    from graphcrate.assembly import queued
    from graphcrate.cli import tables
    from graphcrate.compat.variants.request import SourceOptions

    request = proving.MatrixRequest(
        recipe=name,
        cuda=cuda or "",
        candidate=candidate,
        platform=platform,
        disk=options.bytes_of(disk),
        again=again,
        output=output,
        is_shared=queue is not None,
        sources=SourceOptions(**of_shared(shared, cache_trust, cache_key, cache_check)),
    )
    ctx, array = here(quiet=quiet), node.array_of(context)
    ctx.require_checkout("its locks and their proofs")
    if jobs and array is None:
        raise UsageError("--jobs is for jobs", next_step=command(ETC, on="slurm"))
    if print_ is not None:
        _print_jobs(print_, request, array, queue, ctx)
        return
    if array is not None:
        results = queued.on_slurm(request, *array, jobs, ctx, retyped.line())
    elif queue is not None:
        results = queued.work(queued.Queue(queue.absolute()), request, ctx)
    else:
        results = proving.run(request, ctx)
    write(results, in_lines(tables.proofs(results)), as_json=as_json)
    proving.raise_if_failed(results)


def _print_jobs(path: Path, request: "MatrixRequest", array: object, queue: Path | None, ctx: "Context") -> None:
    """Write the rows of a matrix as jobs for another scheduler. Raises UsageError where it is to be done here too."""
    from graphcrate.assembly import matrix as proving
    from graphcrate.assembly import matrix_jobs

    if array is not None or queue is not None:
        raise UsageError("--print builds nothing, and --on and --queue do", next_step="leave one of them out")
    sources = request.sources
    typed = command(
        "matrix",
        *filter(None, [request.recipe]),
        cuda=request.cuda or None,
        candidate=request.candidate or None,
        platform=request.platform or None,
        again=request.again,
        cache=sources.cache,
        cache_trust=sources.cache_trust,
        cache_key=sources.cache_key,
        cache_check=sources.cache_check or None,
    )
    words = [typed.verb, *typed.arguments, *(word for setting in typed.settings for word in setting.words())]
    matrix_jobs.write(path, proving.rows(ctx, request), words, ctx)
    sys.stdout.write(f"{path}\n")


@app.command("list")
def list_(
    gpus: Annotated[bool, typer.Option("--gpus", help="Show which GPUs run which CUDA version.")] = False,
    as_json: options.Json = False,
) -> None:
    """List stacks and their variants."""
    from graphcrate.cli import tables
    from graphcrate.compat.variants import catalog

    ctx = here()
    recipes = catalog.all_recipes(ctx)
    if as_json:
        write(tables.described(ctx, recipes), "", as_json=True)
        return
    from graphcrate.compat.variants.support import support

    if not gpus:
        sys.stdout.write(in_lines(tables.variants(ctx, recipes)))
        return
    console = streams.console(soft_wrap=True, highlight=False)
    for recipe in recipes:
        console.print(tables.heat_map(support(recipe)), end="\n\n")
    console.print(tables.legend())
    console.print("\n".join(tables.other_machines()))


@app.command()
def lock(
    name: Annotated[
        str, typer.Argument(help="Recipe, such as pyg, or the file of one of your own.", metavar="[NAME]")
    ] = "",
    cuda: options.Cuda = None,
    platform: options.Platform = "",
    channel: Channel = None,
    mirror: Mirror = None,
    wheels: Wheels = None,
    extensions: Extensions = "auto",
    toolkit: Toolkit = None,
    pyg_lib: PygLib = None,
    without_security: WithoutSecurity = False,
    trust_paths: options.TrustPaths = False,
) -> None:
    """Resolve a variant again and write its lock. Prints the path: images/NAME/VARIANT/CANDIDATE.lock.json."""
    if not name:
        raise UsageError("lock needs a recipe", next_step=f"{command('lock', 'pyg', cuda='11.8')}    (list has all)")
    from graphcrate.assembly import pipeline
    from graphcrate.cli.requests import build_request
    from graphcrate.compat.variants.request import SourceOptions

    sources = SourceOptions(
        channel=channel, mirror=mirror, wheels=wheels, extensions=extensions, toolkit=toolkit, pyg_lib=pyg_lib
    )
    sources = msgspec.structs.replace(sources, without_security=without_security)
    request = build_request("lock", name, cuda, platform=platform, sources=sources, trust_paths=trust_paths)
    sys.stdout.write(f"{pipeline.write_lock(request, here(without_security=without_security))}\n")


@app.command()
def render(
    name: Annotated[
        str | None, typer.Argument(help="Recipe, or the file of one of your own; all if left out.", metavar="NAME")
    ] = None,
    cuda: Annotated[str | None, typer.Option(callback=cuda_version, help="CUDA version; all if left out.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for NAME/VARIANT/…; images/ if left out.")] = None,
    trust_paths: options.TrustPaths = False,
) -> None:
    """Write Dockerfiles and Singularity definitions. Prints the folders that changed."""
    from graphcrate.render import files

    if name is not None and is_recipe_file(name):
        from graphcrate.assembly import pipeline
        from graphcrate.cli.requests import build_request

        request = build_request("render", name, cuda, trust_paths=trust_paths)
        sys.stdout.write(f"{pipeline.render_own(request, here(), output or Path('images'))}\n")
        return
    for folder in files.render_all(here(), name, cuda, output):
        sys.stdout.write(f"{folder}\n")


app.command(cls=run.BeforeProgram)(run.run)
app.command()(adopt.adopt)
app.command()(look.inspect)
app.command()(look.why)
app.command("report")(look.draw)
app.command(cls=node.NodeCommand)(look.convert)
app.command()(look.diff)
app.command()(check.check)
app.command(hidden=True)(check.validate)
app.command()(check.audit)
app.command()(project.init)
app.command()(project.add)
app.command()(project.remove)
app.command()(cache.cache)
app.command()(cache.images)
app.command()(check.explain)
app.command(cls=node.ArrayCommand)(serve.serve)
app.command()(publish.publish)
app.command()(publish.verify)
app.command()(publish.keys)
app.command("test")(test.try_image)
app.command()(test.job)


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def doctor(context: typer.Context) -> None:
    """Diagnose this machine, an error, or the hosts that a build asks."""
    sys.path.insert(0, str(here().root))  # where an installed package has it too
    from graphcrate.cli.diagnosis import arguments as parsed
    from graphcrate.cli.diagnosis import main as look_around

    if "--network" in context.args:
        check.hosts(as_json=parsed(context.args).json)
        return
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
    from graphcrate.compat.requirements.own import OwnRecipe
    from graphcrate.model import toml
    from graphcrate.model.recipe import Recipe

    write(toml.schema(OwnRecipe) if own else toml.schema(Recipe), "", as_json=True)


ending.refusing_nothing(app)


def main() -> None:
    """Entry point: run, and turn errors into a message and their exit code."""
    streams.prepare()
    with defects.guard():
        ending.run(app)


if __name__ == "__main__":
    main()
