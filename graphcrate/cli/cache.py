"""The commands `cache` and `images`: what is on the disk or in a site's shared cache, and freeing it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here, write
from graphcrate.model.command import command, for_shell
from graphcrate.model.errors import UsageError
from graphcrate.model.words import in_lines, joined, number_of

if TYPE_CHECKING:
    from collections.abc import Callable

Free = Annotated[
    list[str] | None,
    typer.Option(help="Remove this folder of the cache (the first column), or all; again for more.", metavar="FOLDER"),
]


OfSite = Annotated[
    Literal["list", "push", "pull", "verify", "prune"] | None,
    typer.Argument(
        help="Of a site's shared cache: list: its entries; push: give it what is here; pull: bring compiled wheels, "
        "bases and layers of the stacks; verify: read all of it, and compile a share again; prune: show what is of no "
        "use, and with --yes remove it.",
    ),
]


def cache(
    action: OfSite = None,
    free: Free = None,
    shared: options.SharedCache = None,
    cache_trust: options.CacheTrust = None,
    cache_key: options.CacheKey = None,
    share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Of verify: compile this share of the wheels again, 0.05 for a twentieth."),
    ] = 0,
    days: Annotated[int, typer.Option(min=0, help="Of prune: also what was made before so many days.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", help="Of prune: remove what it shows.")] = False,
    output: options.Output = Path("dist"),
    as_json: options.Json = False,
) -> None:
    """Show what the cache takes of the disk, or free it: --free FOLDER. With a word: a site's shared cache."""
    of_site = options.of_shared(shared, cache_trust, cache_key)
    misplaced = ((days or yes) and action != "prune") or (share and action != "verify")
    if (action is None and any(of_site.values())) or (action and free) or misplaced:
        raise UsageError(
            "--free is for this machine's cache, --days and --yes are for prune, --share is for verify, and the rest "
            "for a site's cache",
            next_step=f"{command('cache', free='FOLDER')}    or {command('cache', 'list', cache='/shared/cache')}",
        )
    if action is not None:
        _of_site(action, of_site, days, output, share=share, remove=yes, as_json=as_json)
        return
    _here(free, output, as_json=as_json)


def _of_site(
    action: str, of_site: dict[str, Any], days: int, output: Path, *, share: float, remove: bool, as_json: bool
) -> None:
    from graphcrate.assembly import site_stock
    from graphcrate.cli import tables
    from graphcrate.compat.variants.request import SourceOptions
    from graphcrate.inputs.shared import stock
    from graphcrate.inputs.shared.named import shared_cache
    from graphcrate.inputs.shared.places import CacheFolder

    ctx = here()
    shared = shared_cache(SourceOptions(**of_site), ctx, gives=action == "push")
    if shared is None:
        raise UsageError(
            "no shared cache is named",
            next_step=f"{command('cache', 'list', cache='/shared/cache', cache_trust='cosign.pub')}    (for example)",
        )
    absent = [place.path for place in shared.places if isinstance(place, CacheFolder) and not place.path.is_dir()]
    if absent and action != "push":
        raise UsageError(f"there is no folder {absent[0]}", next_step=f"ls -d {for_shell(absent[0])}")
    actions: dict[str, Callable[[], list[stock.StockLine]]] = {
        "list": lambda: stock.listed(shared),
        "push": lambda: site_stock.push(shared, output, ctx),
        "pull": lambda: site_stock.pull(shared, ctx),
        "verify": lambda: stock.read(shared, ctx),
        "prune": lambda: stock.prune(shared, days, remove=remove),
    }
    entries = actions[action]()
    write(entries, in_lines(tables.stock(entries)), as_json=as_json)
    if action == "prune" and entries and not remove:
        again = command(
            "cache", action, **{name: value or None for name, value in of_site.items()}, days=days, yes=True
        )
        ctx.progress.note(f"nothing was removed; {again}    removes it")
    if action == "verify":
        stock.raise_if_faulty(entries)
        if share:
            made = site_stock.make_again(shared, share, output, ctx)
            ctx.progress.note(f"{number_of(made, 'wheel')} made again and compared")


def _here(free: list[str] | None, output: Path, *, as_json: bool) -> None:
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
    write(answer, in_lines(lines), as_json=as_json)


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
        write(known, in_lines(tables.images(known)), as_json=as_json)
        if not known:
            ctx.progress.note(f"there is no image in {joined(map(str, places))}")
        return
    own = [place for place in (output, ctx.root / options.DIST) if place in places]
    doomed = kept.chosen(names or (), known) if action == "rm" else kept.prunable(known, own)
    gone = kept.remove(doomed, ctx) if yes or action == "rm" else doomed
    write(gone, in_lines(tables.removals(gone)), as_json=as_json)
    if action == "prune" and doomed and not yes:
        ctx.progress.note(f"nothing was removed; {command('images', 'prune', yes=True)}    removes it")
    elif not doomed:
        ctx.progress.note("there is nothing to remove: each image has its short name or is the only one of its kind")
