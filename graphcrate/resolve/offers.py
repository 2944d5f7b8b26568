"""What the channels of a candidate offer: the newest fitting wheel, or why there is none."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from graphcrate.compat.request import SourceOptions
from graphcrate.model.errors import NetworkError
from graphcrate.model.recipe import Channel
from graphcrate.resolve.channels import PYTORCH_MIRRORS, sources

if TYPE_CHECKING:
    from packaging.version import Version

    from graphcrate.host.cache import Cache
    from graphcrate.host.http import Client
    from graphcrate.resolve.channels import Link, Source
    from graphcrate.resolve.index import Listings
    from graphcrate.resolve.target import Target
    from graphcrate.resolve.user_index import UserIndexes


class Offer(msgspec.Struct, frozen=True):
    """A wheel or an sdist that a channel has."""

    channel: Channel
    link: "Link"
    version: str


class UnavailableError(NetworkError):
    """A channel does not have what is needed. `constraint` in a few words; `unreachable`: no source answered."""

    constraint: str = ""
    fix: str = ""
    unreachable: bool = False

    @classmethod
    def of(cls, channel: Channel, reasons: list[str], *, unreachable: bool) -> "UnavailableError":
        """The error for these reasons, one per source."""
        error = cls(f"{channel} channel: {'; '.join(dict.fromkeys(reasons))}")
        error.constraint, error.fix, error.unreachable = error.what, FIXES[channel], unreachable
        error.next_step = error.fix
        return error

    def __reduce__(self) -> tuple[object, ...]:
        return *super().__reduce__(), dict(self.__dict__)


FIXES = {
    Channel.PYTORCH: "try a mirror: MIRROR=" + " or MIRROR=".join(PYTORCH_MIRRORS),
    Channel.LOCAL: "name a folder that has a torch wheel: WHEELS=/path",
    Channel.PYPI: "check the network and the index that pip and uv are set to",
    Channel.PYG: "put the wheels in a folder: WHEELS=/path",
}


class Sources:
    """One request's way to all sources. Nothing is opened, imported or asked before it is needed."""

    def __init__(self, request: SourceOptions, cache: "Cache", environment: Mapping[str, str]) -> None:
        self.request = request
        self.cache = cache
        self.environment = environment

    @functools.cached_property
    def client(self) -> "Client":
        """The HTTP client."""
        from graphcrate.host.http import Client

        return Client(self.environment)

    @functools.cached_property
    def listings(self) -> "Listings":
        """Pages read so far."""
        from graphcrate.resolve.index import Listings

        return Listings(self.client)

    @functools.cached_property
    def user(self) -> "UserIndexes":
        """The user's own indexes."""
        from graphcrate.resolve import uv
        from graphcrate.resolve.user_index import user_indexes

        return user_indexes(self.environment, lambda: uv.emitted_indexes(self.environment))


class Offers:
    """The sources of one candidate: those for `torch` (exact version) built for `torch_cuda`."""

    def __init__(self, market: Sources, torch: str, torch_cuda: str) -> None:
        self.market = market
        self._torch, self._torch_cuda = torch, torch_cuda

    def sources(self, channel: Channel) -> tuple["Source", ...]:
        """Where to look, in order."""
        return sources(
            channel,
            torch=self._torch,
            torch_cuda=self._torch_cuda,
            request=self.market.request,
            user=self.market.user,
        )

    def newest(
        self, channel: Channel, project: str, target: "Target", accept: Callable[["Version"], bool], what: str
    ) -> Offer:
        """The newest accepted version's best wheel, of the first source that has one.

        `what` names the wish in messages ("torch 2.0.1+cu118"). Raises UnavailableError.
        """
        reasons, unreachable = [], True
        places = self.sources(channel)
        for place in places:
            try:
                links = self.market.listings.project(place, project)
            except NetworkError as error:
                reasons.append(_reason(error))
                unreachable = unreachable and getattr(error, "status", None) != 404
                continue
            unreachable = False
            if found := _newest(links, accept, lambda name: target.rank(name) is not None):
                version, fitting = found
                best = target.best([link.name for link in fitting])
                link = next(link for link in fitting if link.name == best)
                return Offer(channel, self._with_hash(link, project, places), version)
            reasons.append(_why_not(links, place, target, what))
        raise UnavailableError.of(channel, reasons or ["no folder of wheels is named"], unreachable=unreachable)

    def newest_sdist(self, project: str, accept: Callable[["Version"], bool]) -> Offer | None:
        """The newest accepted version's sdist, of the first package index that has one; else None."""
        for place in self.sources(Channel.PYPI):
            try:
                links = self.market.listings.project(place, project)
            except NetworkError:
                continue
            if found := _newest(links, accept, lambda name: not name.endswith(".whl")):
                return Offer(Channel.PYPI, found[1][-1], found[0])
        return None

    def links(self, channel: Channel, project: str, name: str, sha256: str) -> tuple[list["Link"], list[str]]:
        """Find a locked file: (links, in order; reasons of the sources that do not have it)."""
        links, reasons = [], []
        for place in self.sources(channel):
            try:
                offered = self.market.listings.project(place, project)
            except NetworkError as error:
                reasons.append(_reason(error))
                continue
            same_name = [link for link in offered if link.name == name]
            fitting = [link for link in same_name if link.sha256 in ("", sha256)]
            if not fitting:
                what = f"has another file as {name} (sha256 differs)" if same_name else f"does not list {name}"
                reasons.append(f"{place.title} {what}")
            links += fitting
        return links, reasons

    def _with_hash(self, link: "Link", project: str, places: tuple["Source", ...]) -> "Link":
        """Add the hash that another source states, where this one states none."""
        if link.sha256:
            return link
        for place in places:
            try:
                others = self.market.listings.project(place, project)
            except NetworkError:
                continue
            for other in others:
                if other.name == link.name and other.sha256:
                    return msgspec.structs.replace(link, sha256=other.sha256)
        return link


def torch_in(folders: tuple[str, ...]) -> frozenset[str]:
    """File names of the torch wheels in these folders; reads the folders only."""
    return frozenset(path.name for folder in folders for path in Path(folder).glob("torch-*.whl"))


def _newest(
    links: tuple["Link", ...], accept: Callable[["Version"], bool], fits: Callable[[str], bool]
) -> tuple[str, list["Link"]] | None:
    """The newest accepted version, a final release where there is one, and its files whose names fit."""
    from graphcrate.resolve.target import project_and_version

    versions: dict[Version, list[Link]] = {}
    for link in links:
        if not link.yanked and fits(link.name) and (found := project_and_version(link.name)) and accept(found[1]):
            versions.setdefault(found[1], []).append(link)
    if not versions:
        return None
    newest = max([version for version in versions if not version.is_prerelease] or versions)
    return str(newest), versions[newest]


def _why_not(links: tuple["Link", ...], place: "Source", target: "Target", what: str) -> str:
    if not links:
        return f"{place.title} has no {what.partition(' ')[0]}"
    if not any(link.name.endswith(".whl") for link in links):
        return f"{place.title} has {what.partition(' ')[0]} as source only"
    return f"{place.title} has no wheel of {what} for Python {target.python}"


def _reason(error: NetworkError) -> str:
    constraint: str = getattr(error, "constraint", "")
    return constraint or error.what
