"""Unpacked images in the cache: which there are, which a command runs in, and which go.

An unpacked image takes gigabytes and is of use only while people try it: the two used last are kept, and what a build
tried a stack in goes when it ends.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.cleaning import bytes_below
from graphcrate.host.disk.living import ignoring_no_locks
from graphcrate.host.progress import Progress

KEPT = 2
FOLDER = "rootfs"
LAYERS = "layers.json"  #: beside an unpacked image: the digests of its layers
#: Unpacked over compressed size, for the check of room where the layout does not say: 1.94 was measured for torch
#: 2.0.1 with its CUDA libraries, 2.9 for the base.
GROWTH = 2.2


def folder_of(digest: str, cache: Cache) -> Path:
    """Return the folder of an unpacked image, there or not."""
    return cache.root / FOLDER / digest.removeprefix("sha256:")


def unpacked_below(digests: Sequence[str], cache: Cache, stack: contextlib.ExitStack) -> tuple[Path | None, int]:
    """Find the unpacked image with most of these layers from the lowest on, held by `stack`; how many it has."""
    best: tuple[Path | None, int] = None, 0
    for known in (cache.root / FOLDER).glob(f"*/{LAYERS}"):
        with contextlib.suppress(OSError, ValueError):
            layers = json.loads(known.read_bytes())
            if len(layers) > best[1] and layers == digests[: len(layers)] and stack.enter_context(in_use(known.parent)):
                best = known.with_name("root"), len(layers)
    return best


def lowest_unpacked(digests: Sequence[str], cache: Cache) -> int:
    """Count the lowest of these layers that an unpacked image in the cache shares."""
    with contextlib.ExitStack() as stack:
        return unpacked_below(digests, cache, stack)[1]


@contextlib.contextmanager
def removed_after(digest: str, cache: Cache) -> Iterator[None]:
    """Remove the unpacked image of this digest at the block's end, if it was not there before and is not in use.

    After an error it stays, to be looked into.
    """
    image = folder_of(digest, cache)
    was_there = image.is_dir()
    yield
    if not was_there:
        _remove(image, cache)


def last_used(cache: Cache) -> dict[str, float]:
    """Return when each unpacked image was run last, by its digest."""
    return {f"sha256:{image.name}": image.stat().st_mtime for image in _by_use(cache) if (image / "root").is_dir()}


def remove_unpacked(digest: str, cache: Cache) -> bool:
    """Remove an unpacked image unless a command runs in it; return whether it did."""
    return _remove(folder_of(digest, cache), cache)


def bytes_unpacked(digest: str, cache: Cache) -> int:
    """Return the bytes that an unpacked image takes of the disk."""
    return bytes_below(folder_of(digest, cache))


def prunable(cache: Cache) -> list[Path]:
    """The unpacked images that make room before another is unpacked."""
    return _by_use(cache)[KEPT - 1 :]


@contextlib.contextmanager
def in_use(image: Path) -> Iterator[bool]:
    """Share the folder's lock; False if the folder is gone by the time we have it."""
    try:
        descriptor = os.open(image, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        with ignoring_no_locks():  # on such a disk nothing is removed, as below
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield (image / "root").is_dir()
    finally:
        os.close(descriptor)


def prune(cache: Cache, progress: Progress, keep: int = KEPT) -> None:
    """Remove all but the images used last."""
    for image in _by_use(cache)[keep:]:
        if _remove(image, cache):
            progress.note("making room: removing an unpacked image that was not used lately")


def _by_use(cache: Cache) -> list[Path]:
    """The unpacked images, those used last first."""
    used = dict[Path, float]()
    for image in (cache.root / FOLDER).glob("*"):
        with contextlib.suppress(FileNotFoundError):  # another run removed it
            used[image] = image.stat().st_mtime
    return sorted(used, key=lambda image: used[image], reverse=True)


def _remove(image: Path, cache: Cache) -> bool:
    """Remove an unpacked image that is not in use, and return whether it did: renamed first, never seen in part."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), ignoring_no_locks():
        descriptor = os.open(image, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with cache.folder() as folder:
                image.rename(folder / "rootfs")
            return True
        finally:
            os.close(descriptor)
    return False
