"""Advisories against committed locks: each release and each suite is asked about once, whichever locks have it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from graphcrate.compat.facts import suites
from graphcrate.host.context import Context
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.lock import DebianBase, Lock, LockedPackage, platform_of
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link
from upkeep.releases import ListedRelease, releases_of
from upkeep.security import changelog
from upkeep.security.advisories import Advisories, Answered, security_ends
from upkeep.security.changelog import DebianFix
from upkeep.security.vulnerability import Advisory, NotKnown


class LockedStack(NamedTuple):
    """A committed lock with what it answers: of another platform the variant on that platform's base."""

    recipe: Recipe
    variant: Variant
    way: Candidate
    lock: Lock

    @property
    def platform(self) -> Platform:
        """Return the platform of its images."""
        return self.variant.base.runs_on

    @property
    def title(self) -> str:
        """ "torch CUDA 13.0, pypi, arm64"; without the platform for the default one."""
        words = [f"{self.recipe.name} CUDA {self.variant.cuda}", self.way.name]
        return ", ".join([*words, *([self.platform.title] if self.platform != DEFAULT else [])])


class _SuiteFor(NamedTuple):
    """The key of a suite's lists."""

    suite: str
    platform: Platform

    @property
    def title(self) -> str:
        of = f" for {self.platform.title}" if self.platform != DEFAULT else ""
        return f"bases of {suites.titled(self.suite)}{of}"


def _suite_for(base: DebianBase) -> _SuiteFor:
    return _SuiteFor(base.suite, platform_of(base))


class Known:
    """Answers of index and archives about these locks."""

    def __init__(self, stacks: Sequence[LockedStack], sources: Sources, ctx: Context) -> None:
        """Ask. Who does not answer is in `unknown`."""
        self.advisories = Advisories(sources)
        self._stacks, self._ctx = stacks, ctx
        releases = sorted(
            {
                (package.name, package.version)
                for stack in stacks
                for package in stack.lock.packages
                if package.channel is not Channel.LOCAL
            }
        )
        with ctx.progress.task("asking for advisories", len(releases), "releases") as task:
            self._answers: Mapping[tuple[str, str], Answered] = self.advisories.of_all(releases, task.advance)
        self._archives: dict[_SuiteFor, SuiteArchive] = {}
        self._silent: dict[_SuiteFor, str] = {}
        self._changelogs: dict[tuple[str, DebianFix], tuple[str, ...]] = {}
        self._listed: dict[str, tuple[ListedRelease, ...] | NetworkError] = {}
        bases = list(dict.fromkeys(_suite_for(base) for stack in stacks for _, base in stack.lock.debian_bases))
        with ctx.progress.task("reading Debian's lists", len(bases), "suites" if bases[1:] else "suite") as task:
            for place in sorted(bases, key=lambda place: place.title):
                try:
                    self._archives[place] = SuiteArchive(
                        place.suite, ctx, platform=place.platform, without_security=True
                    )
                except (NetworkError, IntegrityError) as error:
                    self._silent[place] = error.what
                task.advance(1)

    @property
    def judged(self) -> int:
        """Releases and suites of which something is known."""
        return sum(answer.advisories is not None for answer in self._answers.values()) + len(self._archives)

    def archive(self, base: DebianBase) -> SuiteArchive | None:
        """Today's lists of a base's suite; None where they are not known."""
        return self._archives.get(_suite_for(base))

    def of(self, package: LockedPackage) -> tuple[Advisory, ...]:
        """The advisories of a locked package; none where nothing is known."""
        answer = self._answers.get((package.name, package.version))
        return (answer.advisories or ()) if answer else ()

    def fixed(self, base: DebianBase) -> list[DebianFix]:
        """Packages of a base that the security archive has newer."""
        if (archive := self.archive(base)) is None:
            return []
        newest = ((package, archive.fixed(package)) for package in base.packages)
        return [
            DebianFix(package.version, fix, archive.lists.source_of(package.name))
            for package, fix in newest
            if fix is not None
        ]

    def ids(self, suite: str, fixes: Sequence[DebianFix]) -> Mapping[str, tuple[str, ...]]:
        """By source package: what its fix repairs. Each changelog is read once."""
        new = [fix for fix in fixes if (suite, fix) not in self._changelogs]
        known = changelog.cves(new, suite, self._ctx) if new else {}
        self._changelogs |= {(suite, fix): known.get(fix.source, ()) for fix in new}
        return {fix.source: self._changelogs[suite, fix] for fix in fixes}

    def against(self, stack: LockedStack) -> bool:
        """Return whether anything is known against a lock."""
        return any(map(self.of, stack.lock.packages)) or any(self.fixed(base) for _, base in stack.lock.debian_bases)

    def listed(self, name: str, offers: Offers) -> tuple[ListedRelease, ...]:
        """All releases of a project on the package indexes. Raises NetworkError where no index says."""
        if name not in self._listed:
            self._listed[name] = _listed(name, offers)
        releases = self._listed[name]
        if isinstance(releases, NetworkError):
            raise releases
        return releases

    def unknown(self) -> Iterator[NotKnown]:
        """Of what nothing is known, and why."""
        whys: dict[tuple[str, bool], list[str]] = {}
        for (name, version), answer in self._answers.items():
            if answer.advisories is None:
                whys.setdefault((answer.why, answer.silent), []).append(f"{name} {version}")
        for (why, silent), names in whys.items():
            yield NotKnown(why=why, kind="python", packages=tuple(names), silent=silent)
        own = sorted(
            {f"{package.name} {package.version}" for stack in self._stacks for package in stack.lock.packages
             if package.channel is Channel.LOCAL}
        )  # fmt: skip
        if own:
            yield NotKnown(
                why="from a folder of somebody's, whose releases no index has", kind="python", packages=tuple(own)
            )
        for place, why in self._silent.items():
            yield NotKnown(why=why, kind="debian", packages=(place.title,), silent=True)
        for place, archive in self._archives.items():
            if why := security_ends(place.suite, archive):
                yield NotKnown(why=why, kind="debian", packages=(place.title,))
        if images := sorted({stack.title for stack in self._stacks if not isinstance(stack.lock.base, DebianBase)}):
            yield NotKnown(why="their base is an image of a registry", kind="debian", packages=tuple(images))


def _listed(name: str, offers: Offers) -> tuple[ListedRelease, ...] | NetworkError:
    links, times, errors = dict[str, Link](), dict[str, str](), list[NetworkError]()
    listings = offers.sources.listings
    for source in offers.of_channel(Channel.PYPI):
        try:
            links |= {link.name: link for link in listings.project(source, name)}
            times |= listings.times(source, name)
        except NetworkError as error:
            errors.append(error)
    return errors[0] if errors and not links else releases_of(links.values(), times)
