"""Packages of one lock as uv resolves them where some get another release."""

from collections.abc import Iterator, Mapping, Sequence

from graphcrate.compat.facts import packages
from graphcrate.compat.facts.cutoff import Cutoff, cutoff_of
from graphcrate.compat.variants import catalog
from graphcrate.inputs.wheels.sdist import read_sdist
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.resolve.additions.obstacles import Clause
from graphcrate.resolve.sources.metadata import MetadataReader
from graphcrate.resolve.sources.offers import Offer, Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link
from graphcrate.resolve.sources.storing import is_stored, store
from graphcrate.resolve.sources.target import target_of
from graphcrate.resolve.stack.pinning import constraints_of, resolve_pins
from upkeep.security import fixes as fixing
from upkeep.security.against import LockedStack

#: normalised name → version
Versions = Mapping[str, str]


class PinnedStack:
    """The packages of a lock, those of the package index by their versions, all others by their files."""

    def __init__(self, stack: LockedStack, sources: Sources) -> None:
        self._stack, self._sources = stack, sources
        self.offers = Offers.of_lock(sources, stack.lock)
        self.target = target_of(stack.variant.base, stack.variant.python)
        self._of_index = {package.name: package for package in stack.lock.packages if _is_of_index(package)}
        self._metadata = MetadataReader(sources)
        self._others: list[str] | None = None

    def alone(self, moved: Versions) -> dict[str, Offer]:
        """All packages as the lock has them, but these. Raises UnsolvableError where they do not go together."""
        versions = {name: package.version for name, package in self._of_index.items()}
        return self._resolved([f"{name}=={version}" for name, version in {**versions, **moved}.items()], (), None)

    def with_others(self, moved: Versions) -> dict[str, Offer]:
        """These, and as few others in another release as uv finds, none of them younger than the stack's day.

        torch, PyG and what is not of the package index stay. Raises UnsolvableError.
        """
        staying = {name: package.version for name, package in self._of_index.items() if fixing.unmovable(package)}
        pins = [f"{name}=={version}" for name, version in {**staying, **moved}.items()]
        free = [name for name in self._of_index if name not in staying and name not in moved]
        return self._resolved([*pins, *free], tuple(self._of_index.values()), self.cutoff(pins))

    def _resolved(
        self, lines: Sequence[str], preferred: Sequence[LockedPackage], cutoff: Cutoff | None
    ) -> dict[str, Offer]:
        if self._others is None:
            self._others = list(self._not_of_index())
        pinned = resolve_pins(
            [*self._asked, *self._others, *lines],
            self.target,
            self.offers,
            overrides=self._stack.way.overrides,
            constraints=constraints_of(self.offers.torch),
            preferred=preferred,
            cutoff=cutoff,
        )
        return {offer.name: offer for offer in pinned}

    @property
    def _asked(self) -> list[str]:
        return [*self._stack.recipe.requirements, *self._stack.variant.requirements]

    def cutoff(self, pins: Sequence[str] = ()) -> Cutoff | None:
        """The day of the stack's packages, if it has one, as it was locked with; these exact versions are exempt."""
        lines = [*self._asked, *self._stack.way.overrides, *constraints_of(self.offers.torch), *pins]
        torch = self._stack.lock.package("torch")
        if pins and torch and self._stack.variant.exclude_newer:
            lines += self._metadata.of(self._locked(torch)).requires
        return cutoff_of(self._stack.recipe, self._stack.variant, lines)

    def _not_of_index(self) -> Iterator[str]:
        """Yield further requirements for uv: wheels of other channels by address, what sources require."""
        cache = self._sources.cache
        for package in self._stack.lock.packages:
            if package.name in self._of_index:
                continue
            address = self._address(package)
            if not package.is_sdist:
                yield f"{package.name} @ {address}#sha256={package.file.sha256}"
                continue
            if not is_stored(package.file, cache):
                store(package.file, address, self._sources.client, cache)
            stored = cache.file(package.file.sha256, package.file.name)
            yield from read_sdist(stored, package.file.name).requires

    def _address(self, package: LockedPackage) -> str:
        """The address of a locked file. Raises ResolutionError where its channel lists it no more."""
        cache = self._sources.cache
        if is_stored(package.file, cache):
            return cache.file(package.file.sha256, package.file.name).absolute().as_uri()
        for links in self.offers.listed(package.channel, package.name):
            for link in links:
                if link.name == package.file.name:
                    return link.url
        raise ResolutionError(
            f"{package.file.name}, which the others have to go with, is not listed by the {package.channel} channel",
            next_step=catalog.renewal(self._stack.recipe, self._stack.variant, self._stack.way),
        )

    def _locked(self, package: LockedPackage) -> Offer:
        link = Link(name=package.file.name, url=self._address(package), sha256=package.file.sha256)
        return Offer(package.name, package.version, package.channel, link)

    # --- why ---

    def why(self, name: str, fix: str, taken: Mapping[str, Offer]) -> str:
        """Explain why a package moves or comes along with a fix: "leaky 1.1 requires tqdm>=5". `taken`: all that do."""
        before = self._of_index.get(name)
        for by in sorted(taken.values(), key=lambda offer: offer.name != fix):
            for clause in self._needs(by):
                if clause.name == name and not (before and _allows(clause, before.version)):
                    return f"{clause.who} requires {clause.needed}"
        for clause in self._needs(self._locked(before)) if before else ():
            if clause.name in taken and not _allows(clause, taken[clause.name].version):
                return f"{clause.who} requires {clause.needed}"
        return f"uv finds no solution for {fix} {taken[fix].version} without it"

    def _needs(self, offer: Offer) -> Iterator[Clause]:
        requires = self._metadata.of(offer).requires
        for requirement in packages.requirements(requires, self.target.python):
            yield Clause(f"{offer.name} {offer.version}", requirement)


def _allows(clause: Clause, version: str) -> bool:
    return clause.requirement.specifier.contains(version, prereleases=True)


def _is_of_index(package: LockedPackage) -> bool:
    return package.channel is Channel.PYPI and not package.is_sdist
