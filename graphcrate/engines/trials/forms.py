"""Bring an image into the form that a runner opens: a SIF or squashfs beside its layout, or in an engine's store."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from graphcrate.artifacts import convert
from graphcrate.artifacts.convert import Request
from graphcrate.host import docker_engine, oci_engine
from graphcrate.host.context import Context
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.report import Artifact
from graphcrate.oci.layout import read_layout

_Engine = Literal["docker", "podman"]


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
    known = inspect(engine, f"{name}:{image.tag}", ctx.environment) if image.tag else None
    if known is not None and known.digest == image.manifest.config.digest:
        return known
    with ctx.cache.folder() as folder:
        archive = folder / f"{name}.tar"
        convert.convert(Request(ref=str(layout), to="docker", output=archive), ctx)
        return load(engine, archive, ctx.environment)


def inspect(engine: _Engine, name: str, environment: Mapping[str, str]) -> Artifact | None:
    """The image of this name; None where the engine has none. Raises HostError when the engine cannot be asked."""
    found = oci_engine.find(engine, environment).inspect(name)
    if found is None:
        return None
    return Artifact(
        engine=engine,
        kind=engine,
        reference=name,
        digest=found["Id"],
        bytes=int(found.get("Size", 0)),
    )


def load(engine: _Engine, path: Path, environment: Mapping[str, str]) -> Artifact:
    """The image of an archive, loaded. Raises UsageError for an archive that holds none, HostError as `inspect`."""
    name = _load_podman(path, environment) if engine == "podman" else _load_docker(path, environment)
    artifact = inspect(engine, name, environment) if name else None
    if artifact is None:
        raise UsageError(
            f"{engine} finds no image in {path}",
            cause="It is no archive of `docker save`; Docker before 25 does not read OCI archives.",
            next_step=f"skopeo copy oci-archive:{path} docker-archive:image.tar:name:tag",
        )
    return artifact


def _load_docker(path: Path, environment: Mapping[str, str]) -> str:
    """The name or id of what was loaded; empty when the daemon did not say."""
    with docker_engine.connected(environment) as engine, path.open("rb") as stream:
        try:
            told = engine.load(stream)
        except docker_engine.FAILURES as error:
            raise HostError(f"Docker cannot load {path}: {error}", next_step=f"docker load --input {path}") from error
    text = "".join(str(line.get("stream", "")) for line in told)
    return _loaded(text.splitlines())


def _load_podman(path: Path, environment: Mapping[str, str]) -> str:
    done = oci_engine.find("podman", environment).call("load", "--quiet", "--input", str(path))
    return "" if done.returncode else _loaded(done.lines)


def _loaded(lines: list[str] | tuple[str, ...]) -> str:
    """Of "Loaded image: name:tag" or "Loaded image ID: sha256:…", the first."""
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("Loaded image")]
    return found[0] if found else ""
