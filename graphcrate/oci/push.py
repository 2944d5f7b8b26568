"""An image from a layout to a registry (`ociregistry.push`), with its progress."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from graphcrate.host.progress import Progress
from graphcrate.model.errors import UsageError
from graphcrate.oci.image import writing_errors
from graphcrate.oci.layout import Layout, check_presence
from graphcrate.oci.registry import Repository
from ocilayout import spec
from ociregistry import push
from ociregistry.push import Pushed
from ociregistry.upload import UploadBlob

#: In the order of the command line: typing takes one of two orders for the other.
ManifestForm = Literal["docker", "oci"]


def push_layout(target: Repository, layout: Layout, form: ManifestForm, progress: Progress) -> Pushed:
    """Push the layout's image under its digest. `form`: of the manifest; `docker` is what every runtime can pull.

    Raises LayoutError, UsageError for a manifest that has no such form, NetworkError, IntegrityError.
    """
    check_presence(layout)
    document, media_type = manifest_of(layout, form)
    descriptors = (*layout.layers, layout.manifest.config)
    blobs = [UploadBlob(descriptor=descriptor, path=layout.blob(descriptor.digest)) for descriptor in descriptors]
    return push_image(target, blobs, document, media_type, progress)


def push_image(
    target: Repository, blobs: Sequence[UploadBlob], document: bytes, media_type: str, progress: Progress
) -> Pushed:
    """Push blobs, then the manifest under its digest. Raises NetworkError, IntegrityError, LayoutError."""

    @contextlib.contextmanager
    def shown(size: int) -> Iterator[Callable[[int], None]]:
        with progress.task(f"pushing to {target.name}", size) as task:
            yield task.advance

    target.retry.note = progress.note
    return push.push_image(target, blobs, document, media_type, shown)


def manifest_of(layout: Layout, form: ManifestForm) -> tuple[bytes, str]:
    """The manifest's bytes in this form; those of the layout where it has that form."""
    own = layout.blob(layout.digest).read_bytes()
    if (layout.descriptor.media_type == spec.DOCKER_MANIFEST) == (form == "docker"):
        return own, layout.descriptor.media_type
    if form == "docker":
        with writing_errors():
            return spec.docker_form(layout.manifest), spec.DOCKER_MANIFEST
    raise UsageError(
        f"{layout.path} holds a Docker manifest, which is not turned into an OCI one",
        next_step="publish it in Docker's form",
    )
