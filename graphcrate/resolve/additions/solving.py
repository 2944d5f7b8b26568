"""Packages on top of a stack, chosen by uv in turns: compile, compare, and ask again with what the comparison showed.

uv answers yes or no, by its exit code, and a yes is a list of files. Each comparison is of data: the answer, what
indexes list, what metadata requires and what is known of releases that do not fit each other. What it shows is a
`Learnt`, with which the next turn is asked; where nothing is left to learn, the answer is the solution.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts import names, together
from graphcrate.model.errors import NetworkError, ResolutionError
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.model.words import listed
from graphcrate.resolve.additions.conflicts import BoundedConflicts, Conflicts
from graphcrate.resolve.additions.obstacles import Clause, Obstacle, obstacles
from graphcrate.resolve.additions.sdists import Sdists, stand_in
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.source import Link
from graphcrate.resolve.sources.target import target_of
from graphcrate.resolve.stack.locks import ResolveContext
from graphcrate.resolve.stack.pinning import UnsolvableError, constraints_of, resolve_pins

_MOST_TURNS = 24  #: of uv, each with one more sdist or bound


class Learnt(msgspec.Struct, frozen=True, kw_only=True):
    """Knowledge gained so far by comparing uv's answers with what is known."""

    bounds: tuple[str, ...] = ()  #: constraints that no metadata has
    besides: Mapping[str, str] = {}  #: what is asked for since a package imports it → that package
    because: Mapping[str, tuple[str, str]] = {}  #: name → the version that was not taken, and why
    unfit: tuple[str, ...] = ()  #: notes on what does not fit and was asked for so
    cleared: frozenset[tuple[str, str]] = frozenset()  #: releases whose extras were looked at
    previews: frozenset[str] = (
        frozenset()
    )  #: packages of which a final release was looked for, in a pre-release's place

    def bounded(self, line: str, name: str, version: str, why: str) -> "Learnt":
        """With one more constraint, which keeps a package from this version."""
        first, reasons = self.because.get(name, (version, ""))
        because = {**self.because, name: (first, f"{reasons}; {why}" if reasons else why)}
        return msgspec.structs.replace(self, bounds=(*self.bounds, line), because=because)

    def notes(self, chosen: Mapping[str, str]) -> Iterator[str]:
        """Yield notes on a solution, name → version."""
        for name, (version, why) in self.because.items():
            if chosen.get(name, version) != version:
                yield f"{name} {chosen[name]}, not {version}: {why}"
        yield from self.unfit


class Solution(NamedTuple):
    """A solution: what is to be added, but for the user's own wheels, and notes on it."""

    pinned: tuple[Offer, ...]
    notes: list[str]


