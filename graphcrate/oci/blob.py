"""Layers and tars of images, opened by `layertar` with our limits and our error."""

import contextlib
from collections.abc import Callable
from typing import IO

from graphcrate.model.errors import LayoutError
from graphcrate.model.limits import LAYER, Gauge
from layertar import blob as blobs
from layertar.stream import Hash, TarStream
from ocilayout.spec import LayerBlob


def open_blob(
    blob: LayerBlob,
    *,
    advance: Callable[[int], None] | None = None,
    digest: Hash | None = None,
    diff_id: Hash | None = None,
) -> contextlib.AbstractContextManager[TarStream]:
    """Open a layer as `layertar.blob.open_blob` does. Reading it raises LayoutError."""
    return blobs.open_blob(blob, limits=LAYER, error=LayoutError, advance=advance, digest=digest, diff_id=diff_id)


def inflated(kind: str, compressed: IO[bytes], size: int | None) -> TarStream:
    """Open the tar in these bytes, as far as a layer's limits go. `size`: how many there are; None if unknown."""
    return blobs.inflated(kind, compressed, Gauge(LAYER, "", LayoutError, size), LayoutError)
