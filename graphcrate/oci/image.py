"""An image made of layer records, and what `ocilayout`, which writes it, says of what it cannot write."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from graphcrate.model.errors import IntegrityError, LayoutError
from graphcrate.model.plan import ConfigStep
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.report import LayerRecord, PackageBytes
from ocilayout import image, spec
from ocilayout.errors import FormError, WritingError

if TYPE_CHECKING:
    from ocilayout.layer import Layer

TITLE = "graphcrate: "  #: before a layer's title in the history


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of an image. The layers' blobs are in the cache."""

    documents: image.Documents
    layers: tuple[LayerRecord, ...]  #: lowest first
    platform: Platform = DEFAULT

    @property
    def digest(self) -> str:
        """Of the manifest: what `name@sha256:…` means."""
        return self.documents.digest


def make_image(
    layers: Sequence[LayerRecord],
    config: ConfigStep,
    created: int,
    base_environment: Mapping[str, str] | None = None,
    platform: Platform = DEFAULT,
) -> Image:
    """The image of these layers, lowest first. `created` in Unix seconds; the same arguments give the same bytes.

    The base's variables come first and keep their place when `config` gives them another value. There is no
    `User` (runtimes of clusters ignore it) and no `Volumes` (enroot makes those folders inaccessible).
    """
    environment = {**(base_environment or {}), **config.environment}
    run = spec.RunConfig(
        env=tuple(f"{name}={value}" for name, value in environment.items()),
        entrypoint=config.entrypoint or None,
        cmd=config.command or None,
        working_dir=config.working_folder or None,
        labels=config.labels or None,
    )
    titles = [f"{TITLE}{layer.title}" for layer in layers]
    documents = image.documents(layers, titles, run, created, platform.architecture)
    return Image(documents=documents, layers=tuple(layers), platform=platform)


def recorded(layer: "Layer", title: str, owners: Sequence[PackageBytes] = ()) -> LayerRecord:
    """The record of a layer that was just written."""
    return LayerRecord(title=title, owners=tuple(owners), **layer._asdict())


@contextlib.contextmanager
def writing_errors() -> Iterator[None]:
    """Raise what `ocilayout` says of a layer as an IntegrityError, of a form of manifest as a LayoutError."""
    try:
        yield
    except WritingError as error:
        kind = LayoutError if isinstance(error, FormError) else IntegrityError
        raise kind(error.what, cause=error.cause, next_step=error.next_step) from error
