"""A layout in the form that a runner opens, made where it is not there yet."""

from pathlib import Path
from typing import Literal

from graphcrate.artifacts import convert
from graphcrate.artifacts.convert import Request
from graphcrate.engines.trials import stores
from graphcrate.host.context import Context
from graphcrate.model.report import Artifact
from graphcrate.oci.layout import read_layout


def file_of(layout: Path, name: str, form: Literal["sif", "sqsh"], ctx: Context) -> Path:
    """The layout's SIF or squashfs beside it: the one that is there unless it is older, else a new one.

    Raises what `artifacts.convert.convert` raises.
    """
    path = layout.absolute().parent / f"{name}{convert.SUFFIXES[form]}"
    if not path.is_file() or path.stat().st_mtime < (layout / "index.json").stat().st_mtime:
        convert.convert(Request(ref=str(layout), to=form, output=path, force=True), ctx)
    return path


def loaded(layout: Path, name: str, engine: Literal["docker", "podman"], ctx: Context) -> Artifact:
    """The layout in an engine's store, loaded unless it is there. Raises HostError, UsageError."""
    image = read_layout(layout)
    known = stores.inspect(engine, f"{name}:{image.tag}", ctx.environment) if image.tag else None
    if known is not None and known.digest == image.manifest.config.digest:
        return known
    with ctx.cache.folder() as folder:
        archive = folder / f"{name}.tar"
        convert.convert(Request(ref=str(layout), to="docker", output=archive), ctx)
        return stores.load(engine, archive, ctx.environment)
