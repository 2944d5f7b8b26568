"""Conflicts of packages with a stack: questions about them to indexes and other locks (`conflict_words` says the rest).

What the stack fixes (`stack_bounds`) is compared with what indexes list and metadata requires (`obstacles`). Where
nothing is found there, two of the packages that are asked for contradict each other, and uv's explanation is shown as
it is.
"""

import contextlib
import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts import facts
from graphcrate.compat.facts.packages import counts, requirements
from graphcrate.compat.variants.catalog import all_recipes, read_lock
from graphcrate.model.command import Command, command
from graphcrate.model.errors import NetworkError, ResolutionError
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.recipe import Recipe, Variant
from graphcrate.resolve.additions import conflict_words
from graphcrate.resolve.additions.obstacles import Clause, Obstacle
from graphcrate.resolve.additions.stack_bounds import StackBound, bounds_of_stack, of_other_cuda
from graphcrate.resolve.sources.metadata import MetadataReader
from graphcrate.resolve.sources.offers import Offer, Offers
from graphcrate.resolve.sources.target import target_of
from graphcrate.resolve.stack.locks import ResolveContext

#: packages that people import, and that one stack has and another lacks
_ASKED_FOR = {
    "torchvision",
    "torchaudio",
    "pyg-lib",
    "torch-scatter",
    "torch-sparse",
    "torch-cluster",
    "torch-spline-conv",
}
_THREADS = 8  #: that read pages of indexes


