"""Disk space of each folder of the cache, and freeing it."""

import functools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from graphcrate.host.disk import trees
from graphcrate.host.disk.cache import MOST, UNITS, WORKING_FOLDERS, Cache
from graphcrate.host.disk.trees import remove_tree
from graphcrate.host.progress import Progress
from graphcrate.model.command import command
from graphcrate.model.errors import CacheError, UsageError
from graphcrate.model.words import listed, size

ALL = "all"
BLOCK = 512  #: st_blocks counts in these on any file system (stat(2))
#: what a folder holds, and what it takes to get it back; other folders are small records
MEANING = {
    "rootfs": "images that were run, unpacked; unpacked again",
    "files": "wheels, sources, Debian packages; downloaded again",
    "uv": "what uv keeps; downloaded again",
    "blobs": "layers of images, also in dist/ as hard links; made again from the downloads",
    "bytecode": "bytecode of wheels; compiled again",
    "bases": "Debian bases, pulled bases; made or pulled again",
    "built": "wheels from source; compiled again in minutes",
    "toolkits": "CUDA toolkits; made or pulled again",
    "unfinished": "objects of compiles that were interrupted; compiled again",
    "apptainer": "what Apptainer keeps; made again",
    "squashed": "layers compressed for SIF and squashfs; compressed again",
}

SHARE = 0.8  #: of what the cache takes and its disk has free, where no limit is given: a fifth is for others
#: of what this run used itself: what the next command needs least goes first, and what takes longest to make last
_ORDER = (
    *("uv", "toolkits", "squashed", "files", "bases", "rootfs", "trees", "blobs", "bytecode", "unfinished", "built"),
    "compiled",
)


class Limit(NamedTuple):
    """The most bytes that the cache may take, and who says so."""

    bytes: int
    why: str


class _Unit(NamedTuple):
    """A unit that is removed as a whole. `used`: when a run used it last, in Unix seconds."""

    path: Path
    folder: str
    used: float
    bytes: int


def limit(cache: Cache, taken: int) -> Limit:
    """Return how much the cache may take. `taken`: what it does."""
    if cache.most is not None:
        return Limit(cache.most, MOST)
    return Limit(int((taken + cache.free_bytes()) * SHARE), f"four fifths of its disk; {MOST} says otherwise")


def keep_within(cache: Cache, progress: Progress) -> int:
    """Remove what was not used for the longest time until the cache takes what it may; return the bytes freed.

    Only where this run has written to it, and while no other run works: what that holds must stay. Then, if that is
    not enough, what this run used, in the order of `_ORDER`. Layers that an image in dist/ has too take nothing.
    """
    if not cache.has_grown or _has_room(cache, 0):
        return 0
    taken = sum(measure(cache).values())
    most = limit(cache, taken)
    return _trim(cache, progress, taken, most, most.bytes, _units(cache)) if taken > most.bytes else 0


def make_room(cache: Cache, needed: int, progress: Progress) -> int:
    """Remove what this run did not use, least recently used first, so that `needed` more bytes are within the limit.

    Return the bytes freed. What this run has looked up stays, even where that is over the limit: a build is made of it.
    """
    if not needed or _has_room(cache, needed):
        return 0
    taken = sum(measure(cache).values())
    most = limit(cache, taken)
    if taken + needed <= most.bytes:
        return 0
    unused = (unit for unit in _units(cache) if unit.used < cache.began)
    return _trim(cache, progress, taken, most, most.bytes - needed, unused)


def _has_room(cache: Cache, needed: int) -> bool:
    """Return whether the disk alone shows that `needed` more bytes are within the limit: measuring walks the cache."""
    most_taken = cache.disk_bytes()  # the cache has at most all that its disk has
    return most_taken + needed <= limit(cache, most_taken).bytes


