"""One lock with known vulnerabilities: which releases and bases replace those that have them, what stays, and why."""

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from graphcrate.compat.facts import compilers, suites
from graphcrate.compat.variants import catalog
from graphcrate.host import settings
from graphcrate.inputs.bases import debian
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError
from graphcrate.model.lock import DebianBase, Lock, LockedPackage
from graphcrate.model.recipe import BaseSpec, Candidate, Recipe, Variant
from graphcrate.model.words import joined, printable
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.stack.base import compiler_spec
from graphcrate.resolve.stack.locks import request_digest
from graphcrate.resolve.stack.pinning import UnsolvableError, lock_offers
from upkeep.releases import ListedRelease
from upkeep.security import fixes as fixing
from upkeep.security.against import Known, LockedStack
from upkeep.security.fixes import LockFixes, PackageFix, UnfixedPackage
from upkeep.security.pinned import PinnedStack
from upkeep.security.vulnerability import Advisory

_MOST_EXEMPT = 3  #: packages that a recipe lets through since its lock was made
_TRIES = 6  #: releases of a package that are tried in one lock
_LONGEST = 300  #: characters of uv's reasons


class Renewal:
    """The work on one lock. `moved`: versions of what was accepted so far, by name."""

    def __init__(self, stack: LockedStack, known: Known, sources: Sources) -> None:
        self._stack, self._known, self._sources = stack, known, sources
        self._lock, self._variant = stack.lock, stack.variant
        self._pinned = PinnedStack(stack, sources)
        self._moved: dict[str, str] = {}
        self._offered: dict[str, Offer] = {}
        self._fixes: dict[str, PackageFix] = {}
        self._unfixed: list[UnfixedPackage] = []

    def renewed(self) -> tuple[LockFixes, Lock]:
        """Renew the lock; return what changes, and the lock then. What cannot be renewed stays, with the reason."""
        digest = answered(self._stack.recipe, self._variant, self._stack.way, self._lock)
        if not digest:
            again = catalog.renewal(self._stack.recipe, self._variant, self._stack.way)
            return LockFixes(title=self._stack.title, unfixed=tuple(self._stale(str(again)))), self._lock
        for package in self._lock.packages:
            if advisories := self._known.of(package):
                self._renew(package, advisories)
        lock, base = self._with_bases(self._with_packages())
        change = LockFixes(
            title=self._stack.title,
            packages=tuple(self._fixes[name] for name in sorted(self._fixes)),
            base=tuple(base),
            unfixed=tuple(self._unfixed),
        )
        if change.is_news:
            lock = msgspec.structs.replace(lock, created=int(settings.now()), request_sha256=digest)
        return change, lock

    def _stale(self, again: str) -> Iterator[UnfixedPackage]:
        """All that is known against a lock that no build takes."""
        reason = f"the lock answers an older recipe, and no build takes it: {again}"
        for package in self._lock.packages:
            if advisories := self._known.of(package):
                ids = fixing.ids_of(advisories)
                yield UnfixedPackage(name=package.name, version=package.version, ids=ids, reason=reason)
        for of, base in self._lock.debian_bases:
            if self._known.fixed(base):
                yield UnfixedPackage(name=of, version=base.suite, ids=(), reason=reason)

    def _renew(self, package: LockedPackage, advisories: Sequence[Advisory]) -> None:
        name, ids = package.name, fixing.ids_of(advisories)
        if not self._is_fixed_along(name, ids):
            try:
                reason = fixing.unmovable(package) or self._first_that_fits(package, advisories)
            except (NetworkError, ResolutionError, IntegrityError) as error:
                reason = error.what.partition("\n")[0]
            if reason:
                unfixed = UnfixedPackage(name=name, version=package.version, ids=ids, reason=printable(reason))
                self._unfixed.append(unfixed)
                return
        left = fixing.ids_of(advisory for advisory in advisories if not advisory.fixed)
        after, along = self._moved[name], self._fixes[name].along if name in self._fixes else ""
        fix = PackageFix(name=name, before=package.version, after=after, ids=ids, left=left, along=along)
        self._fixes[name] = fix

    def _is_fixed_along(self, name: str, ids: Sequence[str]) -> bool:
        """Return whether a package moved along with another one, to a release without this."""
        if name not in self._moved:
            return False
        answer = self._known.advisories.of(name, self._moved[name])
        return answer.advisories is not None and not set(fixing.ids_of(answer.advisories)) & set(ids)

    def _first_that_fits(self, package: LockedPackage, advisories: Sequence[Advisory]) -> str:
        """Take the lowest release that fixes a package and goes with the others; else say why there is no such one.

        Releases with which all others can stay as they are come before those that take others along.
        """
        name, listed = package.name, self._known.listed(package.name, self._pinned.offers)
        allowed, reason = fixing.candidates(package, advisories, listed, self._pinned.target, self._day(name))
        ordered = [release.version for release in self._ordered(name, fixing.ids_of(advisories), allowed)]
        if any(self._goes_alone(name, version) for version in ordered):
            return ""
        for version in ordered:
            refused = self._with_others(name, version)
            if not refused:
                return ""
            reason = reason or refused
        return reason or "each release that fixes it has what is known against this one"

    def _goes_alone(self, name: str, version: str) -> bool:
        """Take a release where all others can stay as they are. Whether they can."""
        moved = {**self._moved, name: version}
        try:
            pinned = self._pinned.alone(moved)
        except UnsolvableError:
            return False
        own = {package.name for package in self._lock.packages}
        if name not in pinned or pinned.keys() - own - moved.keys():
            return False
        self._moved, self._offered[name] = moved, pinned[name]
        return True

    def _with_others(self, name: str, version: str) -> str:
        """Take a release with others that it needs in another release; else say why not."""
        moved = {**self._moved, name: version}
        try:
            pinned = self._pinned.with_others(moved)
        except UnsolvableError as error:
            words = " ".join(error.explanation.replace("\u2570\u2500\u25b6", "").replace("\u00d7", "").split())
            return f"{name} {version} goes with no releases of the rest that the stack allows: {words[:_LONGEST]}"
        if name not in pinned:
            return f"{name} {version} is not what uv takes for this image"
        have = {package.name: package.version for package in self._lock.packages} | moved
        taken = {offer.name: offer for offer in pinned.values() if offer.version != have.get(offer.name)}
        for other in taken.values():
            if known := self._new_against(other, have.get(other.name, "")):
                return f"{name} {version} takes {other.name} {other.version} along, against which is known: {known}"
        taken[name] = pinned[name]
        along = {also: printable(self._pinned.why(also, name, taken)) for also in sorted(taken.keys() - {name})}
        self._fixes |= {
            also: PackageFix(name=also, before=have.get(also, ""), after=pinned[also].version, along=why)
            for also, why in along.items()
        }
        self._moved = {**moved, **{also: offer.version for also, offer in taken.items()}}
        self._offered |= taken
        return ""

    def _new_against(self, offer: Offer, before: str) -> str:
        """Name what is known against a release and not against the one that it replaces."""
        newer = fixing.ids_of(self._known.advisories.of(offer.name, offer.version).advisories or ())
        old = fixing.ids_of(self._known.advisories.of(offer.name, before).advisories or ()) if before else ()
        return ", ".join(word for word in newer if word not in old)

    def _ordered(self, name: str, ids: Sequence[str], allowed: Sequence[ListedRelease]) -> Iterator[ListedRelease]:
        """Sort candidates: the lowest release without known vulnerabilities first, then ascending."""
        clean, others = list[ListedRelease](), list[ListedRelease]()
        for release in allowed[: 2 * _TRIES]:
            known = self._known.advisories.of(name, release.version).advisories or ()
            if not set(fixing.ids_of(known)) & set(ids):
                (others if known else clean).append(release)
        yield from (*clean, *others)[:_TRIES]

    def _day(self, name: str) -> str:
        """The day after which the stack takes no files of a package; empty where it takes all."""
        cutoff = self._pinned.cutoff()
        return "" if cutoff is None or name in cutoff.exempt else cutoff.date

    def _with_packages(self) -> Lock:
        """The lock with what was accepted."""
        if not self._offered:
            return self._lock
        packages = {package.name: package for package in self._lock.packages}
        packages |= {package.name: package for package in lock_offers(self._offered.values(), self._sources)}
        return msgspec.structs.replace(self._lock, packages=tuple(packages[name] for name in sorted(packages)))

    def _with_bases(self, lock: Lock) -> tuple[Lock, list[PackageFix]]:
        """The lock with bases of today where one has a fix, and which fixes those are."""
        fixed: list[PackageFix] = []
        for of, base in lock.debian_bases:
            if not (newer := self._known.fixed(base)):
                continue
            today = self._today(of, base)
            if today is None:
                names = joined(f"{fix.newest.name} {fix.have}" for fix in newer)
                reason = f"{suites.titled(base.suite)} cannot be listed again: {names}"
                self._unfixed.append(UnfixedPackage(name=of, version=base.suite, ids=(), reason=reason))
                continue
            after = {package.name: package.version for package in today.packages}
            ids = self._known.ids(base.suite, newer)
            fixed += [
                PackageFix(
                    name=(name := fix.newest.name),
                    before=fix.have,
                    after=after.get(name, fix.newest.version),
                    ids=ids.get(fix.source, ()),
                    of=of,
                )
                for fix in newer
            ]
            if of == "base":
                lock = msgspec.structs.replace(lock, base=today)
            elif lock.compilation is not None:
                lock = msgspec.structs.replace(lock, compilation=msgspec.structs.replace(lock.compilation, base=today))
        return lock, fixed

    def _today(self, of: str, base: DebianBase) -> DebianBase | None:
        """Lock today's base; None where its suite cannot give it any more."""
        archive, compilation = self._known.archive(base), self._lock.compilation
        spec: BaseSpec = self._variant.base
        if of == "compiler" and compilation is not None:
            besides = compilers.besides(self._lock.packages, base.suite, compilation.besides)
            spec = compiler_spec(self._variant, base.suite, compilation.compiler, besides)
        try:
            return debian.lock_of(archive, spec, self._lock.python) if archive else None
        except ResolutionError:
            return None


def answered(recipe: Recipe, variant: Variant, way: Candidate, lock: Lock) -> str:
    """The digest of what the recipe asks for, where a lock answers that or did so before packages were let through.

    Letting a package through by name (exclude_newer_except) asks for no more than the older one. Empty: it does not.
    """
    exempt = recipe.exclude_newer_except
    for count in range(min(len(exempt), _MOST_EXEMPT) + 1):
        for names in itertools.combinations(exempt, count):
            left = {name: why for name, why in exempt.items() if name not in names}
            before = msgspec.structs.replace(recipe, exclude_newer_except=left)
            if lock.request_sha256 == request_digest(before, variant, way):
                return request_digest(recipe, variant, way)
    return ""
