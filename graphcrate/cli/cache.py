"""The commands `cache` and `images`: what is on the disk, and freeing it. `cli` registers them."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here, write
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError

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


Action = Annotated[
    Literal["list", "rm", "prune"],
    typer.Argument(help="rm: remove these; prune: show what is replaced or left over, and with --yes remove it."),
]
Names = Annotated[
    list[str] | None, typer.Argument(help="Of rm: whole names, NAME:TAG; of a tree without one its digest.")
]


def images(
    action: Action = "list",
    names: Names = None,
    yes: Annotated[bool, typer.Option("--yes", help="Of prune: remove what it shows.")] = False,
    output: options.Output = options.DIST,
    as_json: options.Json = False,
) -> None:
    """List images of all places with their sizes, or remove some."""
    from graphcrate.assembly import images as kept
    from graphcrate.cli import tables

    if bool(names) != (action == "rm") or (yes and action != "prune"):
        raise UsageError(
            "rm takes names of images, prune takes --yes, and neither takes the other's",
            next_step=f"{command('images', 'rm', 'NAME:TAG')}    or {command('images', 'prune')}",
        )
    ctx = here()
    places = options.places_of_images() if output == options.DIST else (output,)
    known = kept.known(places, ctx)
    if action == "list":
        write(known, "".join(f"{line}\n" for line in tables.images(known)), as_json=as_json)
        return
    own = [place for place in (output, ctx.root / options.DIST) if place in places]
    doomed = kept.chosen(names or (), known) if action == "rm" else kept.prunable(known, own)
    gone = kept.remove(doomed, ctx) if yes or action == "rm" else doomed
    write(gone, "".join(f"{line}\n" for line in tables.removals(gone)), as_json=as_json)
    if action == "prune" and doomed and not yes:
        ctx.progress.note(f"nothing was removed; {command('images', 'prune', yes=True)}    removes it")
