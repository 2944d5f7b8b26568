"""What was read of a layer, kept in the cache: a layer that many images share is read once.

A record holds the layer's entries and what was kept of their contents, under the layer's digest and the reader's name.
"""

from collections.abc import Callable
from typing import cast

import msgspec
from isal import igzip, igzip_lib

from graphcrate.artifacts.tree.layers import Found, LayerTree
from graphcrate.artifacts.tree.reader import Spool
from graphcrate.host.cache import Cache
from graphcrate.model.tree import Entry
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.oci.entries import Entries

_FOLDER = "trees"
_BrokenError = cast("type[Exception]", igzip_lib.error)  # its stub declares an instance
_FAST = 1  #: igzip's level


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """`Entries` with contents in the place of places."""

    found: dict[str, tuple[Entry, bytes | None]]
    folders: tuple[str, ...]
    implied: tuple[str, ...]
    removed: tuple[str, ...]
    emptied: tuple[str, ...]
    links_below: dict[str, str]


def layer(cache: Cache, reader: str, digest: str, spool: Spool, read: Callable[[], LayerTree]) -> LayerTree:
    """The layer of this digest as `reader` sees it: remembered, or read now. `read` raises LayoutError."""
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
    record = _Record(
        found={
            path: (found.entry, None if found.place is None else spool.read(found.place))
            for path, found in layer.found.items()
        },
        folders=tuple(layer.folders),
        implied=tuple(layer.implied),
        removed=tuple(layer.removed),
        emptied=tuple(layer.emptied),
        links_below=layer.links_below,
    )
    return msgspec.msgpack.encode(record)


def _restored(data: bytes, spool: Spool) -> LayerTree:
    record = msgspec.msgpack.decode(data, type=_Record)
    return Entries(
        found={
            path: Found(entry, None if content is None else spool.add(content))
            for path, (entry, content) in record.found.items()
        },
        folders=set(record.folders),
        implied=set(record.implied),
        removed=set(record.removed),
        emptied=set(record.emptied),
        links_below=record.links_below,
    )
