"""Inspect images in the stores of Docker and podman, and load archives into them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from graphcrate.host import docker_engine, oci_engine
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.report import Artifact

_Engine = Literal["docker", "podman"]


def inspect(engine: _Engine, name: str, environment: Mapping[str, str]) -> Artifact | None:
    """Look up an image by its name; None where it is missing. Raises HostError when the engine does not answer."""
    image = oci_engine.find(engine, environment).inspect(name)
    if image is None:
        return None
    return Artifact(engine=engine, kind=engine, reference=name, digest=image["Id"], bytes=int(image.get("Size", 0)))


def load(engine: _Engine, path: Path, environment: Mapping[str, str]) -> Artifact:
    """Load the image of an archive. Raises UsageError for an archive without one, HostError as `inspect`."""
    name = _load_podman(path, environment) if engine == "podman" else _load_docker(path, environment)
    artifact = inspect(engine, name, environment) if name else None
    if artifact is None:
        raise UsageError(
            f"no image that {engine} reads is in {path}",
            cause="It is no archive of `docker save`; Docker before 25 does not read OCI archives.",
            next_step=f"skopeo copy oci-archive:{path} docker-archive:image.tar:name:tag",
        )
    return artifact


def _load_docker(path: Path, environment: Mapping[str, str]) -> str:
    """Load an archive and return the image's name or id; empty when the daemon does not print it."""
    with docker_engine.connected(environment) as engine, path.open("rb") as stream:
        try:
            messages = engine.load(stream)
        except docker_engine.FAILURES as error:
            raise HostError(f"Docker cannot load {path}: {error}", next_step=f"docker load --input {path}") from error
    return _loaded_name("".join(str(message.get("stream", "")) for message in messages).splitlines())


def _load_podman(path: Path, environment: Mapping[str, str]) -> str:
    done = oci_engine.find("podman", environment).call("load", "--quiet", "--input", str(path))
    return "" if done.returncode else _loaded_name(done.lines)


def _loaded_name(lines: Sequence[str]) -> str:
    """Return the first image of "Loaded image: name:tag" or "Loaded image ID: sha256:…"."""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Loaded image")), "")
