"""`update --security`: locks with known vulnerabilities get the releases that fix them, and nothing else moves.

Packages: pinned as the lock has them, but for those that are renewed; uv says whether they go together. Bases: listed
again where Debian's security archive has a newer version of one of their packages. What is not known is said.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from graphcrate.compat import catalog, compilers, suites
from graphcrate.compat.cutoff import cutoff_of
from graphcrate.compat.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.atomic import write_file
from graphcrate.host.context import Context
from graphcrate.inputs.bases import changelog, debian
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.inputs.bases.changelog import DebianFix
from graphcrate.inputs.wheels.sdist import read_sdist
from graphcrate.model.command import command
from graphcrate.model.errors import IntegrityError, NetworkError, NewsError, ResolutionError
from graphcrate.model.lock import DebianBase, Lock, LockedPackage, encode
from graphcrate.model.recipe import BaseSpec, Candidate, Channel, Recipe, Variant
from graphcrate.model.vulnerability import Advisory, NotKnown
from graphcrate.model.words import joined, printable
from graphcrate.resolve.advisories import Advisories, Answered, security_ends
from graphcrate.resolve.base import compiler_spec
from graphcrate.resolve.channels import Link
from graphcrate.resolve.fetch import is_stored, store
from graphcrate.resolve.locks import request_digest
from graphcrate.resolve.offers import Offer, Offers, Sources
from graphcrate.resolve.pinning import UnsolvableError, constraints_of, lock_offers, resolve_pins
from graphcrate.resolve.target import target_of
from graphcrate.update import fixes as fixing
from graphcrate.update import staged
from graphcrate.update.fixes import LockFixes, PackageFix, SecurityReview, UnfixedPackage
from graphcrate.update.releases import ListedRelease, releases_of
from graphcrate.update.run import UpdateRequest

_MOST_EXEMPT = 3  #: packages that a recipe lets through since its lock was made
_TRIES = 6  #: releases of a package that are tried in one lock
_LONGEST = 300  #: characters of uv's reasons


class _Stack(NamedTuple):
    """A committed lock with what it answers."""

    recipe: Recipe
    variant: Variant
    way: Candidate
    lock: Lock

    @property
    def title(self) -> str:
        return f"{self.recipe.name} CUDA {self.variant.cuda}, {self.way.name}"


def run(request: UpdateRequest, ctx: Context) -> SecurityReview:
    """Ask, renew, and write all of it or nothing. Raises UsageError, NetworkError where nothing at all is known."""
    ctx.require_checkout("its locks")
    recipes = [catalog.find_recipe(ctx, request.recipe)] if request.recipe else catalog.all_recipes(ctx)
    stacks = list(_stacks(recipes, ctx))
    sources = Sources(SourceOptions(mirror=request.mirror), ctx.cache, ctx.environment, ctx.progress.note)
    known = _Known(stacks, sources, ctx)
    renewed: dict[str, Lock] = {}
    changes: list[LockFixes] = []
    affected = [stack for stack in stacks if known.against(stack)]
    with ctx.progress.task("renewing locks", len(affected), "lock" if len(affected) == 1 else "locks") as task:
        for stack in affected:
            change, lock = _Renewal(stack, known, sources).renewed()
            changes.append(change)
            if change.is_news:
                renewed[stack.title] = lock
            task.advance(1)
    review = SecurityReview(
        day=str(settings.today()), locks=tuple(changes), judged=known.judged, unknown=tuple(known.unknown())
    )
    if stacks and not review.judged:
        raise NetworkError(
            "whether the locks have known vulnerabilities is not known",
            cause="; ".join(dict.fromkeys(each.why for each in review.unknown)),
            next_step="name an index that has advisories (UV_DEFAULT_INDEX), or a mirror of Debian (DEBIAN_MIRROR)",
        )
    if renewed and not request.check:
        _write([(stack, renewed[stack.title]) for stack in stacks if stack.title in renewed], ctx)
        review = msgspec.structs.replace(review, written=True)
    return review


def raise_if_fixable(review: SecurityReview) -> None:
    """Raises NewsError where `update --security` would write something."""
    if review.changed:
        titles = joined(lock.title for lock in review.changed)
        raise NewsError(f"locks would change: {titles}", next_step=command("update", security=True))


def _stacks(recipes: Iterable[Recipe], ctx: Context) -> Iterator[_Stack]:
    for recipe in recipes:
        for variant in recipe.variants:
            for way in variant.candidates:
                if lock := catalog.read_lock(ctx, recipe, variant, way):
                    yield _Stack(recipe, variant, way, lock)


def _write(renewed: Sequence[tuple[_Stack, Lock]], ctx: Context) -> None:
    """Write these locks, what is rendered and generated of them; a proof of the lock before goes."""
    with staged.copied(ctx) as stage:
        for stack, lock in renewed:
            path = catalog.path_of_lock(stage.root, stack.recipe.name, stack.variant.cuda, stack.way.name)
            write_file(path, encode(lock))
            catalog.proof_path(path).unlink(missing_ok=True)
        stage.build_py("render")
        stage.tool("tools.generate")
        stage.take_over()


# --- what is known ----------------------------------------------------------------------------------------------------


class _Known:
    """What index and archives know of all locks, each release and each suite asked about once."""

    def __init__(self, stacks: Sequence[_Stack], sources: Sources, ctx: Context) -> None:
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
        self._archives: dict[str, SuiteArchive] = {}
        self._silent: dict[str, str] = {}
        self._changelogs: dict[tuple[str, DebianFix], tuple[str, ...]] = {}
        self._listed: dict[str, tuple[ListedRelease, ...] | NetworkError] = {}
        bases = sorted({base.suite for stack in stacks for _, base in bases_of(stack.lock)})
        with ctx.progress.task("reading Debian's lists", len(bases), "suites" if bases[1:] else "suite") as task:
            for suite in bases:
                try:
                    self._archives[suite] = SuiteArchive(suite, ctx)
                except (NetworkError, IntegrityError) as error:
                    self._silent[suite] = error.what
                task.advance(1)

    @property
    def judged(self) -> int:
        """Releases and suites of which something is known."""
        return sum(answer.advisories is not None for answer in self._answers.values()) + len(self._archives)

    def archive(self, suite: str) -> SuiteArchive | None:
        """Today's lists of a suite; None where they are not known."""
        return self._archives.get(suite)

    def of(self, package: LockedPackage) -> tuple[Advisory, ...]:
        """The advisories of a locked package; none where nothing is known."""
        answer = self._answers.get((package.name, package.version))
        return (answer.advisories or ()) if answer else ()

    def fixed(self, base: DebianBase) -> list[DebianFix]:
        """Packages of a base that the security archive has newer."""
        if (archive := self._archives.get(base.suite)) is None:
            return []
        newest = ((package, archive.fixed(package)) for package in base.packages)
        return [
            DebianFix(package.version, fix, archive.source_of(package.name))
            for package, fix in newest
            if fix is not None
        ]

    def ids(self, suite: str, fixes: Sequence[DebianFix]) -> Mapping[str, tuple[str, ...]]:
        """By source package: what its fix repairs. Each changelog is read once."""
        new = [fix for fix in fixes if (suite, fix) not in self._changelogs]
        known = changelog.cves(new, suite, self._ctx) if new else {}
        self._changelogs |= {(suite, fix): known.get(fix.source, ()) for fix in new}
        return {fix.source: self._changelogs[suite, fix] for fix in fixes}

    def against(self, stack: _Stack) -> bool:
        """Whether anything is known against a lock."""
        return any(map(self.of, stack.lock.packages)) or any(self.fixed(base) for _, base in bases_of(stack.lock))

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
        for suite, why in self._silent.items():
            yield NotKnown(why=why, kind="debian", packages=(f"bases of {suites.titled(suite)}",), silent=True)
        for suite, archive in self._archives.items():
            if why := security_ends(suite, archive):
                yield NotKnown(why=why, kind="debian", packages=(f"bases of {suites.titled(suite)}",))
        if images := sorted({stack.title for stack in self._stacks if not isinstance(stack.lock.base, DebianBase)}):
            yield NotKnown(why="their base is an image of a registry", kind="debian", packages=tuple(images))