class Solver:
    """Asks uv for one set of packages. `asked`: requirements that are not of what stays; `local`: the user's wheels."""

    def __init__(
        self,
        context: ResolveContext,
        stack: Lock,
        conflicts: Conflicts,
        sdists: Sdists,
        asked: Sequence[Requirement],
        local: Sequence[LockedPackage],
        constraints: Sequence[str],
        folder: Path,
    ) -> None:
        """`folder`: for empty wheels of what stays. `constraints`: the user's."""
        self._context, self._stack, self._conflicts, self._sdists = context, stack, conflicts, sdists
        self._asked, self._local = asked, local
        self._target = target_of(context.variant.base, context.variant.python)
        of_torch = constraints_of(conflicts.staying["torch"].version)
        self._constraints = [Requirement(line) for line in constraints]
        self._limits = [*of_torch, *conflicts.of_other_cuda(), *constraints]
        staying = conflicts.staying.items()
        self._stays = [f"{name} @ {stand_in(folder, name, package.version)}" for name, package in staying]

    def solve(self) -> Solution:
        """Raises ResolutionError for what contradicts the stack or does not exist, NetworkError."""
        learnt = Learnt()
        for _ in range(_MOST_TURNS):
            try:
                pinned = self._compile(learnt)
            except UnsolvableError as error:
                blocking = self._obstacles(learnt)
                if self._admit(blocking):
                    continue
                raise self._refusal(blocking, error) from error
            if self._sdists.take(pinned):
                continue
            if (more := self._compare_pairs(pinned, learnt)) is not None:
                learnt = more
                continue
            learnt, is_new = self._compare_extras(pinned, learnt)
            if not is_new and (final := self._compare_finals(pinned, learnt)) is not None:
                learnt = final
                continue
            if not is_new and (older := self._compare_newest(pinned, learnt)) is not None:
                return Solution(pinned, [*older, *learnt.notes(_versions(pinned)), *self._notes(learnt)])
        raise ResolutionError("the packages need one another in too many ways", next_step="pin them: package==1.2")

    def _compile(
        self, learnt: Learnt, *more: str, bounds: Sequence[str] = (), bounded: bool = True
    ) -> tuple[Offer, ...]:
        """Let uv choose with these requirements too. `bounded`: by what was learnt, and by `bounds`."""
        lines = [*self._context.recipe.requirements, *self._context.variant.requirements, *map(str, self._asked)]
        lines += [str(clause.requirement) for clause in self._sdists.requirements()]
        lines += learnt.besides
        lines += [f"{package.name}=={package.version}" for package in self._sdists.locked.values()]
        staying = self._conflicts.staying
        local = [f"{package.name} @ {link.url}" for package, link in self._links()]
        return resolve_pins(
            [*(line for line in lines if name_of(Requirement(line)) not in staying), *self._stays, *local, *more],
            self._target,
            self._conflicts.offers,
            constraints=[*self._limits, *(learnt.bounds if bounded else ()), *bounds],
            preferred=[package for package in self._stack.packages if package.name not in staying],
            wheels=self._sdists.folder,
        )

    def _links(self) -> Iterator[tuple[LockedPackage, Link]]:
        """The user's own wheels in the cache."""
        cache = self._context.ctx.cache
        for package in self._local:
            path = cache.file(package.file.sha256, package.file.name)
            yield package, Link(name=package.file.name, url=path.absolute().as_uri(), sha256=package.file.sha256)

    def _asked_clauses(self, learnt: Learnt) -> Iterator[Clause]:
        """Yield uv's clauses but for those of the stack, and by whom."""
        yield from (Clause("", requirement) for requirement in self._asked)
        yield from self._sdists.requirements()
        for package, link in self._links():
            offer = Offer(package.name, package.version, Channel.LOCAL, link)
            yield from (Clause(f"{offer.name}=={offer.version}", need) for need in self._conflicts.needs(offer))
        yield from (Clause(by, Requirement(need)) for need, by in learnt.besides.items())

    def _obstacles(self, learnt: Learnt, *bounds: str) -> tuple[Obstacle, ...]:
        """The obstacles to all that is asked for. Raises NetworkError."""
        return obstacles(self._asked_clauses(learnt), self._world([*learnt.bounds, *bounds]))

    def _world(self, bounds: Sequence[str] = ()) -> BoundedConflicts:
        """Return what is known, with these constraints too."""
        there = [*self._sdists.locked, *(package.name for package in self._local)]
        return self._conflicts.bounded([*self._limits, *bounds], there, self._sdists.admitted)

    def _admit(self, blocking: Collection[Obstacle], newer: str = "") -> bool:
        """Let uv choose among the sources of what has no wheels. False where they are no obstacle.

        `newer`: the package of which that would bring a newer release than a solution that there is.
        """
        wanting = {
            obstacle.clause.name: obstacle.clause for obstacle in reversed([*blocking]) if obstacle.kind == "source"
        }
        wanting.pop(newer, None)
        return self._sdists.admit(wanting, for_newer=bool(newer))

    def _refusal(self, blocking: Collection[Obstacle], error: UnsolvableError) -> ResolutionError:
        """The requirement of which the stack has another version; for a name that no index has, the nearest known."""
        first: dict[str, Obstacle] = {}
        for obstacle in blocking:
            first.setdefault(obstacle.kind, obstacle)
        if absent := first.get("absent"):
            return self._conflicts.absent(absent.clause)
        if bound := first.get("bound"):
            return self._conflicts.refusal(bound.clause)
        barred = (self._sdists.barred.get(obstacle.clause.name) for obstacle in blocking if obstacle.kind == "source")
        if (reason := next(filter(None, barred), None)) is not None:
            return reason
        other = next((obstacle for obstacle in blocking if obstacle.kind in ("wheels", "python", "version")), None)
        if other is None:
            return self._conflicts.unexplained(error.explanation)
        pins = [bound for bound in self._constraints if name_of(bound) == other.clause.name]
        return self._conflicts.without_release(other, pins)

    def _compare_pairs(self, pinned: Sequence[Offer], learnt: Learnt) -> Learnt | None:
        """Bound what does not fit together by what is known of it; None where all does."""
        there = {package.name: package.version for package in (*self._stack.packages, *self._local)} | _versions(pinned)
        for pair in together.broken(there):
            if pair.needed not in self._conflicts.staying:
                with contextlib.suppress(ResolutionError):
                    self._compile(learnt, bounds=[pair.needs])
                    why = f"{pair.package} needs {pair.needs}: {pair.why}"
                    return learnt.bounded(pair.needs, pair.needed, there[pair.needed], why)
            try:
                self._compile(learnt, bounds=[pair.without])
            except ResolutionError as error:
                if self._admit(self._obstacles(learnt, pair.without)):
                    return learnt  # a newer release, which is there as source only
                clause = Clause(f"{pair.package}=={there[pair.package]}", Requirement(pair.needs))
                raise self._conflicts.refusal(clause, pair.why) from error
            return learnt.bounded(pair.without, pair.package, there[pair.package], f"it needs {pair.needs}: {pair.why}")
        besides = {need: by for need, by in together.undeclared(there).items() if need not in learnt.besides}
        return msgspec.structs.replace(learnt, besides={**learnt.besides, **besides}) if besides else None

    def _compare_extras(self, pinned: Sequence[Offer], learnt: Learnt) -> tuple[Learnt, bool]:
        """Bound a release that is for another torch by its own extra; True where uv has to be asked again.

        Where the user asks for such a release by its version, or no other fits, that is a note.
        """
        extras = [extra.name for extra in together.extras() if extra.package in self._conflicts.staying]
        new = [release for release in pinned if not self._is_there(release) and release.name not in self._sdists.locked]
        while left := [release for release in new if (release.name, release.version) not in learnt.cleared]:
            try:
                self._compile(learnt, *(f"{release.name}[{','.join(extras)}]=={release.version}" for release in left))
            except ResolutionError:
                unfit = self._against_extra(left, extras)
                if unfit is None:
                    break  # what the extras need besides is against something: that was not asked for
                release, clause = unfit
                learnt = _cleared(learnt, [release])
                learnt, is_bounded = self._bound_by_extra(learnt, release, clause)
                if is_bounded:
                    return learnt, True
            else:
                learnt = _cleared(learnt, left)
        return learnt, False

    def _against_extra(self, releases: Sequence[Offer], extras: Sequence[str]) -> tuple[Offer, Clause] | None:
        """The first of these releases of which an extra needs what the stack has otherwise, and that need."""
        with contextlib.suppress(NetworkError):
            self._conflicts.prefetch(releases)
            for release in releases:
                who = f"{release.name}[{','.join(extras)}]"
                needs = (Clause(who, need) for need in self._conflicts.needs_of_extras(release, extras))
                if (clause := self._conflicts.against(needs)) is not None:
                    return release, clause
        return None

    def _bound_by_extra(self, learnt: Learnt, release: Offer, clause: Clause) -> tuple[Learnt, bool]:
        """Take the newest release that goes with its extra; False where there is none, and this one stays."""
        needs = f"its extra for {clause.requirement.name} needs {clause.needed}"
        with contextlib.suppress(ResolutionError):
            fitting = _versions(self._compile(learnt, clause.who))[release.name]
            return learnt.bounded(f"{release.name}<={fitting}", release.name, release.version, needs), True
        have = self._conflicts.limits[clause.name].text
        note = f"{release.name} {release.version} may do without {clause.requirement.name}"
        note += f": {needs}, and the stack has {have}"
        return msgspec.structs.replace(learnt, unfit=(*learnt.unfit, note)), False

    def _compare_finals(self, pinned: Sequence[Offer], learnt: Learnt) -> Learnt | None:
        """Bound a pre-release that is not asked for by the final ones before it, or note it; None where there is none.

        uv takes one where bounds leave no final release, though an older version of another package would (PEP 440:
        pre-releases are for those who ask for them).
        """
        named = {name_of(requirement) for requirement in self._asked if requirement.specifier.prereleases}
        for release in pinned:
            version = Version(release.version)
            if not version.is_prerelease or self._is_there(release) or release.name in {*named, *learnt.previews}:
                continue
            before, learnt = learnt, msgspec.structs.replace(learnt, previews=learnt.previews | {release.name})
            known = [each for each in self._conflicts.releases(release.name) if self._conflicts.fits(each)]
            versions = [Version(each.version) for each in known]
            finals = [each for each in versions if each < version and not each.is_prerelease]
            if not finals:  # deepspeed has one wheel, a pre-release: a source may be newer
                continue
            bound = f"{release.name}<={max(finals)}"
            try:
                self._compile(learnt, bounds=[bound])
            except ResolutionError:
                if self._admit(self._obstacles(before, bound)):
                    return before  # the final release needs what is there as source only (hydra-core 1.3: antlr4)
                note = f"{release.name} {release.version} is a pre-release: no final one fits what else is asked for"
                return msgspec.structs.replace(learnt, unfit=(*learnt.unfit, note))
            return msgspec.structs.replace(learnt, bounds=(*learnt.bounds, bound))
        return None

    def _compare_newest(self, pinned: Sequence[Offer], learnt: Learnt) -> list[str] | None:
        """Compare what was asked for with the newest releases, and say why; None where that was for lack of a source.

        What the stack has is kept, as pip keeps what is installed.
        """
        older, chosen = [], {offer.name: offer for offer in pinned}
        for requirement in self._asked:
            name = name_of(requirement)
            have = chosen.get(name)
            if have is None or self._is_there(have) or name in learnt.because or name in self._sdists.locked:
                continue
            newest, has_wheel = self._newest(requirement)
            if newest is None or Version(have.version) >= newest:
                continue
            if not has_wheel and Version(have.version).is_prerelease and not self._sdists.is_decided(name):
                self._sdists.offer(name)  # deepspeed has one wheel, of 0.3.1.dev5
                return None
            probe = Requirement(f"{name}=={newest}")
            no_wheel = f"it has no wheel for Python {self._target.python}"
            why = self._why_not(probe, learnt, pinned) if has_wheel else no_wheel
            if why is None:
                return None
            if why:
                older.append(f"{name} {have.version}, not {newest}: {why}")
        return older

    def _why_not(self, probe: Requirement, learnt: Learnt, pinned: Sequence[Offer]) -> str | None:
        """Explain why a release was not taken; empty if it could be, None if an admitted source may bring it."""
        try:
            self._compile(learnt, str(probe), bounded=False)
        except ResolutionError:
            try:
                blocking = obstacles([Clause("", probe)], self._world())
            except NetworkError:
                blocking = ()
            if self._admit(blocking, newer=name_of(probe)):
                return None
            return (not blocking and self._conflicts.rival(probe, pinned)) or self._conflicts.reason(blocking)
        return f"of {listed(learnt.because)} an older release is taken" if learnt.because else ""

    def _newest(self, requirement: Requirement) -> tuple[Version | None, bool]:
        """The newest final release that was not excluded, and whether it has a wheel for the image.

        None for a package of which the version is given.
        """
        if any(part.operator in ("==", "===") for part in requirement.specifier):
            return None, False
        releases = self._conflicts.releases(name_of(requirement))
        wheels = {Version(release.version) for release in releases if self._conflicts.fits(release)}
        fitting = wheels | {Version(release.version) for release in releases if release.is_sdist}
        finals = (version for version in fitting if not version.is_prerelease)
        pinned_by_user = [bound.specifier for bound in self._constraints if name_of(bound) == name_of(requirement)]
        allowed = (version for version in finals if all(each.contains(version) for each in pinned_by_user))
        newest = max(requirement.specifier.filter(allowed), default=None)
        return newest, newest in wheels

    def _is_there(self, offer: Offer) -> bool:
        """Return whether the stack has the very version."""
        there = self._stack.package(offer.name)
        return there is not None and there.version == offer.version

    def _notes(self, learnt: Learnt) -> Iterator[str]:
        """Yield notes on names, and on what is there without being asked for."""
        for requirement in self._asked:
            if (trap := names.trap(requirement.name)) and trap.kind == "works":
                yield trap.why(trap.name)
        yield from (f"{by} imports {need}, and does not ask for it" for need, by in learnt.besides.items())


def name_of(requirement: Requirement) -> str:
    """The normalised name."""
    return str(canonicalize_name(requirement.name))


def _versions(pinned: Sequence[Offer]) -> dict[str, str]:
    return {offer.name: offer.version for offer in pinned}


def _cleared(learnt: Learnt, releases: Sequence[Offer]) -> Learnt:
    more = {(release.name, release.version) for release in releases}
    return msgspec.structs.replace(learnt, cleared=learnt.cleared | more)
