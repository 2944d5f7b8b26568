"""What is to be tried: from the words on the command line to an artifact that a runner opens."""

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.artifacts.locate import Form, Located, locate, read_report
from graphcrate.compat.catalog import find_variant
from graphcrate.engines.trials import forms
from graphcrate.host.context import Context
from graphcrate.model.errors import GraphcrateError, UsageError
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.smoke import memory
from graphcrate.smoke import suites as smoke

RUNNERS = ("auto", "embedded", "docker", "podman", "apptainer", "slurm")
#: forms that are found by a name alone
_NAMED = ("docker", "podman", "registry")
#: which runner opens what, where none is asked for
_NATURAL: Mapping[Form, str] = {
    "layout": "embedded",
    "sif": "apptainer",
    "squashfs": "slurm",
    "archive": "docker",
    "rootfs": "",
    "docker": "docker",
    "podman": "podman",
    "registry": "slurm",
}
_FORMS: Mapping[str, str] = {
    "embedded": "NAME:TAG below dist/, or the path of an OCI layout",
    "docker": "NAME:TAG, a layout, docker:NAME:TAG, or the tar of `docker save`",
    "podman": "NAME:TAG, a layout, podman:NAME:TAG, or a tar",
    "apptainer": "NAME:TAG below dist/, a layout, or the path of a .sif",
    "slurm": "NAME:TAG below dist/, a layout, the path of a .sif; with pyxis a .sqsh or an image on a registry",
}


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact with what is to be run in it. `folder`: for logs and reports, one for each runner."""

    reference: str
    runner: str
    artifact: Artifact
    suites: tuple[str, ...]
    packages: tuple[str, ...]
    folder: Path
    passes: Path  #: the folder of what it has passed, wherever it is tried
    layout: str = ""  #: digest of the layout that the artifact was made from; empty where there is none


def find(
    reference: str, runner: str, suites: Sequence[str], ctx: Context, output: Path, *, pyxis: bool = False
) -> Subject:
    """The subject. `runner` of RUNNERS; `suites` empty: those of its recipe; `pyxis`: Slurm starts containers itself.

    Raises UsageError for what does not exist or what this runner cannot open, HostError where an engine is asked.
    """
    for name in suites:
        if name not in smoke.SUITES:
            raise UsageError(f"there is no smoke suite {name!r}", cause=f"There are {', '.join(smoke.SUITES)}.")
    if runner not in RUNNERS:
        raise UsageError(f"there is no runner {runner!r}; there are {', '.join(RUNNERS)}")
    source = locate(reference, output)
    chosen = _NATURAL[source.form] if runner == "auto" else runner
    if chosen == "slurm" and not pyxis and source.form in ("squashfs", "registry"):
        raise _for_pyxis_alone(reference, runner)
    artifact = _OPENERS[chosen](source, ctx, pyxis) if chosen else None
    if artifact is None:
        opens = _FORMS.get(chosen, "an image, and this is a folder of files")
        raise UsageError(
            f"{chosen or 'no runner'} cannot open {reference}",
            cause=f"It opens {opens}.",
            next_step=_instead(source, chosen),
        )
    report = _report(source, artifact, output)
    apart = output / "trials" / source.name.rpartition("/")[2].replace(":", "-")
    folder = source.ours / "trials" if source.ours else apart
    return Subject(
        reference=reference,
        runner=chosen,
        artifact=artifact,
        suites=tuple(suites) or _usual(reference, report, ctx),
        packages=tuple(package.name for package in report.packages) if report else (),
        folder=folder / chosen,
        passes=_home(source, output) / memory.FOLDER,
        layout=source.layout().digest if source.has_layout else "",
    )


def _embedded(source: Located, ctx: Context, pyxis: bool) -> Artifact | None:
    if not source.has_layout:
        return None
    layout = source.layout()
    size = sum(layer.size for layer in layout.layers)
    return Artifact(engine="embedded", kind="layout", reference=str(source.path), digest=layout.digest, bytes=size)


def _store(engine: Literal["docker", "podman"]) -> Callable[[Located, Context, bool], Artifact | None]:
    def opened(source: Located, ctx: Context, pyxis: bool) -> Artifact | None:
        if source.form == "archive":
            return forms.load(engine, source.path, ctx.environment)
        if built := _built(source, engine):
            return built
        if source.has_layout:
            return forms.loaded(source.path, _image(source), engine, ctx)
        return forms.inspect(engine, source.name, ctx.environment) if source.form in (engine, "registry") else None

    return opened


def _sif(source: Located, ctx: Context, pyxis: bool) -> Artifact | None:
    if source.has_layout:
        return _file(forms.file_of(source.path, _image(source), "sif", ctx), "apptainer", "sif")
    return _file(source.path, "apptainer", "sif") if source.form == "sif" else _built(source, "apptainer")


def _slurm(source: Located, ctx: Context, pyxis: bool) -> Artifact | None:
    if pyxis and source.form == "registry":
        return Artifact(engine="pyxis", kind="registry", reference=source.name, digest=source.name, bytes=0)
    if pyxis and source.form == "squashfs":
        return _file(source.path, "pyxis", "sqsh")
    if pyxis and source.has_layout:
        return _file(forms.file_of(source.path, _image(source), "sqsh", ctx), "pyxis", "sqsh")
    return _sif(source, ctx, pyxis)


_OPENERS: Mapping[str, Callable[[Located, Context, bool], Artifact | None]] = {
    "embedded": _embedded,
    "docker": _store("docker"),
    "podman": _store("podman"),
    "apptainer": _sif,
    "slurm": _slurm,
}


def _file(path: Path, engine: str, kind: Literal["sif", "sqsh"]) -> Artifact:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    # a link such as pyg.sif may point elsewhere tomorrow
    real, size = path.resolve(), path.stat().st_size
    return Artifact(engine=engine, kind=kind, reference=str(real), digest=f"sha256:{digest}", bytes=size)


def _image(source: Located) -> str:
    """The name without the tag."""
    return source.name.partition(":")[0]


def _built(source: Located, engine: str) -> Artifact | None:
    """What this engine built under the same name."""
    report = read_report(source.ours / engine / "report.json") if source.ours else None
    return report.artifact if report else None


def _report(source: Located, artifact: Artifact, output: Path) -> BuildReport | None:
    """The report of the build that this artifact comes from, by its name or by where it lies."""
    if source.form in _NAMED:
        name = source.name.rpartition("/")[2].partition("@")[0].replace(":", "/")
        folders = [output / name / source.form, output / name]
    elif source.ours:
        folders = [source.ours / artifact.engine, source.ours]
    else:
        folders = [source.path.resolve().parent, source.path.resolve().parent.parent]
    return next((report for folder in folders if (report := read_report(folder / "report.json"))), None)


def _home(source: Located, output: Path) -> Path:
    """The folder that what is known of an image goes with: that of our own image whatever its form, dist/<name>/<tag>;
    one that was copied elsewhere with its report; else one for all images of other people.
    """
    if source.form in _NAMED:
        folders = [output / source.name.rpartition("/")[2].partition("@")[0].replace(":", "/")]
    elif source.ours:
        folders = [source.ours]
    else:
        path, dist = source.path.resolve(), output.resolve()
        own = path.relative_to(dist).parts if path.is_relative_to(dist) else ()
        folders = [dist.joinpath(*own[:2])] if len(own) > 2 else [path.parent]
    found = next((folder for folder in folders if (folder / "report.json").is_file()), None)
    return found or output / "trials"


def _usual(reference: str, report: BuildReport | None, ctx: Context) -> tuple[str, ...]:
    """The recipe's suites."""
    if report is not None:
        with contextlib.suppress(GraphcrateError):  # a recipe that is gone since
            recipe, variant = find_variant(ctx, report.name, report.cuda)
            return variant.smoke or recipe.smoke
    raise UsageError(
        f"which suites are to be run in {reference}?",
        cause="No report of a build lies beside it that would tell its recipe.",
        next_step=f"--suite {next(iter(smoke.SUITES))}    (there are {', '.join(smoke.SUITES)})",
    )


def _for_pyxis_alone(reference: str, runner: str) -> UsageError:
    if runner == "auto":
        return UsageError(
            f"{reference} runs in Slurm, with pyxis",
            next_step="--runner slurm --partition NAME    submits a job with it (sinfo lists partitions)",
        )
    return UsageError(
        f"{reference} cannot be tested: srun has no --container-image here",
        cause="Slurm opens a .sqsh and an image on a registry with pyxis, which is not installed on this machine.",
        next_step="give a .sif, which Apptainer or Singularity opens on the node",
    )


def _instead(source: Located, runner: str) -> str:
    natural = _NATURAL[source.form]
    return f"--runner {natural}    opens it" if natural != runner else "./build.py list"
