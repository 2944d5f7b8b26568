"""From a variant to a resolution: of the stack, by its committed locks, and of what a user adds to it."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.assembly import extensions
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.requirements.expected import refuse_others
from graphcrate.compat.variants.catalog import read_lock
from graphcrate.compat.variants.choice import VariantChoice
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import trace
from graphcrate.host.context import Context
from graphcrate.host.disk import documents
from graphcrate.host.disk.atomic import write_file
from graphcrate.model.command import LOCK_AGAIN, command
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.lock import Lock, encode
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Additions
from graphcrate.resolve.stack.base import refuse_older
from graphcrate.resolve.stack.candidates import choose
from graphcrate.resolve.stack.locks import Resolution, ResolveContext


@trace.span("lock the stack")
def lock_stack(
    choice: VariantChoice,
    sources: SourceOptions,
    ctx: Context,
    *,
    fresh: bool = False,
    ungiven: dict[str, GraphcrateError] | None = None,
) -> Resolution:
    """Choose the first candidate that is available, by its lock where it has one. `fresh`: locks are ignored.

    `ungiven`: files that were locked and that no source gave, and why.
    """
    recipe, variant = choice.recipe, choice.variant
    context = ResolveContext(
        recipe=recipe,
        variant=msgspec.structs.replace(variant, candidates=choice.usable),
        request=sources,
        ctx=ctx,
        built=lambda lock: extensions.built(extensions.for_gpus(lock, choice.gpu), ctx),
        ungiven={} if ungiven is None else ungiven,
    )
    locks = {} if fresh else {each.name: read_lock(ctx, recipe, variant, each) for each in choice.usable}
    committed = {name: lock for name, lock in locks.items() if lock is not None}
    resolution = choose(context, committed, fresh=fresh)
    return msgspec.structs.replace(resolution, outcomes=(*choice.out, *resolution.outcomes))


class AddedPackages(NamedTuple):
    """Packages that a user adds to a stack, and their source.

    `recipe`: the user's own file, which has its lock beside it.
    """

    additions: Additions
    recipe: Path | None
    sources: SourceOptions
    next_steps: NextSteps


@trace.span("lock what is added")
def lock_additions(
    choice: VariantChoice, stack: Resolution, added: AddedPackages, ctx: Context, *, fresh: bool = False
) -> Resolution:
    """Resolve what is added to a stack. `fresh`: locks are ignored."""
    from graphcrate.resolve.additions import additions as adding  # resolves: not for a stack's own image

    additions, recipe, sources, next_steps = added
    context = ResolveContext(
        recipe=choice.recipe, variant=choice.variant, request=sources, ctx=ctx, next_steps=next_steps
    )
    path = own_lock(recipe, stack.lock) if recipe else None
    renew = command("lock", recipe or choice.recipe.name, cuda=choice.variant.cuda)
    committed = documents.read_lock(path, renew) if path and not fresh else None
    elsewhere = partial(_on_another, choice, next_steps, ctx)
    refuse_others(additions.expected, stack.lock, next_steps.with_packages, elsewhere)
    locked = adding.add(context, stack, additions, committed, fresh=fresh)
    if path and locked.lock != committed and not sources.locked:
        if locked.lock.base == stack.lock.base:
            write_file(path, encode(locked.lock))
        else:  # listed for it alone
            write_lock(path, locked.lock, ctx)
        ctx.progress.note(f"locked in {path}")
    return locked


def _on_another(choice: VariantChoice, next_steps: NextSteps, ctx: Context, fits: Callable[[Lock], bool]) -> str:
    """Return the request for the variant of the nearest CUDA version whose committed lock fits; empty for none."""
    here = choice.variant.cuda
    others = [
        variant for variant in choice.recipe.variants if "cpu" not in (variant.cuda, here) and variant.cuda != here
    ]
    for variant in sorted(others, key=lambda variant: abs(float(variant.cuda) - float(here))):
        locks = (read_lock(ctx, choice.recipe, variant, candidate) for candidate in variant.candidates)
        if there := next((lock for lock in locks if lock and fits(lock)), None):
            torch = there.package("torch")
            return f"{next_steps.on(variant.cuda)}    (has torch {torch.version if torch else ''})"
    return ""


def write_lock(path: Path, lock: Lock, ctx: Context) -> None:
    """Put a lock where it stays. Raises IntegrityError where the one there has its base from newer lists."""
    before = None
    with contextlib.suppress(GraphcrateError):  # a damaged one is made again
        before = documents.read_lock(path, LOCK_AGAIN)
    refuse_older(before, lock, ctx)
    write_file(path, encode(lock))


def own_lock(recipe: Path, stack: Lock) -> Path:
    """Return the lock's path for a user's own recipe: beside it, one per CUDA version, platform and candidate."""
    platform = "" if stack.platform == DEFAULT else f"-{stack.platform.architecture}"
    return recipe.with_suffix(f".{cuda_label(stack.cuda)}{platform}.{stack.candidate}.lock.json")


def for_gpus(resolution: Resolution, gpus: str) -> Resolution:
    """The resolution with its extensions compiled for these GPU models ("v100,a100")."""
    return msgspec.structs.replace(resolution, lock=extensions.for_gpus(resolution.lock, gpus))
