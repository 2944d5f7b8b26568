"""From a variant to a resolution: of the stack, by its committed locks, and of what a user adds to it."""

from pathlib import Path

import msgspec

from graphcrate.assembly import extensions
from graphcrate.compat.addresses import cuda_label
from graphcrate.compat.catalog import read_lock
from graphcrate.compat.expected import refuse_others
from graphcrate.compat.explain import VariantChoice
from graphcrate.compat.request import BuildRequest, SourceOptions
from graphcrate.host import documents
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.model.command import command
from graphcrate.model.lock import Lock, encode
from graphcrate.resolve import additions
from graphcrate.resolve.candidates import choose
from graphcrate.resolve.locks import Resolution, ResolveContext


def lock_stack(choice: VariantChoice, sources: SourceOptions, ctx: Context, *, fresh: bool = False) -> Resolution:
    """Choose the first candidate that is available, by its lock where it has one. `fresh`: locks are ignored."""
    recipe, variant = choice.recipe, choice.variant
    context = ResolveContext(
        recipe=recipe,
        variant=msgspec.structs.replace(variant, candidates=choice.usable),
        request=sources,
        ctx=ctx,
        built=lambda lock: extensions.built(extensions.for_gpus(lock, choice.gpu), ctx),
    )
    locks = {} if fresh else {each.name: read_lock(ctx, recipe, variant, each) for each in choice.usable}
    committed = {name: lock for name, lock in locks.items() if lock is not None}
    resolution = choose(context, committed, fresh=fresh)
    return msgspec.structs.replace(resolution, outcomes=(*choice.out, *resolution.outcomes))


def lock_additions(
    request: BuildRequest, choice: VariantChoice, stack: Resolution, ctx: Context, *, fresh: bool = False
) -> Resolution:
    """Resolve what a request adds to a stack; a recipe of the user's own has its lock beside it."""
    context = ResolveContext(
        recipe=choice.recipe, variant=choice.variant, request=request.own_sources, ctx=ctx, typed=request
    )
    path = own_lock(request.recipe, stack.lock) if request.recipe else None
    renew = command("lock", request.recipe or request.name, cuda=choice.variant.cuda)
    committed = documents.read_lock(path, renew) if path and not fresh else None
    refuse_others(request.additions.expected, stack.lock, request.command_with)
    added = additions.add(context, stack, request.additions, committed, fresh=fresh)
    if path and added.lock != committed and not request.sources.locked:
        write_file(path, encode(added.lock))
        ctx.progress.note(f"locked in {path}")
    return added


def own_lock(recipe: Path, stack: Lock) -> Path:
    """Where the lock of a user's own recipe is: beside it, one for each CUDA version and candidate."""
    return recipe.with_suffix(f".{cuda_label(stack.cuda)}.{stack.candidate}.lock.json")


def for_gpus(resolution: Resolution, gpus: str) -> Resolution:
    """The resolution with its extensions compiled for these GPU models ("v100,a100")."""
    return msgspec.structs.replace(resolution, lock=extensions.for_gpus(resolution.lock, gpus))
