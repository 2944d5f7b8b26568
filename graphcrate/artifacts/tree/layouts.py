"""Read an OCI image layout: its layers side by side, each cached, since many images share it.

A record in the cache holds the layer's entries and what was kept of their contents, under the layer's digest and the
reader's name.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import msgspec
from isal import igzip, igzip_lib

from graphcrate.artifacts.tree.layers import Documents, Found, LayerTree, opened, read_layer
from graphcrate.artifacts.tree.reader import Opened, Spool, Tools
from graphcrate.host.cache import Cache
from graphcrate.host.parallel import parallel
from graphcrate.model.errors import UNREADABLE, LayoutError
from graphcrate.model.tree import Entry
from graphcrate.oci import spec
from graphcrate.oci.blob import open_blob
from graphcrate.oci.entries import Entries
from graphcrate.oci.layout import Layout
from graphcrate.oci.spec import LayerBlob

_FOLDER = "trees"
#: a layer's entries with contents in place of their places in a spool
_Record = Entries[tuple[Entry, bytes | None]]
_BrokenError = cast("type[Exception]", igzip_lib.error)  # its stub declares an instance
_FAST = 1  #: igzip's level


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
            if not tools.wanted.patient:
                raise
            return opened(name, "layout", (), documents, spool, error.what)
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
        return cached_layer(tools.cache, tools.wanted.name, descriptor.digest, spool, read)
    except LayoutError as error:
        raise LayoutError(f"layer {blob.path.name}: {error.what}", cause=error.cause) from error


def cached_layer(cache: Cache, reader: str, digest: str, spool: Spool, read: Callable[[], LayerTree]) -> LayerTree:
    """Return the layer of this digest as `reader` sees it, from the cache or read now. `read` raises LayoutError."""
    path = cache.path(_FOLDER, f"{digest.removeprefix('sha256:')}-{reader}")
    try:
        return _restored(igzip_lib.decompress(path.read_bytes(), flag=igzip_lib.DECOMP_GZIP), spool)
    except FileNotFoundError:
        pass
    except (_BrokenError, *UNREADABLE):  # of a version that wrote otherwise, or damaged
        path.unlink(missing_ok=True)
    found = read()
    cache.write(path, igzip.compress(_record(found, spool), compresslevel=_FAST))
    return found


def _record(layer: LayerTree, spool: Spool) -> bytes:
    found = {
        path: (one.entry, None if one.place is None else spool.read(one.place)) for path, one in layer.found.items()
    }
    return msgspec.msgpack.encode(replace(cast("_Record", layer), found=found))


def _restored(data: bytes, spool: Spool) -> LayerTree:
    record = msgspec.msgpack.decode(data, type=_Record)
    found = {
        path: Found(entry, None if content is None else spool.add(content))
        for path, (entry, content) in record.found.items()
    }
    return replace(cast("LayerTree", record), found=found)
