"""Choosing a candidate: the first whose files can be had wins, and what put the others out is told.

A lock that was committed or made earlier is used as long as it answers the same request. docs/decisions/ tells how a
fall-back is left again once the preferred channel can be reached.
"""

import functools
import hashlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from graphcrate.errors import NetworkError, ResolutionError, UsageError
from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.model.lock import Compilation, DebianBase, Lock, RegistryBase, decode_lock, encode
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant
from graphcrate.model.report import Outcome
from graphcrate.resolve.channels import (
    PYTORCH_MIRRORS,
    Extensions,
    Request,
    extensions_of,
    local_folders,
    mirror_of,
    names_of,
)
from graphcrate.resolve.compilation import LockCompiler, lock_compilation, means_for, refuse_unknown_toolkit
from graphcrate.resolve.fetch import missing_packages
from graphcrate.resolve.offers import Market, Offers, UnavailableError, torch_in
from graphcrate.resolve.user_index import wheel_folders

if TYPE_CHECKING:
    from graphcrate.host.progress import Progress
    from graphcrate.model.lock import LockedPackage

#: of what locks mean; a higher number makes all cached and committed ones stale
RULES = 2
#: a channel that was out of reach is asked again after this many seconds, if there is a complete fall-back
REMEMBERED = 900.0
#: and then gets this long to take a connection
PATIENCE = 2.0

__all__ = ["Request", "Resolution", "choose", "request_digest"]


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The lock to build from and why: one outcome per candidate that was looked at."""

    lock: Lock
    candidate: Candidate
    outcomes: tuple[Outcome, ...]


class _Memory(msgspec.Struct, frozen=True):
    """What put a candidate out, and when (Unix seconds). `place`: an address to knock at, empty for folders."""

    constraint: str
    fix: str
    place: str
    at: float


def request_digest(recipe: Recipe, variant: Variant, candidate: Candidate, request: Request | None = None) -> str:
    """Hash of all that a lock answers; whatever only concerns the plan or the smoke test is left out.

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


def choose(
    recipe: Recipe,
    variant: Variant,
    *,
    lock_base: Callable[[], DebianBase | RegistryBase],
    lock_compiler: LockCompiler,
    request: Request,
    committed: Callable[[Candidate], Lock | None],
    built: Callable[[Lock], Collection[str]] = lambda _: (),
    fresh: bool = False,
    cache: Cache,
    environment: Mapping[str, str],
    progress: "Progress",
) -> Resolution:
    """The first candidate of the variant whose files can be had, with its lock.

    A lock with all files in the cache is taken without any network; `built` gives the sha256s of a lock's compiled
    sdists whose wheels are there, so that nothing else is needed for them. `fresh` ignores locks. Raises UsageError for
    an unknown mirror, channel, folder, toolkit or way to come by extensions, ResolutionError when CHANNEL forbids the
    fall-back or requirements contradict each other, NetworkError when nothing can be reached.
    """
    mirror_of(request)
    extensions_of(request)
    refuse_unknown_toolkit(request)
    if request.wheels is not None and not request.wheels.is_dir():
        raise UsageError(
            f"{request.wheels} is not a folder", next_step="WHEELS=/path of a folder that has the wheels in it"
        )
    choice = _Choice(recipe, variant, Market(request, cache, environment), lock_base, lock_compiler, built, progress)
    entries = [
        _Entry(choice, candidate, None if fresh else committed(candidate), fresh)
        for candidate in _allowed(variant, request)
    ]
    outcomes: list[Outcome] = []
    failures: list[UnavailableError] = []
    for place, entry in enumerate(entries):
        try:
            if not request.channel and any(later.complete for later in entries[place + 1 :]):
                entry.raise_if_out()
            lock = entry.lock()
        except UnavailableError as error:
            failures.append(error)
            outcomes.append(
                Outcome(candidate=entry.candidate.name, chosen=False, constraint=error.constraint, fix=error.fix)
            )
            continue
        outcomes.append(Outcome(candidate=entry.candidate.name, chosen=True))
        return Resolution(lock=lock, candidate=entry.candidate, outcomes=tuple(outcomes))
    raise _none(recipe, variant, request, outcomes, failures)


def _allowed(variant: Variant, request: Request) -> list[Candidate]:
    """The candidates that CHANNEL leaves. Raises UsageError when that is none."""
    if request.channel is None:
        return list(variant.candidates)
    known = [candidate.channels[0].value for candidate in variant.candidates]
    chosen = [candidate for candidate in variant.candidates if candidate.channels[0] == request.channel]
    if not chosen:
        raise UsageError(
            f"no candidate of CUDA {variant.cuda} takes torch from channel {request.channel!r}; "
            f"there {'are' if len(known) > 1 else 'is'} {' and '.join(known)}",
            next_step=f"make image CUDA={variant.cuda} CHANNEL={known[0]}    (or without CHANNEL)",
        )
    return chosen


