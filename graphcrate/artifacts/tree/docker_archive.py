"""Images that an engine holds, to a tree: as the engine saves them."""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from graphcrate.artifacts.tree.archives import Chunks, read_archive
from graphcrate.artifacts.tree.reader import Opened, Spool, Tools
from graphcrate.host import process, settings
from graphcrate.host.progress import Task
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.model.tree import Form

_PIECE = 1 << 21


def read_docker(reference: str, tools: Tools) -> Opened:
    """An image of the Docker daemon, streamed. Raises UsageError for one that it lacks, HostError without a daemon."""
    # Imported late: the SDK takes longer to load than most commands run.
    import docker.errors
    import requests.exceptions

    from graphcrate.host import docker_engine

    name = f"docker:{reference}"
    with docker_engine.connected(tools.environment) as engine:
        try:
            size = int(engine.api.inspect_image(reference)["Size"])
            engine.api.timeout = None  # Docker may write all of it to its disk before the first byte comes
            with tools.progress.task(f"reading {name}", size) as task:
                pieces = _counted(engine.api.get_image(reference, _PIECE), task)
                return _read(name, "docker", Chunks(pieces), tools)
        except (docker.errors.ImageNotFound, docker.errors.NullResource) as error:
            raise _unknown("Docker", reference, "docker image ls") from error
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise docker_engine.explain(engine.endpoint, error, tools.environment) from error


def read_podman(reference: str, tools: Tools) -> Opened:
    """An image in podman's storage, saved to the cache's disk for the while. Raises UsageError, HostError."""
    environment = settings.child_environment("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINER_HOST")
    found = process.run(["podman", "image", "inspect", "--format", "{{.Size}}", reference], environment=environment)
    if found.returncode:
        if any("such image" in line or "not known" in line for line in found.lines):
            raise _unknown("podman", reference, "podman image ls")
        raise process.failure(["podman", "image", "inspect", reference], found.returncode, found.lines)
    size = next((int(line) for line in found.lines if line.isdigit()), 0)
    tools.cache.require(size, f"saving podman's image {reference}")
    name = f"podman:{reference}"
    with tools.cache.folder() as folder:
        saved = folder / "image.tar"
        tools.progress.note(f"podman saves {reference}")
        save = ["podman", "save", "--quiet", "--format", "docker-archive", "--output", str(saved), reference]
        done = process.run(save, environment=environment)
        if done.returncode:
            raise process.failure(save, done.returncode, done.lines)
        return read_file(name, saved, tools, form="podman")


def read_file(name: str, path: Path, tools: Tools, form: Form = "archive") -> Opened:
    """An image in a tar on the disk. Raises LayoutError."""
    with (
        path.open("rb", buffering=0) as file,
        tools.progress.task(f"reading {name}", path.stat().st_size) as task,
    ):
        return _read(name, form, Chunks(_counted(iter(lambda: file.read(_PIECE), b""), task)), tools)


def _read(name: str, form: Form, source: io.RawIOBase, tools: Tools) -> Opened:
    try:
        return read_archive(name, form, source, Spool(tools.cache, tools.stack, tools.wanted))
    except LayoutError as error:
        raise LayoutError(f"{name}: {error.what}", cause=error.cause, next_step=error.next_step) from error


def _counted(pieces: Iterable[bytes], task: Task) -> Iterator[bytes]:
    for piece in pieces:
        task.advance(len(piece))
        yield piece


def _unknown(engine: str, reference: str, command: str) -> UsageError:
    return UsageError(f"{engine} has no image {reference!r}", next_step=f"{command}    lists those that there are")
