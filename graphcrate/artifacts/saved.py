"""Images in one tar, as they stream by: what Docker, Podman and skopeo save (docker-archive, oci-archive).

Layers are handed on where they stand, before anything tells which of them the image has: a stream is never gone back
in. Who takes them decides whether any of them comes to the disk.
"""

import contextlib
import io
import itertools
import os
import posixpath
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Generic, NamedTuple, TypeVar, cast

from graphcrate.artifacts.formats.docker_archive import Saved
from graphcrate.artifacts.locate import GZIP_MAGIC, ZSTD_MAGIC, Located
from graphcrate.host import process
from graphcrate.host.context import Context
from graphcrate.host.engines import oci_engine
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.model.limits import DOCUMENTS
from graphcrate.model.platform import Platform
from graphcrate.oci.blob import inflated
from graphcrate.oci.index import PlatformImage, decode_document, find_manifest, read_config, root_entry
from layertar.stream import CHUNK, MAX_READ, Chunks, TarStream, members
from ocilayout import spec

_PIECE = 1 << 21
_Document = TypeVar("_Document")
_Part = TypeVar("_Part")
_Layer = TypeVar("_Layer")
#: Takes a layer's bytes, compressed or not, and how many there are.
TakeLayer = Callable[[Iterator[bytes], int], _Layer]


class SavedTar(NamedTuple):
    """An image's tar, compressed or not. `size` in bytes; 0 where it is unknown.

    `pieces` are made as they are taken: an engine that nothing is taken of saves nothing.
    """

    name: str  #: of the image, as the user gave it
    pieces: Iterable[bytes]
    size: int
    identity: str  #: an engine's ID of the image; of a file its inode, size and time of change


class SavedImage(NamedTuple, Generic[_Layer]):
    """The one image in a tar. In the place of a layer that cannot be read is why.

    `listed`: the manifest of an OCI archive, with its bytes; Docker's have none. `names`: of Docker's, NAME:TAG.
    """

    layers: list[_Layer | LayoutError]
    config: spec.ImageConfig
    config_data: bytes
    listed: PlatformImage | None = None
    manifest_data: bytes = b""
    names: tuple[str, ...] = ()


@contextlib.contextmanager
def opened(image: Located, ctx: Context) -> Iterator[SavedTar]:
    """Open the tar of an archive, or that which an engine makes of an image in its store.

    Raises UsageError for an image that the engine lacks, HostError where it does not answer.
    """
    match image.form:
        case "docker":
            with _of_docker(image.name, ctx) as tar:
                yield tar
        case "podman":
            with _of_podman(image.name, ctx) as tar:
                yield tar
        case _:
            with _of_file(image.ref, image.path) as tar:
                yield tar


@contextlib.contextmanager
def _of_docker(reference: str, ctx: Context) -> Iterator[SavedTar]:
    # Imported late: the SDK takes longer to load than most commands run.
    import docker.errors
    import requests.exceptions

    from graphcrate.host.engines import docker_engine

    with docker_engine.connected(ctx.environment) as api:
        try:
            image = api.inspect_image(reference)
            api.timeout = None  # Docker may write all of it to its disk before the first byte comes

            def saved_by_docker() -> Iterator[bytes]:
                yield from api.get_image(image["Id"], _PIECE)  # by a name without a tag all tags of it would come

            yield SavedTar(f"docker:{reference}", saved_by_docker(), int(image["Size"]), image["Id"])
        except (docker.errors.ImageNotFound, docker.errors.NullResource) as error:
            raise _unknown("Docker", reference, "docker image ls") from error
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise docker_engine.explain(error, ctx.environment) from error


@contextlib.contextmanager
def _of_podman(reference: str, ctx: Context) -> Iterator[SavedTar]:
    """Save it to the cache's disk for the while."""
    engine = oci_engine.find("podman", ctx.environment)
    if (image := engine.inspect(reference)) is None:
        raise _unknown("podman", reference, "podman image ls")
    with ctx.cache.folder() as folder:

        def saved_by_podman() -> Iterator[bytes]:
            ctx.cache.require(int(image["Size"]), f"saving podman's image {reference}")
            ctx.progress.note(f"podman saves {reference}")
            done = engine.call(
                "save", "--quiet", "--format", "docker-archive", "--output", str(file), strange=[reference]
            )
            if done.returncode:
                raise process.failure(["podman", "save", reference], done.returncode, done.lines)
            with file.open("rb", buffering=0) as stream:
                yield from _pieces(stream)

        file = folder / "image.tar"
        yield SavedTar(f"podman:{reference}", saved_by_podman(), int(image["Size"]), image["Id"])


