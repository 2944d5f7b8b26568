"""The documents of the OCI image specification 1.1, and the Docker schema 2 names that registries still use."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ocilayout.errors import FormError

#: of another's image: any algorithm, in the grammar of the OCI image specification; no path comes of it
ForeignDigest = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]+([+._-][a-z0-9]+)*:[A-Za-z0-9=_-]+\Z")]
#: Bytes. Larger numbers are not the same to all readers of JSON (RFC 7493), and no disk has as many bytes.
Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER_TAR = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
EMPTY = "application/vnd.oci.empty.v1+json"  #: type of the configuration of what is no image
EMPTY_BLOB = b"{}"  #: where a manifest needs a blob that says nothing
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"

#: Layer types of Docker and of the specification, by what they are in an image that we write. Layers that may
#: not be distributed (`…nondistributable…`, `…foreign…`) are absent on purpose.
LAYER_TYPES = {
    LAYER_TAR: LAYER_TAR,
    LAYER_GZIP: LAYER_GZIP,
    LAYER_ZSTD: LAYER_ZSTD,
    "application/vnd.docker.image.rootfs.diff.tar": LAYER_TAR,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": LAYER_GZIP,
    "application/vnd.docker.image.rootfs.diff.tar.zstd": LAYER_ZSTD,
}
INDEX_TYPES = (INDEX, DOCKER_INDEX)
MANIFEST_TYPES = (MANIFEST, DOCKER_MANIFEST)
CONFIG_TYPES = (CONFIG, DOCKER_CONFIG)

LAYOUT_VERSION = "1.0.0"
REF_NAME = "org.opencontainers.image.ref.name"
WHITEOUT = ".wh."  #: prefix of an entry that removes its namesake from the layers below
OPAQUE = ".wh..wh..opq"  #: an entry that empties its folder of what the layers below have in it
DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


class DescriptorPlatform(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The platform of a manifest."""

    architecture: str
    os: str
    variant: str = ""


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A reference to content by type, digest (`sha256:<hex>`) and size in bytes."""

    media_type: str
    digest: ForeignDigest
    size: Size
    annotations: dict[str, str] = {}
    platform: DescriptorPlatform | None = None
    artifact_type: str = ""


class ImageIndex(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An image index, or Docker's manifest list."""

    schema_version: int
    manifests: tuple[Descriptor, ...]
    media_type: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An image manifest: one config and the layers, lowest first."""

    schema_version: int
    config: Descriptor
    layers: tuple[Descriptor, ...]
    media_type: str = ""


class ArtifactManifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A manifest of something about an image, its `subject`: what registries list as a referrer of that."""

    schema_version: int = 2
    media_type: str = MANIFEST
    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    subject: Descriptor
    annotations: dict[str, str] = {}


class RootFS(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of the uncompressed layers, lowest first."""

    diff_ids: tuple[ForeignDigest, ...]
    type: str = "layers"


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of one layer; `empty_layer` entries have none. `created` in RFC 3339."""

    created: str | None = None
    created_by: str | None = None
    comment: str | None = None
    empty_layer: bool = False


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """Settings with which a container of the image starts. Null and absent are the same, as Docker writes both."""

    env: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    working_dir: str | None = None
    labels: dict[str, str] | None = None
    user: str | None = None
    volumes: dict[str, Any] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """`Env` as a mapping; an entry without `=` is empty."""
        return {name: value for name, _, value in (entry.partition("=") for entry in self.env or ())}


class ImageConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An image configuration; its digest is the image id."""

    architecture: str
    os: str
    rootfs: RootFS
    created: str | None = None
    config: RunConfig | None = None
    history: tuple[History, ...] | None = None

    @property
    def run(self) -> RunConfig:
        """`config`, empty where the image has none."""
        return self.config or RunConfig()


class LayerBlob(msgspec.Struct, frozen=True, kw_only=True):
    """A layer's file and what it is (an OCI or Docker layer media type)."""

    path: Path
    media_type: str


#: layer types of Docker's schema 2, by ours
_DOCKER_LAYERS = {
    LAYER_TAR: "application/vnd.docker.image.rootfs.diff.tar",
    LAYER_GZIP: "application/vnd.docker.image.rootfs.diff.tar.gzip",
}


def docker_form(manifest: Manifest) -> bytes:
    """Encode the manifest as Docker's "Image Manifest V 2, Schema 2": configuration and layers are the very blobs.

    enroot asks for a manifest without saying which forms it takes, and common registries answer 404 then where they
    have an OCI manifest; schema 2 is what they serve to anybody. Annotations of descriptors have no place in it.
    Raises FormError for layers that it cannot name.
    """
    layers = []
    for layer in manifest.layers:
        known = LAYER_TYPES.get(layer.media_type)
        if known not in _DOCKER_LAYERS:
            raise FormError(
                f"the layer {layer.digest} is of type {layer.media_type}, which Docker's manifest form does not have",
                cause="enroot drops zstd layers of such an image without a word.",
                next_step="build the image with gzip layers, or publish it in OCI form for runtimes that take it",
            )
        layers.append(Descriptor(media_type=_DOCKER_LAYERS[known], digest=layer.digest, size=layer.size))
    config = Descriptor(media_type=DOCKER_CONFIG, digest=manifest.config.digest, size=manifest.config.size)
    return msgspec.json.encode(
        Manifest(schema_version=2, media_type=DOCKER_MANIFEST, config=config, layers=tuple(layers))
    )