class Conflicts:
    """A stack's bounds, and what indexes list of packages that may be against them. `asked`: what the user names.

    `bounded` makes of it the `World` of a question.
    """

    def __init__(
        self, context: ResolveContext, stack: Lock, staying: Mapping[str, LockedPackage], offers: Offers
    ) -> None:
        self._context, self._stack, self.staying, self.offers = context, stack, staying, offers
        self._target = target_of(context.variant.base, context.variant.python)
        self._metadata = MetadataReader(offers.sources)
        self._releases: dict[str, tuple[Offer, ...]] = {}
        self.python = self._target.python
        self.title = f"{stack.recipe} for CUDA {stack.cuda}"
        self.asked: Sequence[Requirement] = ()

    def releases(self, name: str) -> tuple[Offer, ...]:
        """All files of a project that indexes list. Raises NetworkError where none lists it and one does not say."""
        if name not in self._releases:
            listed = tuple(self.offers.releases(name))
            if not listed and (error := self.offers.unanswered(name)) is not None:
                raise error
            self._releases[name] = listed
        return self._releases[name]

    def needs(self, release: Offer, extras: Collection[str] = ()) -> list[Requirement]:
        """List a wheel's requirements in the image, with these extras. Raises NetworkError."""
        listed = next((other for other in self.releases(release.name) if other.link.name == release.link.name), release)
        return _counting(self._metadata.of(listed).requires, self._target.python, ("", *extras))

    def needs_of_extras(self, release: Offer, extras: Collection[str]) -> list[Requirement]:
        """List what these extras of a wheel require that it does not require without them. Raises NetworkError."""
        without = set(map(str, self.needs(release)))
        return [need for need in self.needs(release, extras) if str(need) not in without]

    def prefetch(self, releases: Iterable[Offer]) -> None:
        """Read the metadata of several releases side by side."""
        names = {release.link.name: release.name for release in releases}
        listed = (
            release for file, name in names.items() for release in self.releases(name) if release.link.name == file
        )
        self._metadata.prefetch(listed)

    def expect(self, clauses: Sequence[Clause]) -> None:
        """Read the pages of what is needed side by side: they are looked at one by one."""

        def read(name: str) -> None:
            with contextlib.suppress(NetworkError):
                self.releases(name)

        names = {clause.name for clause in clauses} - self._releases.keys()
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(read, sorted(names)))

    def fits(self, release: Offer) -> bool:
        """Return whether it is a wheel whose tags are the image's."""
        return not release.is_sdist and self._target.rank(release.link.name) is not None

    def rank(self, release: Offer) -> float:
        """Its fit with the image's tags; a source comes last."""
        rank = self._target.rank(release.link.name)
        return -math.inf if rank is None else rank[0]

    def runs(self, release: Offer) -> bool:
        """Return whether its Requires-Python, as far as it can be read, has the image's."""
        try:
            return SpecifierSet(release.link.python).contains(f"{self._target.python}.0", prereleases=True)
        except InvalidSpecifier:
            return True

    def is_against(self, clause: Clause) -> bool:
        """Return whether no version of what the stack fixes satisfies it."""
        return not self._may_be(clause.requirement)

    def bounded(
        self, lines: Iterable[str], others: Collection[str], as_sources: Collection[str] = ()
    ) -> "BoundedConflicts":
        """Add these constraints, the packages `others` that are there, and those that may be taken `as_sources`."""
        return BoundedConflicts(self, lines, others, as_sources)

    @functools.cached_property
    def limits(self) -> dict[str, StackBound]:
        """Normalised name → what the stack fixes."""
        return bounds_of_stack(self._context.recipe, self._context.variant, self.staying)

    def of_other_cuda(self) -> list[str]:
        """Constraints that leave out what has the files of the stack's own libraries of CUDA, for another version."""
        return [f"{other}<0" for other in of_other_cuda(self.staying)]

    def against(self, clauses: Iterable[Clause]) -> Clause | None:
        """The first of these clauses that no version of what the stack fixes satisfies."""
        return next(filter(self.is_against, clauses), None)

    def _may_be(self, requirement: Requirement) -> bool:
        limit = self.limits.get(str(canonicalize_name(requirement.name)))
        if limit is None or not counts(requirement, self._stack.python):
            return True
        if limit.version:
            return requirement.specifier.contains(Version(limit.version).public, prereleases=True)
        there = {Version(release.version) for release in self.releases(str(canonicalize_name(requirement.name)))}
        exact = [each.version for each in requirement.specifier if each.operator == "==" and "*" not in each.version]
        if exact and all(limit.bound.contains(version, prereleases=True) for version in exact):
            return True  # whether there is such a release is another question
        return not there or any(
            (requirement.specifier & limit.bound).contains(version, prereleases=True) for version in there
        )

    def reason(self, obstacles: Collection[Obstacle]) -> str:
        """Explain why a release that was tried cannot be taken, on one line."""
        user = self._context.sources.user
        return conflict_words.reason(obstacles, self.limits, asked_first=bool(user.extra or user.further))

    def rival(self, probe: Requirement, pinned: Sequence[Offer]) -> str:
        """Name what was taken in place of a release, and who needs it so; empty where nothing is found."""
        taken = {offer.name: Version(offer.version) for offer in pinned}
        (pin,) = probe.specifier
        tried = [offer for offer in self.releases(canonicalize_name(probe.name)) if offer.version == pin.version]
        with contextlib.suppress(NetworkError):
            fitting = [offer for offer in tried if self.fits(offer)][:1]
            wheels = [offer for offer in pinned if not offer.is_sdist]
            self.prefetch([*wheels, *fitting])
            newest = {str(canonicalize_name(probe.name)): Version(pin.version)}
            for offer in wheels:
                if clause := self._unmet(offer, newest):
                    return f"{clause.who} needs {clause.needed}"
            for offer in fitting:
                if clause := self._unmet(offer, taken):
                    return f"{clause.who} needs {clause.needed}, and {clause.name} {taken[clause.name]} is taken"
        return ""

    def _unmet(self, offer: Offer, versions: Mapping[str, Version]) -> Clause | None:
        """Return the first need of a release that one of these versions does not satisfy."""
        needs = (Clause(f"{offer.name}=={offer.version}", need) for need in self.needs(offer))
        is_met = (
            (clause, clause.requirement.specifier.contains(versions[clause.name], prereleases=True))
            for clause in needs
            if clause.name in versions
        )
        return next((clause for clause, met in is_met if not met), None)

    def refusal(self, clause: Clause, why: str = "") -> ResolutionError:
        """The error for what is against the stack; `why` it is, where its requirement does not say so itself."""
        name = str(canonicalize_name(clause.requirement.name))
        limit = self.limits.get(name) or self._as_it_is(name)
        return conflict_words.refusal(self._attempt, clause, limit, why, self._next_step(clause, name))

    @property
    def _attempt(self) -> conflict_words.Attempt:
        return conflict_words.Attempt(self.title, self._stack.python, tuple(self.asked))

    def without_wheel(self, clause: Clause, python: str) -> ResolutionError:
        """The error for a release that is there as source only of what the stack has as a wheel."""
        there = self._stack.package(str(canonicalize_name(clause.requirement.name)))
        step, steps = "", self._context.next_steps
        if clause.who:
            step = self._of_another_python(clause)
        elif there and steps and steps.typed.requirements and not steps.typed.words:
            step = f"{steps.with_packages([there.name])}    takes the stack's in its place"
        return conflict_words.without_wheel(self._attempt, clause, there, python, step)

    def _of_another_python(self, clause: Clause) -> str:
        """The same for a stack of another Python that has a wheel, with what that stack lacks; else nothing.

        It has torch, and PyG where this one has. Of several the one of the nearest CUDA version.
        """
        steps = self._context.next_steps
        if steps is None or steps.typed.recipe is not None:
            return ""
        asked = clause.requirement.specifier
        offers = [offer for offer in self.releases(clause.name) if asked.contains(offer.version) and not offer.is_sdist]
        for recipe, variant in self._nearest_first(all_recipes(self._context.ctx)):
            target = target_of(variant.base, variant.python)
            versions = [offer.version for offer in offers if target.rank(offer.link.name) is not None]
            if target.python == self.python or not versions:
                continue
            locks = (read_lock(self._context.ctx, recipe, variant, candidate) for candidate in variant.candidates)
            if (there := next(filter(None, locks), None)) is None:
                continue
            lacking = self.staying.keys() - {package.name for package in there.packages}
            if "torch-geometric" not in lacking:
                newest, without = max(versions, key=Version), sorted(lacking & _ASKED_FOR)
                again, name = steps.on(variant.cuda, recipe.name), clause.requirement.name
                return conflict_words.of_another_python(again, target.python, f"{name} {newest}", without)
        return ""

    def _nearest_first(self, recipes: Iterable[Recipe]) -> list[tuple[Recipe, Variant]]:
        """Their variants for GPUs, the nearest CUDA version first; none for a stack without CUDA."""
        here = facts.numbers(self._stack.cuda)
        variants = [(recipe, variant) for recipe in recipes for variant in recipe.variants if variant.cuda != "cpu"]
        return sorted(variants, key=lambda entry: _distance(entry[1].cuda, here)) if here else []

    def absent(self, clause: Clause) -> ResolutionError:
        """The error for a name that no index has, with the nearest that we know."""
        source = self.offers.elsewhere(str(canonicalize_name(clause.requirement.name)))
        if source:
            return conflict_words.at_another_index(self._attempt, clause, source.title, source.where)
        steps = self._context.next_steps
        of_stack = [package.name for package in self._stack.packages]
        return conflict_words.absent(self._attempt, clause, of_stack, steps.instead if steps else None)

    def without_release(self, obstacle: Obstacle, pins: Sequence[Requirement] = ()) -> ResolutionError:
        """The error for a package of which the index has releases, and none that can be taken, nor of these pins."""
        if against := self.against(Clause("", pin) for pin in pins):
            return self.refusal(against)
        steps = self._context.next_steps
        is_of_file = bool(pins) and steps is not None and bool(steps.typed.requirements)
        again = steps.with_packages([obstacle.clause.requirement.name]) if steps and is_of_file else ""
        return conflict_words.without_release(self._attempt, obstacle, pins, again)

    def unexplained(self, explanation: str) -> ResolutionError:
        """The error with uv's own explanation, where no package is known to be an obstacle."""
        return conflict_words.unexplained(self._attempt, self.staying["torch"].version, explanation)

    def _as_it_is(self, name: str) -> StackBound:
        """Return a bound of the stack that would move, were there another one that fits."""
        there = self._stack.package(name)
        version = there.version if there else "none"
        return StackBound(f"{name} {version}", "no other version of it fits what else is there", version)

    def _next_step(self, clause: Clause, name: str) -> str:
        """The nearest CUDA version that has the packages; where none has, the nearest versions that there are."""
        there = self._elsewhere(name)
        specifier = clause.requirement.specifier
        for cuda, version in there:
            if specifier.contains(Version(version).public, prereleases=True):
                return conflict_words.at_another_cuda(self._command(cuda), cuda, f"{name} {version}")
        mine = (self._stack.cuda, self.staying[name].version if name in self.staying else "")
        return conflict_words.nearest(self._attempt, clause, self._stack.recipe, there, mine)

    def _elsewhere(self, name: str) -> list[tuple[str, str]]:
        """(CUDA version, version of a package) of the recipe's other variants, the nearest CUDA version first."""
        recipe, versions = self._context.recipe, list[tuple[str, str]]()
        for variant in recipe.variants:
            if variant.cuda in (self._stack.cuda, "cpu"):
                continue
            for candidate in variant.candidates:
                lock = read_lock(self._context.ctx, recipe, variant, candidate)
                package = lock.package(name) if lock else None
                if package:
                    versions.append((variant.cuda, package.version))
                elif name == "torch" and candidate.torch != "*":
                    versions.append((variant.cuda, candidate.torch))
        here = facts.numbers(self._stack.cuda)
        if not here:
            return versions

        return sorted(versions, key=lambda entry: _distance(entry[0], here))

    def _command(self, cuda: str) -> Command:
        steps = self._context.next_steps
        # What stays is there with the CUDA version.
        return steps.on_without(cuda, self.staying) if steps else command("image", "…", cuda=cuda)


