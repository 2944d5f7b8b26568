"""An artifact that was read, and the contents that were kept of it."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, NamedTuple, cast

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.tree import Entry, Tree


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A tree, and the content of its files of which `contents.is_kept` holds."""

    tree: Tree
    read: Callable[[str], bytes]


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What readers work with. Whatever they put into `stack` lives until the comparison is done."""

    cache: Cache
    progress: Progress
    environment: Mapping[str, str]
    stack: ExitStack
    jobs: int


class Place(NamedTuple):
    """Where a spool has a content."""

    offset: int
    size: int


class Spool:
    """Contents of small files, gathered in a temporary file while archives stream by. Safe with several threads."""

    def __init__(self, cache: Cache, stack: ExitStack) -> None:
        path = stack.enter_context(cache.folder()) / "contents"
        self._file = cast("IO[bytes]", stack.enter_context(path.open("w+b")))
        self._lock = threading.Lock()
        self._end = 0

    def add(self, data: bytes) -> Place:
        """Keep a content."""
        with self._lock:
            place = Place(self._end, len(data))
            self._file.seek(self._end)
            self._file.write(data)
            self._end += len(data)
        return place

    def read(self, place: Place) -> bytes:
        """A content again."""
        with self._lock:
            self._file.seek(place.offset)
            return self._file.read(place.size)


def owners_known(entries: Mapping[str, Entry]) -> bool:
    """Whether a tree without a record of its owners (a folder, a squashfs) has any.

    Whoever unpacks or packs without root makes one owner of all, and then owners say nothing.
    """
    return len({(entry.uid, entry.gid) for entry in entries.values()}) > 1
