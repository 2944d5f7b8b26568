"""The command `cache`: what each folder of the cache takes of the disk, and freeing it. `cli` registers it."""

from typing import Annotated

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here, write

Free = Annotated[
    list[str] | None,
    typer.Option(help="Remove this folder of the cache (the first column), or all; again for more.", metavar="FOLDER"),
]


def cache(free: Free = None, as_json: options.Json = False) -> None:
    """Show what the cache takes of the disk, or free it: --free FOLDER. Images in dist/ are not touched."""
    from graphcrate.host.cleaning import MEANING, measure, release
    from graphcrate.model.words import size

    there = here().cache
    freed = release(there, [name for given in free for name in given.split(",")]) if free else 0
    folders, left = measure(there), there.free_bytes()
    lines = [f"{there.root}: {size(sum(folders.values()))}; {size(left)} are free on its disk"]
    lines[0] += f"; {size(freed)} were freed" if freed else ""
    lines += [f"  {name:14} {size(taken):>9}  {MEANING.get(name, '')}".rstrip() for name, taken in folders.items()]
    answer = {"root": str(there.root), "free": left, "folders": folders, "freed": freed}
    write(answer, "".join(f"{line}\n" for line in lines), as_json=as_json)
