"""Turn a REF of the command line into an artifact that a runner opens."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.artifacts import layouts, origin
from graphcrate.artifacts.conversion.job import SUFFIXES, ConvertRequest
from graphcrate.artifacts.conversion.run import convert
from graphcrate.artifacts.locate import Located, locate
from graphcrate.artifacts.reports import read_report
from graphcrate.compat.variants.catalog import find_variant
from graphcrate.engines import oci, table
from graphcrate.engines.embedded import build as embedded
from graphcrate.engines.embedded.run import SHELL, own_program, run_inside
from graphcrate.engines.run_order import RunRequest, carry_out, make_order
from graphcrate.host.context import Context
from graphcrate.host.disk.hashing import file_digest
from graphcrate.host.sandbox.emulation import is_native
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.command import command
from graphcrate.model.errors import GraphcrateError, UsageError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.report import Artifact, BuildReport, OwnTests
from graphcrate.model.runtime import RUNNER_FORMS, RUNNERS, runtime_name
from graphcrate.model.suite import SUITES
from graphcrate.model.trial import Device, TrialOrder
from graphcrate.smoke import memory

#: forms of others' images that `run` starts in our own sandbox where no runner was typed
_RUN_BY_US = ("registry", "archive")
#: of an image, who makes it what a runner opens; None where it cannot be. True: Slurm starts containers itself
Opener = Callable[[Located, Context, bool], Artifact | None]


def find(
    reference: str,
    runner: str,
    suites: Sequence[str],
    ctx: Context,
    output: Path,
    *,
    device: Device = "auto",
    rerun: bool = False,
    pyxis: bool = False,
    nodes: int = 1,
    platform: Platform | None = None,
) -> TrialOrder:
    """Find an image, make it what the runner opens, and order its suites.

    `runner`: one of RUNNERS; `suites` empty: those of its recipe; `rerun`: also those that it passed before; `pyxis`:
    Slurm starts containers itself; `nodes`: of the job, for suites that spread over them; `platform`: that was asked
    for, of an image for several. Raises UsageError for a
    missing image or one that the runner cannot open, HostError where an engine does not answer.
    """
    runner = _check_names(suites, runner)
    source = replace(locate(reference, output), platform=platform)
    chosen, artifact = open_by(source, runner, ctx, pyxis=pyxis)
    home = _image_folder(source, output)
    reports = (read_report(folder / "report.json") for folder in (home / artifact.engine, home))
    report = next((report for report in reports if report), None)
    packages = tuple(package.name for package in report.packages) if report else ()
    _refuse_unfit(suites, packages, reference)
    chosen_suites = tuple(suites) or _recipe_suites(reference, report, ctx)
    _refuse_nodes(nodes, chosen_suites)
    layout = source.layout() if source.has_layout else None
    made_for = layout.platform if layout else DEFAULT
    _refuse_emulated(suites, made_for, chosen)
    folder = source.ours / "trials" if source.ours else output / "trials" / _name(source).replace(":", "-")
    passes = home if (home / "report.json").is_file() else output / "trials"
    return TrialOrder(
        reference=reference,
        runner=chosen,
        artifact=artifact,
        suites=chosen_suites,
        device=device,
        folder=str((folder / chosen).absolute()),
        passes=str((passes / memory.FOLDER).absolute()),
        packages=packages,
        layout=layout.digest if layout else "",
        rerun=rerun,
        own=report.own if report and not suites else OwnTests(),
        starts=(report.starts or ()) if report else (),
        nodes=nodes,
        platform=made_for.name,
    )


def open_by(source: Located, runner: str, ctx: Context, *, pyxis: bool = False) -> tuple[str, Artifact]:
    """Return the runner, for `auto` the one that opens the image, and what it opens. Raises UsageError."""
    default = next((name for name, form in RUNNER_FORMS.items() if source.form in form.forms), "")
    chosen = default if runner == "auto" else runner
    artifact = _opener(chosen)(source, ctx, pyxis) if chosen else None
    if artifact is None:
        opens = RUNNER_FORMS[chosen].opens if chosen else "an image, and this is a folder of files"
        step = f"--runner {default}    opens it" if default != chosen else str(command("list"))
        file = f"{command('convert', source.ref, to='sif')}    makes a .sif to give"
        if (default, chosen) == ("slurm", "slurm"):
            elsewhere = file if source.form in layouts.BROUGHT else "give a .sif"
            step = f"--runner slurm --partition NAME    where srun has --container-image; elsewhere {elsewhere}"
        elif source.form in layouts.BROUGHT:
            step = file
        raise UsageError(
            f"{chosen or 'no runner'} cannot open {source.ref}", cause=f"It opens {opens}.", next_step=step
        )
    return chosen, artifact


def run(source: Located, runner: str, request: RunRequest, ctx: Context) -> int:
    """Run a program in an image by this runner, with this terminal; returns its exit code. Raises UsageError."""
    runner = _check_names((), runner)
    layout = source.layout() if source.has_layout else None
    runs_here = runner == "embedded" or (runner == "auto" and source.form in _RUN_BY_US)
    if runs_here and source.form in layouts.BROUGHT:
        pulled = layouts.find(source.ref, Path(), ctx, source.platform)
        pulled.pull()
        layout = pulled.layout
    if layout and runner in ("auto", "embedded"):
        return run_inside(layout, request, ctx)
    chosen, artifact = open_by(source, runner, ctx)
    if chosen == "slurm":
        raise UsageError(f"run opens no {source.form}, and starts no job", next_step=command("convert", "…", to="sif"))
    if request.watched and not RUNNER_FORMS[chosen].file:
        raise UsageError(
            f"--watch does not end a container of {chosen}'s", next_step="leave --runner out, or --runner apptainer"
        )
    order = make_order(request, ctx, own_program(layout) if layout else Exec(SHELL), gpu=True)
    with table.runner(artifact.engine).opened(artifact, cache=ctx.cache, progress=ctx.progress) as inside:
        return carry_out(inside, order, request, ctx)


def _check_names(suites: Sequence[str], runner: str) -> str:
    """Return one of RUNNERS, by any of its names. Raises UsageError for an unknown suite or runner."""
    for name in suites:
        if name not in SUITES:
            raise UsageError(
                f"there is no smoke suite {name!r}",
                cause=f"There are {', '.join(SUITES)}.",
                next_step=f"--suite {next(iter(SUITES))}",
            )
    runner = runner if runner in RUNNERS else runtime_name(runner) or runner
    if runner not in RUNNERS:
        raise UsageError(
            f"there is no runner {runner!r}; there are {', '.join(RUNNERS)}",
            next_step="leave --runner out: the one that opens the image is taken",
        )
    return runner


def _refuse_unfit(suites: Sequence[str], packages: Sequence[str], reference: str) -> None:
    """Raise UsageError for a suite of which the image, known by its packages, lacks what it trains with."""
    for name in suites:
        if packages and (needed := SUITES[name].needs) and needed not in packages:
            raise UsageError(
                f"the suite {name} needs {needed}, which {reference} does not have",
                next_step=f"--suite {' or --suite '.join(suite for suite in SUITES if not SUITES[suite].needs)}",
            )


def _refuse_nodes(nodes: int, suites: Sequence[str]) -> None:
    """Raise UsageError for several nodes and a suite that uses one."""
    able = [name for name in SUITES if SUITES[name].spreads]
    if nodes < 1:
        raise UsageError(f"--nodes {nodes}: at least one is needed", next_step=f"--nodes 2 --suite {able[0]}")
    if nodes > 1 and (alone := [name for name in suites if name not in able]):
        raise UsageError(
            f"the suite {alone[0]} runs on one node, and --nodes is {nodes}", next_step=f"--suite {' or '.join(able)}"
        )


def _refuse_emulated(suites: Sequence[str], platform: Platform, runner: str) -> None:
    """Raise UsageError for suites that are named, of an image whose programs an emulator would run here."""
    if suites and runner == "embedded" and not is_native(platform):
        raise UsageError(
            f"no suite runs here in an image for {platform.title}: an emulator imports and trains five steps alone",
            next_step=f"leave --suite out, or run it on a machine of that kind: --suite {suites[0]} --runner slurm "
            "--partition NAME",
        )


def _embedded(source: Located, ctx: Context, pyxis: bool) -> Artifact | None:
    return embedded.artifact(source.layout()) if source.has_layout else None


def _of_file(engine: str, form: Literal["sif", "sqsh"]) -> Opener:
    """The opener of an engine that runs a file which `convert` makes of a layout."""

    def artifact(source: Located, ctx: Context, pyxis: bool) -> Artifact | None:
        if form == "sif" and source.form == "delta":
            return _pair(source, engine, ctx)
        is_file = source.has_layout or source.form == {"sif": "sif", "sqsh": "squashfs"}[form]
        return _file(source, engine, form, ctx) if is_file else _built(source, engine)

    return artifact


def _slurm(source: Located, ctx: Context, pyxis: bool) -> Artifact | None:
    """Take what pyxis starts; on a cluster without it what Apptainer opens."""
    if pyxis and source.form == "registry":
        return Artifact(engine="pyxis", kind="registry", reference=source.name, digest=source.name, bytes=0)
    if pyxis and (source.form == "squashfs" or source.has_layout):
        return _file(source, "pyxis", "sqsh", ctx)
    return _opener("apptainer")(source, ctx, pyxis)


def _store(name: Literal["docker", "podman"]) -> Opener:
    return lambda source, ctx, pyxis: _in_store(source, oci.StoreEngine(name), ctx)


def _in_store(source: Located, store: oci.StoreEngine, ctx: Context) -> Artifact | None:
    """Look an image up in an engine's store; load an archive or a layout into it."""
    if source.form == "archive":
        return store.load(source.path, ctx.environment)
    if built := _built(source, store.name):
        return built
    if not source.has_layout:
        return store.inspect(source.name, ctx.environment) if source.form in (store.name, "registry") else None
    image, name = source.layout(), source.name.partition(":")[0]
    known = store.inspect(f"{name}:{image.tag}", ctx.environment) if image.tag else None
    if known is not None and known.digest == image.manifest.config.digest:
        return known
    with ctx.cache.folder() as folder:
        archive = folder / f"{name}.tar"
        convert(ConvertRequest(ref=str(source.path), to="docker", output=archive, platform=source.platform), ctx)
        return store.load(archive, ctx.environment)


