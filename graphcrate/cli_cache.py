"""The command `cache`: arguments → `host.room`. `cli` registers it."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from graphcrate.model.room import Kind

ALL = "all"
Free = Annotated[
    list[str] | None,
    typer.Option(help="Remove what the cache keeps of this kind (the first column), or all; again for more."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout.")]


def cache(free: Free = None, as_json: Json = False) -> None:
    """Show what the cache takes of the disk; --free KIND gives it back. Images in dist/ are not touched."""
    from graphcrate import views
    from graphcrate.host import room
    from graphcrate.host.workplace import Workplace
    from graphcrate.model.lock import encode

    kept = Workplace.here().cache
    found = room.measure(kept, room.release(kept, _kinds(free)) if free else 0)
    sys.stdout.write(encode(found).decode() if as_json else "".join(f"{line}\n" for line in views.room_lines(found)))


def _kinds(names: list[str]) -> "list[Kind]":
    from graphcrate.errors import UsageError
    from graphcrate.model.room import KINDS

    kinds = {kind.name: kind for kind in KINDS}
    wanted = [name for given in names for name in given.split(",")]
    if unknown := [name for name in wanted if name not in (*kinds, ALL)]:
        raise UsageError(
            f"the cache has no {unknown[0]!r}", next_step=f"choose from {', '.join(kinds)} or {ALL}: ./build.py cache"
        )
    return list(KINDS) if ALL in wanted else [kinds[name] for name in dict.fromkeys(wanted)]
