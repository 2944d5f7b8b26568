"""Presence of locked .debs on the servers of Debian's packages.

No file is fetched, so its size is compared and not its hash.
"""

import email.utils
import functools
import itertools
from collections.abc import Iterator, Sequence

from debroot import snapshot
from debroot.mirrors import addresses, is_path, is_time
from graphcrate.host.context import Context
from graphcrate.host.net import Client, HttpError
from graphcrate.inputs.bases.mirrors import archives
from graphcrate.model.lock import DebianPackage
from patienthttp.errors import server_of
from patienthttp.reach import Reach
from upkeep.standing.values import FilePlace, Kind, Sighting

_ENOUGH = 2  #: servers that have a file: the others are not asked
_TRIES = 2  #: more of one request


class Presence:
    """Looks for .debs in all servers. Safe from many threads."""

    def __init__(self, ctx: Context, reach: Reach, suite: str) -> None:
        self._known = archives(ctx.environment, suite=suite)
        self._client = Client(ctx.environment, note=ctx.progress.note)
        self._reach = reach

    def look(self, package: DebianPackage, times: Sequence[str]) -> tuple[Sighting, ...]:
        """Ask servers about a package, in the order in which a build asks them, until two have it.

        `times`: when the lists were made that locks took it from. A server counts once, for all its addresses.
        """
        sightings: dict[FilePlace, Sighting] = {}
        path = package.path if is_path(package.path) else ""  # a lock may be anybody's
        times = [time if is_time(time) else "" for time in times]
        urls = dict.fromkeys(url for time in times for url in addresses(path, time, self._known))
        for url in itertools.chain(urls, self._by_name(package, sightings)):
            place = FilePlace(self._kind(url), server_of(url))
            before = sightings.get(place)
            if before is None or not before.has:
                now = self._ask(place, url, package.file.size)
                # Of several addresses the one that says most: it is there, it is not, nothing.
                sightings[place] = now if before is None or before.has is None or now.has else before
            if sum(bool(sighting.has) for sighting in sightings.values()) == _ENOUGH:
                break
        return tuple(sightings.values())

    def placed(self, package: DebianPackage) -> float | None:
        """The time when a file came to the first mirror that says so (Last-Modified), in Unix seconds; else None."""
        for url in addresses(package.path if is_path(package.path) else "", "", self._known):
            try:
                answer = self._reach.ask(url, functools.partial(self._client.request, "HEAD", url, tries=_TRIES))
                return email.utils.parsedate_to_datetime(answer.headers.get("Last-Modified", "")).timestamp()
            except (HttpError, ValueError, OverflowError):
                continue
        return None

    def _kind(self, url: str) -> Kind:
        servers = self._known
        if url.startswith(f"{servers.snapshot}/"):
            return "snapshot"
        retired = (servers.retired.main, servers.retired.security)
        return "archive" if any(url.startswith(f"{root}/") for root in retired) else "mirror"

    def _ask(self, place: FilePlace, url: str, size: int) -> Sighting:
        try:
            bytes_there = self._reach.ask(url, lambda: self._client.size(url, tries=_TRIES))
        except HttpError as error:
            return Sighting.without(place, error.failure)
        if bytes_there != size:
            why = f"has another file there, of {bytes_there} bytes instead of {size}"
            return Sighting(place=place, has=False, why=why)
        return Sighting(place=place, has=True)

    def _by_name(self, package: DebianPackage, sightings: dict[FilePlace, Sighting]) -> Iterator[str]:
        """Yield the snapshot service's addresses of it by name, once all others failed; its absence is noted."""
        service = self._known.snapshot
        if not service or any(sighting.has for sighting in sightings.values()):
            return
        url = snapshot.question(service, package)
        place = FilePlace("snapshot", server_of(url))
        try:
            answer = self._reach.ask(url, lambda: self._client.request("GET", url))
            files = snapshot.files(service, package, answer.body)
        except HttpError as error:
            if error.failure.is_absent:
                sightings.setdefault(place, Sighting.without(place, error.failure))
            else:  # even if its addresses lack it: under its hash the service may have it
                sightings[place] = Sighting.without(place, error.failure)
        except ValueError:
            sightings[place] = Sighting(place=place, has=None, why="an answer that is not understood")
        else:
            if not files:
                why = f"has it for no {package.architecture}"
                sightings.setdefault(place, Sighting(place=place, has=False, why=why))
            yield from files
