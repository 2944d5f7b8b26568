"""What each folder of the cache takes of the disk, and freeing it."""

import os
from collections.abc import Collection
from pathlib import Path

from graphcrate.host.cache import WORKING_FOLDERS, Cache, remove_tree
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError

ALL = "all"
BLOCK = 512  #: st_blocks counts in these, whatever the file system's own blocks (stat(2))
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
    "apptainer": "what Apptainer keeps; made again",
    "squashed": "layers compressed for SIF and squashfs; compressed again",
}


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
    for parent, _, files in os.walk(folder):
        for file in files:
            try:
                status = Path(parent, file).lstat()
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
