"""An OCI image layout to a tree: its layers side by side."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from graphcrate.errors import LayoutError
from graphcrate.oci import spec
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import Layout
from graphcrate.oci.spec import LayerBlob
from graphcrate.trees import remembered
from graphcrate.trees.layers import Documents, LayerTree, nothing, opened, read_layer
from graphcrate.trees.opened import Opened, Spool, Tools


class _StoppedError(Exception):
    """Nobody waits for this layer any more."""


def read(name: str, layout: Layout, tools: Tools) -> Opened:
    """Raises LayoutError for layers that are broken or contradict each other."""
    spool = Spool(tools.cache, tools.stack, tools.wanted)
    documents = Documents(layout.config, layout.manifest, layout.index)
    layers_of = list(zip(layout.layer_blobs, layout.layers, strict=True))
    sizes = [descriptor.size for _, descriptor in layers_of]
    stop = threading.Event()

    def advancing(count: int) -> None:
        if stop.is_set():  # another layer failed, or the user interrupted
            raise _StoppedError
        task.advance(count)

    with (
        tools.progress.task(f"reading {name}", sum(sizes)) as task,
        ThreadPoolExecutor(tools.jobs) as pool,
    ):
        started = {}
        try:
            # The largest first, so that no core waits for a late large one.
            for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
                started[number] = pool.submit(_layer, *layers_of[number], spool, tools, advancing)
            layers = [started[number].result() for number in range(len(sizes))]
        except BaseException as error:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, LayoutError) and tools.wanted.patient:
                return nothing(name, "layout", documents, error)
            raise
    return opened(name, "layout", layers, documents, spool)


def _layer(
    blob: LayerBlob, descriptor: spec.Descriptor, spool: Spool, tools: Tools, advance: Callable[[int], None]
) -> LayerTree:
    def read() -> LayerTree:
        with open_blob(blob, advance=advance) as stream:
            return read_layer(stream, spool)

    try:
        if not tools.wanted.name:
            return read()
        return remembered.layer(tools.cache, tools.wanted.name, descriptor.digest, spool, read)
    except LayoutError as error:
        raise LayoutError(f"layer {blob.path.name}: {error.what}", cause=error.cause) from error
