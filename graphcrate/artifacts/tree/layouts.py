"""An OCI image layout to a tree: its layers side by side."""

from collections.abc import Callable

from graphcrate.artifacts.tree import cache
from graphcrate.artifacts.tree.layers import Documents, LayerTree, nothing, opened, read_layer
from graphcrate.artifacts.tree.reader import Opened, Spool, Tools
from graphcrate.host.parallel import parallel
from graphcrate.model.errors import LayoutError
from graphcrate.oci import spec
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import Layout
from graphcrate.oci.spec import LayerBlob


def read(name: str, layout: Layout, tools: Tools) -> Opened:
    """Raises LayoutError for layers that are broken or contradict each other."""
    spool = Spool(tools.cache, tools.stack, tools.wanted)
    documents = Documents(layout.config, layout.manifest, layout.index)
    layers_of = list(zip(layout.layer_blobs, layout.layers, strict=True))

    def read_one(one: tuple[LayerBlob, spec.Descriptor], advance: Callable[[int], None]) -> LayerTree:
        return _layer(*one, spool, tools, advance)

    with tools.progress.task(f"reading {name}", sum(descriptor.size for _, descriptor in layers_of)) as task:
        try:
            layers = parallel(
                read_one, layers_of, threads=tools.jobs, advance=task.advance, size=lambda one: one[1].size
            )
        except LayoutError as error:
            if tools.wanted.patient:
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
        return cache.layer(tools.cache, tools.wanted.name, descriptor.digest, spool, read)
    except LayoutError as error:
        raise LayoutError(f"layer {blob.path.name}: {error.what}", cause=error.cause) from error
