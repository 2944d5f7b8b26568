"""`update --security`: locks with known vulnerabilities get the releases that fix them, and nothing else moves.

Packages: pinned as the lock has them, but for those that are renewed and those that these need; uv says whether they go
together. Bases: listed again where Debian's security archive has a newer version of one of their packages. What is not
known is said.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from graphcrate.compat.variants import catalog, ported
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.model.command import command
from graphcrate.model.errors import NetworkError, NewsError
from graphcrate.model.lock import Lock, encode
from graphcrate.model.platform import SUPPORTED
from graphcrate.model.recipe import Recipe
from graphcrate.model.words import joined
from graphcrate.resolve.sources.request_sources import Sources
from upkeep import staged
from upkeep.request import UpdateRequest
from upkeep.security.against import Known, LockedStack
from upkeep.security.fixes import LockFixes, SecurityReview
from upkeep.security.renewal import Renewal


def run(request: UpdateRequest, ctx: Context) -> SecurityReview:
    """Ask, renew, and write all of it or nothing. Raises UsageError, NetworkError where nothing at all is known."""
    ctx.require_checkout("its locks")
    recipes = [catalog.find_recipe(ctx, request.recipe)] if request.recipe else catalog.all_recipes(ctx)
    stacks = list(_stacks(recipes, ctx))
    sources = Sources(SourceOptions(mirror=request.mirror), ctx.cache, ctx.environment, ctx.progress.note)
    known = Known(stacks, sources, ctx)
    renewed: dict[str, Lock] = {}
    changes: list[LockFixes] = []
    affected = [stack for stack in stacks if known.against(stack)]
    with ctx.progress.task("renewing locks", len(affected), "lock" if len(affected) == 1 else "locks") as task:
        for stack in affected:
            change, lock = Renewal(stack, known, sources).renewed()
            changes.append(change)
            if change.is_news:
                renewed[stack.title] = lock
            task.advance(1)
    review = SecurityReview(
        day=str(settings.today()), locks=tuple(changes), judged=known.judged, unknown=tuple(known.unknown())
    )
    if stacks and not review.judged:
        raise NetworkError(
            "whether the locks have known vulnerabilities is not known",
            cause="; ".join(dict.fromkeys(each.why for each in review.unknown)),
            next_step="name an index that has advisories (UV_DEFAULT_INDEX), or a mirror of Debian (DEBIAN_MIRROR)",
        )
    if renewed and not request.check:
        _write([(stack, renewed[stack.title]) for stack in stacks if stack.title in renewed], ctx)
        review = msgspec.structs.replace(review, written=True)
    return review


def raise_if_fixable(review: SecurityReview) -> None:
    """Raises NewsError where `update --security` would write something."""
    if review.changed:
        titles = joined(lock.title for lock in review.changed)
        raise NewsError(f"locks would change: {titles}", next_step=command("update", security=True))


def _stacks(recipes: Iterable[Recipe], ctx: Context) -> Iterator[LockedStack]:
    for recipe in recipes:
        for variant in recipe.variants:
            for platform in SUPPORTED:
                on_it = ported.on_platform(variant, platform)
                for way in variant.candidates:
                    if lock := catalog.read_lock(ctx, recipe, on_it, way):
                        yield LockedStack(recipe, on_it, way, lock)


def _write(renewed: Sequence[tuple[LockedStack, Lock]], ctx: Context) -> None:
    """Write these locks, what is rendered and generated of them; a proof of the lock before goes."""
    with staged.copied(ctx) as stage:
        for stack, lock in renewed:
            path = catalog.path_of_lock(
                stage.root, stack.recipe.name, stack.variant.cuda, stack.way.name, stack.platform
            )
            write_file(path, encode(lock))
            catalog.proof_path(path).unlink(missing_ok=True)
        stage.build_py("render")
        stage.tool("tools.generate")
        stage.take_over()