def bases_of(lock: Lock) -> Iterator[tuple[Literal["base", "compiler"], DebianBase]]:
    """A lock's bases of Debian: the image's, and that with the compiler, which FLAVOUR=devel puts into an image."""
    if isinstance(lock.base, DebianBase):
        yield "base", lock.base
    if lock.compilation is not None:
        yield "compiler", lock.compilation.base


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


# --- one lock ---------------------------------------------------------------------------------------------------------


class _Renewal:
    """The work on one lock. `moved`: what was accepted so far."""

    def __init__(self, stack: _Stack, known: _Known, sources: Sources) -> None:
        self._stack, self._known, self._sources = stack, known, sources
        self._lock, self._variant = stack.lock, stack.variant
        self._offers = Offers.of_lock(sources, stack.lock)
        self._target = target_of(stack.variant.base, stack.variant.python)
        self._moved: dict[str, ListedRelease] = {}
        self._offered: dict[str, Offer] = {}
        self._ids: dict[str, PackageFix] = {}
        self._unfixed: list[UnfixedPackage] = []
        self._lines: list[str] | None = None

    def renewed(self) -> tuple[LockFixes, Lock]:
        """What becomes of the lock, and what it is then. What cannot be renewed stays, with the reason."""
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
            packages=tuple(self._ids[name] for name in sorted(self._ids)),
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
        for of, base in bases_of(self._lock):
            if self._known.fixed(base):
                yield UnfixedPackage(name=of, version=base.suite, ids=(), reason=reason)

    def _renew(self, package: LockedPackage, advisories: Sequence[Advisory]) -> None:
        ids = fixing.ids_of(advisories)
        try:
            reason = fixing.unmovable(package) or self._first_that_fits(package, advisories)
        except (NetworkError, ResolutionError, IntegrityError) as error:
            reason = error.what.partition("\n")[0]
        if reason:
            unfixed = UnfixedPackage(name=package.name, version=package.version, ids=ids, reason=printable(reason))
            self._unfixed.append(unfixed)
            return
        left = fixing.ids_of(advisory for advisory in advisories if not advisory.fixed)
        after = self._moved[package.name].version
        self._ids[package.name] = PackageFix(name=package.name, before=package.version, after=after, ids=ids, left=left)

    def _first_that_fits(self, package: LockedPackage, advisories: Sequence[Advisory]) -> str:
        """Take the lowest release that fixes a package and goes with the others; else say why there is no such one."""
        listed = self._known.listed(package.name, self._offers)
        allowed, reason = fixing.candidates(package, advisories, listed, self._target, self._day(package.name))
        for release in self._ordered(package.name, fixing.ids_of(advisories), allowed):
            moved = {**self._moved, package.name: release}
            try:
                pinned = {offer.name: offer for offer in self._pins(moved)}
            except UnsolvableError as error:
                words = " ".join(error.explanation.replace("\u2570\u2500\u25b6", "").replace("\u00d7", "").split())
                reason = reason or f"{package.name} {release.version} does not go with the rest: {words[:_LONGEST]}"
                continue
            more = sorted(pinned.keys() - {other.name for other in self._lock.packages})
            if more or package.name not in pinned:
                needs = joined(more) or "what the stack has not"
                reason = reason or f"{package.name} {release.version} needs {needs} besides"
                continue
            self._moved, self._offered[package.name] = moved, pinned[package.name]
            return ""
        return reason or "each release that fixes it has what is known against this one"

    def _ordered(self, name: str, ids: Sequence[str], allowed: Sequence[ListedRelease]) -> Iterator[ListedRelease]:
        """The lowest first; before those the lowest that nothing is known against, where there is one."""
        clean, others = list[ListedRelease](), list[ListedRelease]()
        for release in allowed[: 2 * _TRIES]:
            known = self._known.advisories.of(name, release.version).advisories or ()
            if not set(fixing.ids_of(known)) & set(ids):
                (others if known else clean).append(release)
        yield from (*clean, *others)[:_TRIES]

    def _day(self, name: str) -> str:
        """The day after which the stack takes no files of a package; empty where it takes all."""
        lines = [*self._stack.recipe.requirements, *self._variant.requirements, *self._stack.way.overrides]
        cutoff = cutoff_of(self._stack.recipe, self._variant, [*lines, *constraints_of(self._offers.torch)])
        return "" if cutoff is None or name in cutoff.exempt else cutoff.date

    def _pins(self, moved: Mapping[str, ListedRelease]) -> tuple[Offer, ...]:
        """All packages of the lock as they are, but these; as uv puts them together. Raises UnsolvableError."""
        if self._lines is None:
            self._lines = list(self._rest())
        lines = [*self._stack.recipe.requirements, *self._variant.requirements, *self._lines]
        lines += [
            f"{package.name}=={package.version}"
            for package in self._lock.packages
            if _is_of_index(package) and package.name not in moved
        ]
        lines += [f"{name}=={release.version}" for name, release in moved.items()]
        return resolve_pins(
            lines,
            self._target,
            self._offers,
            overrides=self._stack.way.overrides,
            constraints=constraints_of(self._offers.torch),
        )

    def _rest(self) -> Iterator[str]:
        """What uv is asked for besides pins: wheels of other channels by address, what sources require."""
        cache = self._sources.cache
        for package in self._lock.packages:
            if _is_of_index(package):
                continue
            address = self._address(package)
            if not package.is_sdist:
                yield f"{package.name} @ {address}#sha256={package.file.sha256}"
                continue
            if not is_stored(package.file, cache):
                store(package.file, address, self._sources.client, cache)
            yield from read_sdist(cache.file(package.file.sha256, package.file.name), package.file.name).requires

    def _address(self, package: LockedPackage) -> str:
        """Where a locked file is. Raises ResolutionError where its channel lists it no more."""
        cache = self._sources.cache
        if is_stored(package.file, cache):
            return cache.file(package.file.sha256, package.file.name).absolute().as_uri()
        for links in self._offers.listed(package.channel, package.name):
            for link in links:
                if link.name == package.file.name:
                    return link.url
        raise ResolutionError(
            f"{package.file.name}, which the others have to go with, is not listed by the {package.channel} channel",
            next_step=catalog.renewal(self._stack.recipe, self._variant, self._stack.way),
        )

    def _with_packages(self) -> Lock:
        """The lock with what was accepted."""
        if not self._offered:
            return self._lock
        new = {package.name: package for package in lock_offers(self._offered.values(), self._sources)}
        packages = tuple(new.get(package.name, package) for package in self._lock.packages)
        return msgspec.structs.replace(self._lock, packages=packages)

    def _with_bases(self, lock: Lock) -> tuple[Lock, list[PackageFix]]:
        """The lock with bases of today where one has a fix, and which fixes those are."""
        fixed: list[PackageFix] = []
        for of, base in bases_of(lock):
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
        """What the base consists of today; None where its suite cannot give it any more."""
        archive, compilation = self._known.archive(base.suite), self._lock.compilation
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

    Whoever lets a package through by name (exclude_newer_except) asks for no more than before. Empty: it does not.
    """
    exempt = recipe.exclude_newer_except
    for count in range(min(len(exempt), _MOST_EXEMPT) + 1):
        for names in itertools.combinations(exempt, count):
            left = {name: why for name, why in exempt.items() if name not in names}
            before = msgspec.structs.replace(recipe, exclude_newer_except=left)
            if lock.request_sha256 == request_digest(before, variant, way):
                return request_digest(recipe, variant, way)
    return ""


def _is_of_index(package: LockedPackage) -> bool:
    return package.channel is Channel.PYPI and not package.is_sdist
