"""The standing of locks: each file looked for where a build would, once for all locks; updates; yanked files.

Of wheels and sdists the pages of indexes are read, and the hash there is compared. Of .debs the size is asked for.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from graphcrate.compat.facts import suites
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.net import HttpError
from graphcrate.host.parallel import parallel
from graphcrate.host.progress import Task
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.model.errors import IntegrityError, LockedError, NetworkError
from graphcrate.model.lock import (
    DebianBase,
    DebianPackage,
    DebianToolkit,
    ImageToolkit,
    Lock,
    LockedFile,
    LockedPackage,
    RegistryBase,
    platform_of,
)  # fmt: skip
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import Channel
from graphcrate.model.words import joined, number_of
from graphcrate.resolve.sources import channels, search, wheel_mirrors
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link, Source, SourceKind
from patienthttp.errors import NoAnswer, server_of
from patienthttp.reach import Reach
from upkeep.standing import doubts
from upkeep.standing.presence import Presence
from upkeep.standing.values import (
    Counts,
    Doubt,
    FilePlace,
    FileStanding,
    Kind,
    LocksStanding,
    LockStanding,
    Sighting,
    Silent,
    SuiteLists,
    Update,
    is_single,
    state_of,
)  # fmt: skip

_THREADS = 8  #: small requests, most of them to one server


class LockQuery(NamedTuple):
    """A lock that is asked about. `recipe`: its name, or the path of the user's own; `renew`: what locks it again."""

    recipe: str
    path: str
    renew: str
    lock: Lock


def check(locks: Sequence[LockQuery], request: SourceOptions, ctx: Context) -> LocksStanding:
    """Check these locks. Raises UsageError for an unknown mirror, HostError; what is not reached is said."""
    reach = Reach()
    lists = _lists(locks, ctx)
    wheels, debs = _Wheels(locks, request, ctx, reach), _Debs(locks, ctx, reach, lists)
    total = len(wheels.named) + len(debs.named)
    with ctx.progress.task("looking for what the locks name", total, "files") as task:
        files = {entry.sha256: entry for entry in (*wheels.find(task), *debs.find(task))}
    return LocksStanding(
        date=settings.now_utc(),
        locks=tuple(_lock(entry, files, lists, debs) for entry in locks),
        files=tuple(files.values()),
        suites=tuple(entry.value for entry in lists.values()),
        silent=tuple(Silent(host, why) for host, why in reach.silent.items()),
    )


def raise_if_gone(standing: LocksStanding) -> None:
    """Raises LockedError where a file is nowhere any more, NetworkError where no server but this machine answers."""
    gone = {file.sha256: file for file in standing.files if file.state == "nowhere"}
    if gone:
        hit = [lock for lock in standing.locks if gone.keys() & set(lock.files)]
        raise LockedError(
            f"{len(gone)} locked {'files are' if len(gone) > 1 else 'file is'} nowhere any more: "
            f"{joined(file.name for file in gone.values())}, of {joined(lock.title for lock in hit)}",
            cause="No index that is set lists them, or no mirror, archive or snapshot of Debian that answers has them. "
            "A cache that has them still builds.",
            next_step=f"{hit[0].renew}    (takes what there is today)",
        )
    unknown = [file for file in standing.files if file.state == "unknown"]
    seen = (seen for file in standing.files for seen in file.sightings)
    if unknown and not any(sighting.has is not None and sighting.place.kind != "here" for sighting in seen):
        raise NetworkError(
            f"nothing can be said of {len(unknown)} locked files: no server that may have them answers",
            cause="; ".join(f"{server.host}: {server.why}" for server in standing.silent),
            next_step="check the network and the index that pip and uv are set to, then run the same command again",
        )


def _standing(package: LockedPackage | DebianPackage, sightings: Sequence[Sighting]) -> FileStanding:
    file = package.file
    return FileStanding(
        name=file.name,
        sha256=file.sha256,
        size=file.size,
        package=package.name,
        version=package.version,
        state=state_of(sightings),
        is_single=is_single(sightings),
        sightings=tuple(sightings),
    )


# --- wheels and sdists ------------------------------------------------------------------------------------------------


