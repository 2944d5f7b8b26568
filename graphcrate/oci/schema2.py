"""The same image under a manifest of Docker's schema 2: configuration and layers are the very blobs. Pure.

enroot asks for a manifest without saying which forms it takes, and common registries answer 404 then where they have
an OCI manifest; schema 2 is what they serve to anybody. Docker's "Image Manifest V 2, Schema 2".
"""

import msgspec

from graphcrate.model.errors import LayoutError
from graphcrate.oci import spec

_LAYERS = {
    spec.LAYER_TAR: "application/vnd.docker.image.rootfs.diff.tar",
    spec.LAYER_GZIP: "application/vnd.docker.image.rootfs.diff.tar.gzip",
}


def converted(manifest: spec.Manifest) -> bytes:
    """The manifest's bytes in Docker's form. Raises LayoutError for layers that this form does not know.

    Annotations of descriptors have no place in it; labels are in the configuration and stay.
    """
    document = spec.Manifest(
        schema_version=2,
        media_type=spec.DOCKER_MANIFEST,
        config=_bare(manifest.config, spec.DOCKER_CONFIG),
        layers=tuple(_bare(layer, _layer_type(layer)) for layer in manifest.layers),
    )
    return msgspec.json.encode(document)


def _bare(descriptor: spec.Descriptor, media_type: str) -> spec.Descriptor:
    return spec.Descriptor(media_type=media_type, digest=descriptor.digest, size=descriptor.size)


def _layer_type(layer: spec.Descriptor) -> str:
    known = spec.LAYER_TYPES.get(layer.media_type)
    if known not in _LAYERS:
        raise LayoutError(
            f"the layer {layer.digest} is of type {layer.media_type}, which Docker's manifest form does not have",
            cause="enroot drops zstd layers of such an image without a word.",
            next_step="build the image with gzip layers, or publish it in OCI form for runtimes that take it",
        )
    return _LAYERS[known]
