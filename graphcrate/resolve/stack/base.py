"""The base of a lock: made by its provider, and replaced by today's where no mirror has what the lock names."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.compat.facts import compilers, suites
from graphcrate.compat.variants.catalog import path_of_lock
from graphcrate.host import settings, trace
from graphcrate.host.context import Context
from graphcrate.host.disk import documents
from graphcrate.host.disk.sealed import kept
from graphcrate.inputs.bases import Base, provider
from graphcrate.model.command import command
from graphcrate.model.errors import IntegrityError
from graphcrate.model.lock import DebianBase, DebianPackage, Drift, Lock, RegistryBase, encode
from graphcrate.model.plan import content_id
from graphcrate.model.platform import DEFAULT, of_machine
from graphcrate.model.recipe import BaseSpec, Variant
from graphcrate.resolve.stack.locks import Resolution

AnyBase = DebianBase | RegistryBase
REMEMBERED = 86_400.0  #: seconds that a base of today stands in for one that no mirror had


def lock_base(ctx: Context, variant: Variant) -> AnyBase:
    """Lock the variant's base as of today. Raises ResolutionError, NetworkError, HostError."""
    of_name = provider(variant.base.provider)
    base: AnyBase = of_name.lock(variant.base, variant.python, ctx)
    return base


def lock_compiler(ctx: Context, variant: Variant, suite: str, compiler: str, besides: Sequence[str] = ()) -> DebianBase:
    """The variant's base with a compiler, as its suite has it today. Raises as `lock_base`.

    `besides`: what else to compile with (`compilers.besides`); then what finds libraries, too.
    """
    spec = compiler_spec(variant, suite, compiler, besides)
    base = lock_base(ctx, msgspec.structs.replace(variant, base=spec))
    assert isinstance(base, DebianBase)
    return base


def compiler_spec(variant: Variant, suite: str, compiler: str, besides: Sequence[str] = ()) -> BaseSpec:
    """The variant's base with a compiler, as a recipe would ask for it; of a cross-compiler a base of its own.

    `besides` as in `lock_compiler`.
    """
    if compilers.crosses_to(compiler):  # nothing of the image is in it, and it runs here
        return BaseSpec(suite=suite, packages=compilers.packages(compiler))
    packages = (*variant.base.packages, *compilers.packages(compiler))
    packages += (*besides, compilers.FINDER) if besides else ()
    return msgspec.structs.replace(variant.base, provider="debian", suite=suite, packages=packages)


@trace.span("make the base")
def prepare_base(ctx: Context, base: AnyBase | None, on_python: Callable[[Path], None] | None = None) -> Base:
    """The base in the cache. Raises BaseDriftError when its files are gone, and what its provider raises.

    `on_python` gets a tree that its Python runs in, where one is there before the base.
    """
    assert base is not None, "an open plan is for engines"
    early = (on_python,) if on_python and isinstance(base, DebianBase) else ()
    of_name = provider("debian" if isinstance(base, DebianBase) else "registry")
    made: Base = of_name.prepare(base, ctx, *early)
    return made


def outline(ctx: Context, base: AnyBase | None) -> Base | None:
    """Return a base without its layers, before it is made; None where only the made one says what it is."""
    if not isinstance(base, DebianBase):
        return None
    known: Base | None = provider("debian").outline(base, ctx)
    return known


@trace.span("make the base with a compiler")
def prepare_compiler(ctx: Context, base: DebianBase, image: AnyBase | None) -> Base:
    """The base with a compiler, in the cache. `image`: of the image, which may be a part. Raises as `prepare_base`."""
    if not isinstance(image, DebianBase):
        return prepare_base(ctx, base)
    made: Base = provider("debian").prepare_compiler(base, image, ctx)
    return made


def native_twin(ctx: Context, lock: Lock, base: Base) -> Base | None:
    """A base with the very Python of `base` for this machine's processor, where an emulator would run that; else None.

    Bytecode is the same on all of them, and it is made ten times as fast. The base of the committed lock of the same
    image for this machine, else the suite's of today; None too where neither has that Python.
    """
    if base.emulator is None or not isinstance(lock.base, DebianBase):
        return None
    debian, host = provider("debian"), of_machine(os.uname().machine) or DEFAULT
    path = path_of_lock(ctx.root, lock.recipe, lock.cuda, lock.candidate, host)
    committed = documents.read_lock(path, command("lock", lock.recipe, cuda=lock.cuda), committed=True)
    spec = BaseSpec(suite=lock.base.suite, platform=msgspec.UNSET if host == DEFAULT else host.name)
    for is_of_today in (False, True):
        twin = debian.lock(spec, lock.python, ctx) if is_of_today else committed and committed.base
        if isinstance(twin, DebianBase) and debian.python_version(twin) == base.python_version:
            return prepare_base(ctx, twin)
    ctx.progress.note(f"no base for {host.title} has Python {base.python_version}: the emulated one compiles bytecode")
    return None