class _Wheel(NamedTuple):
    """A file, where it may be, and the offers of all locks that name it."""

    package: LockedPackage
    sources: tuple[Source, ...]
    offers: tuple[Offers, ...]


class _Wheels:
    """The wheels and sdists of locks, with build back-ends, on the pages of their channels."""

    def __init__(self, locks: Sequence[LockQuery], request: SourceOptions, ctx: Context, reach: Reach) -> None:
        self._note, self._reach = ctx.progress.note, reach
        self._sources = Sources(request, ctx.cache, ctx.environment, self._note)
        self._indexes: set[Source] = set()  #: that are no mirror
        self._named: set[Source] = set()  #: these and the mirror that was named
        self._own: dict[str, LockedPackage] = {}
        #: by sha256, each with all sources of all locks that name it
        self.named: dict[str, _Wheel] = {}
        for asked in locks:
            of_lock = Offers.of_lock(self._sources, asked.lock)
            for package in (*asked.lock.installed(), *asked.lock.for_compilation()):
                self._want(package, of_lock)

    def _want(self, package: LockedPackage, of_lock: Offers) -> None:
        sha256 = package.file.sha256
        if package.channel is Channel.LOCAL:
            self._own[sha256] = package
            return
        known, user = self.named.get(sha256, _Wheel(package, (), ())), self._sources.user
        of_channel = of_lock.of_channel(package.channel)
        without_mirror = SourceOptions()
        self._indexes |= {*channels.sources(package.channel, of_lock.torch, of_lock.torch_cuda, without_mirror, user)}
        self._named |= {*of_channel}
        self.named[sha256] = _Wheel(
            package, tuple(dict.fromkeys((*known.sources, *of_channel))), (*known.offers, of_lock)
        )

    def find(self, task: Task) -> Iterator[FileStanding]:
        """Find each file: where no source lists it, all are read again after a moment, then mirrors."""
        seen = self._look(list(self.named.values()), task)
        for pause in search.AGAIN:
            if missing := [wheel for wheel, sightings in seen if state_of(sightings) == "nowhere"]:
                self._note(f"{number_of(len(missing), 'file')} not listed: reading their pages again")
                self._sources.client.retry().sleep(pause)
                again = {wheel.package.file.sha256: sightings for wheel, sightings in self._look(missing, again=True)}
                seen = [(wheel, again.get(wheel.package.file.sha256, sightings)) for wheel, sightings in seen]
        missing = [wheel for wheel, sightings in seen if state_of(sightings) != "there"]
        mirrored = self._look([wheel._replace(sources=_copies(wheel)) for wheel in missing], most=1)
        more = {wheel.package.file.sha256: sightings for wheel, sightings in mirrored}
        for wheel, sightings in seen:
            yield _standing(wheel.package, (*sightings, *more.get(wheel.package.file.sha256, ())))
        for package in self._own.values():
            yield msgspec.structs.replace(_standing(package, ()), state="own")

    def _look(
        self, wheels: Sequence[_Wheel], task: Task | None = None, *, again: bool = False, most: int | None = None
    ) -> list[tuple[_Wheel, tuple[Sighting, ...]]]:
        """Look for each in its sources, up to the one with which `most` have it."""

        def look(wheel: _Wheel, _: object) -> tuple[Sighting, ...]:
            seen: list[Sighting] = []
            for source in wheel.sources:
                if sum(bool(sighting.has) for sighting in seen) != most:
                    seen.append(self._ask(source, wheel.package, again))
            (task or Task()).advance(1)
            return tuple(seen)

        return list(zip(wheels, parallel(look, wheels, threads=_THREADS), strict=True))

    def _ask(self, source: Source, package: LockedPackage, again: bool) -> Sighting:
        """Tell whether a source lists the locked file: by name and hash or, where none is stated, by size."""
        server, file = self._server(source), package.file
        read = functools.partial(self._sources.listings.project, source, package.name, again=again)
        try:
            if server.kind == "copy":
                self._reach.ask(source.location, functools.partial(self._knock, source))
            links = read() if server.kind == "here" else self._reach.ask(source.location, read)
            same_name = [link for link in links if link.name == file.name]
            link = next((link for link in same_name if self._is_it(link, file)), None)
        except HttpError as error:
            return Sighting.without(server, error.failure)
        except NetworkError as error:
            return Sighting(place=server, has=None, why=error.what)
        if link is None:
            why = "has another file under this name" if same_name else "does not list it"
            return Sighting(place=server, has=False, why=why)
        return Sighting(place=server, has=True, yanked=link.yanked, yanked_for=link.yanked_for)

    def _knock(self, source: Source) -> None:
        """Raises HttpError where a mirror that the user did not name takes no connection: no time-out is waited for."""
        if not self._sources.client.reaches(source.location, wheel_mirrors.KNOCK):
            raise HttpError.of(NoAnswer.NO_ANSWER, source.location)

    def _is_it(self, link: Link, file: LockedFile) -> bool:
        if link.sha256 or link.url.startswith("file:"):
            return link.sha256 in ("", file.sha256)
        return self._reach.ask(link.url, lambda: self._sources.client.size(link.url)) == file.size

    def _server(self, source: Source) -> FilePlace:
        if source.kind is SourceKind.FOLDER or source.location.startswith("file:"):
            return FilePlace("here", source.location)
        kind: Kind = "index" if source in self._indexes else "mirror" if source in self._named else "copy"
        return FilePlace(kind, server_of(source.location))


