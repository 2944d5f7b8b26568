"""The command `cache`: what each folder of the cache takes of the disk, and freeing it. `cli` registers it."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here, write
from graphcrate.model.errors import UsageError

if TYPE_CHECKING:
    from graphcrate.host.cache import Cache

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
Free = Annotated[
    list[str] | None,
    typer.Option(help="Remove this folder of the cache (the first column), or all; again for more.", metavar="FOLDER"),
]


def cache(free: Free = None, as_json: options.Json = False) -> None:
    """Show what the cache takes of the disk, or free it: --free FOLDER. Images in dist/ are not touched."""
    from graphcrate.model.words import size

    there = here().cache
    freed = release(there, [name for given in free for name in given.split(",")]) if free else 0
    folders, left = measure(there), there.free_bytes()
    lines = [f"{there.root}: {size(sum(folders.values()))}; {size(left)} are free on its disk"]
    lines[0] += f"; {size(freed)} were freed" if freed else ""
    lines += [f"  {name:14} {size(taken):>9}  {MEANING.get(name, '')}".rstrip() for name, taken in folders.items()]
    found = {"root": str(there.root), "free": left, "folders": folders, "freed": freed}
    write(found, "".join(f"{line}\n" for line in lines), as_json=as_json)


def measure(cache: "Cache") -> dict[str, int]:
    """Bytes on the disk by folder, the largest first; as du, counts a file with several names once."""
    seen: set[tuple[int, int]] = set()
    taken: dict[str, int] = {}
    for name in _folders(cache):
        taken[name] = 0
        for parent, _, files in os.walk(cache.root / name):
            for file in files:
                try:
                    status = Path(parent, file).lstat()
                except FileNotFoundError:  # another run has finished with it
                    continue
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    taken[name] += status.st_blocks * BLOCK
    return dict(sorted(taken.items(), key=lambda one: (-one[1], one[0])))


def release(cache: "Cache", names: Collection[str]) -> int:
    """Remove these folders, or `all`; returns the bytes that the disk has more since.

    Folders are renamed before they are removed, so that a killed run leaves no half of one. Raises UsageError for an
    unknown folder, CacheError while another run works.
    """
    from graphcrate.host.cache import remove_tree

    there = _folders(cache)
    if unknown := [name for name in names if name not in (*there, *MEANING, ALL)]:
        raise UsageError(
            f"the cache has no folder {unknown[0]!r}",
            next_step=f"choose from {', '.join([*there, ALL])}: ./build.py cache",
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


def _folders(cache: "Cache") -> list[str]:
    from graphcrate.host.cache import WORKING_FOLDERS

    return sorted(path.name for path in cache.root.iterdir() if path.is_dir() and path.name not in WORKING_FOLDERS)
