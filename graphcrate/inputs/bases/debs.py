"""Locked .debs in the cache: each by its hash, from the first server that has it. No list of packages is needed.

A server that lacks a file, has other bytes, or does not answer is a line in the log while another server is left.
"""

import itertools
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from debroot import snapshot
from debroot.mirrors import Archives, addresses, is_path, is_time
from graphcrate.compat.facts import suites
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.host.net import Client, HttpError
from graphcrate.host.parallel import Advance, parallel
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.inputs.bases.mirrors import archives
from graphcrate.model.command import AGAIN, LOCK_AGAIN
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.lock import DebianPackage, DebianSource, LockedFile
from graphcrate.model.words import joined, printable
from patienthttp.errors import ABSENT, redacted, server_of
from patienthttp.retry import TRIES

_THREADS = 8  #: small files from one server
_TRIES = 1  #: more of one request, while another server may have the file
_HOPELESS = 8  #: files that a server lacked, and it had none: it is asked last from then on
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.~_%-]*\.(?:deb|orig\.tar\.(?:gz|bz2|xz))")
_SHA256 = re.compile(r"[0-9a-f]{64}")

_Failure = HttpError | IntegrityError


def fetch_debs(
    packages: Sequence[DebianPackage],
    suite: str,
    ctx: Context,
    *,
    listed: str = "",
    components: Sequence[str] = (),
    what: str = "base",
) -> list[Path]:
    """The locked .debs in the cache, in this order, their hashes checked. `what` they are for stands in messages.

    `listed`: as in the lock. `components`: of the suite's lists, which are asked only for packages without a path.
    Raises IntegrityError for a lock that names what is no file of an archive, BaseDriftError where no server has one,
    NetworkError where no server answers, DiskFullError, CacheError.
    """
    _refuse_odd(packages, listed)
    cache = ctx.cache
    paths = {package: cache.file(package.file.sha256, package.file.name) for package in packages}
    if absent := [package for package in paths if not _is_stored(package.file, cache)]:
        search = DebSearch(ctx, listed, suite)
        absent = search.with_paths(absent, suite, components)
        total = sum(package.file.size for package in absent)
        with ctx.progress.task(f"{suites.titled(suite)}: {len(absent)} packages", total) as task, cache.guard():
            fetched = parallel(
                search.fetch, absent, threads=_THREADS, advance=task.advance, size=lambda package: package.file.size
            )
        search.sum_up()
        if gone := [package for package, is_there in zip(absent, fetched, strict=True) if not is_there]:
            raise search.failure(gone, f"{suites.titled(suite)} {what}")
    return list(paths.values())


def fetch_sources(sources: Sequence[DebianSource], ctx: Context) -> list[Path]:
    """The locked source archives in the cache, in this order, found and checked as .debs. Raises as `fetch_debs`."""
    return [
        path
        for source in sources
        for path in fetch_debs([source], source.suite, ctx, listed=source.listed, what="libraries to link with")
    ]


def _refuse_odd(packages: Iterable[DebianPackage], listed: str) -> None:
    """A lock may be anybody's. Raises IntegrityError for what would lead out of an archive, or out of the cache."""
    for package in packages:
        file = package.file
        named = _FILE_NAME.fullmatch(file.name) and _SHA256.fullmatch(file.sha256)
        if not (named and (not package.path or is_path(package.path))):
            raise IntegrityError(
                f"the lock names no file of a Debian archive for {package.name!r}: "
                + printable(f"{package.path or file.name}, sha256 {file.sha256}"),
                cause="The lock is damaged, or somebody made it to fetch or write something else.",
                next_step=f"make it again: {LOCK_AGAIN}",
            )
    if listed and not is_time(listed):
        raise IntegrityError(
            f"the lock names {listed!r} as the time when Debian's lists were made",
            cause="The lock is damaged: a time is written as 20261125T021215Z there.",
            next_step=f"make it again: {LOCK_AGAIN}",
        )


