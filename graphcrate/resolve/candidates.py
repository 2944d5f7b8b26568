"""Choosing a candidate: the first whose files are available wins, and what put the others out is told.

A lock that was committed or made earlier is used as long as it answers the same request. docs/decisions/ tells how a
fall-back is left again once the preferred channel can be reached.
"""

from collections.abc import Mapping

from graphcrate.compat.request import Extensions
from graphcrate.model.errors import NetworkError, ResolutionError, UsageError
from graphcrate.model.lock import Compilation, Lock, LockedPackage
from graphcrate.model.recipe import Candidate, Channel
from graphcrate.model.report import Outcome
from graphcrate.resolve.channels import PYTORCH_MIRRORS, extensions_of, mirror_of
from graphcrate.resolve.compilation import lock_compilation, means_for, refuse_unknown_toolkit
from graphcrate.resolve.fetch import missing_packages
from graphcrate.resolve.locks import PATIENCE, LockStore, Resolution, ResolveContext
from graphcrate.resolve.offers import UnavailableError


def choose(context: ResolveContext, committed: Mapping[str, Lock], *, fresh: bool = False) -> Resolution:
    """The first candidate of the variant whose files are available, with its lock.

    A lock with all files in the cache is taken without any network. `committed`: locks by their candidates' names;
    `fresh` ignores those and the cache's. Raises UsageError for an unknown mirror, channel, folder, toolkit or way to
    come by extensions, ResolutionError when CHANNEL forbids the fall-back or requirements contradict each other,
    NetworkError when nothing can be reached.
    """
    request = context.request
    mirror_of(request)
    extensions_of(request)
    refuse_unknown_toolkit(request)
    if request.wheels is not None and not request.wheels.is_dir():
        raise UsageError(
            f"{request.wheels} is not a folder", next_step="WHEELS=/path of a folder that has the wheels in it"
        )
    candidates = [LockCandidate(context, one, committed.get(one.name), fresh) for one in _allowed(context)]
    outcomes: list[Outcome] = []
    failures: list[UnavailableError] = []
    for number, candidate in enumerate(candidates):
        fallback = not request.channel and any(later.complete for later in candidates[number + 1 :])
        try:
            lock = candidate.lock(fallback=fallback)
        except UnavailableError as error:
            failures.append(error)
            outcomes.append(
                Outcome(candidate=candidate.value.name, chosen=False, constraint=error.constraint, fix=error.fix)
            )
            continue
        outcomes.append(Outcome(candidate=candidate.value.name, chosen=True))
        return Resolution(lock=lock, candidate=candidate.value, outcomes=tuple(outcomes))
    raise _none(context, outcomes, failures)


def _allowed(context: ResolveContext) -> list[Candidate]:
    """The candidates that CHANNEL leaves. Raises UsageError when that is none."""
    variant, channel = context.variant, context.request.channel
    if channel is None:
        return list(variant.candidates)
    known = [candidate.channels[0].value for candidate in variant.candidates]
    chosen = [candidate for candidate in variant.candidates if candidate.channels[0] == channel]
    if not chosen:
        raise UsageError(
            f"no candidate of CUDA {variant.cuda} takes torch from channel {channel!r}; "
            f"there {'are' if len(known) > 1 else 'is'} {' and '.join(known)}",
            next_step=f"make image CUDA={variant.cuda} CHANNEL={known[0]}    (or without CHANNEL)",
        )
    return chosen


class LockCandidate:
    """A candidate with the locks that there are for it. `complete`: one whose files are all in the cache."""

    def __init__(self, context: ResolveContext, value: Candidate, committed: Lock | None, fresh: bool) -> None:
        self.value, self._context = value, context
        self._store = LockStore(context, value)
        self._locks = [] if fresh else self._store.usable(committed)
        self.complete = next((lock for lock in self._locks if not self._missing(lock)), None)

    def lock(self, *, fallback: bool) -> Lock:
        """A lock whose files are available: complete in the cache, else an earlier one, else a new one.

        `fallback`: a later candidate is complete, so this one need not be waited for. Raises UnavailableError.
        """
        lock = self.complete
        if lock is None:
            is_here = self.value.channels[0] is Channel.LOCAL and self._context.local_torch
            if fallback and not is_here:
                self._store.raise_if_out()
            lock = next(filter(self._is_current, self._locks), None) or self._resolve()
        if self._context.request.devel and lock.compilation is None:
            return self._store.with_compilation(lock, self._compilation)
        return lock

    def _resolve(self) -> Lock:
        context = self._context
        try:
            if self.value.channels[0] is Channel.LOCAL and not context.local_torch:
                raise UnavailableError.of(Channel.LOCAL, ["no folder with a torch wheel is named"], unreachable=False)
            from graphcrate.resolve.resolver import resolve

            context.ctx.progress.note(
                f"resolving {context.recipe.name} CUDA {context.variant.cuda}, candidate {self.value.name}"
            )
            lock = resolve(context, self.value, self._store.digest)
        except UnavailableError as error:
            self._store.note_outage(error.constraint, error.fix)
            raise
        self._store.write(lock)
        return lock

    def _compilation(self, lock: Lock) -> Compilation:
        context = self._context
        means = means_for(context.variant, self.value, context.request)
        return lock_compilation(means, context.variant, lock.packages, context.offers(self.value, lock), context.ctx)

    def _missing(self, lock: Lock) -> list[LockedPackage]:
        return missing_packages(lock, self._context.ctx.cache, self._context.built(lock))

    def _is_current(self, lock: Lock) -> bool:
        """Whether the lock's files are available, and no channel that was silent when it was made answers today.

        Such a channel may have what is missing, or a wheel of what is compiled, unless wheels are not wanted.
        """
        offers = self._context.offers(self.value, lock)
        largest: dict[Channel, LockedPackage] = {}
        for package in sorted(self._missing(lock), key=lambda package: package.file.size):
            largest[package.channel] = package
        for channel, package in largest.items():
            if not offers.links(channel, package.name, package.file.name, package.file.sha256)[0]:
                return False
        if extensions_of(self._context.request) is Extensions.SOURCE:
            return True
        unreachable = [*(one.unreachable for one in lock.missing), *(one.unreachable for one in lock.packages)]
        silent = dict.fromkeys(channel for channels in unreachable for channel in channels)
        sources = [source for channel in silent for source in offers.sources(channel)]
        return not any(self._context.market.client.reaches(source.location, PATIENCE) for source in sources)


def _none(
    context: ResolveContext, outcomes: list[Outcome], failures: list[UnavailableError]
) -> ResolutionError | NetworkError:
    recipe, variant, request = context.recipe, context.variant, context.request
    tried = "".join(f"\n    {outcome.candidate}: {outcome.constraint}" for outcome in outcomes)
    what = f"no candidate of {recipe.name} CUDA {variant.cuda} is available{tried}"
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
