"""The base of a lock: made by its provider, and replaced when the mirror no longer has what the lock names."""

from pathlib import Path

import msgspec

from graphcrate.bases import PROVIDERS, Base
from graphcrate.host.workplace import Workplace
from graphcrate.model.lock import DebianBase, Lock, RegistryBase, encode
from graphcrate.model.plan import content_id
from graphcrate.model.recipe import Variant
from graphcrate.resolve.candidates import Resolution


def lock_base(place: Workplace, variant: Variant) -> DebianBase | RegistryBase:
    """What the variant's base consists of today. Raises ResolutionError, NetworkError, HostError."""
    provider = PROVIDERS[variant.base.provider]()
    base: DebianBase | RegistryBase = provider.lock(
        variant.base, variant.python, place.cache, place.environment, place.progress
    )
    return base


def prepare_base(place: Workplace, base: DebianBase | RegistryBase) -> Base:
    """The base in the cache. Raises BaseDriftError when its files are gone, and what its provider raises."""
    provider = PROVIDERS["debian" if isinstance(base, DebianBase) else "registry"]()
    return provider.prepare(base, place.cache, place.environment, place.progress)


def _replacement(place: Workplace, base: DebianBase | RegistryBase) -> Path:
    return place.cache.path("bases", "replaced", f"{content_id(base)}.json")


def with_living_base(place: Workplace, resolution: Resolution) -> Resolution:
    """The resolution with the base that stood in when the lock's own could not be had any more (see `replace_base`)."""
    base = resolution.lock.base
    while (path := _replacement(place, base)).is_file():
        base = msgspec.json.decode(path.read_bytes(), type=DebianBase | RegistryBase)
    if base == resolution.lock.base:
        return resolution
    note = (
        "the base has newer packages than the committed lock, whose own are gone from the mirror (make lock renews it)"
    )
    lock = msgspec.structs.replace(resolution.lock, base=base, notes=(*resolution.lock.notes, note))
    return msgspec.structs.replace(resolution, lock=lock)


def replace_base(place: Workplace, variant: Variant, lock: Lock) -> None:
    """Remember today's base as the one that stands in for the lock's."""
    place.cache.write(_replacement(place, lock.base), encode(lock_base(place, variant)))