@contextlib.contextmanager
def _of_file(name: str, path: Path) -> Iterator[SavedTar]:
    with path.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        identity = f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
        yield SavedTar(name, _pieces(file), status.st_size, identity)


def _pieces(file: io.FileIO) -> Iterator[bytes]:
    return iter(lambda: file.read(_PIECE), b"")


def _unknown(engine: str, reference: str, command: str) -> UsageError:
    return UsageError(f"{engine} has no image {reference!r}", next_step=f"{command}    lists those that there are")


def read(tar: SavedTar, take: TakeLayer[_Layer], ctx: Context, platform: Platform) -> SavedImage[_Layer]:
    """Read the one image in a tar, each layer by `take`. Raises LayoutError for no image, or several."""
    with ctx.progress.task(f"reading {tar.name}", tar.size, brief=True) as task:

        def counted() -> Iterator[bytes]:
            for piece in tar.pieces:
                task.advance(len(piece))
                yield piece

        try:
            return _Archive(inner_tar(counted(), tar.size or None), take).image(platform)
        except LayoutError as error:
            raise LayoutError(f"{tar.name}: {error.what}", cause=error.cause, next_step=error.next_step) from error


def inner_tar(pieces: Iterable[bytes], size: int | None) -> TarStream:
    """Open the tar in these bytes (`size` of them where that is known), in any supported compression."""
    reader = io.BufferedReader(Chunks(pieces), CHUNK)
    return inflated(layer_type(reader.peek(len(ZSTD_MAGIC))), cast("IO[bytes]", reader), size)


def layer_type(head: bytes) -> str:
    """Tell the media type of a layer by its first bytes."""
    if head.startswith(GZIP_MAGIC):
        return spec.LAYER_GZIP
    return spec.LAYER_ZSTD if head.startswith(ZSTD_MAGIC) else spec.LAYER_TAR


class _Archive(Generic[_Layer]):
    """All that is in a tar, by its names there."""

    def __init__(self, stream: TarStream, take: TakeLayer[_Layer]) -> None:
        self._take = take
        self.documents: dict[str, bytes] = {}
        self._documents_size = 0
        self.layers: dict[str, _Layer | LayoutError] = {}  #: an error for one that cannot be read
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
                self.layers[path] = self._take(itertools.chain((first,), pieces), member.size)
            except LayoutError as error:  # which matters if the image has that layer
                self.layers[path] = LayoutError(f"layer {path}: {error.what}", cause=error.cause)

    def image(self, platform: Platform) -> SavedImage[_Layer]:
        """Find the one image. Raises LayoutError for no image, or several."""
        if "manifest.json" not in self.documents:
            return self._image_of_index(platform)
        saved = decode_document(self._named(self.documents, "manifest.json"), tuple[Saved, ...], "manifest.json")
        if len(saved) != 1:
            names = ", ".join(tag for image in saved for tag in image.repo_tags or ("(untagged)",))
            raise LayoutError(
                f"the archive has {len(saved)} images, one was expected", cause=f"It has: {names or 'none'}."
            )
        data = self._named(self.documents, saved[0].config)
        config = decode_document(data, spec.ImageConfig, saved[0].config)
        layers = [self._named(self.layers, layer) for layer in saved[0].layers]
        return SavedImage(layers, config, data, names=saved[0].repo_tags or ())

    def _image_of_index(self, platform: Platform) -> SavedImage[_Layer]:
        if "index.json" not in self.documents:
            raise LayoutError(
                "the tar has neither manifest.json nor index.json",
                cause="It is not an image that Docker, podman or skopeo saved; a root file system perhaps.",
                next_step="mkdir root && tar -C root -xf FILE    and give the folder",
            )
        index = decode_document(self._named(self.documents, "index.json"), spec.ImageIndex, "index.json")
        listed = find_manifest(root_entry(index, "index.json", platform), self._read_blob, platform)
        layers = [self._named(self.layers, _blob(layer)) for layer in listed.manifest.layers]
        config = read_config(listed.manifest, self._read_blob)
        data = self._read_blob(listed.manifest.config)
        return SavedImage(layers, config, data, listed, self._read_blob(listed.descriptor))

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


def _blob(descriptor: spec.Descriptor) -> str:
    return f"blobs/{descriptor.digest.replace(':', '/')}"
