"""An OCI image layout to a tree: its layers side by side."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from graphcrate.errors import LayoutError
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import Layout
from graphcrate.oci.spec import LayerBlob
from graphcrate.trees.layers import LayerTree, opened, read_layer
from graphcrate.trees.opened import Opened, Spool, Tools


class _StoppedError(Exception):
    """Nobody waits for this layer any more."""


def read(name: str, layout: Layout, tools: Tools) -> Opened:
    """Raises LayoutError for layers that are broken or contradict each other."""
    spool = Spool(tools.cache, tools.stack)
    blobs = layout.layer_blobs
    sizes = [blob.path.stat().st_size for blob in blobs]
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
            for number in sorted(range(len(blobs)), key=lambda number: -sizes[number]):
                started[number] = pool.submit(_layer, blobs[number], spool, advancing)
            layers = [started[number].result() for number in range(len(blobs))]
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return opened(name, "layout", layers, layout.config, spool)


def _layer(blob: LayerBlob, spool: Spool, advance: Callable[[int], None]) -> LayerTree:
    try:
        with open_blob(blob, advance=advance) as stream:
            return read_layer(stream, spool)
    except LayoutError as error:
        raise LayoutError(f"layer {blob.path.name}: {error.what}", cause=error.cause) from error