class DebSearch:
    """Looks for files in all servers, and remembers which of them do not answer. Safe from many threads."""

    def __init__(self, ctx: Context, listed: str, suite: str) -> None:
        self._ctx, self._cache, self._listed = ctx, ctx.cache, listed
        self._known: Archives = archives(ctx.environment, suite=suite)
        self._distribution = suites.distribution_of(suite)
        self._client = Client(ctx.environment, note=ctx.progress.note)
        self._note: Callable[[str], None] = ctx.progress.note
        self._lock = threading.Lock()
        self._silent: dict[str, str] = {}  #: servers that are not asked any more, and why
        self._busy: dict[str, str] = {}  #: servers that had no time for a file, and why
        self._lacking: dict[str, set[str]] = defaultdict(set)  #: by server, files (sha256) that it answered without
        self._serving: set[str] = set()  #: servers that gave a file
        self._noted: set[tuple[str, str]] = set()

    def with_paths(
        self, packages: Sequence[DebianPackage], suite: str, components: Sequence[str]
    ) -> list[DebianPackage]:
        """The packages, those of old locks with the path that today's lists have for their very bytes."""
        if all(package.path for package in packages):
            return list(packages)
        try:
            paths = SuiteArchive(suite, self._ctx, components, without_security=True).lists.paths()
        except (NetworkError, IntegrityError) as error:
            self._note(f"{error.what}: the snapshot service is asked for what the lock has no path of")
            return list(packages)
        lists = f"the lists of {suites.titled(suite)}"
        located = []
        for package in packages:
            path = package.path or paths.get(package.file.sha256, "")
            if not is_path(path):
                path = ""
                self._lacking[lists].add(package.file.sha256)
            located.append(msgspec.structs.replace(package, path=path))
        return located

    def fetch(self, package: DebianPackage, advance: Advance) -> bool:
        """Bring the file into the cache; False where no server has it. Raises DiskFullError, CacheError."""
        file, busy = package.file, list[str]()
        with self._cache.exclusively(f"file-{file.sha256}"):
            if _is_stored(file, self._cache):  # another process was faster
                advance(file.size)
                return True
            for host, urls in itertools.groupby(self._addresses(package), server_of):
                failures: dict[str, _Failure] = {}
                for url in urls:
                    failure = self._attempt(file, url, advance, _TRIES)
                    if failure is None:
                        return True
                    failures[url] = failure
                busy += self._take_down(host, file, failures)
            return any(self._attempt_patiently(file, url, advance) for url in busy)

    def _addresses(self, package: DebianPackage) -> Iterator[str]:
        """Possible addresses of the file, last by what the snapshot service knows of its name; no silent servers."""
        urls = list(addresses(package.path, self._listed, self._known))
        urls.sort(key=lambda url: self._is_hopeless(server_of(url)))
        for url in itertools.chain(urls, self._by_name(package)):
            if server_of(url) not in self._silent:
                yield url

    def _is_hopeless(self, host: str) -> bool:
        return host not in self._serving and len(self._lacking.get(host, ())) >= _HOPELESS

    def _by_name(self, package: DebianPackage) -> Iterator[str]:
        """The snapshot service's addresses of a package's file, by its name and version."""
        service = self._known.snapshot
        if not service or server_of(service) in self._silent:
            return
        url = snapshot.question(service, package)
        failure: _Failure
        try:
            files = snapshot.files(service, package, self._client.request("GET", url).body)
        except HttpError as error:
            failure = self._sorted(url, error)
        except ValueError:
            failure = IntegrityError(f"{redacted(url)}: an answer that is not understood")
        else:
            yield from files
            return
        if self._take_down(server_of(url), package.file, {url: failure}):
            self._busy[server_of(url)] = failure.why

    def _attempt(self, file: LockedFile, url: str, advance: Advance, tries: int) -> _Failure | None:
        """Fetch the file from an address into the cache; returns why that failed."""
        partial, reported = self._cache.path("partial", file.sha256), 0

        def counted(amount: int) -> None:
            nonlocal reported
            advance(amount)
            reported += amount

        try:
            self._client.download(url, partial, size=file.size, sha256=file.sha256, advance=counted, tries=tries)
        except (HttpError, IntegrityError) as error:
            advance(-reported)
            return self._sorted(url, error)
        self._cache.adopt(partial, self._cache.file(file.sha256, file.name))
        with self._lock:
            self._serving.add(server_of(url))
        return None

    def _attempt_patiently(self, file: LockedFile, url: str, advance: Advance) -> bool:
        """Fetch from a server that had no time before, now that no other server has the file."""
        host = server_of(url)
        if host in self._silent:
            return False
        failure = self._attempt(file, url, advance, TRIES)
        if failure is None:
            return True
        if self._take_down(host, file, {url: failure}):
            with self._lock:
                self._busy[host] = failure.why
                if host not in self._serving:  # it would keep each of the other files waiting for as long
                    self._silent[host] = failure.why
        return False

    def _sorted(self, url: str, failure: _Failure) -> _Failure:
        """Remember a server that is not reached, so that it is not asked for the other files either."""
        if isinstance(failure, HttpError) and failure.failure.status not in ABSENT and not failure.failure.is_temporary:
            with self._lock:
                self._silent[server_of(url)] = failure.why
            self._say(server_of(url), "silent", f"{server_of(url)}: {failure.why}; going on without it")
        return failure

    def _take_down(self, host: str, file: LockedFile, failures: Mapping[str, _Failure]) -> list[str]:
        """Remember that a server answered without the file, and say so once; returns the addresses that are busy."""
        wrong = [failure for failure in failures.values() if isinstance(failure, IntegrityError)]
        of_http = {url: failure for url, failure in failures.items() if isinstance(failure, HttpError)}
        absent = [failure for failure in of_http.values() if failure.failure.status in ABSENT]
        busy = {url: failure for url, failure in of_http.items() if failure.failure.is_temporary}
        if wrong:
            self._say(host, "wrong", f"{wrong[0].what}: looking elsewhere")
        if failures and len(wrong) + len(absent) == len(failures):
            with self._lock:
                self._lacking[host].add(file.sha256)
        if len(absent) == len(failures) > 0:
            self._say(host, "absent", f"{host} does not have {file.name} ({absent[0].why}): looking elsewhere")
        for failure in busy.values():
            self._say(host, "busy", f"{host}: {failure.why}; asked again where no other place has {file.name}")
        return list(busy)

    def _say(self, host: str, kind: str, line: str) -> None:
        """Say it, unless the like was said of this server."""
        with self._lock:
            is_new = (host, kind) not in self._noted
            self._noted.add((host, kind))
        if is_new:
            self._note(line)

    def sum_up(self) -> None:
        """Say of how many files a server had nothing."""
        for host, files in self._lacking.items():
            if len(files) > 1:
                self._note(f"{host} did not have {len(files)} of the locked packages")

    def failure(self, gone: Sequence[DebianPackage], what: str) -> BaseDriftError | NetworkError:
        """The error for packages that were nowhere: drift where for each of them a server answered."""
        answered = set().union(*self._lacking.values())
        unanswered = [package for package in gone if package.file.sha256 not in answered]
        distribution = self._distribution
        silent = "; ".join(f"{host}: {why}" for host, why in {**self._busy, **self._silent}.items())
        if unanswered:
            return NetworkError(
                f"{_named(unanswered)} of the lock's {what} cannot be fetched",
                cause=f"No mirror of {distribution.title} answers. {silent}".strip(),
                next_step=f"check the network; {distribution.another_mirror}",
            )
        service = distribution.variable("SNAPSHOT")
        asked = ", ".join(host for host, files in self._lacking.items() if files)
        return BaseDriftError(
            f"no place has {_named(gone)} of the lock's {what}",
            cause=f"Mirrors keep the newest version of a package only. Without them: {asked}."
            + (f" Not reached: {silent}." if silent else ""),
            next_step=f"{service}=http://a-mirror-of-the-snapshot-service {AGAIN}, or lock again: {LOCK_AGAIN}",
        )


def _is_stored(file: LockedFile, cache: Cache) -> bool:
    return cache.has_file(file.sha256, file.name, file.size)


def _named(packages: Sequence[DebianPackage]) -> str:
    shown = joined((f"{package.name} {package.version}" for package in packages), most=5)
    return f"{len(packages)} package{'s' * (len(packages) > 1)} ({shown})"