def _copies(wheel: _Wheel) -> tuple[Source, ...]:
    """Public mirrors that a build asks last."""
    mirrors = (source for of_lock in wheel.offers for source in of_lock.last_resort(wheel.package.channel))
    return tuple(dict.fromkeys(mirrors))


# --- Debian -----------------------------------------------------------------------------------------------------------


_Suite = tuple[str, Platform]  #: a suite's name, and whose packages are meant


class _Lists(NamedTuple):
    """A suite's lists of today, None where there are none."""

    value: SuiteLists
    archive: SuiteArchive | None


def _lists(locks: Iterable[LockQuery], ctx: Context) -> dict[_Suite, _Lists]:
    """Today's lists of the suites of all bases."""
    names = sorted({_suite_of(base) for asked in locks for _, base in asked.lock.debian_bases}, key=_order)
    lists: dict[_Suite, _Lists] = {}
    if names:
        with ctx.progress.task("reading Debian's lists", len(names), "suites" if names[1:] else "suite") as task:
            for suite in names:
                lists[suite] = _of_suite(*suite, ctx)
                task.advance(1)
    return lists


def _suite_of(base: DebianBase) -> _Suite:
    return base.suite, platform_of(base)


def _order(suite: _Suite) -> tuple[str, bool, str]:
    name, platform = suite
    return name, platform != DEFAULT, platform.name


def _of_suite(suite: str, platform: Platform, ctx: Context) -> _Lists:
    kept, shown = suites.described(suite, settings.today()), "" if platform == DEFAULT else platform.name
    try:
        archive = SuiteArchive(suite, ctx, platform=platform, without_security=True)
    except (NetworkError, IntegrityError) as error:
        return _Lists(SuiteLists(suite=suite, platform=shown, kept=kept, error=error.what), None)
    value = SuiteLists(suite=suite, platform=shown, kept=kept, listed=archive.listed, has_security=archive.has_security)
    return _Lists(value, archive)


