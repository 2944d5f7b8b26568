"""Images in the stores of Docker and podman: found by name, or loaded from an archive."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from graphcrate.host import docker_engine, oci_engine
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.report import Artifact

_Engine = Literal["docker", "podman"]


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
