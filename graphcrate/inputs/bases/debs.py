"""Locked .debs in the cache: each by its hash, from the first place that has it. No list of packages is needed.

A place that lacks a file, has other bytes, or does not answer is a line in the log while another place is left.
"""

import itertools
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from graphcrate.host.connections import HttpError
from graphcrate.host.context import Context
from graphcrate.host.http import Client
from graphcrate.host.parallel import Advance, parallel
from graphcrate.host.retry import TRIES
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.inputs.bases.archive import Archive
from graphcrate.inputs.bases.mirrors import Archives, addresses, archives
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, IntegrityError, NetworkError
from graphcrate.model.lock import DebianPackage
from graphcrate.model.words import joined

_THREADS = 8  #: small files from one server
_TRIES = 1  #: more of one request, while another place may have the file
_ABSENT = frozenset({401, 403, 404, 410, 451})  #: statuses of a server that does not give the file


def fetch(
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
    Raises BaseDriftError where no place has one, NetworkError where no place answers, DiskFullError, CacheError.
    """
    cache = ctx.cache
    places = {package: cache.file(package.file.sha256, package.file.name) for package in packages}
    if absent := [package for package, place in places.items() if not place.is_file()]:
        search = Search(ctx, listed)
        absent = _with_paths(absent, suite, components, ctx)
        total = sum(package.file.size for package in absent)
        with ctx.progress.task(f"Debian {suite}: {len(absent)} packages", total) as task, cache.guard():
            found = parallel(
                search.fetch, absent, threads=_THREADS, advance=task.advance, size=lambda package: package.file.size
            )
        search.sum_up()
        if gone := [package for package, is_there in zip(absent, found, strict=True) if not is_there]:
            raise search.failure(gone, f"Debian {suite} {what}")
    return list(places.values())


def _with_paths(
    packages: Sequence[DebianPackage], suite: str, components: Sequence[str], ctx: Context
) -> list[DebianPackage]:
    """The packages, those of old locks with the path that today's lists have for their very bytes."""
    if all(package.path for package in packages):
        return list(packages)
    try:
        paths = Archive(suite, ctx, components).paths()
    except (NetworkError, IntegrityError) as error:
        ctx.progress.note(f"{error.what}: the snapshot service is asked for what the lock has no path of")
        return list(packages)
    return [
        package if package.path else msgspec.structs.replace(package, path=paths.get(package.file.sha256, ""))
        for package in packages
    ]


class Search:
    """Looks for files in all places, and remembers which of them do not answer. Safe from many threads."""

    def __init__(self, ctx: Context, listed: str) -> None:
        self._known: Archives = archives(ctx.environment)
        self._cache = ctx.cache
        self._client = Client(ctx.environment)
        self._note: Callable[[str], None] = ctx.progress.note
        self._listed = listed
        self._silent: dict[str, str] = {}  #: servers that do not answer, and why
        self._lacking: Counter[str] = Counter()  #: addresses of a server that answers without the file
        self._lock = threading.Lock()

    def fetch(self, package: DebianPackage, advance: Advance) -> bool:
        """Bring the file into the cache; False where no place has it. Raises DiskFullError, CacheError."""
        file = package.file
        target = self._cache.file(file.sha256, file.name)
        with self._cache.exclusively(f"file-{file.sha256}"):
            if target.is_file():  # another process was faster
                advance(file.size)
                return True
            busy = [url for url in self._addresses(package) if self._attempt(package, url, advance, _TRIES)]
            found = target.is_file() or any(not self._attempt(package, url, advance, TRIES) for url in busy)
        return found and target.is_file()

    def _addresses(self, package: DebianPackage) -> Iterator[str]:
        """Where the file may be while nobody had it, last by what the snapshot service knows of its name."""
        target = self._cache.file(package.file.sha256, package.file.name)
        for url in itertools.chain(addresses(package.path, self._listed, self._known), self._by_name(package)):
            if target.is_file():
                return
            if server(url) not in self._silent:
                yield url

    def _by_name(self, package: DebianPackage) -> Iterator[str]:
        """The snapshot service's addresses of a package's file, by its name and version."""
        if not self._known.snapshot or server(self._known.snapshot) in self._silent:
            return
        name, version = urllib.parse.quote(package.name), urllib.parse.quote(package.version, safe=":+~")
        url = f"{self._known.snapshot}/mr/binary/{name}/{version}/binfiles"
        try:
            answer = codec.decode(self._client.request("GET", url).body, _Files)
        except HttpError as error:
            self._failed(package, url, error)
        except UNREADABLE:
            self._failed(package, url, IntegrityError("an answer that is not understood"))
        else:
            for one in answer.result:
                if one.architecture == package.architecture:
                    yield f"{self._known.snapshot}/file/{one.hash}"

    def _attempt(self, package: DebianPackage, url: str, advance: Advance, tries: int) -> bool:
        """Fetch the file from an address; whether that is worth another try later, as the server is only busy."""
        file, reported = package.file, 0
        partial = self._cache.path("partial", file.sha256)

        def counted(amount: int) -> None:
            nonlocal reported
            advance(amount)
            reported += amount

        try:
            self._client.download(url, partial, size=file.size, sha256=file.sha256, advance=counted, tries=tries)
        except (HttpError, IntegrityError) as error:
            advance(-reported)
            self._failed(package, url, error)
            return isinstance(error, HttpError) and error.is_temporary
        self._cache.adopt(partial, self._cache.file(file.sha256, file.name))
        return False

    def _failed(self, package: DebianPackage, url: str, error: HttpError | IntegrityError) -> None:
        """Take down why a place does not have a file: a line for each server, whose other failures are counted."""
        host, file = server(url), package.file.name
        why = error.constraint.partition(" (")[0] if isinstance(error, HttpError) else error.what
        with self._lock:
            is_new = host not in self._silent and host not in self._lacking
            if not isinstance(error, HttpError) or error.status in _ABSENT:
                self._lacking[host] += 1
            elif not error.is_temporary:  # whoever is not reached is not asked for the other files either
                is_new = host not in self._silent
                self._silent[host] = why
        if is_new or isinstance(error, IntegrityError):
            self._note(f"{host} does not give {file} ({why}): looking elsewhere")

    def sum_up(self) -> None:
        """Say how often a server had no file at an address."""
        for host, count in self._lacking.items():
            if count > 1:
                self._note(f"{host}: the locked file was not at {count} addresses")

    def failure(self, gone: Sequence[DebianPackage], what: str) -> BaseDriftError | NetworkError:
        """The error for packages that no place has: drift where at least one place answered."""
        shown = joined((f"{one.name} {one.version}" for one in gone), most=5)
        silent = "; ".join(f"{host}: {why}" for host, why in self._silent.items())
        if not self._lacking:
            return NetworkError(
                f"{len(gone)} packages of the lock's {what} cannot be fetched ({shown}): {silent}",
                cause="No mirror of Debian answers.",
                next_step="check the network; DEBIAN_MIRROR=http://a-mirror/debian make image …",
            )
        asked = ", ".join(self._lacking)
        return BaseDriftError(
            f"no place has {len(gone)} packages of the lock's {what}: {shown}",
            cause=f"Mirrors keep the newest version of a package only. Without them: {asked}."
            + (f" Not reached: {silent}." if silent else ""),
            next_step="DEBIAN_SNAPSHOT=http://a-mirror-of-the-snapshot-service make image …, or lock again: "
            "./build.py lock …",
        )


def server(url: str) -> str:
    """Host and port of an address, without user and password."""
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2]


class _Found(msgspec.Struct, frozen=True):
    """A file of a package at the snapshot service, by its SHA-1."""

    hash: str
    architecture: str


class _Files(msgspec.Struct, frozen=True):
    """The service's answer to /mr/binary/NAME/VERSION/binfiles (its machine-usable interface)."""

    result: tuple[_Found, ...]
