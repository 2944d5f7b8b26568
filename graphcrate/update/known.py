"""What the last update of this user found, kept in the cache: `list` asks no index."""

import datetime
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.host import settings
from graphcrate.host.cache import default_root, kept
from graphcrate.host.context import Context
from graphcrate.model.errors import CacheError
from graphcrate.model.recipe import Recipe
from graphcrate.update.review import Review
from graphcrate.update.weighing import VariantChange

_FOLDER, _FILE = "updates", "known.json"


class KnownNews(msgspec.Struct, frozen=True, kw_only=True):
    """Of one recipe. `newer`: CUDA → its torch and PyG ("" for none) that a variant could have."""

    day: str
    newer: dict[str, tuple[str, str]] = {}


def remember(review: Review, recipes: Sequence[Recipe], ctx: Context) -> None:
    """Keep what there is to take: nothing of what was taken."""
    path = ctx.cache.path(_FOLDER, _FILE)
    known = kept(path, dict[str, KnownNews]) or {}
    left = () if review.tried else review.changes
    for recipe in recipes:
        newer = {change.cuda: _offered(change) for change in left if change.recipe == recipe.name}
        known[recipe.name] = KnownNews(day=review.day, newer=newer)
    ctx.cache.keep(path, msgspec.json.encode(known))


def _offered(change: VariantChange) -> tuple[str, str]:
    return change.torch, change.pyg


def recalled(ctx: Context) -> Mapping[str, KnownNews]:
    """By recipe; nothing where no update was asked for here. Makes no cache."""
    try:
        path = default_root(ctx.environment) / _FOLDER / _FILE
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
    """How long ago a lock was made: "3 d old"."""
    made = datetime.datetime.fromtimestamp(created, datetime.UTC).date()
    return f"{max((settings.today() - made).days, 0)} d old"
