"""The locks of a candidate: which request they answer, and where the cache keeps them with what put it out."""

import functools
import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from graphcrate.compat.request import Extensions, SourceOptions
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.model.errors import UNREADABLE
from graphcrate.model.lock import Compilation, Lock, decode_lock, encode
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant
from graphcrate.model.report import Outcome
from graphcrate.resolve.channels import extensions_of, local_folders, names_of
from graphcrate.resolve.offers import Offers, Sources, UnavailableError, torch_in
from graphcrate.resolve.user_index import wheel_folders

#: of what locks mean; a higher number makes all cached and committed ones stale
RULES = 2
#: a channel that was out of reach is asked again after this many seconds, if there is a complete fall-back
REMEMBERED = 900.0
#: and then gets this long to take a connection
PATIENCE = 2.0


@dataclass(frozen=True, kw_only=True)
class ResolveContext:
    """What is resolved, and with what. `built`: sha256s of a lock's compiled sdists whose wheels the cache has."""

    recipe: Recipe
    variant: Variant
    request: SourceOptions
    ctx: Context
    built: Callable[[Lock], Collection[str]] = lambda _: ()

    @functools.cached_property
    def market(self) -> Sources:
        """All sources of this request."""
        return Sources(self.request, self.ctx.cache, self.ctx.environment)

    @functools.cached_property
    def local_torch(self) -> frozenset[str]:
        """File names of the torch wheels in the user's folders."""
        return torch_in(local_folders(self.request, wheel_folders(self.ctx.environment)))

    def offers(self, candidate: Candidate, lock: Lock | None = None) -> Offers:
        """What the channels have for a candidate's torch, or for that of its lock."""
        torch = lock.package("torch") if lock else None
        version = torch.version if torch else "" if lock else candidate.torch
        return Offers(self.market, version, candidate.torch_cuda)


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The lock to build from and why: one outcome per candidate that was looked at."""

    lock: Lock
    candidate: Candidate
    outcomes: tuple[Outcome, ...]


class _Outage(msgspec.Struct, frozen=True):
    """What put a candidate out, and when (Unix seconds)."""

    constraint: str
    fix: str
    at: float


def request_digest(recipe: Recipe, variant: Variant, candidate: Candidate, request: SourceOptions | None = None) -> str:
    """Hash all that a lock answers; what only concerns the plan or the smoke test is left out.

    Of `request` counts what was said about compiled extensions, where the variant has any.
    """
    asked: dict[str, Any] = {
        "rules": RULES,
        "recipe": [recipe.name, recipe.requirements],
        "variant": [variant.cuda, variant.python, variant.torch_geometric, variant.requirements, variant.extensions],
        "base": variant.base,
        "candidate": [candidate.name, candidate.channels, candidate.torch, candidate.torch_cuda, candidate.overrides],
    }
    if variant.extensions:
        asked["architectures"] = variant.architectures
    if request is not None and variant.extensions and extensions_of(request) is not Extensions.AUTO:
        asked["extensions"] = request.extensions
    if request is not None and request.toolkit is not None and (variant.extensions or request.devel):
        asked["toolkit"] = request.toolkit
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


class LockStore:
    """What the cache keeps of one candidate: its lock, its compilation for devel images, its last outage."""

    def __init__(self, context: ResolveContext, candidate: Candidate) -> None:
        self._context, self._candidate = context, candidate
        self._folder = functools.partial(context.ctx.cache.path, "resolutions")
        self.digest = self._digest_of(context.request)

    def usable(self, committed: Lock | None) -> list[Lock]:
        """The committed lock and the cache's, as far as they answer this request."""
        if committed is not None and not self._answers(committed):
            if committed.request_sha256 != self._digest_of(None):
                note = f"the committed lock of {self._candidate.name} answers an older recipe and is left aside"
                self._context.ctx.progress.note(note)
            committed = None
        return [lock for lock in (committed, self._read()) if lock is not None and self._suits(lock)]

    def write(self, lock: Lock) -> None:
        """Keep a lock that was made for this request."""
        self._context.ctx.cache.write(self._path("json"), encode(lock))

    def with_compilation(self, lock: Lock, make: Callable[[Lock], Compilation]) -> Lock:
        """The lock with what it takes to compile, kept or made now; its packages stay."""
        kept = self._folder(f"{lock.sha256}.{self._context.request.toolkit}.compilation.json")
        try:
            compilation = msgspec.json.decode(kept.read_bytes(), type=Compilation)
        except (OSError, *UNREADABLE):
            compilation = make(lock)
            self._context.ctx.cache.write(kept, msgspec.json.encode(compilation))
        return msgspec.structs.replace(lock, compilation=compilation)

    def note_outage(self, constraint: str, fix: str) -> None:
        """Keep why the candidate is out, until REMEMBERED seconds from now."""
        outage = _Outage(constraint, fix, settings.now())
        self._context.ctx.cache.write(self._outage_path, msgspec.json.encode(outage))

    def raise_if_out(self) -> None:
        """Raises UnavailableError when the candidate was out a moment ago, or its channel still takes no connection.

        Asked only where a complete fall-back is at hand, so that an unchanged build needs neither network nor time.
        """
        try:
            outage = msgspec.json.decode(self._outage_path.read_bytes(), type=_Outage)
        except (OSError, *UNREADABLE):
            return
        if not 0 <= settings.now() - outage.at < REMEMBERED:
            if self._main_channel_answers():
                return
            self.note_outage(outage.constraint, outage.fix)
        error = UnavailableError(outage.constraint)
        error.constraint, error.fix = outage.constraint, outage.fix
        raise error

    def _main_channel_answers(self) -> bool:
        main, market = self._candidate.channels[0], self._context.market
        places = () if main is Channel.LOCAL else self._context.offers(self._candidate).sources(main)
        return not places or market.client.reaches(places[0].location, PATIENCE)

    def _answers(self, lock: Lock) -> bool:
        """Whether the lock was made for this request, or for wheels where there were any, and there were none."""
        if lock.request_sha256 == self.digest:
            return True
        request = self._context.request
        if extensions_of(request) is not Extensions.SOURCE:
            return False
        if lock.request_sha256 != self._digest_of(msgspec.structs.replace(request, extensions=Extensions.AUTO)):
            return False
        found = (lock.package(name) for name in names_of(self._context.variant.extensions))
        return all(package is None or package.compiled for package in found)

    def _suits(self, lock: Lock) -> bool:
        """Whether the lock takes the torch that lies in the user's folders, where there is one."""
        torch, there = lock.package("torch"), self._context.local_torch
        if self._candidate.channels[0] is not Channel.LOCAL or not there:
            return True
        return torch is not None and torch.file.name in there

    def _read(self) -> Lock | None:
        try:
            lock = decode_lock(self._path("json").read_bytes())
        except (OSError, *UNREADABLE):
            return None
        return lock if lock.request_sha256 == self.digest else None

    def _digest_of(self, request: SourceOptions | None) -> str:
        return request_digest(self._context.recipe, self._context.variant, self._candidate, request)

    def _path(self, ending: str) -> Path:
        return self._folder(f"{self.digest}.{ending}")

    @property
    def _outage_path(self) -> Path:
        """Another mirror is another question."""
        mirror = hashlib.sha256((self._context.request.mirror or "").encode()).hexdigest()[:16]
        return self._path(f"{mirror}.out.json")
