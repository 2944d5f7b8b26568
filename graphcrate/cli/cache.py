"""The command `cache`: what each folder of the cache takes of the disk, and freeing it. `cli` registers it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here, write

Free = Annotated[
    list[str] | None,
    typer.Option(help="Remove this folder of the cache (the first column), or all; again for more.", metavar="FOLDER"),
]


def cache(free: Free = None, output: options.Output = Path("dist"), as_json: options.Json = False) -> None:
    """Show what the cache takes of the disk, or free it: --free FOLDER. Images in dist/ are not touched."""
    from graphcrate.artifacts.shares import costs
    from graphcrate.host.disk.cleaning import MEANING, limit, measure, release
    from graphcrate.model.words import size

    there = here().cache
    freed = release(there, [name for given in free for name in given.split(",")]) if free else 0
    folders, left, images = measure(there), there.free_bytes(), costs(output)
    taken = sum(folders.values())
    most = limit(there, taken)
    lines = [f"{there.root}: {size(taken)} of at most {size(most.bytes)} ({most.why}); {size(left)} are free"]
    lines[0] += f"; {size(freed)} were freed" if freed else ""
    lines += [f"  {name:14} {size(held):>9}  {MEANING.get(name, '')}".rstrip() for name, held in folders.items()]
    lines += [f"images in {output}: layers of its own, and those that others there have too"] if images else []
    lines += [f"  {cost.name:40} {size(cost.alone):>9} {size(cost.shared):>9}" for cost in images]
    answer: dict[str, Any] = {
        "root": str(there.root),
        "free": left,
        "most": most.bytes,
        "folders": folders,
        "freed": freed,
        "images": images,
    }
    write(answer, "".join(f"{line}\n" for line in lines), as_json=as_json)
