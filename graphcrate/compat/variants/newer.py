"""Newer releases for variants, as this user's last update found them, and the age of locks. `list` asks no index.

An update keeps them in the cache.
"""

import datetime
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import default_root
from graphcrate.host.disk.sealed import kept
from graphcrate.model.errors import CacheError
from graphcrate.model.recipe import Recipe

PLACE = ("updates", "known.json")  #: in the cache


class KnownNews(msgspec.Struct, frozen=True, kw_only=True):
    """Of one recipe. `newer`: CUDA → its torch and PyG ("" for none) that a variant could have."""

    day: str
    newer: dict[str, tuple[str, str]] = {}


def recalled(ctx: Context) -> Mapping[str, KnownNews]:
    """By recipe; nothing where no update was asked for here. Makes no cache."""
    try:
        path = default_root(ctx.environment).joinpath(*PLACE)
    except CacheError:
        return {}
    return kept(path, dict[str, KnownNews]) or {}


def sentences(ctx: Context, recipes: Sequence[Recipe]) -> list[str]:
    """A line for each variant for which something newer is known that its recipe does not have."""
    lines = []
    for recipe in recipes:
        news = recalled(ctx).get(recipe.name)
        for cuda, (torch, pyg) in news.newer.items() if news else ():
            variant = recipe.variant(cuda)
            has_torch = variant is not None and torch in {way.torch for way in variant.candidates}
            if news and not (has_torch and variant and pyg in ("", variant.torch_geometric)):
                words = [f"torch {torch}", *([f"PyG {pyg}"] if pyg else [])]
                lines.append(f"newer for {recipe.name} {cuda}: {', '.join(words)} (as of {news.day})")
    return lines


def age(created: int) -> str:
    """The age of a lock: "3 d old"."""
    made = datetime.datetime.fromtimestamp(created, datetime.UTC).date()
    return f"{max((settings.today() - made).days, 0)} d old"
