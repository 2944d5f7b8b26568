"""Read images in one tar, as they stream by: what Docker, Podman and skopeo save (docker-archive, oci-archive).

Layers are read where they stand, before anything tells which of them the image has: a stream is never gone back in,
and nothing of it is written to the disk but small files that may be compared in another form.
"""

import io
import itertools
import posixpath
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TypeVar, cast

from graphcrate.artifacts.formats.docker_archive import Saved
from graphcrate.artifacts.locate import GZIP_MAGIC, ZSTD_MAGIC
from graphcrate.artifacts.tree.layers import LayerTree, open_layers, read_layer
from graphcrate.artifacts.tree.reader import OpenedTree, Tools
from graphcrate.host import process
from graphcrate.host.engines import oci_engine
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.model.limits import DOCUMENTS
from graphcrate.model.tree import Form
from graphcrate.oci.blob import inflated
from graphcrate.oci.index import decode_document, find_manifest, read_config, root_entry
from layertar.stream import CHUNK, MAX_READ, Chunks, TarStream, members
from ocilayout import spec

_PIECE = 1 << 21
_Document = TypeVar("_Document")
_Part = TypeVar("_Part")


def read_docker(reference: str, tools: Tools) -> OpenedTree:
    """An image of the Docker daemon, streamed. Raises UsageError for one that it lacks, HostError without a daemon."""
    # Imported late: the SDK takes longer to load than most commands run.
    import docker.errors
    import requests.exceptions

    from graphcrate.host.engines import docker_engine

    with docker_engine.connected(tools.ctx.environment) as api:
        try:
            image = api.inspect_image(reference)
            api.timeout = None  # Docker may write all of it to its disk before the first byte comes
            pieces = api.get_image(image["Id"], _PIECE)  # by a name without a tag all tags of it would come
            return _read(f"docker:{reference}", "docker", pieces, int(image["Size"]), tools)
        except (docker.errors.ImageNotFound, docker.errors.NullResource) as error:
            raise _unknown("Docker", reference, "docker image ls") from error
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise docker_engine.explain(error, tools.ctx.environment) from error


def read_podman(reference: str, tools: Tools) -> OpenedTree:
    """An image in podman's storage, saved to the cache's disk for the while. Raises UsageError, HostError."""
    engine = oci_engine.find("podman", tools.ctx.environment)
    if (image := engine.inspect(reference)) is None:
        raise _unknown("podman", reference, "podman image ls")
    tools.ctx.cache.require(int(image["Size"]), f"saving podman's image {reference}")
    with tools.ctx.cache.folder() as folder:
        saved = folder / "image.tar"
        tools.ctx.progress.note(f"podman saves {reference}")
        done = engine.call("save", "--quiet", "--format", "docker-archive", "--output", str(saved), strange=[reference])
        if done.returncode:
            raise process.failure(["podman", "save", reference], done.returncode, done.lines)
        return read_file(f"podman:{reference}", saved, tools, form="podman")


def read_file(name: str, path: Path, tools: Tools, form: Form = "archive") -> OpenedTree:
    """An image in a tar on the disk. Raises LayoutError."""
    with path.open("rb", buffering=0) as file:
        return _read(name, form, iter(lambda: file.read(_PIECE), b""), path.stat().st_size, tools)


def _unknown(engine: str, reference: str, command: str) -> UsageError:
    return UsageError(f"{engine} has no image {reference!r}", next_step=f"{command}    lists those that there are")


def _read(name: str, form: Form, pieces: Iterable[bytes], size: int, tools: Tools) -> OpenedTree:
    """Read the one image in a tar, compressed or not. Raises LayoutError where there is none, or are several."""
    with tools.ctx.progress.task(f"reading {name}", size, brief=True) as task:

        def counted() -> Iterator[bytes]:
            for piece in pieces:
                task.advance(len(piece))
                yield piece

        try:
            return _Archive(_stream(counted(), size or None), tools).opened(name, form)
        except LayoutError as error:
            raise LayoutError(f"{name}: {error.what}", cause=error.cause, next_step=error.next_step) from error


