"""The base of a lock: made by its provider, and replaced when the mirror no longer has what the lock names."""

from pathlib import Path

import msgspec

from graphcrate.compat import compilers
from graphcrate.host.cache import kept
from graphcrate.host.context import Context
from graphcrate.inputs.bases import Base, provider
from graphcrate.model.lock import DebianBase, Lock, RegistryBase, encode
from graphcrate.model.plan import content_id
from graphcrate.model.recipe import BaseSpec, Variant
from graphcrate.resolve.locks import Resolution


def lock_base(ctx: Context, variant: Variant) -> DebianBase | RegistryBase:
    """What the variant's base consists of today. Raises ResolutionError, NetworkError, HostError."""
    of_name = provider(variant.base.provider)
    base: DebianBase | RegistryBase = of_name.lock(variant.base, variant.python, ctx)
    return base


def lock_compiler(ctx: Context, variant: Variant, suite: str, compiler: str) -> DebianBase:
    """The variant's base with a compiler, as its suite has it today. Raises as `lock_base`."""
    wanted = (*variant.base.packages, *compilers.packages(compiler))
    spec = BaseSpec(provider="debian", suite=suite, packages=wanted)
    base = lock_base(ctx, msgspec.structs.replace(variant, base=spec))
    assert isinstance(base, DebianBase)
    return base


def prepare_base(ctx: Context, base: DebianBase | RegistryBase | None) -> Base:
    """The base in the cache. Raises BaseDriftError when its files are gone, and what its provider raises."""
    assert base is not None, "an open plan is for engines"
    of_name = provider("debian" if isinstance(base, DebianBase) else "registry")
    made: Base = of_name.prepare(base, ctx)
    return made


def with_living_base(ctx: Context, resolution: Resolution) -> Resolution:
    """The resolution with the bases that stand in for the lock's own, which are gone, by `renew_base`."""
    lock, notes = resolution.lock, list(resolution.lock.notes)
    gone = "has newer packages than the committed lock, whose own are gone from the mirror (make lock renews it)"
    if (base := kept(_replacement(ctx, lock.base), DebianBase)) is not None:
        lock = msgspec.structs.replace(lock, base=base)
        notes.append(f"the base {gone}")
    if lock.compilation and (base := kept(_replacement(ctx, lock.compilation.base), DebianBase)) is not None:
        lock = msgspec.structs.replace(lock, compilation=msgspec.structs.replace(lock.compilation, base=base))
        notes.append(f"the base with the compiler {gone}")
    return msgspec.structs.replace(resolution, lock=msgspec.structs.replace(lock, notes=tuple(notes)))


def renew_base(ctx: Context, variant: Variant, lock: Lock, tried: Lock, *, compiler: bool) -> bool:
    """Remember today's base (or that with the `compiler`) as the one that stands in for the lock's.

    False where today's is that of `tried`, the lock by `with_living_base`. Raises as `lock_base`.
    """
    own, gone = lock.base, tried.base
    if compiler and lock.compilation and tried.compilation:
        own, gone = lock.compilation.base, tried.compilation.base
        today: DebianBase | RegistryBase = lock_compiler(ctx, variant, own.suite, lock.compilation.compiler)
    else:
        today = lock_base(ctx, variant)
    if today == own:  # there again: a mirror that lags
        _replacement(ctx, own).unlink(missing_ok=True)
    elif today != gone:
        ctx.cache.keep(_replacement(ctx, own), encode(today))
    return today != gone


def _replacement(ctx: Context, base: DebianBase | RegistryBase) -> Path:
    return ctx.cache.path("bases", "replaced", f"{content_id(base)}.json")