def _file(source: Located, engine: str, form: Literal["sif", "sqsh"], ctx: Context) -> Artifact:
    """Take the image's file; of a layout, the one beside it, made again unless it says that it is of this layout."""
    path = source.path
    if source.has_layout:
        path = path.absolute().parent / f"{source.name.partition(':')[0]}{SUFFIXES[form]}"
        if not origin.is_of(path, source.layout().digest):
            convert(
                ConvertRequest(ref=str(source.path), to=form, output=path, force=True, platform=source.platform),
                ctx,
            )
    real = path.resolve()  # a link such as pyg.sif may point elsewhere tomorrow
    size = real.stat().st_size
    return Artifact(engine=engine, kind=form, reference=str(real), digest=file_digest(real), bytes=size)


def _pair(source: Located, engine: str, ctx: Context) -> Artifact:
    """Take the SIF that a delta goes over, and the delta, whose hash stands for both: it has the other's digest."""
    delta = source.path.resolve()
    base = origin.base_of(source.path, ctx.environment).resolve()
    size = base.stat().st_size + delta.stat().st_size
    return Artifact(
        engine=engine, kind="sif", reference=str(base), overlay=str(delta), digest=file_digest(delta), bytes=size
    )


def _built(source: Located, engine: str) -> Artifact | None:
    """Return what this engine built under the same name."""
    report = read_report(source.ours / engine / "report.json") if source.ours else None
    if report is None or engine != "apptainer":
        return report.artifact if report else None
    return msgspec.structs.replace(report.artifact, reference=str(Path(report.artifact.reference).absolute()))


