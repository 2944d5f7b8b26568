"""Look for a locked wheel or sdist in source after source, each only when none before it gave the file.

A file is its hash, so any source may give it. A source that lacks it, has other bytes or does not answer ends nothing
while another is left.
"""

from collections.abc import Callable, Iterable, Iterator

from graphcrate.host.net import HttpError
from graphcrate.model.errors import GraphcrateError, IntegrityError, NetworkError
from graphcrate.model.lock import LockedPackage
from graphcrate.resolve.sources.channels import address_of
from graphcrate.resolve.sources.failures import source_name
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.source import Link, Source, SourceKind
from graphcrate.resolve.sources.storing import UnreadableFileError
from patienthttp.errors import ABSENT
from patienthttp.retry import TRIES

AGAIN = (1.0, 4.0)  #: pauses, in seconds, before the pages that do not list a locked file are read again
FEW = 1  #: more tries of one request, while another source may have the file


class FileSearch:
    """One locked file, looked for in all sources. `failures`: what they said, in order, for the user."""

    def __init__(
        self, package: LockedPackage, offers: Offers, begin: Callable[[], None] = lambda: None, *, quiet: bool
    ) -> None:
        """`begin` is called before each source is asked, and may raise to end the search; `quiet` notes nothing."""
        self.package = package
        self.failures: list[str] = []
        self.answered = False  #: a source said that it does not have the file
        self._offers, self._known, self._begin, self._quiet = offers, offers.sources.failures, begin, quiet
        self._came: dict[str, GraphcrateError] = {}  # address → why not
        self._unlisted: set[str] = set()  # addresses that no page has: that nothing is there means nothing
        self._told: set[tuple[str, str]] = set()
        self._unsaid: list[tuple[str, str]] = []
        self._busy: list[Source | Link] = []

    @property
    def only_other_bytes(self) -> bool:
        """Return whether some address gave something, and all of them other bytes than the lock names."""
        return bool(self._came) and all(isinstance(error, IntegrityError) for error in self._came.values())

    @property
    def unreadable(self) -> UnreadableFileError | None:
        """Explain why a local file could not be read, if the lock's bytes are nowhere else."""
        errors = list(self._came.values())
        return next((error for error in errors if isinstance(error, UnreadableFileError)), None)

    def links(self) -> Iterator[tuple[Link, int]]:
        """Yield links to the file, each with its number of tries, until the caller has it.

        First the channel's own sources, whose pages are read again where none lists the file: a server behind an
        address may be older than the one before. Then where they keep such files, listed or not: a mirror's page may
        lead to a server that is blocked here. Then public mirrors. Last, with patience, busy servers.
        """
        channel = self.package.channel
        own = [source for source in self._offers.of_channel(channel) if source.gives(self.package.name)]
        for pause in (0.0, *AGAIN):
            is_listed = lags = False
            if pause:
                self._begin()
                self._offers.sources.client.retry().sleep(pause)
            for source in own:
                listed = self._listed(source, FEW, again=pause > 0)
                is_listed = is_listed or bool(listed)
                lags = lags or (listed is not None and source.kind is not SourceKind.FOLDER)
                yield from self._to_try(listed or (), FEW)
            if is_listed or not lags:
                break
        yield from self._to_try(self._kept_by(own), FEW)
        for source in self._offers.last_resort(channel):
            if self._takes_connection(source):
                yield from self._to_try(self._listed(source, FEW) or (), FEW)
                yield from self._to_try(self._kept_by([source]), FEW)
        for busy in tuple(self._busy):
            if isinstance(busy, Link):
                self._turn(source_name(busy.url))
                yield busy, TRIES
            else:
                yield from self._to_try(self._listed(busy, TRIES) or (), TRIES)

    def is_offered(self) -> bool:
        """Return whether some source lists the file, or has one of its size where it keeps such files."""
        for link, tries in self.links():
            if link.url.startswith("file:"):
                return True
            try:
                if self._offers.sources.client.size(link.url, tries=tries) == self.package.file.size:
                    return True
                self._came[link.url] = IntegrityError(f"{source_name(link.url)} has a file of another size")
            except HttpError as error:
                self.failed(link, error)
        return False

    def failed(self, link: Link, error: NetworkError | IntegrityError | UnreadableFileError) -> None:
        """Take down that the file did not come from there."""
        if link.url in self._unlisted and isinstance(error, HttpError) and error.failure.status in ABSENT:
            return
        self._came[link.url] = error
        self._take_down(source_name(link.url), error, error.what)
        if isinstance(error, HttpError) and error.failure.is_temporary:
            self._try_later(link)

    def _kept_by(self, sources: Iterable[Source]) -> Iterator[Link]:
        """Yield where these sources have the file if they have it; the hash decides."""
        file = self.package.file
        for source in sources:
            address = address_of(self.package.channel, source, file.name)
            if address and address not in self._unlisted:
                self._unlisted.add(address)
                yield Link(name=file.name, url=address, sha256=file.sha256)

    def _to_try(self, links: Iterable[Link], tries: int) -> Iterator[tuple[Link, int]]:
        """Those that have not been tried, of servers that may answer."""
        for link in links:
            server = source_name(link.url)
            if link.url in self._came:
                continue
            if (error := self._known.silent.get(server)) is not None:
                self._take_down(server, error, error.what)
            elif server in self._known.slow and tries == FEW:
                self._try_later(link)
            else:
                self._turn(server)
                yield link, tries

    def _listed(self, source: Source, tries: int, *, again: bool = False) -> list[Link] | None:
        """The links of a source that may be the file; None where it does not say what it has."""
        server, name = source_name(source.location), self.package.file.name
        if server in self._known.slow and tries == FEW:
            self._try_later(source)
            return None
        self._turn(server)
        try:
            if (error := self._known.silent.get(server)) is not None:
                raise error
            offered = self._offers.sources.listings.project(source, self.package.name, again=again, tries=tries)
        except NetworkError as error:
            self._take_down(server, error, error.brief)
            if isinstance(error, HttpError) and error.failure.is_temporary:
                self._try_later(source)
            return None
        same_name = [link for link in offered if link.name == name]
        fitting = [link for link in same_name if link.sha256 in ("", self.package.file.sha256)]
        if not fitting:
            self.answered = True
            what = f"has another file as {name} (sha256 differs)" if same_name else f"does not list {name}"
            self._add(server, "it has another file of this name" if same_name else "it is not listed")
            self.failures.append(f"{source.title} {what}")
        return fitting

    def _takes_connection(self, source: Source) -> bool:
        """Return whether a public mirror can be reached at all: where it cannot, no time-out is waited for."""
        server = source_name(source.location)
        if server not in self._known.silent:
            self._turn(server)
        if (error := self._known.knocked(self._offers.sources.client, source.location)) is not None:
            self._take_down(server, error, error.brief)
        return error is None

    def _try_later(self, source: Source | Link) -> None:
        """Have a source asked when no other has the file."""
        if source not in self._busy:
            self._busy.append(source)

    def _take_down(self, server: str, error: GraphcrateError, text: str) -> None:
        """Remember why a source did not give the file, and what that means for other files."""
        self.failures.append(text)
        if isinstance(error, IntegrityError):
            self.answered = True
            self._add(server, "it has other bytes")
            return
        if isinstance(error, HttpError):
            self.answered = self.answered or error.failure.status in ABSENT
        self._known.remember(server, error)
        self._add(server, error.why if isinstance(error, NetworkError) else text)

    def _add(self, server: str, why: str) -> None:
        """Have a reason said when the search goes on, once."""
        if (server, why) not in self._told:
            self._told.add((server, why))
            self._unsaid.append((server, why))

    def _turn(self, server: str) -> None:
        """Go on to a source: why others did not give the file is said now, and is not where there is no other."""
        self._begin()
        for other, why in self._unsaid if not self._quiet else ():
            if other != server:
                self._known.say(other, why, self.package.file.name)
        self._unsaid = [(other, why) for other, why in self._unsaid if other == server]
