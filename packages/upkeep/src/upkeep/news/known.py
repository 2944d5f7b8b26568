"""The findings of an update, kept in the cache for `list`."""

from collections.abc import Sequence

import msgspec

from graphcrate.compat.variants.newer import PLACE, KnownNews
from graphcrate.host.context import Context
from graphcrate.host.disk.sealed import kept
from graphcrate.model.recipe import Recipe
from upkeep.news.changes import VariantChange
from upkeep.news.review import Review


def remember(review: Review, recipes: Sequence[Recipe], ctx: Context) -> None:
    """Keep what there is to take: nothing of what was taken."""
    path = ctx.cache.path(*PLACE)
    known = kept(path, dict[str, KnownNews]) or {}
    left = () if review.tried else review.changes
    for recipe in recipes:
        newer = {change.cuda: _offered(change) for change in left if change.recipe == recipe.name}
        known[recipe.name] = KnownNews(day=review.day, newer=newer)
    ctx.cache.keep(path, msgspec.json.encode(known))


def _offered(change: VariantChange) -> tuple[str, str]:
    return change.torch, change.pyg
