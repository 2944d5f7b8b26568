"""Known vulnerabilities of Python's packages, by the index's own JSON.

`/pypi/NAME/VERSION/json` beside an index's `/simple` has the advisories of a release. Mirrors have `/pypi/NAME/json` at
most, with those of the newest release; many have nothing. What is not listed is "not known", and never "none".
"""

import hashlib
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any

import msgspec
from packaging.version import InvalidVersion, Version

from graphcrate.compat.facts import suites
from graphcrate.host import settings
from graphcrate.host.disk.sealed import kept
from graphcrate.host.net import HttpError
from graphcrate.host.parallel import Advance, parallel
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE
from graphcrate.model.recipe import Channel
from graphcrate.model.words import printable
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Source, SourceKind
from patienthttp.errors import NoAnswer
from patienthttp.reach import Reach
from upkeep.security.vulnerability import (
    Advisory,
)

_REMEMBERED = 86_400.0  #: seconds that an answer counts
_THREADS = 8
_MOST_BYTES = 32 << 20  #: of an answer; that of a release with a thousand files has 2 MB
_MOST, _LONGEST = 500, 200  #: advisories of a release, versions and names of each; characters of a word
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]*")
_SIMPLE = "/simple"
_PROBE = "pip"  #: a project that every index has


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An index's answer about a release. `advisories` None: it does not say; `why` not. `at`: when it was asked."""

    at: float
    advisories: tuple[Advisory, ...] | None = None
    why: str = ""
    silent: bool = False  #: it does not answer, or has no advisories of this release, which it has
    version: str = ""  #: that the answer is about
    releases: tuple[str, ...] = ()  #: of the project, where it says them


class Advisories:
    """Asks the user's indexes, each answer once a day. May be used from many threads."""

    def __init__(self, sources: Sources) -> None:
        self._sources, self._reach = sources, Reach()
        self._indexes = [
            source for source in Offers(sources, "", "cpu").of_channel(Channel.PYPI) if _root(source) is not None
        ]

    def of(self, name: str, version: str) -> Answered:
        """Look up a release; for one with a local part (2.0.1+cu118) the release that it was built of."""
        try:
            release = Version(version).public
        except InvalidVersion:
            return _unknown("its version is not one of Python's")
        if not _NAME.fullmatch(name) or max(len(name), len(release)) > _LONGEST:
            return _unknown("its name is not one of Python's")
        if not self._indexes:
            return _unknown("no index on the network is set whose address ends with /simple", silent=True)
        answers = []
        for index in self._indexes:
            answers.append(self._ask(index, name, release))
            if answers[-1].advisories is not None:
                return answers[-1]
        return next((answer for answer in answers if answer.silent), answers[0])

    def of_all(self, releases: Sequence[tuple[str, str]], advance: Advance) -> dict[tuple[str, str], Answered]:
        """The same of many, side by side."""

        def ask(release: tuple[str, str], _: Advance) -> Answered:
            answer = self.of(*release)
            advance(1)
            return answer

        return dict(zip(releases, parallel(ask, releases, threads=_THREADS), strict=True))

    def _ask(self, index: Source, name: str, version: str) -> Answered:
        answer = self._kept(f"{_root(index)}/pypi/{name}/{urllib.parse.quote(version)}/json")
        if answer.why or answer.advisories is not None:
            is_other = answer.version and not _is_same(answer.version, version)
            return _unknown(f"{index.title} answers with another release", silent=True) if is_other else answer
        newest = self._kept(f"{_root(index)}/pypi/{name}/json")
        if newest.why or (newest.advisories is not None and _is_same(newest.version, version)):
            return newest
        if newest.advisories is not None and any(_is_same(release, version) for release in newest.releases):
            return _unknown(f"{index.title} has advisories of each project's newest release alone", silent=True)
        if newest.advisories is None and not self._has_json(index):
            return _unknown(f"{index.title} has no advisories", silent=True)
        return _unknown(f"{index.title} has no such release")

    def _has_json(self, index: Source) -> bool:
        """Return whether an index that lacks the JSON of one project has that of any."""
        answer = self._kept(f"{_root(index)}/pypi/{_PROBE}/json")
        return answer.advisories is not None or bool(answer.why)

    def _kept(self, address: str) -> Answered:
        """The answer at an address, from the cache where it is of today. Neither advisories nor why: nothing is there.

        What did not answer is not kept.
        """
        cache = self._sources.cache
        path = cache.path("advisories", f"{hashlib.sha256(address.encode()).hexdigest()}.json")
        known = kept(path, Answered)
        if known is not None and 0 <= settings.now() - known.at < _REMEMBERED:
            return known
        try:
            body = self._reach.ask(
                address, lambda: self._sources.client.request("GET", address, limit=_MOST_BYTES).body
            )
            answer = _read(body, address)
        except HttpError as error:
            if not error.failure.is_absent:
                return _unknown(error.brief, silent=True)
            answer = Answered(at=settings.now())
        cache.keep(path, msgspec.json.encode(answer))
        return answer