def _name(source: Located) -> str:
    """Return the name and tag, without a registry."""
    return source.name.rpartition("/")[2]


def _image_folder(source: Located, output: Path) -> Path:
    """Return the folder of an image: dist/<name>/<tag> for any form of our own, else the folder that it is in."""
    if source.form in ("docker", "podman", "registry"):
        return output / _name(source).partition("@")[0].replace(":", "/")
    if source.ours:
        return source.ours
    path, dist = source.path.resolve(), output.resolve()
    below = path.relative_to(dist).parts if path.is_relative_to(dist) else ()
    return dist.joinpath(*below[:2]) if len(below) > 2 else path.parent


def _recipe_suites(reference: str, report: BuildReport | None, ctx: Context) -> tuple[str, ...]:
    if report is not None:
        with contextlib.suppress(GraphcrateError):  # a recipe that was removed since
            recipe, variant = find_variant(ctx, report.asked.recipe if report.asked else report.name, report.cuda)
            return variant.smoke or recipe.smoke
    raise UsageError(
        f"no suites are known for {reference}",
        cause="No report of a build is beside it that would name its recipe.",
        next_step=f"--suite {next(iter(SUITES))}    (there are {', '.join(SUITES)})",
    )


#: runners that take something else than a file
_OPENERS: Mapping[str, Opener] = {
    "embedded": _embedded,
    "docker": _store("docker"),
    "podman": _store("podman"),
    "slurm": _slurm,
}


def _opener(runner: str) -> Opener:
    file = RUNNER_FORMS[runner].file
    return _of_file(runner, file) if file else _OPENERS[runner]
