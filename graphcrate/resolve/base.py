"""The base of a lock: made by its provider, and replaced when the mirror no longer has what the lock names."""

from pathlib import Path

import msgspec

from graphcrate.compat import compilers
from graphcrate.host.context import Context
from graphcrate.inputs.bases import PROVIDERS, Base
from graphcrate.model.lock import DebianBase, Lock, RegistryBase, encode
from graphcrate.model.plan import Plan, content_id
from graphcrate.model.recipe import BaseSpec, Variant
from graphcrate.resolve.locks import Resolution


def lock_base(ctx: Context, variant: Variant) -> DebianBase | RegistryBase:
    """What the variant's base consists of today. Raises ResolutionError, NetworkError, HostError."""
    provider = PROVIDERS[variant.base.provider]()
    base: DebianBase | RegistryBase = provider.lock(
        variant.base, variant.python, ctx.cache, ctx.environment, ctx.progress
    )
    return base


def prepare_base(ctx: Context, base: DebianBase | RegistryBase) -> Base:
    """The base in the cache. Raises BaseDriftError when its files are gone, and what its provider raises."""
    provider = PROVIDERS["debian" if isinstance(base, DebianBase) else "registry"]()
    return provider.prepare(base, ctx.cache, ctx.environment, ctx.progress)


def planned_base(plan: Plan) -> DebianBase | RegistryBase:
    """The locked base that a plan starts from: of a devel image that with the compiler."""
    base = plan.base.base
    assert base is not None, "an open plan is for engines"
    return base


def _replacement(ctx: Context, base: DebianBase | RegistryBase) -> Path:
    return ctx.cache.path("bases", "replaced", f"{content_id(base)}.json")


def with_living_base(ctx: Context, resolution: Resolution) -> Resolution:
    """The resolution with the bases that stand in for the lock's own, which are gone, by `replace_base`."""
    lock, notes = resolution.lock, list(resolution.lock.notes)
    gone = "has newer packages than the committed lock, whose own are gone from the mirror (make lock renews it)"
    if (base := _living(ctx, lock.base)) != lock.base:
        lock = msgspec.structs.replace(lock, base=base)
        notes.append(f"the base {gone}")
    compilation = lock.compilation
    if compilation is not None and (base := _living(ctx, compilation.base)) != compilation.base:
        assert isinstance(base, DebianBase)
        lock = msgspec.structs.replace(lock, compilation=msgspec.structs.replace(compilation, base=base))
        notes.append(f"the base with the compiler {gone}")
    if lock is resolution.lock:
        return resolution
    return msgspec.structs.replace(resolution, lock=msgspec.structs.replace(lock, notes=tuple(notes)))


def _living(ctx: Context, base: DebianBase | RegistryBase) -> DebianBase | RegistryBase:
    seen = [base]
    while (path := _replacement(ctx, base)).is_file():
        after = msgspec.json.decode(path.read_bytes(), type=DebianBase | RegistryBase)
        if after in seen:  # written by two runs at once, which asked mirrors of different age
            break
        seen.append(base := after)
    return base


def replace_base(ctx: Context, variant: Variant, lock: Lock) -> bool:
    """Remember today's base as the one that stands in for the lock's; False where today's is that very one."""
    return _replace(ctx, lock.base, lock_base(ctx, variant))


def replace_compiler(ctx: Context, variant: Variant, lock: Lock) -> bool:
    """Remember today's base with the compiler as the one that stands in for the lock's; False as `replace_base`."""
    assert lock.compilation is not None
    today = lock_compiler(ctx, variant, lock.compilation.base.suite, lock.compilation.compiler)
    return _replace(ctx, lock.compilation.base, today)


def _replace(ctx: Context, gone: DebianBase | RegistryBase, today: DebianBase | RegistryBase) -> bool:
    if today == gone:
        return False
    ctx.cache.write(_replacement(ctx, gone), encode(today))
    _replacement(ctx, today).unlink(missing_ok=True)  # an older base is there again: a mirror that lags
    return True


def lock_compiler(ctx: Context, variant: Variant, suite: str, compiler: str) -> DebianBase:
    """The variant's base with a compiler, as its suite has it today. Raises as `lock_base`."""
    wanted = (*variant.base.packages, *compilers.packages(compiler))
    spec = BaseSpec(provider="debian", suite=suite, packages=wanted)
    base = lock_base(ctx, msgspec.structs.replace(variant, base=spec))
    assert isinstance(base, DebianBase)
    return base
