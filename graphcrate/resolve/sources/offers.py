"""Offers of a candidate's channels: the newest fitting wheel, or why there is no such wheel."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from graphcrate.host.net import HttpError
from graphcrate.model.command import setting
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.lock import Lock
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.resolve.sources.channels import address_of, sources
from graphcrate.resolve.sources.failures import source_name
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link, Source, SourceKind
from graphcrate.resolve.sources.storing import locked_file
from graphcrate.resolve.sources.wheel_mirrors import KNOCK, PYTORCH_MIRRORS, asks_public_mirrors, public_mirrors
from graphcrate.resolve.sources.witnessing import witnessed
from patienthttp.errors import OF_THE_PROXY, FetchFailure

if TYPE_CHECKING:
    from packaging.version import Version

    from graphcrate.resolve.sources.target import WheelTarget

FIXES = {
    **dict.fromkeys(CHANNELS, f"put the wheels in a folder: {setting(wheels='/path')}"),
    Channel.PYTORCH: "try a mirror: " + " or ".join(str(setting(mirror=name)) for name in PYTORCH_MIRRORS),
    Channel.LOCAL: f"name a folder that has a torch wheel: {setting(wheels='/path')}",
    Channel.PYPI: "check the network and the index that pip and uv are set to",
}


class Offer(msgspec.Struct, frozen=True):
    """A wheel or an sdist that a channel has. `unreachable`: channels that may have a wheel and did not answer."""

    name: str  #: normalised
    version: str
    channel: Channel
    link: Link
    unreachable: tuple[Channel, ...] = ()
    commit: str = ""  #: of the repository that an sdist was packed of
    index: str = ""  #: as in LockedPackage

    @property
    def is_sdist(self) -> bool:
        return not self.link.name.endswith(".whl")


class UnavailableError(NetworkError):
    """A channel does not have what is needed, in a few words. `unreachable`: no source answered."""

    unreachable: bool = False


def unavailable(
    channel: Channel, reasons: list[str], *, unreachable: bool, proxy: FetchFailure | None = None
) -> UnavailableError:
    """The error for these reasons, one per source. `proxy`: its failure, for which no other channel is a help."""
    fix, cause = (proxy.next_step, proxy.cause) if proxy else (FIXES[channel], "")
    what = f"{channel} channel: {'; '.join(dict.fromkeys(reasons))}"
    error = UnavailableError(what, cause=cause, next_step=fix)
    error.unreachable = unreachable
    return error


class Offers:
    """The sources of one candidate: those for `torch` (exact version) built for `torch_cuda`."""

    def __init__(self, sources: Sources, torch: str, torch_cuda: str) -> None:
        self.sources, self.torch, self.torch_cuda = sources, torch, torch_cuda

    @classmethod
    def of_lock(cls, sources: Sources, lock: Lock) -> "Offers":
        """Those for the torch of a lock."""
        torch = lock.package("torch")
        return cls(sources, torch.version if torch else "", lock.torch_cuda)

    def of_channel(self, channel: Channel) -> tuple[Source, ...]:
        """The sources to look in, in order."""
        return sources(channel, self.torch, self.torch_cuda, self.sources.request, self.sources.user)

    def last_resort(self, channel: Channel) -> tuple[Source, ...]:
        """Public mirrors to ask for a locked file that no source of its channel gives.

        None for the package index where the user has one: a company's names are not for others.
        """
        mirrors = public_mirrors(channel, self.torch, self.torch_cuda)
        if not mirrors or not asks_public_mirrors(self.sources.environment):
            return ()
        if channel == Channel.PYPI and self.sources.has_own_index:
            return ()
        asked = self.of_channel(channel)
        return tuple(source for source in mirrors if source not in asked)

    def may_have_mirror(self, channel: Channel) -> bool:
        """Return whether a mirror that the user names could give what its sources do not, and was not asked."""
        return bool(public_mirrors(channel, self.torch, self.torch_cuda)) and not self.last_resort(channel)

    def _asked(self, channel: Channel, project: str) -> Iterator[tuple[Source, tuple[Link, ...] | NetworkError]]:
        """Yield each source's links to a project (normalised name), or why it does not say, in order."""
        for source in self.of_channel(channel):
            if not source.gives(project):
                continue
            try:
                yield source, self.sources.listings.project(source, project)
            except NetworkError as error:
                yield source, error

    def listed(self, channel: Channel, project: str) -> Iterator[tuple[Link, ...]]:
        """Yield the links to a project (normalised name) of each source of a channel that answers, in order."""
        return (links for _, links in self._asked(channel, project) if not isinstance(links, NetworkError))

    def newest(
        self, channel: Channel, project: str, target: "WheelTarget", accept: Callable[["Version"], bool], what: str
    ) -> Offer:
        """The newest accepted version's best wheel, of the first source with one. Raises UnavailableError."""
        reasons, unreachable, proxy = [], True, None
        for source, links in self._asked(channel, project):
            if isinstance(links, NetworkError):
                is_absent = isinstance(links, HttpError) and links.failure.status == 404
                has_none = f"{source.title} has no project {project} (HTTP 404)"
                reasons.append(has_none if is_absent and source.kind is SourceKind.INDEX else links.brief)
                if isinstance(links, HttpError) and links.failure.kind in OF_THE_PROXY:
                    proxy = links.failure
                unreachable = unreachable and not is_absent
                continue
            unreachable = False
            if chosen := _newest(links, accept, lambda name: target.rank(name) is not None):
                version, fitting = chosen
                ordered = target.ordered(fitting)
                for link in ordered if channel is not Channel.PYPI else ordered[:1]:
                    given = self._had(link, channel, project)
                    if isinstance(given, Link):
                        return Offer(project, version, channel, given)
                    reasons.append(f"{source.title} lists {link.name}, which {' and '.join(given)}")
                continue
            reasons.append(f"{source.title} {_without_wheel(links, accept, project, what, target.python)}")
        if not reasons:
            raise unavailable(channel, ["no folder of wheels is named"], unreachable=False)
        raise unavailable(channel, reasons, unreachable=unreachable, proxy=proxy)

    def takes_connection(self, channel: Channel) -> bool:
        """Return whether a channel that no candidate names is reached; that it is not is said, without a time-out."""
        known, client = self.sources.failures, self.sources.client
        for source in self.of_channel(channel):
            server = source_name(source.location)
            is_new = server not in known.silent
            if known.knocked(client, source.location) is None:
                return True
            if is_new:
                self.sources.note(f"{server} is not reached: {channel} is not asked for extensions")
        return False

    def newest_sdist(
        self, project: str, accept: Callable[["Version"], bool], unreachable: tuple[Channel, ...]
    ) -> Offer | None:
        """The newest accepted version's sdist, of the first package index that has one; else None."""
        for links in self.listed(Channel.PYPI, project):
            if chosen := _newest(links, accept, lambda name: not name.endswith(".whl")):
                return Offer(project, chosen[0], Channel.PYPI, chosen[1][-1], unreachable)
        return None

    def releases(self, project: str) -> Iterator[Offer]:
        """All files of a project (normalised name) at the package indexes that were not taken back.

        Of one that an index of a requirements file gives, those that it has: uv takes no others.
        """
        from graphcrate.resolve.sources.target import project_and_version

        first = None
        with contextlib.suppress(NetworkError):
            first = self.named(project)
        pages = [self.sources.listings.project(first, project)] if first else self.listed(Channel.PYPI, project)
        for links in pages:
            for link in links:
                if not link.yanked and (known := project_and_version(link.name)):
                    yield Offer(project, str(known[1]), Channel.PYPI, link, index=first.where if first else "")

    def named(self, project: str) -> Source | None:
        """The first server of a requirements file that has a project which that file names; None: no such file does.

        Raises NetworkError where it does not say.
        """
        for source in self.sources.user.further:
            if source.names is not None and source.gives(project):
                try:
                    if self.sources.listings.project(source, project):
                        return source
                except NetworkError as error:
                    if not _is_absent(error):
                        raise
        return None

    def elsewhere(self, project: str) -> Source | None:
        """A server of a requirements file that has a project which that file does not name."""
        for source in self.sources.user.further:
            if not source.gives(project):
                with contextlib.suppress(NetworkError):
                    if self.sources.listings.project(source, project):
                        return source
        return None

    def unanswered(self, project: str) -> NetworkError | None:
        """Explain why a package index did not list a project; None where all did, even as missing."""
        answers = (answer for _, answer in self._asked(Channel.PYPI, project) if isinstance(answer, NetworkError))
        return next((error for error in answers if not _is_absent(error)), None)

    def _had(self, link: Link, channel: Channel, project: str) -> Link | list[str]:
        """Return the link with hash and size, from the first server that gives the file; or why none does.

        A page of PyTorch's or PyG's and the files that it lists may be on two servers, of which a site blocks one.
        Files of the package index are chosen and asked for by uv. Raises IntegrityError as `witnessed`.
        """
        stated = self._with_hash(link, channel, project)
        if channel is Channel.PYPI:
            return stated
        if link.name in self.sources.ungiven:
            return [f"no source gave ({self.sources.ungiven[link.name].brief})"]
        link = witnessed(stated, channel)
        refused: dict[str, str] = {}
        for address in self._addresses(link, channel):
            server = source_name(address)
            try:
                placed = msgspec.structs.replace(link, url=address)
                file = locked_file(placed, self.sources.client, self.sources.cache, self.sources.progress)
            except (NetworkError, IntegrityError) as error:
                refused.setdefault(server, f"{server} does not give ({error.brief})")
            else:
                is_stated = bool(stated.sha256)
                return msgspec.structs.replace(placed, sha256=file.sha256, size=file.size, is_hash_stated=is_stated)
        return [*refused.values()]

    def _addresses(self, link: Link, channel: Channel) -> Iterator[str]:
        """Yield where a file may be: what the page says and, of one whose hash is known, where each source keeps it."""
        yield link.url
        asked = {link.url, ""}
        if not link.sha256:
            return
        for source in self.of_channel(channel):
            if (address := address_of(channel, source, link.name)) not in asked:
                asked.add(address)
                yield address
        for source in self.last_resort(channel):
            address = address_of(channel, source, link.name)
            if address not in asked and self.sources.client.reaches(address, KNOCK):
                yield address

    def _with_hash(self, link: Link, channel: Channel, project: str) -> Link:
        """Add the hash that another source states, where this one states none."""
        if not link.sha256:
            for links in self.listed(channel, project):
                for other in links:
                    if other.name == link.name and other.sha256:
                        return msgspec.structs.replace(link, sha256=other.sha256)
        return link


