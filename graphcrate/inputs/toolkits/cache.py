"""Toolkits in the cache: made once, under their content id, and whole."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from graphcrate.host.cache import Cache
from graphcrate.model.lock import Toolkit
from graphcrate.model.plan import content_id

#: Raise it whenever the same toolkit would give another folder.
TOOLKIT_FORMAT = 1
ROOM_NEEDED = 1_500_000_000  #: bytes on the disk at most while one is put together out of packages


def place(toolkit: Toolkit, cache: Cache) -> Path:
    """Where the cache has this toolkit (or will have it)."""
    key = hashlib.sha256(f"{content_id(toolkit)} {TOOLKIT_FORMAT}".encode()).hexdigest()
    return cache.path("toolkits", key, "cuda")


def kept(toolkit: Toolkit, cache: Cache, make: Callable[[Path], Path]) -> Path:
    """The toolkit's folder in the cache. `make` gets an empty folder to work in and returns the finished one in it."""
    target = place(toolkit, cache)
    if not target.is_dir():
        with cache.exclusively(f"toolkit-{target.parent.name}"):
            if not target.is_dir():
                with cache.folder() as folder:
                    cache.adopt(make(folder), target)
    return target