def _trim(cache: Cache, progress: Progress, taken: int, most: Limit, goal: int, units: Iterable[_Unit]) -> int:
    """Remove units until the cache takes at most `goal` bytes, or none is left; return the bytes freed."""
    removed: list[_Unit] = []
    try:
        with cache.folder() as doomed, cache.alone():
            for unit in sorted(units, key=functools.partial(_worth, cache.began)):
                if taken - sum(each.bytes for each in removed) <= goal:
                    break
                unit.path.rename(doomed / f"{len(removed)}")
                removed.append(unit)
    except CacheError:
        progress.note(f"the cache takes {size(taken)} of {size(most.bytes)}; nothing goes while another run works")
        return 0
    freed = sum(unit.bytes for unit in removed)
    if removed:
        counts = Counter(unit.folder for unit in removed)
        what = listed([f"{number} of {name}/" for name, number in counts.items()])
        progress.note(
            f"the cache took {size(taken)} of {size(most.bytes)} ({most.why}): removed {what}, {size(freed)}; what of "
            "that is asked for again is made or fetched again"
        )
    return freed


def _worth(began: float, unit: _Unit) -> tuple[float, int, str]:
    """Return the sort key of units: first those that this run did not use, by their last use, then by `_ORDER`."""
    return min(unit.used, began), _ORDER.index(unit.folder) if unit.used >= began else 0, str(unit.path)


def _units(cache: Cache) -> Iterator[_Unit]:
    """All that may be removed, with what each takes alone; what takes nothing is left out."""
    for folder, depth in UNITS.items():
        for path in cache.root.glob("/".join([folder, *["*"] * (depth - 1)])):
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            is_folder = path.is_dir()
            taken = bytes_below(path) if is_folder else status.st_blocks * BLOCK * (status.st_nlink == 1)
            if taken:
                used = status.st_mtime if is_folder else max(status.st_mtime, status.st_atime)
                yield _Unit(path, folder, used, taken)


def measure(cache: Cache) -> dict[str, int]:
    """Bytes on the disk by folder, the largest first; as du, counts a file with several names once."""
    seen: set[tuple[int, int]] = set()
    taken = {name: _bytes_below(cache.root / name, seen) for name in _folders(cache)}
    return dict(sorted(taken.items(), key=lambda entry: (-entry[1], entry[0])))


def bytes_below(folder: Path) -> int:
    """Bytes that a folder takes of the disk, but for files that have names elsewhere too (layers in the cache)."""
    return _bytes_below(folder, set(), alone=True)


def _bytes_below(folder: Path, seen: set[tuple[int, int]], *, alone: bool = False) -> int:
    taken = 0
    for parent, _, files in trees.walk(folder, None):
        for file in files:
            try:
                status = os.lstat(f"{parent}/{file}")  # a Path for each would take most of the time
            except FileNotFoundError:  # another run has finished with it
                continue
            if (status.st_dev, status.st_ino) not in seen and not (alone and status.st_nlink > 1):
                seen.add((status.st_dev, status.st_ino))
                taken += status.st_blocks * BLOCK
    return taken


def release(cache: Cache, names: Collection[str]) -> int:
    """Remove these folders, or `all`; returns the bytes that the disk has more since.

    Folders are renamed before they are removed, so that a killed run leaves no half of one. Raises UsageError for an
    unknown folder, CacheError while another run works.
    """
    there = _folders(cache)
    if unknown := [name for name in names if name not in (*there, *MEANING, ALL)]:
        raise UsageError(
            f"the cache has no folder {unknown[0]!r}",
            next_step=f"choose from {', '.join([*there, ALL])}: {command('cache')}",
        )
    before = cache.free_bytes()
    with cache.folder() as doomed:
        with cache.alone():
            for name in there:
                if ALL in names or name in names:
                    (cache.root / name).rename(doomed / name)
            cache.make_folders()
        for folder in doomed.iterdir():
            remove_tree(folder)
    return max(0, cache.free_bytes() - before)


def _folders(cache: Cache) -> list[str]:
    return sorted(path.name for path in cache.root.iterdir() if path.is_dir() and path.name not in WORKING_FOLDERS)


def keep_files(cache: Cache, keep: Collection[str]) -> None:
    """Remove the downloads but for those with these hashes (sha256). Raises CacheError while another run works."""
    with cache.folder() as doomed, cache.alone():
        for path in (cache.root / "files").iterdir():
            if path.name not in keep:
                path.rename(doomed / path.name)