def _newest(
    links: tuple[Link, ...], accept: Callable[["Version"], bool], fits: Callable[[str], bool]
) -> tuple[str, list[Link]] | None:
    """The newest accepted version, a final release where there is one, and its files whose names fit."""
    from graphcrate.resolve.sources.target import project_and_version

    versions: dict[Version, list[Link]] = {}
    for link in links:
        if not link.yanked and fits(link.name) and (known := project_and_version(link.name)) and accept(known[1]):
            versions.setdefault(known[1], []).append(link)
    if not versions:
        return None
    newest = max([version for version in versions if not version.is_prerelease] or versions)
    return str(newest), versions[newest]


def _without_wheel(
    links: tuple[Link, ...], accept: Callable[["Version"], bool], project: str, what: str, python: str
) -> str:
    """Explain why no wheel that a source lists of a project fits: three cases, each with its own remedy."""
    if not links:
        return f"has no project {project}"
    if not (newest := _newest(links, accept, lambda _: True)):
        return f"has no {what}"
    wheels = [link.name for link in newest[1] if link.name.endswith(".whl")]
    if not wheels:
        return f"has {what} as source only"
    tags = sorted({tag for name in wheels for tag in name.removesuffix(".whl").split("-")[-3].split(".")})
    return f"has wheels of {what}, none for cp{python.replace('.', '')} ({', '.join(tags)})"


def _is_absent(error: NetworkError) -> bool:
    return isinstance(error, HttpError) and error.failure.is_absent
