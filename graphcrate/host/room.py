"""How much of the disk the cache takes, and how to get it back."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from graphcrate.host.cache import WORKING_FOLDERS, Cache, remove_tree
from graphcrate.model.room import KINDS, Kind, Room, Use

BLOCK = 512  #: st_blocks counts in these, whatever the file system's own blocks (stat(2))


@dataclass
class _Shared:
    """A file with several names: how many of them were met, how many there are."""

    met: int
    links: int
    size: int


def measure(cache: Cache, freed: int = 0) -> Room:
    """What each kind takes. A file with several names is counted once, where it is met first."""
    known: dict[tuple[int, int], _Shared] = {}
    uses = []
    for kind in KINDS:
        size, linked = 0, []
        for status in _files(_folders(cache, kind)):
            inode = (status.st_dev, status.st_ino)
            if inode in known:
                known[inode].met += 1
                continue
            taken = status.st_blocks * BLOCK
            size += taken
            if status.st_nlink > 1:
                known[inode] = _Shared(1, status.st_nlink, taken)
                linked.append(known[inode])
        uses.append((kind, size, linked))
    found = tuple(
        Use(
            kind=kind.name,
            what=kind.what,
            again=kind.again,
            bytes=size,
            shared=sum(file.size for file in linked if file.links > file.met),
        )
        for kind, size, linked in uses
    )
    return Room(root=str(cache.root), free=cache.free_bytes(), uses=found, freed=freed)


def release(cache: Cache, kinds: Iterable[Kind]) -> int:
    """Remove what these kinds take; bytes that the disk has more since. Raises CacheError while another run works.

    Folders are renamed before they are removed, so that a killed run leaves no half of one.
    """
    before = cache.free_bytes()
    with cache.folder() as doomed:
        with cache.alone():
            for number, folder in enumerate([folder for kind in kinds for folder in _folders(cache, kind)]):
                folder.rename(doomed / str(number))
            cache.make_folders()
        for folder in doomed.iterdir():
            remove_tree(folder)
    return max(0, cache.free_bytes() - before)


def _folders(cache: Cache, kind: Kind) -> list[Path]:
    if kind.folders:
        return [path for name in kind.folders if (path := cache.root / name).is_dir()]
    named = WORKING_FOLDERS.union(*(each.folders for each in KINDS))
    return sorted(path for path in cache.root.iterdir() if path.name not in named and path.is_dir())


def _files(folders: Iterable[Path]) -> Iterator[os.stat_result]:
    """Of all files. Folders have several links too and take next to nothing: they are left out."""
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                try:
                    yield os.lstat(f"{parent}/{name}")
                except FileNotFoundError:  # another run has finished with it
                    continue