class _Debs:
    """The .debs of locks: of bases and toolkits."""

    def __init__(self, locks: Sequence[LockQuery], ctx: Context, reach: Reach, lists: Mapping[_Suite, _Lists]) -> None:
        self._presences: dict[str, Presence] = {}  #: by the sha256 of a .deb
        self.named: dict[str, DebianPackage] = {}
        self._times: dict[str, dict[str, None]] = {}
        self._lists, self._doubts = lists, dict[DebianBase, tuple[Doubt, ...]]()
        self._reached = functools.cache(lambda suite: Presence(ctx, reach, suite))
        paths = {}
        for entry in lists.values():
            paths.update(entry.archive.lists.paths() if entry.archive else {})
        for asked in locks:
            for suite, listed, package in _debian(asked.lock):
                sha256 = package.file.sha256
                self._presences[sha256] = self._reached(suite)
                path = package.path or paths.get(sha256, "")
                self.named.setdefault(sha256, msgspec.structs.replace(package, path=path))
                self._times.setdefault(sha256, {})[listed] = None

    def find(self, task: Task) -> list[FileStanding]:
        def look(package: DebianPackage, _: object) -> FileStanding:
            sha256 = package.file.sha256
            standing = _standing(package, self._presences[sha256].look(package, list(self._times[sha256])))
            task.advance(1)
            return standing

        return parallel(look, list(self.named.values()), threads=_THREADS)

    def doubts(self, lock: Lock) -> tuple[Doubt, ...]:
        """Yield what today's lists say against those that a lock's bases are from; each base is asked about once."""
        for of, base in lock.debian_bases:
            archive = self._lists[_suite_of(base)].archive
            if base not in self._doubts and archive is not None:
                self._doubts[base] = tuple(doubts.of_base(of, base, archive, self._reached(base.suite)))
        return tuple(doubt for _, base in lock.debian_bases for doubt in self._doubts.get(base, ()))


def _debian(lock: Lock) -> Iterator[tuple[str, str, DebianPackage]]:
    """A lock's .debs and Debian's sources, each with its suite and when the lists were made that named it."""
    for _, base in lock.debian_bases:
        yield from ((base.suite, base.listed, package) for package in base.packages)
    if lock.compilation is not None and isinstance(toolkit := lock.compilation.toolkit, DebianToolkit):
        yield from ((toolkit.suite, toolkit.listed, package) for package in toolkit.packages)
    if lock.compilation is not None:
        yield from ((source.suite, source.listed, source) for source in lock.compilation.linked)


# --- one lock ---------------------------------------------------------------------------------------------------------


def _lock(
    asked: LockQuery, files: Mapping[str, FileStanding], lists: Mapping[_Suite, _Lists], debs: "_Debs"
) -> LockStanding:
    lock = asked.lock
    packages: list[LockedPackage | DebianPackage] = [*lock.installed(), *lock.for_compilation()]
    packages += (package for _, _, package in _debian(lock))
    own = [files[sha256] for sha256 in dict.fromkeys(package.file.sha256 for package in packages)]
    there = [file for file in own if file.state == "there"]
    elsewhere = sum(file.is_elsewhere for file in own)
    counts = Counts(
        files=len(own),
        usual=len(there) - elsewhere,
        elsewhere=elsewhere,
        single=sum(file.is_single for file in own),
        nowhere=sum(file.state == "nowhere" for file in own),
        unknown=sum(file.state == "unknown" for file in own),
        own=sum(file.state == "own" for file in own),
        yanked=sum(file.is_yanked for file in own),
    )
    toolkit = lock.compilation.toolkit if lock.compilation else None
    images = (entry for entry in (lock.base, toolkit) if isinstance(entry, RegistryBase | ImageToolkit))
    return LockStanding(
        recipe=asked.recipe,
        cuda=lock.cuda,
        candidate=lock.candidate,
        platform="" if lock.platform == DEFAULT else lock.platform.name,
        path=asked.path,
        renew=asked.renew,
        counts=counts,
        files=tuple(file.sha256 for file in own),
        suites=tuple(dict.fromkeys(base.suite for _, base in lock.debian_bases)),
        updates=_updates(lock, lists),
        images=tuple(f"{image.reference}@{image.digest}" for image in images),
        doubts=debs.doubts(lock),
    )


def _updates(lock: Lock, lists: Mapping[_Suite, _Lists]) -> tuple[Update, ...]:
    """List newer packages of today, the security archive's first; of the compiler's base what the image's lacks."""
    updates: dict[tuple[str, str], Update] = {}
    for of, base in lock.debian_bases:
        if (archive := lists[_suite_of(base)].archive) is None:
            continue
        for package in base.packages:
            if (newer := archive.lists.newer(package)) is not None:
                newest, is_security = newer
                update = Update(
                    of=of, name=package.name, locked=package.version, newest=newest, is_security=is_security
                )
                updates.setdefault((package.name, package.version), update)
    return tuple(sorted(updates.values(), key=lambda update: (not update.is_security, update.name)))