def _stream(pieces: Iterable[bytes], size: int | None) -> TarStream:
    """The tar in these bytes (`size` of them where that is known), in any supported compression."""
    reader = io.BufferedReader(Chunks(pieces), CHUNK)
    head = reader.peek(len(ZSTD_MAGIC))
    kind = spec.LAYER_TAR
    if head.startswith(GZIP_MAGIC):
        kind = spec.LAYER_GZIP
    elif head.startswith(ZSTD_MAGIC):
        kind = spec.LAYER_ZSTD
    return inflated(kind, cast("IO[bytes]", reader), size)


class _Archive:
    """All that is in a tar, by its names there."""

    def __init__(self, stream: TarStream, tools: Tools) -> None:
        self._selection, self._platform = tools.selection, tools.platform
        self.documents: dict[str, bytes] = {}
        self._documents_size = 0
        self.layers: dict[str, LayerTree | LayoutError] = {}  #: an error for one that cannot be read
        self.links: dict[str, str] = {}
        for member, _ in members(stream):
            path = posixpath.normpath(member.name)
            if member.issym():
                self.links[path] = posixpath.normpath(posixpath.join(posixpath.dirname(path), member.linkname))
            elif member.islnk():
                self.links[path] = posixpath.normpath(member.linkname)
            elif member.isfile() and member.size:
                self._read_member(path, member, stream)

    def _read_member(self, path: str, member: tarfile.TarInfo, stream: TarStream) -> None:
        """Read a document or a layer; ignore other members."""
        pieces = stream.chunks(member.size)
        first = next(pieces)
        if first[:1] in (b"{", b"[") and first[257:262] != b"ustar" and member.size <= MAX_READ:
            self._documents_size += member.size
            if self._documents_size > DOCUMENTS:
                raise LayoutError(f"its documents have more than {DOCUMENTS} bytes", cause="No image has so many.")
            self.documents[path] = first + b"".join(pieces)
        elif path.startswith("blobs/") or path.endswith(".tar"):
            try:
                self.layers[path] = read_layer(_stream(itertools.chain((first,), pieces), member.size), self._selection)
            except LayoutError as error:  # which matters if the image has that layer
                self.layers[path] = LayoutError(f"layer {path}: {error.what}", cause=error.cause)

    def opened(self, name: str, form: Form) -> OpenedTree:
        """Open the one image. Raises LayoutError where there is none, or are several."""
        if "manifest.json" not in self.documents:
            return self._opened_oci(name, form)
        saved = self._decoded("manifest.json", tuple[Saved, ...])
        if len(saved) != 1:
            names = ", ".join(tag for image in saved for tag in image.repo_tags or ("(untagged)",))
            raise LayoutError(
                f"the archive has {len(saved)} images, one was expected", cause=f"It has: {names or 'none'}."
            )
        config = self._decoded(saved[0].config, spec.ImageConfig)
        return open_layers(name, form, [self._named(self.layers, layer) for layer in saved[0].layers], config)

    def _opened_oci(self, name: str, form: Form) -> OpenedTree:
        if "index.json" not in self.documents:
            raise LayoutError(
                "the tar has neither manifest.json nor index.json",
                cause="It is not an image that Docker, podman or skopeo saved; a root file system perhaps.",
                next_step="mkdir root && tar -C root -xf FILE    and give the folder",
            )
        listed = self._decoded("index.json", spec.ImageIndex)
        image = find_manifest(root_entry(listed, "index.json", self._platform), self._read_blob, self._platform)
        layers = [self._named(self.layers, _blob(layer)) for layer in image.manifest.layers]
        config = read_config(image.manifest, self._read_blob)
        return open_layers(name, form, layers, config, image.manifest, image.index)

    def _read_blob(self, descriptor: spec.Descriptor) -> bytes:
        return self._named(self.documents, _blob(descriptor))

    def _named(self, parts: Mapping[str, _Part], name: str) -> _Part:
        """Find a part, through links: Docker saves a layer that comes twice as one."""
        path = posixpath.normpath(name)
        for _ in self.links:
            path = self.links.get(path, path)
        if path not in parts:
            raise LayoutError(f"{name} is missing from the archive")
        return parts[path]

    def _decoded(self, name: str, kind: type[_Document]) -> _Document:
        return decode_document(self._named(self.documents, name), kind, name)


def _blob(descriptor: spec.Descriptor) -> str:
    return f"blobs/{descriptor.digest.replace(':', '/')}"
