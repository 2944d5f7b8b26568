"""Choosing a candidate: the first whose files are available wins, and the outcomes say what put the others out.

docs/decisions/locks-and-fallbacks.md says when earlier locks are used and how a fall-back is left again.
"""

import hashlib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from graphcrate.compat.variants.request import Extensions
from graphcrate.host import settings
from graphcrate.host.disk.sealed import kept
from graphcrate.model.command import ETC, command, setting, without
from graphcrate.model.errors import GraphcrateError, LockedError, NetworkError, ResolutionError, UsageError
from graphcrate.model.lock import Compilation, Lock, LockedPackage, encode
from graphcrate.model.recipe import Candidate, Channel
from graphcrate.model.report import CandidateOutcome
from graphcrate.resolve.sources.channels import names_of
from graphcrate.resolve.sources.failures import UNGIVEN
from graphcrate.resolve.sources.fetch import missing_packages
from graphcrate.resolve.sources.offers import Offers, UnavailableError, unavailable
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.search import FileSearch
from graphcrate.resolve.sources.wheel_mirrors import asks_public_mirrors, mirror_of
from graphcrate.resolve.stack.locks import Resolution, ResolveContext, request_digest

#: a channel that was out of reach is asked again after this many seconds, if there is a complete fall-back
REMEMBERED = 900.0
#: for a channel that was silent when a lock was made to take a connection
PATIENCE = 2.0


def choose(context: ResolveContext, committed: Mapping[str, Lock], *, fresh: bool = False) -> Resolution:
    """The first candidate of the variant whose files are available, with its lock.

    A lock with all files in the cache is taken without any network. `committed`: locks by their candidates' names;
    `fresh` ignores those and the cache's. Raises UsageError for an unknown mirror, channel or folder, ResolutionError
    when CHANNEL forbids the fall-back or requirements contradict each other, NetworkError when nothing can be reached,
    LockedError when only committed locks may answer, and none does.
    """
    request = context.request
    mirror_of(request)
    asks_public_mirrors(context.ctx.environment)
    if request.wheels is not None and not request.wheels.is_dir():
        raise UsageError(
            f"{request.wheels} is not a folder" if request.wheels.exists() else f"there is no folder {request.wheels}",
            next_step=f"{command('image', ETC, wheels='/path')}    (a folder that has the wheels in it)",
        )
    if request.wheels is not None and not any(request.wheels.glob("*.whl")):
        raise UsageError(
            f"there is no wheel in {request.wheels}",
            cause="Wheels of other folders, which pip's settings may name, are not what was asked for.",
            next_step=f"ls {shlex.quote(str(request.wheels))}    or {without('wheels')}",
        )
    if request.pyg_lib:
        from graphcrate.resolve.sources import pyg_lib

        pyg_lib.check(request, context.variant)
    channels = [candidate.channels[0].value for candidate in context.variant.candidates]
    allowed = [
        candidate for candidate in context.variant.candidates if request.channel in (None, candidate.channels[0])
    ]
    if not allowed:
        again = command("image", "…", cuda=context.variant.cuda, channel=channels[0])
        raise UsageError(
            f"no candidate of CUDA {context.variant.cuda} takes torch from channel {request.channel!r}; "
            f"there {'are' if len(channels) > 1 else 'is'} {' and '.join(channels)}",
            next_step=f"{again}    (or {without('channel')})",
        )
    candidates = [LockCandidate(context, candidate, committed.get(candidate.name), fresh) for candidate in allowed]
    failures: dict[str, UnavailableError] = {}
    broken: list[GraphcrateError] = []
    for number, candidate in enumerate(candidates):
        fallback = not request.channel and any(later.complete for later in candidates[number + 1 :])
        try:
            lock = candidate.lock(fallback=fallback)
        except UnavailableError as error:
            failures[candidate.value.name] = error
            continue
        except NetworkError as error:  # of what a later candidate may do without
            broken.append(error)
            failures[candidate.value.name] = unavailable(candidate.value.channels[0], [error.what], unreachable=True)
            continue
        out = (
            CandidateOutcome(candidate=name, chosen=False, constraint=error.what, fix=error.next_step)
            for name, error in failures.items()
        )
        chosen = CandidateOutcome(candidate=candidate.value.name, chosen=True)
        return Resolution(lock=lock, candidate=candidate.value, outcomes=(*out, chosen))
    if causes := [*context.ungiven.values(), *broken]:
        raise causes[0]  # says most
    raise _none(context, failures)