def _distance(cuda: str, here: tuple[int, ...]) -> int:
    """The distance of a CUDA version ("11.7") from another one, as numbers."""
    (major, minor), (own_major, own_minor) = ((*numbers, 0)[:2] for numbers in (facts.numbers(cuda), here))
    return abs((major - own_major) * 100 + minor - own_minor)


class BoundedConflicts:
    """A `World` with constraints besides the stack's. `fixed`: names that are always there."""

    def __init__(
        self, conflicts: Conflicts, lines: Iterable[str], others: Collection[str], as_sources: Collection[str]
    ) -> None:
        self._conflicts, self._as_sources = conflicts, as_sources
        self.fixed = frozenset({*conflicts.staying, *others})
        self.releases, self.expect = conflicts.releases, conflicts.expect
        self.runs, self.rank, self.is_against = conflicts.runs, conflicts.rank, conflicts.is_against
        self._bounds = {name: limit.bound for name, limit in conflicts.limits.items() if not limit.version}
        for requirement in _counting(lines, conflicts.python, ("",)):
            name = str(canonicalize_name(requirement.name))
            self._bounds[name] = self._bounds.get(name, SpecifierSet()) & requirement.specifier

    def fits(self, release: Offer) -> bool:
        """Return whether it may be taken: a wheel with the image's tags, or a source of a package that may be one."""
        return self._conflicts.fits(release) or (release.is_sdist and release.name in self._as_sources)

    def needs(self, release: Offer, extras: Collection[str] = ()) -> list[Requirement]:
        """List a wheel's requirements; a source that is taken has them asked for already. Raises NetworkError."""
        return [] if release.is_sdist else self._conflicts.needs(release, extras)

    def bound(self, name: str) -> SpecifierSet:
        """Return what else is asked of a package."""
        return self._bounds.get(name, SpecifierSet())


def _counting(lines: Iterable[str], python: str, extras: Sequence[str]) -> list[Requirement]:
    """The requirements that count for this Python with one of these extras; what cannot be read is left out."""
    counting = list(requirements(lines, python, extras))
    for requirement in counting:
        requirement.marker = None  # it is true here, of an extra too
    return counting
