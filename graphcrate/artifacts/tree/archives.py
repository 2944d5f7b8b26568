"""Read images in one tar, as they stream by: what Docker, Podman and skopeo save (docker-archive, oci-archive).

Layers are read where they stand, before anything tells which of them the image has: a stream is never gone back in,
and nothing of it is written to the disk but small files that may be compared in another form.
"""

import io
import itertools
import posixpath
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

from graphcrate.artifacts.formats.kinds import GZIP_MAGIC, ZSTD_MAGIC
from graphcrate.artifacts.tree.layers import Documents, LayerTree, opened, read_layer
from graphcrate.artifacts.tree.reader import Opened, Spool, Tools
from graphcrate.host import process, settings
from graphcrate.host.progress import Task
from graphcrate.model.errors import UNREADABLE, LayoutError, UsageError
from graphcrate.model.tree import Form
from graphcrate.oci import spec
from graphcrate.oci.blob import CHUNK, MAX_READ, TarStream, inflated, members

_PIECE = 1 << 21
_Document = TypeVar("_Document")


class _Saved(msgspec.Struct, frozen=True, rename="pascal"):
    """An image in Docker's manifest.json."""

    config: str
    layers: tuple[str, ...]
    repo_tags: tuple[str, ...] | None = None


@dataclass
class _Archive:
    """What was found on the way, by its name in the tar."""

    documents: dict[str, bytes] = field(default_factory=dict)
    layers: dict[str, LayerTree] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def resolved(self, name: str) -> str:
        """The name that links lead to: Docker saves a layer that comes twice as a link."""
        for _ in range(len(self.links) + 1):
            if name not in self.links:
                break
            name = self.links[name]
        return name


class Chunks(io.RawIOBase):
    """A file of pieces that come one after another, readable forward only."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (a buffer; typing has no name for it in 3.11)
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


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
    """Read the one image in a tar, compressed or not. Raises LayoutError where there is none, or are several."""
    spool = Spool(tools.cache, tools.stack, tools.wanted)
    archive = _Archive()
    try:
        for member, _ in members(stream := _stream(source)):
            path = posixpath.normpath(member.name)
            if member.issym():
                archive.links[path] = posixpath.normpath(posixpath.join(posixpath.dirname(path), member.linkname))
            elif member.islnk():
                archive.links[path] = posixpath.normpath(member.linkname)
            elif member.isfile() and member.size:
                _read_member(archive, path, member, stream, spool)
        documents, layers = _docker_image(archive) if "manifest.json" in archive.documents else _oci_image(archive)
        return opened(name, form, layers, documents, spool)
    except LayoutError as error:
        raise LayoutError(f"{name}: {error.what}", cause=error.cause, next_step=error.next_step) from error


def _counted(pieces: Iterable[bytes], task: Task) -> Iterator[bytes]:
    for piece in pieces:
        task.advance(len(piece))
        yield piece


def _unknown(engine: str, reference: str, command: str) -> UsageError:
    return UsageError(f"{engine} has no image {reference!r}", next_step=f"{command}    lists those that there are")


def _stream(source: io.RawIOBase) -> TarStream:
    """The tar in these bytes, whatever it is compressed with."""
    reader = io.BufferedReader(source, CHUNK)
    head = reader.peek(len(ZSTD_MAGIC))
    kind = spec.LAYER_TAR
    if head.startswith(GZIP_MAGIC):
        kind = spec.LAYER_GZIP
    elif head.startswith(ZSTD_MAGIC):
        kind = spec.LAYER_ZSTD
    return inflated(kind, cast("IO[bytes]", reader))


def _read_member(archive: _Archive, path: str, member: tarfile.TarInfo, stream: TarStream, spool: Spool) -> None:
    """A document or a layer; whatever else there is means nothing."""
    pieces = stream.chunks(member.size)
    first = next(pieces)
    if first[:1] in (b"{", b"[") and first[257:262] != b"ustar" and member.size <= MAX_READ:
        archive.documents[path] = first + b"".join(pieces)
    elif path.startswith("blobs/") or path.endswith(".tar"):
        try:
            archive.layers[path] = read_layer(_stream(Chunks(itertools.chain((first,), pieces))), spool)
        except LayoutError as error:
            raise LayoutError(f"layer {path}: {error.what}", cause=error.cause) from error


def _docker_image(archive: _Archive) -> tuple[Documents, list[LayerTree]]:
    saved = _decoded(archive, "manifest.json", tuple[_Saved, ...])
    if len(saved) != 1:
        names = ", ".join(tag for image in saved for tag in image.repo_tags or ("(untagged)",))
        raise LayoutError(f"the archive has {len(saved)} images, one was expected", cause=f"It has: {names or 'none'}.")
    config = _decoded(archive, saved[0].config, spec.ImageConfig)
    return Documents(config), [_layer(archive, name) for name in saved[0].layers]


def _oci_image(archive: _Archive) -> tuple[Documents, list[LayerTree]]:
    if "index.json" not in archive.documents:
        raise LayoutError(
            "the tar has neither manifest.json nor index.json",
            cause="It is no image that Docker, podman or skopeo saved; a root file system perhaps.",
            next_step="mkdir root && tar -C root -xf FILE    and give the folder",
        )
    index = _decoded(archive, "index.json", spec.Index)
    entries: tuple[spec.Descriptor, ...] = ()
    while True:
        images = [entry for entry in index.manifests if entry.platform is None or _is_ours(entry.platform)]
        if len(images) != 1:
            raise LayoutError(f"the archive has {len(images)} images for linux/amd64, one was expected")
        if images[0].media_type not in spec.INDEX_TYPES:
            break
        index = _decoded(archive, _blob(images[0]), spec.Index)
        entries = index.manifests
    manifest = _decoded(archive, _blob(images[0]), spec.Manifest)
    config = _decoded(archive, _blob(manifest.config), spec.ImageConfig)
    documents = Documents(config, manifest, entries)
    return documents, [_layer(archive, _blob(layer)) for layer in manifest.layers]


def _is_ours(platform: spec.Platform) -> bool:
    return (platform.os, platform.architecture) == ("linux", "amd64")


def _blob(descriptor: spec.Descriptor) -> str:
    return f"blobs/{descriptor.digest.replace(':', '/')}"


def _layer(archive: _Archive, name: str) -> LayerTree:
    found = archive.layers.get(archive.resolved(posixpath.normpath(name)))
    if found is None:
        raise LayoutError(f"the layer {name} is missing from the archive")
    return found


def _decoded(archive: _Archive, name: str, kind: type[_Document]) -> _Document:
    data = archive.documents.get(archive.resolved(posixpath.normpath(name)))
    if data is None:
        raise LayoutError(f"{name} is missing from the archive")
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise LayoutError(f"{name} is malformed: {error}") from error