def with_living_base(ctx: Context, resolution: Resolution) -> Resolution:
    """The resolution with the bases of today that stand in for the lock's own, where `renew_base` found those nowhere.

    What differs is in the lock's `drift`. The committed lock stays as it is.
    """
    lock, drift = resolution.lock, resolution.lock.drifted
    if (today := _standing_in(ctx, lock.base)) is not None:
        drift += differences("base", lock.base, today)
        lock = msgspec.structs.replace(lock, base=today)
    if lock.compilation and (today := _standing_in(ctx, lock.compilation.base)) is not None:
        drift += differences("compiler", lock.compilation.base, today)
        lock = msgspec.structs.replace(lock, compilation=msgspec.structs.replace(lock.compilation, base=today))
    if drift == resolution.lock.drifted:
        return resolution
    return msgspec.structs.replace(resolution, lock=msgspec.structs.replace(lock, drift=drift))


def differences(of: Literal["base", "compiler"], locked: AnyBase, today: DebianBase) -> tuple[Drift, ...]:
    """The packages of a base that are not those of another, sorted by name."""
    assert isinstance(locked, DebianBase), "an image of a registry is the locked one or none"
    old, new = ({package.name: package for package in base.packages} for base in (locked, today))
    return tuple(
        Drift(of=of, name=name, locked=_version(old.get(name)), taken=_version(new.get(name)))
        for name in sorted(old.keys() | new.keys())
        if name not in old or name not in new or old[name].file.sha256 != new[name].file.sha256
    )


def _version(package: DebianPackage | None) -> str:
    return package.version if package else ""


def renew_base(ctx: Context, variant: Variant, lock: Lock, tried: Lock, *, compiler: bool) -> bool:
    """Remember today's base (or that with the `compiler`) as the one that stands in for the lock's, for a day.

    False where today's is that of `tried`, the lock by `with_living_base`. Raises as `lock_base`.
    """
    own, gone = lock.base, tried.base
    if compiler and lock.compilation and tried.compilation:
        own, gone = lock.compilation.base, tried.compilation.base
        besides = compilers.besides(lock.packages, own.suite, lock.compilation.besides)
        today: AnyBase = lock_compiler(ctx, variant, own.suite, lock.compilation.compiler, besides)
    else:
        today = lock_base(ctx, variant)
    assert isinstance(today, DebianBase), "an image of a registry is the locked one or none"
    if not differences("base", own, today):  # there again: a mirror that lags
        _record(ctx, own).unlink(missing_ok=True)
    elif differences("base", gone, today):
        ctx.cache.keep(_record(ctx, own), encode(StandIn(base=today, since=settings.now())))
    return bool(differences("base", gone, today))


class StandIn(msgspec.Struct, frozen=True, kw_only=True):
    """A base of today, taken in place of a locked one, and when (Unix seconds)."""

    base: DebianBase
    since: float


def _standing_in(ctx: Context, base: AnyBase) -> DebianBase | None:
    """Return the stand-in for a base. After a day the lock's own is looked for again: a mirror may have it by then."""
    stand_in = kept(_record(ctx, base), StandIn)
    return stand_in.base if stand_in is not None and 0 <= settings.now() - stand_in.since < REMEMBERED else None


def _record(ctx: Context, base: AnyBase) -> Path:
    return ctx.cache.path("bases", "replaced", f"{content_id(base)}.json")


def refuse_older(old: Lock | None, new: Lock, ctx: Context) -> None:
    """Raises IntegrityError where a lock's base was listed before that of the lock which it would replace.

    Not where the mirror's address names a day: then that is what was asked for.
    """
    before, after = (lock.base if lock and isinstance(lock.base, DebianBase) else None for lock in (old, new))
    if before is None or after is None or before.suite != after.suite or not after.listed < before.listed:
        return
    from debroot.release import day
    from graphcrate.inputs.bases.release import names_a_day

    if names_a_day(ctx.environment, after.suite):
        return
    raise IntegrityError(
        f"the lists of today are of {day(after.listed)}, and the lock has its base from those of {day(before.listed)}",
        cause="The mirror is no longer kept up to date, or somebody on the way hides what is new.",
        next_step=suites.distribution_of(after.suite).another_mirror,
    )