class LockCandidate:
    """A candidate with the locks that there are for it. `complete`: one whose files are all in the cache.

    The cache's does not count where the committed one is newer, unless no source has that one's files.
    """

    def __init__(self, context: ResolveContext, value: Candidate, committed: Lock | None, fresh: bool) -> None:
        self.value, self._context, self._request = value, context, context.request
        self._cache, self._progress = context.ctx.cache, context.ctx.progress
        self._committed = committed
        self._is_local = value.channels[0] is Channel.LOCAL
        self._digest = self._digest_of(extensions=context.request.extensions)
        self._locks = [] if fresh else self._usable(committed)
        self.complete = next(
            (lock for lock in self._locks if not self._is_superseded(lock) and not self._missing(lock)), None
        )

    def lock(self, *, fallback: bool) -> Lock:
        """A lock whose files are available. `fallback`: a later candidate is complete. Raises UnavailableError."""
        if self._request.locked:
            return self._committed_lock()
        lock = self.complete
        if lock is None:
            if fallback and not self._is_local:
                self._raise_if_out()
            lock = next(filter(self._is_current, self._locks), None) or self._resolve()
        if self._request.devel and lock.compilation is None:
            return msgspec.structs.replace(lock, compilation=self._compilation(lock))
        return lock

    def _committed_lock(self) -> Lock:
        """The committed lock, wherever its files are. Raises UnavailableError where there is none for this request."""
        if not self._locks:
            there = "there is one for another, or for an older recipe" if self._committed else "there is none"
            raise UnavailableError(f"no committed lock answers this request: {there}")
        lock = self._locks[0]
        if self._request.devel and lock.compilation is None:
            raise UnavailableError(f"the committed lock has no compiler and toolkit for {setting(flavour='devel')}")
        return lock

    def _resolve(self) -> Lock:
        context = self._context
        try:
            from graphcrate.resolve.stack.resolver import resolve

            self._progress.note(
                f"resolving {context.recipe.name} CUDA {context.variant.cuda}, candidate {self.value.name}"
            )
            while True:  # without each listed file that no source gives
                try:
                    lock = resolve(context, self.value, self._digest)
                except UNGIVEN as error:
                    self._require_other(error.file, error)
                    context.ungiven[error.file] = error
                    self._progress.note(f"no source gives {error.file}: looking for another")
                else:
                    break
            for name in self._ungiven(lock):
                self._require_other(name, context.ungiven[name])
        except UnavailableError as error:
            self._note_outage(error)
            raise
        self._cache.keep(self._path("json"), encode(lock))
        return lock

    def _ungiven(self, lock: Lock) -> list[str]:
        """Names of the lock's files that no source gave a moment ago."""
        if not self._context.ungiven:
            return []
        return [package.file.name for package in self._missing(lock) if package.file.name in self._context.ungiven]

    def _require_other(self, name: str, error: GraphcrateError) -> None:
        """Raises UnavailableError where a file is chosen again that no source gave."""
        if name in self._context.ungiven:
            raise unavailable(self.value.channels[0], [error.brief], unreachable=False)

    def _compilation(self, lock: Lock) -> Compilation:
        """Return the compilation of a devel image, from the cache or locked now; the lock's packages stay."""
        record = self._cache.path("resolutions", f"{lock.sha256}.{self._request.toolkit}.compilation.json")
        if (compilation := kept(record, Compilation)) is None:
            from graphcrate.resolve.stack.extensions import choose_compiler, lock_compilation

            context = self._context
            choice = choose_compiler(context.variant, self.value, self._request)
            offers = Offers.of_lock(context.sources, lock)
            compilation = lock_compilation(choice, context.variant, lock.packages, offers, context.ctx)
            self._cache.keep(record, msgspec.json.encode(compilation))
        return compilation

    def _is_superseded(self, lock: Lock) -> bool:
        """Return whether the committed lock is not older than the cache's: it was renewed, and counts now."""
        first = self._locks[0]
        return lock is not first and lock.created <= first.created

    def _missing(self, lock: Lock) -> list[LockedPackage]:
        return missing_packages(lock, self._cache, self._context.built(lock))

    def _is_current(self, lock: Lock) -> bool:
        """Return whether some source lists the lock's files, and no channel that was silent then answers today.

        Such a channel may have what is missing, or a wheel of what is compiled.
        """
        if self._ungiven(lock):
            return False
        offers = Offers.of_lock(self._context.sources, lock)
        missing = sorted(self._to_look_for(lock, offers.sources), key=lambda package: package.file.size)
        largest = {package.channel: package for package in missing}
        for package in largest.values():
            if not FileSearch(package, offers, quiet=True).is_offered():
                name = package.file.name
                self._progress.note(f"no source that answers has {name}, which the lock of {self.value.name} names")
                return False
        if self._request.extensions == "source":
            return True
        unreachable = [*(entry.unreachable for entry in lock.missing), *(entry.unreachable for entry in lock.packages)]
        silent = dict.fromkeys(channel for channels in unreachable for channel in channels)
        sources = [source for channel in silent for source in offers.of_channel(channel)]
        return not any(self._context.sources.client.reaches(source.location, PATIENCE) for source in sources)

    def _to_look_for(self, lock: Lock, sources: Sources) -> Iterator[LockedPackage]:
        """The lock's files that the cache lacks, but for sources that git, or the user's folder, has."""
        for package in self._missing(lock):
            if package.commit:
                from graphcrate.resolve.sources import pyg_lib

                if pyg_lib.can_bring(package, sources):
                    continue
            yield package

    def _usable(self, committed: Lock | None) -> list[Lock]:
        """The committed and the cached lock, if they answer this request; a local one has a torch of the folders."""
        locks = []
        if committed is not None and self._answers(committed):
            locks.append(committed)
        elif committed and committed.request_sha256 != request_digest(
            self._context.recipe, self._context.variant, self.value
        ):
            self._progress.note(f"the committed lock of {self.value.name} answers an older recipe and is left aside")
        resolved = None if self._request.locked else kept(self._path("json"), Lock)
        if resolved is not None:
            locks.append(resolved)
        if there := self._context.local_torch if self._is_local else ():
            return [lock for lock in locks if (torch := lock.package("torch")) and torch.file.name in there]
        return locks

    def _answers(self, lock: Lock) -> bool:
        """Return whether the lock was made for this request, or for wheels where there were any and there were none."""
        if lock.request_sha256 == self._digest:
            return True
        if self._request.extensions != "source":
            return False
        packages = [lock.package(name) for name in names_of(self._context.variant.extensions)]
        without_wheels = all(package is None or package.compiled for package in packages)
        return without_wheels and lock.request_sha256 == self._digest_of(extensions="auto")

    def _digest_of(self, *, extensions: Extensions) -> str:
        request = msgspec.structs.replace(self._request, extensions=extensions)
        return request_digest(self._context.recipe, self._context.variant, self.value, request)

    def _note_outage(self, error: UnavailableError) -> None:
        """Remember why the candidate is out, for REMEMBERED seconds."""
        self._cache.keep(self._outage_path(), msgspec.json.encode((error.what, error.next_step, settings.now())))

    def _raise_if_out(self) -> None:
        """Raises UnavailableError when the candidate was out a moment ago.

        Asked only where a complete fall-back is at hand, so that an unchanged build needs neither network nor time.
        """
        outage = kept(self._outage_path(), tuple[str, str, float])
        if outage is not None and 0 <= settings.now() - outage[2] < REMEMBERED:
            raise UnavailableError(outage[0], next_step=outage[1])

    def _outage_path(self) -> Path:
        """Another mirror is another question."""
        mirror = hashlib.sha256((self._request.mirror or "").encode()).hexdigest()[:16]
        return self._path(f"{mirror}.out.json")

    def _path(self, ending: str) -> Path:
        return self._cache.path("resolutions", f"{self._digest}.{ending}")


def _none(
    context: ResolveContext, failures: Mapping[str, UnavailableError]
) -> ResolutionError | NetworkError | LockedError:
    recipe, variant, request = context.recipe, context.variant, context.request
    tried = "".join(f"\n    {name}: {failure.what}" for name, failure in failures.items())
    what = f"no candidate of {recipe.name} CUDA {variant.cuda} is available{tried}"
    step = next((failure.next_step for failure in failures.values() if failure.next_step), "")
    if request.locked:
        return LockedError(
            what,
            cause=f"{setting(locked=True).both()} builds from committed locks alone.",
            next_step=f"{command('lock', recipe.name, cuda=variant.cuda)}    (writes one), or leave "
            f"{setting(locked=True)} out",
        )
    if request.channel:
        return ResolutionError(
            what, cause=f"{setting(channel=request.channel)} forbids every other candidate.", next_step=step
        )
    if all(failure.unreachable for failure in failures.values()):
        cause = next((failure.cause for failure in failures.values() if failure.cause), "")
        return NetworkError(
            what, cause=cause or "None of the channels can be reached from this machine.", next_step=step
        )
    return ResolutionError(what, next_step=step)