def _unknown(why: str, *, silent: bool = False) -> Answered:
    return Answered(at=settings.now(), why=why, silent=silent)


def _root(index: Source) -> str | None:
    """The address of an index's JSON, beside its pages. None for what is no such index."""
    parts = urllib.parse.urlsplit(index.location)
    path = parts.path.rstrip("/")
    if index.kind is not SourceKind.INDEX or parts.scheme not in ("http", "https") or not path.endswith(_SIMPLE):
        return None
    return urllib.parse.urlunsplit(parts._replace(path=path.removesuffix(_SIMPLE), query="", fragment=""))


# --- what an index answers --------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, frozen=True):
    """An advisory as the index has it. Anything may stand in the place of what is only shown."""

    id: str
    aliases: Any = ()
    fixed_in: Any = ()
    link: Any = None
    withdrawn: Any = None


class _Info(msgspec.Struct, frozen=True):
    version: str = ""


class _Document(msgspec.Struct, frozen=True):
    vulnerabilities: list[_Entry] | None = None
    info: _Info = _Info()
    releases: dict[str, Any] | None = None


def _read(body: bytes, address: str) -> Answered:
    """The advisories of an answer, without those that were withdrawn. Raises HttpError for one that is damaged."""
    try:
        document = codec.decode(body, _Document)
    except UNREADABLE as error:
        raise HttpError.of(NoAnswer.DAMAGED, address) from error
    entries = document.vulnerabilities
    if entries is None:
        return _unknown("the index says nothing of vulnerabilities", silent=True)
    if len(entries) > _MOST:
        raise HttpError.of(NoAnswer.DAMAGED, address)
    advisories = tuple(_advisory(entry) for entry in entries if not entry.withdrawn)
    releases = tuple(document.releases or ())
    return Answered(at=settings.now(), advisories=advisories, version=document.info.version, releases=releases)


def _advisory(entry: _Entry) -> Advisory:
    ids = [word for word in (entry.id, *_texts(entry.aliases)) if _WORD.fullmatch(word) and len(word) <= _LONGEST]
    fixed = sorted({version for text in _texts(entry.fixed_in) if (version := _version(text)) is not None})
    link = entry.link if isinstance(entry.link, str) else ""
    is_link = link.startswith(("https://", "http://")) and len(link) <= 2 * _LONGEST and " " not in link
    return Advisory(
        ids=tuple(dict.fromkeys(ids)) or ("without an id",),
        fixed=tuple(map(str, fixed)),
        link=printable(link) if is_link else "",
    )


def _texts(value: object) -> list[str]:
    """The texts of a list, without its other values."""
    return [text for text in value[:_MOST] if isinstance(text, str)] if isinstance(value, list) else []


def _is_same(version: str, other: str) -> bool:
    known = _version(version)
    return known is not None and known == _version(other)


def _version(text: str) -> Version | None:
    try:
        return Version(text) if len(text) <= _LONGEST else None
    except InvalidVersion:
        return None


def security_ends(suite: str, archive: SuiteArchive | None = None) -> str:
    """Explain why a suite's security archive says nothing of what it does not list; empty where it says all."""
    standing = suites.standing(suite, settings.today())
    if archive is not None and not archive.has_security:
        return f"no mirror has a security archive of {suites.titled(suite)}"
    if standing is None or not standing.has_updates:
        return f"{suites.titled(suite)}: {suites.described(suite, settings.today()) or 'its support is not known'}"
    return ""
