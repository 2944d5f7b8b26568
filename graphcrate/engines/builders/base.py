"""The lock's own base as an image that engines start from: exactly its layers, and a configuration that adds nothing.

An engine that pulls `debian:bookworm-slim` gets today's packages; one that starts from here ends with the embedded
builder's files.
"""

from graphcrate.host.cache import Cache
from graphcrate.inputs.bases import Base
from graphcrate.model.plan import LAYER_MTIME, ConfigStep
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import Layout, write_layout

FOLDER = "foundations"
TAG = "base"  #: of the image in its layout: `Bootstrap: oci`, `From: <path>:base`
NAME = "graphcrate/base"


def layout(base: Base, cache: Cache) -> Layout:
    """The base as an OCI layout in the cache, at once where it is there. Its blobs are links to the cache's.

    The same base has the same digest on any machine. No labels: what an engine builds on it would inherit them.
    """
    config = ConfigStep(environment={}, labels={}, command=("/bin/bash",))
    image = make_image(base.layers, config, LAYER_MTIME, base.environment)
    place = cache.path(FOLDER, image.digest.removeprefix("sha256:"))
    with cache.guard():
        return write_layout(place, image, cache.blob, TAG)


def reference(layout: Layout) -> str:
    """The name that Docker and podman know the base by: `graphcrate/base:<12 digits of its id>`."""
    return f"{NAME}:{image_id(layout).removeprefix('sha256:')[:12]}"


def image_id(layout: Layout) -> str:
    """The id that Docker and podman give the image: the digest of its configuration."""
    return layout.manifest.config.digest
