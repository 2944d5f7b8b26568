"""What is to be tried: from the words on the command line to an artifact that a runner opens."""

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate import memory, smoke
from graphcrate.catalogue import check_digest, find_image, find_variant, read_report
from graphcrate.errors import GraphcrateError, UsageError
from graphcrate.formats import kinds
from graphcrate.formats.kinds import kind_of
from graphcrate.host.workplace import Workplace
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.oci.layout import read_layout
from graphcrate.oci.reference import SCHEME
from graphcrate.trees.opening import registry_name
from graphcrate.trials import forms, stores

RUNNERS = ("auto", "embedded", "docker", "podman", "apptainer", "slurm")
_Kind = Literal["ours", "layout", "sif", "sqsh", "archive", "docker", "podman", "registry"]
_FILES: Mapping[kinds.Kind | None, _Kind] = {"sif": "sif", "squashfs": "sqsh", "tar": "archive", "gzip": "archive"}
#: which runner opens what, where none is asked for
_NATURAL: Mapping[_Kind, str] = {
    "ours": "embedded",
    "layout": "embedded",
    "sif": "apptainer",
    "sqsh": "slurm",
    "archive": "docker",
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


class _Source(msgspec.Struct, frozen=True):
    """What the words mean: a file or folder, or a name in an engine's store or on a registry."""

    kind: _Kind
    name: str
    path: Path = Path()

    @property
    def layout(self) -> Path | None:
        """The folder of its layout, if it has one."""
        folder = self.path / "oci" if self.kind == "ours" else self.path
        return folder if self.kind in ("ours", "layout") and (folder / "index.json").is_file() else None

    @property
    def image(self) -> str:
        """Its name without the tag."""
        return self.name.partition(":")[0]


def find(
    reference: str, runner: str, suites: Sequence[str], place: Workplace, output: Path, *, pyxis: bool = False
) -> Subject:
    """The subject. `runner` of RUNNERS; `suites` empty: those of its recipe; `pyxis`: Slurm starts containers itself.

    Raises UsageError for what does not exist or what this runner cannot open, HostError where an engine is asked.
    """
    for name in suites:
        if name not in smoke.SUITES:
            raise UsageError(f"there is no smoke suite {name!r}", cause=f"There are {', '.join(smoke.SUITES)}.")
    if runner not in RUNNERS:
        raise UsageError(f"there is no runner {runner!r}; there are {', '.join(RUNNERS)}")
    source = _source(reference, output)
    chosen = _NATURAL[source.kind] if runner == "auto" else runner
    if chosen == "slurm" and not pyxis and source.kind in ("sqsh", "registry"):
        raise _for_pyxis_alone(reference, runner)
    artifact = _OPENERS[chosen](source, place, pyxis)
    if artifact is None:
        raise UsageError(
            f"{chosen} cannot open {reference}", cause=f"It opens {_FORMS[chosen]}.", next_step=_instead(source, chosen)
        )
    report = _report(source, artifact, output)
    apart = output / "trials" / source.name.rpartition("/")[2].replace(":", "-")
    folder = source.path / "trials" if source.kind == "ours" else apart
    return Subject(
        reference=reference,
        runner=chosen,
        artifact=artifact,
        suites=tuple(suites) or _usual(reference, report, place),
        packages=tuple(package.name for package in report.packages) if report else (),
        folder=folder / chosen,
        passes=_home(source, output) / memory.FOLDER,
        layout=read_layout(source.layout).digest if source.layout is not None else "",
    )


def _source(reference: str, output: Path) -> _Source:
    for kind in ("docker", "podman"):
        if reference.startswith(f"{kind}:") and not reference.startswith(SCHEME):
            return _Source(kind, reference.removeprefix(f"{kind}:"))
    path = Path(reference)
    if path.is_dir():
        for folder in (path, path / "oci"):
            if (folder / "index.json").is_file():
                return _Source("layout", _name_of(folder), folder)
    if path.is_file():
        return _Source(_kind_of(path), path.name, path)
    name = reference.partition("@")[0]
    if name.count(":") == 1 and (ours := output / name.replace(":", "/")).is_dir():
        if name != reference:
            check_digest(reference, output)
        return _Source("ours", name, ours)
    if remote := registry_name(reference):
        return _Source("registry", remote)
    find_image(reference, output)  # raises UsageError with what there is
    raise UsageError(f"there is no image {reference!r}")


def _name_of(layout: Path) -> str:
    """Of the build's report, else of the folder."""
    report = read_report(layout.resolve().parent / "report.json")
    return report.name if report else layout.resolve().name


def _kind_of(path: Path) -> _Kind:
    found = _FILES.get(kind_of(path))
    if found is None:
        raise UsageError(f"{path} is no image: neither a SIF nor a squashfs nor a tar")
    return found


def _embedded(source: _Source, place: Workplace, pyxis: bool) -> Artifact | None:
    folder = source.layout
    if folder is None:
        return None
    layout = read_layout(folder)
    size = sum(layer.size for layer in layout.layers)
    return Artifact(engine="embedded", kind="layout", reference=str(folder), digest=layout.digest, bytes=size)


def _store(engine: Literal["docker", "podman"]) -> Callable[[_Source, Workplace, bool], Artifact | None]:
    def opened(source: _Source, place: Workplace, pyxis: bool) -> Artifact | None:
        if source.kind == "archive":
            return stores.load(engine, source.path, place.environment)
        if built := _built(source, engine):
            return built
        if source.layout is not None:
            return forms.loaded(source.layout, source.image, engine, place)
        return stores.inspect(engine, source.name, place.environment) if source.kind in (engine, "registry") else None

    return opened


def _sif(source: _Source, place: Workplace, pyxis: bool) -> Artifact | None:
    if source.layout is not None:
        return _file(forms.file_of(source.layout, source.image, "sif", place), "apptainer", "sif")
    return _file(source.path, "apptainer", "sif") if source.kind == "sif" else _built(source, "apptainer")


def _slurm(source: _Source, place: Workplace, pyxis: bool) -> Artifact | None:
    if pyxis and source.kind == "registry":
        return Artifact(engine="pyxis", kind="registry", reference=source.name, digest=source.name, bytes=0)
    if pyxis and source.kind == "sqsh":
        return _file(source.path, "pyxis", "sqsh")
    if pyxis and source.layout is not None:
        return _file(forms.file_of(source.layout, source.image, "sqsh", place), "pyxis", "sqsh")
    return _sif(source, place, pyxis)


_OPENERS: Mapping[str, Callable[[_Source, Workplace, bool], Artifact | None]] = {
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


def _built(source: _Source, engine: str) -> Artifact | None:
    """What this engine built under the same name."""
    report = read_report(source.path / engine / "report.json") if source.kind == "ours" else None
    return report.artifact if report else None


def _report(source: _Source, artifact: Artifact, output: Path) -> BuildReport | None:
    """The report of the build that this artifact comes from, by its name or by where it lies."""
    if source.kind in ("docker", "podman", "registry"):
        name = source.name.rpartition("/")[2].partition("@")[0].replace(":", "/")
        folders = [output / name / source.kind, output / name]
    elif source.kind == "ours":
        folders = [source.path / artifact.engine, source.path]
    else:
        folders = [source.path.resolve().parent, source.path.resolve().parent.parent]
    return next((report for folder in folders if (report := read_report(folder / "report.json"))), None)


def _home(source: _Source, output: Path) -> Path:
    """The folder that what is known of an image goes with: that of our own image whatever its form, dist/<name>/<tag>;
    one that was copied elsewhere with its report; else one for all images of other people.
    """
    if source.kind in ("docker", "podman", "registry"):
        folders = [output / source.name.rpartition("/")[2].partition("@")[0].replace(":", "/")]
    elif source.kind == "ours":
        folders = [source.path]
    else:
        path, dist = source.path.resolve(), output.resolve()
        own = path.relative_to(dist).parts if path.is_relative_to(dist) else ()
        folders = [dist.joinpath(*own[:2])] if len(own) > 2 else [path.parent]
    found = next((folder for folder in folders if (folder / "report.json").is_file()), None)
    return found or output / "trials"


def _usual(reference: str, report: BuildReport | None, place: Workplace) -> tuple[str, ...]:
    """The recipe's suites."""
    if report is not None:
        with contextlib.suppress(GraphcrateError):  # a recipe that is gone since
            recipe, variant = find_variant(place, report.name, report.cuda)
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


def _instead(source: _Source, runner: str) -> str:
    natural = _NATURAL[source.kind]
    return f"--runner {natural}    opens it" if natural != runner else "./build.py list"