class _Choice(msgspec.Struct, frozen=True):
    """What all candidates of one request share."""

    recipe: Recipe
    variant: Variant
    market: Market
    lock_base: Callable[[], DebianBase | RegistryBase]
    lock_compiler: LockCompiler
    built: Callable[[Lock], Collection[str]]
    progress: "Progress"


class _Entry:
    """One candidate with the locks there are for it."""

    def __init__(self, choice: _Choice, candidate: Candidate, committed: Lock | None, fresh: bool) -> None:
        self.candidate = candidate
        self._choice = choice
        self._cache = choice.market.cache
        self.digest = request_digest(choice.recipe, choice.variant, candidate, choice.market.request)
        if committed is not None and not self._answers(committed):
            if committed.request_sha256 != request_digest(choice.recipe, choice.variant, candidate):
                told = f"the committed lock of {candidate.name} answers an older recipe and is left aside"
                choice.progress.note(told)
            committed = None
        known = [] if fresh else [committed, self._cached()]
        self._locks = [lock for lock in known if lock is not None and self._suits(lock)]
        self._complete = next((lock for lock in self._locks if not self._missing(lock)), None)

    @property
    def complete(self) -> bool:
        """Whether the cache holds all files of a lock of this candidate."""
        return self._complete is not None

    def lock(self) -> Lock:
        """A lock whose files can be had: complete in the cache, else an earlier one, else a new one."""
        return self._with_compiler(self._living())

    def _with_compiler(self, lock: Lock) -> Lock:
        """The lock with what it takes to compile, where the request wants that in the image; its packages stay."""
        market = self._choice.market
        if not market.request.devel or lock.compilation is not None:
            return lock
        kept = self._cache.path("resolutions", f"{lock.sha256}.{market.request.toolkit}.compilation.json")
        try:
            compilation = msgspec.json.decode(kept.read_bytes(), type=Compilation)
        except (OSError, msgspec.MsgspecError):
            compilation = self._lock_compilation(lock)
            self._cache.write(kept, msgspec.json.encode(compilation))
        return msgspec.structs.replace(lock, compilation=compilation)

    def _lock_compilation(self, lock: Lock) -> Compilation:
        from graphcrate.resolve.target import target_of

        variant, torch = self._choice.variant, lock.package("torch")
        version = torch.version if torch else ""
        return lock_compilation(
            means_for(variant, self.candidate, self._choice.market.request),
            variant,
            lock.packages,
            target_of(variant.base, variant.python),
            self._offers(version),
            self._choice.lock_compiler,
        )

    def _living(self) -> Lock:
        if self._complete is not None:
            return self._complete
        for lock in self._locks:
            if self._can_be_had(lock) and not self._lacks_what_can_be_had(lock):
                return lock
        try:
            return self._resolve()
        except UnavailableError as error:
            self._remember(error.constraint, error.fix)
            raise

    def raise_if_out(self) -> None:
        """Raises UnavailableError when the candidate was out a moment ago, or its channel still takes no connection.

        Asked only where a complete fall-back is at hand, so that an unchanged build needs neither network nor time.
        """
        if self.complete or self._locally_available:
            return
        try:
            memory = msgspec.json.decode(self._memory_path.read_bytes(), type=_Memory)
        except (OSError, msgspec.MsgspecError):
            return
        if not 0 <= settings.now() - memory.at < REMEMBERED:
            if not memory.place or self._choice.market.client.reaches(memory.place, PATIENCE):
                return
            self._remember(memory.constraint, memory.fix)
        error = UnavailableError(memory.constraint)
        error.constraint, error.fix = memory.constraint, memory.fix
        raise error

    @property
    def _locally_available(self) -> bool:
        return self.candidate.channels[0] is Channel.LOCAL and bool(self._local_torch)

    @functools.cached_property
    def _local_torch(self) -> frozenset[str]:
        market = self._choice.market
        return torch_in(local_folders(market.request, wheel_folders(market.environment)))

    def _remember(self, constraint: str, fix: str) -> None:
        main = self.candidate.channels[0]
        sources = () if main is Channel.LOCAL else self._offers(self.candidate.torch).sources(main)
        memory = _Memory(constraint, fix, sources[0].location if sources else "", settings.now())
        self._cache.write(self._memory_path, msgspec.json.encode(memory))

    def _missing(self, lock: Lock) -> list["LockedPackage"]:
        return missing_packages(lock, self._cache, self._choice.built(lock))

    def _answers(self, lock: Lock) -> bool:
        """Whether the lock was made for this request, or for wheels where there were any, and there were none."""
        if lock.request_sha256 == self.digest:
            return True
        choice = self._choice
        if extensions_of(choice.market.request) is not Extensions.SOURCE:
            return False
        request = msgspec.structs.replace(choice.market.request, extensions=Extensions.AUTO)
        if lock.request_sha256 != request_digest(choice.recipe, choice.variant, self.candidate, request):
            return False
        found = (lock.package(name) for name in names_of(choice.variant.extensions))
        return all(package is None or package.compiled for package in found)

    def _suits(self, lock: Lock) -> bool:
        """Whether the lock takes the torch that lies in the user's folders, where there is one."""
        torch = lock.package("torch")
        if self.candidate.channels[0] is not Channel.LOCAL or not self._local_torch:
            return True
        return torch is not None and torch.file.name in self._local_torch

    def _can_be_had(self, lock: Lock) -> bool:
        """Whether each channel lists the largest of the files that are to come from it."""
        torch = lock.package("torch")
        offers = self._offers(torch.version if torch else "")
        largest: dict[Channel, LockedPackage] = {}
        for package in sorted(self._missing(lock), key=lambda package: package.file.size):
            largest[package.channel] = package
        return all(
            offers.links(channel, package.name, package.file.name, package.file.sha256)[0]
            for channel, package in largest.items()
        )

    def _lacks_what_can_be_had(self, lock: Lock) -> bool:
        """Whether a channel that was silent when the lock was made, and may have what is missing, answers today.

        Or what is compiled: a ready wheel is had in less time, unless wheels are not wanted.
        """
        if extensions_of(self._choice.market.request) is Extensions.SOURCE:
            return False
        silent = dict.fromkeys(channel for missing in lock.missing for channel in missing.unreachable)
        silent |= dict.fromkeys(channel for package in lock.packages for channel in package.unreachable)
        torch = lock.package("torch")
        offers = self._offers(torch.version if torch else "")
        return any(
            self._choice.market.client.reaches(source.location, PATIENCE)
            for channel in silent
            for source in offers.sources(channel)
        )

    def _resolve(self) -> Lock:
        if self.candidate.channels[0] is Channel.LOCAL and not self._local_torch:
            raise UnavailableError.of(Channel.LOCAL, ["no folder with a torch wheel is named"], unreachable=False)
        from graphcrate.resolve.resolver import Wanted, resolve

        choice = self._choice
        choice.progress.note(
            f"resolving {choice.recipe.name} CUDA {choice.variant.cuda}, candidate {self.candidate.name}"
        )
        wanted = Wanted(choice.recipe, choice.variant, self.candidate, self.digest)
        lock = resolve(wanted, choice.market, choice.lock_base, choice.lock_compiler)
        self._cache.write(self._lock_path, encode(lock))
        return lock

    def _cached(self) -> Lock | None:
        try:
            lock = decode_lock(self._lock_path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None
        return lock if lock.request_sha256 == self.digest else None

    def _offers(self, torch: str) -> Offers:
        return Offers(self._choice.market, torch, self.candidate.torch_cuda)

    @property
    def _lock_path(self) -> Path:
        return self._cache.path("resolutions", f"{self.digest}.json")

    @property
    def _memory_path(self) -> Path:
        """Another mirror is another question."""
        mirror = hashlib.sha256((self._choice.market.request.mirror or "").encode()).hexdigest()[:16]
        return self._cache.path("resolutions", f"{self.digest}.{mirror}.out.json")


def _none(
    recipe: Recipe, variant: Variant, request: Request, outcomes: list[Outcome], failures: list[UnavailableError]
) -> ResolutionError | NetworkError:
    tried = "".join(f"\n    {outcome.candidate}: {outcome.constraint}" for outcome in outcomes)
    what = f"no candidate of {recipe.name} CUDA {variant.cuda} can be had{tried}"
    stack = "" if recipe.name == "pyg" else f" STACK={recipe.name}"
    if request.channel == Channel.PYTORCH or variant.candidates[0].channels[0] is Channel.PYTORCH:
        others = [name for name in PYTORCH_MIRRORS if name != request.mirror]
        step = (
            f"make image CUDA={variant.cuda}{stack} MIRROR={others[0]}    (or {', '.join(others[1:])}, or an address)"
        )
    else:
        step = next((failure.fix for failure in failures if failure.fix), "")
    if request.channel:
        return ResolutionError(what, cause=f"CHANNEL={request.channel} forbids every other candidate.", next_step=step)
    if all(failure.unreachable for failure in failures):
        return NetworkError(what, cause="None of the channels can be reached from this machine.", next_step=step)
    return ResolutionError(what, next_step=step)
