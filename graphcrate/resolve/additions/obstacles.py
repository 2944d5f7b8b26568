"""Find out why no release of a package can be taken, from data alone: what indexes list, and what metadata requires.

uv says whether there is an answer, by its exit code; its explanation is prose, and stays text for the reader. What an
explanation is needed for, a source that may be taken and the requirement that a stack is against, is found here: newest
release first, as uv looks, but for contradictions between two packages that are asked for.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.resolve.sources.offers import Offer

MOST_RELEASES = 8  #: of one package, newest first, that are looked at


class Clause(NamedTuple):
    """A requirement and its owner. `who`: a release, "libraft-cu12==26.6.0"; empty: the user."""

    who: str
    requirement: Requirement

    @property
    def name(self) -> str:
        """Normalised, of what is needed."""
        return str(canonicalize_name(self.requirement.name))

    @property
    def needed(self) -> str:
        """Word a requirement, without markers and extras, the lower bound first."""
        return self.requirement.name + ",".join(sorted(map(str, self.requirement.specifier), reverse=True))


class Obstacle(NamedTuple):
    """The reason why a clause cannot be met.

    - `bound`: the stack fixes another version
    - `absent`: no index has a project of this name
    - `version`: no release satisfies it
    - `source`: the releases that do are there as source only
    - `python`, `wheels`: their metadata, or the tags of all their wheels, are for other versions of Python
    """

    kind: Literal["bound", "absent", "version", "source", "python", "wheels"]
    clause: Clause
    detail: str = ""  #: what there is instead


class World(Protocol):
    """Knowledge of packages without uv."""

    @property
    def fixed(self) -> Collection[str]:
        """Normalised names that are always there."""

    def releases(self, name: str) -> Sequence[Offer]:
        """All files of a project that indexes list."""

    def needs(self, release: Offer, extras: Collection[str]) -> Sequence[Requirement]:
        """List a release's requirements; none where they are not known, as of a source. Raises NetworkError."""

    def fits(self, release: Offer) -> bool:
        """Return whether it may be taken: a wheel with the image's tags, or a source of a package that may be one."""

    def rank(self, release: Offer) -> float:
        """Its fit with the image's tags; of one version the largest is taken."""

    def runs(self, release: Offer) -> bool:
        """Return whether its Requires-Python has the image's."""

    def is_against(self, clause: Clause) -> bool:
        """Return whether the stack fixes another version than is needed."""

    def bound(self, name: str) -> SpecifierSet:
        """Return what else is asked of a package."""

    def expect(self, clauses: Sequence[Clause]) -> None:
        """Make ready for being asked of these."""


def obstacles(asked: Iterable[Clause], world: World) -> tuple[Obstacle, ...]:
    """The obstacles to these requirements, as far as they are known. Raises NetworkError.

    The nearest alone: pages of what those need in turn, which are large, are read where there are none before.
    """
    return tuple(dict.fromkeys(_Walk(world).of(tuple(asked))))


class _Walk:
    """Looks at each requirement once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[str, str, frozenset[str]], tuple[Obstacle, ...]] = {}

    def of(self, clauses: Sequence[Clause]) -> tuple[Obstacle, ...]:
        """The obstacles to requirements that all have to be met: to themselves, else to what they need."""
        against = tuple(Obstacle("bound", clause) for clause in clauses if self._world.is_against(clause))
        if against:
            return against
        open_ones = [clause for clause in clauses if clause.name not in self._world.fixed]
        self._world.expect(open_ones)
        near = tuple(obstacle for clause in open_ones for obstacle in self._near(clause))
        return near or tuple(obstacle for clause in open_ones for obstacle in self._deep(clause))

    def _near(self, clause: Clause) -> Iterator[Obstacle]:
        """The obstacles to a requirement, apart from what its releases need."""
        releases = self._world.releases(clause.name)
        if not releases:
            yield Obstacle("absent", clause)
        elif not self._fitting(clause):
            allowed = self._allowed(clause)
            running = [release for release in allowed if self._world.runs(release)]
            is_source = any(release.is_sdist for release in running)
            yield Obstacle("source", clause) if is_source else _without_release(clause, releases, allowed, running)

    def _deep(self, clause: Clause) -> tuple[Obstacle, ...]:
        """The obstacles to each release of a requirement that fits; nothing where one can be taken."""
        key = clause.name, str(clause.requirement.specifier), frozenset(clause.requirement.extras)
        if key not in self._known:
            self._known[key] = ()  # a circle: what began it decides
            self._known[key] = self._of_releases(clause)
        return self._known[key]

    def _of_releases(self, clause: Clause) -> tuple[Obstacle, ...]:
        fitting, blocking = self._fitting(clause), list[Obstacle]()
        for release in fitting[:MOST_RELEASES]:
            who = f"{release.name}=={release.version}"
            needs = self.of([Clause(who, need) for need in self._world.needs(release, clause.requirement.extras)])
            if not needs:
                return ()
            blocking += needs if not blocking else [need for need in needs if need.kind == "source"]
        versions = {release.version for release in fitting}
        others = (release for release in self._allowed(clause) if release.version not in versions)
        if any(release.is_sdist and self._world.runs(release) for release in others):
            blocking.append(Obstacle("source", clause))
        return tuple(blocking)

    def _allowed(self, clause: Clause) -> list[Offer]:
        world = self._world
        return _allowed(world.releases(clause.name), clause.requirement.specifier & world.bound(clause.name))

    def _fitting(self, clause: Clause) -> list[Offer]:
        """Those that may be taken, the best of each version, the newest first."""
        fitting = (release for release in self._allowed(clause) if self._world.fits(release))
        by_rank = sorted(filter(self._world.runs, fitting), key=self._world.rank)  # the last of a version is kept
        by_version = {Version(release.version): release for release in by_rank}
        return [by_version[version] for version in sorted(by_version, reverse=True)]


def _allowed(releases: Iterable[Offer], specifier: SpecifierSet) -> list[Offer]:
    """Those of versions that a specifier allows; pre-releases where it names one, or there is nothing else."""
    listed = list(releases)
    versions = {Version(release.version) for release in listed}
    allowed = set(specifier.filter(versions))
    return [release for release in listed if Version(release.version) in allowed]


def _without_release(
    clause: Clause, releases: Sequence[Offer], allowed: Sequence[Offer], running: Sequence[Offer]
) -> Obstacle:
    if not allowed:
        newest = max((Version(release.version) for release in releases), default="none")
        return Obstacle("version", clause, f"the newest is {newest}")
    if not running:
        newest_release = max(allowed, key=lambda release: Version(release.version))
        return Obstacle("python", clause, f"Python{newest_release.link.python}")
    tags = sorted({tag for release in running for tag in _python_tags(release.link.name)})
    return Obstacle("wheels", clause, ", ".join(tags))


def _python_tags(name: str) -> Iterator[str]:
    """Yield the Pythons in a wheel's name: cp38."""
    if name.endswith(".whl"):
        yield from name.removesuffix(".whl").split("-")[-3].split(".")
