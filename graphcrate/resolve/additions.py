"""A person's packages on top of a stack: torch, CUDA and what is compiled for them stay, everything else may move.

uv sees what stays as empty wheels of those names and versions, and keeps the other versions of the stack's lock where
nothing is against them. So a package that wants another torch is refused with who wants what, and an image with one
more package shares its layers with the stack's own.

A wheel goes before any sdist, be it of an older release; and what metadata does not say of releases that do not fit
each other, `compat.together` does.
"""

import contextlib
import hashlib
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat import names, own, together, toolkits
from graphcrate.compat.packages import requirements
from graphcrate.host import settings
from graphcrate.host.cache import kept
from graphcrate.inputs.wheels.sdist import SdistMetadata, compiled_sources, read_sdist
from graphcrate.model.errors import IntegrityError, LockedError, ResolutionError
from graphcrate.model.lock import Added, Compilation, Lock, LockedPackage, encode
from graphcrate.model.recipe import Additions, Channel, Variant
from graphcrate.model.words import listed
from graphcrate.resolve import built_for
from graphcrate.resolve.base import lock_base, lock_compiler
from graphcrate.resolve.conflicts import Clause, Conflicts, clauses
from graphcrate.resolve.extensions import TOOLS, Means, lock_compilation, means_for
from graphcrate.resolve.local import store_local
from graphcrate.resolve.locks import Resolution, ResolveContext
from graphcrate.resolve.offers import Offer, Offers
from graphcrate.resolve.pinning import constraints_of, lock_offer, lock_offers, resolve_pins
from graphcrate.resolve.refusals import refuse_traps, refuse_twice
from graphcrate.resolve.resolver import PYG, lock_sdist
from graphcrate.resolve.target import target_of

#: Raise it whenever the same additions would be resolved otherwise.
RULES = 16
_STAYS = re.compile(rf"torch|triton|{PYG}|(nvidia|cuda)-.*")
#: of uv's words: a package that is there as source only
_SOURCE_ONLY = re.compile(r"Wheels are required for `([^`]+)`")
_MOST_TURNS = 24  #: of uv, each with one more sdist or bound


def add(
    context: ResolveContext,
    resolution: Resolution,
    additions: Additions,
    committed: Lock | None,
    *,
    fresh: bool = False,
) -> Resolution:
    """The resolution with the additions' packages in its lock, which says which those are.

    `committed`: the lock beside a person's recipe; it and the cache's are taken as long as they answer the same
    request, but for `fresh`. Raises ResolutionError for what contradicts the stack or does not exist, NetworkError,
    BuildError for a project that cannot be made a wheel, LockedError when only committed locks may answer.
    """
    ctx, stack, only_committed = context.ctx, resolution.lock, context.request.locked
    offers = Offers.of_lock(context.sources, stack)
    refuse_traps(context, stack, additions.packages, offers)
    packages = own.wanted_packages(additions)
    local = [store_local(package, offers, context) for package in packages if own.is_local(package)]
    named = [package for package in packages if not own.is_local(package)]
    # By what the stack is, not by what it was asked for: the same request is locked anew with other packages.
    asked = [RULES, stack.contents_sha256, stack.candidate, additions.constraints, sorted(additions.apt), sorted(named)]
    asked.append(sorted(one.file.sha256 for one in local))
    if additions.channels:  # by name: an address may hold a password
        asked.append([source.title for source in context.sources.user.further])
    digest = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()
    record = ctx.cache.path("resolutions", f"{digest}.json")
    if not fresh:
        for lock in (committed, None if only_committed else kept(record, Lock)):
            if lock is not None and lock.request_sha256 == digest:
                return msgspec.structs.replace(resolution, lock=_compiled_as(stack, lock))
    if only_committed:
        is_other = "the lock beside your recipe answers other packages, or another stack"
        raise LockedError(
            is_other if committed else "what you add to the stack is not locked",
            cause="LOCKED=yes (--locked) builds from committed locks alone.",
            next_step="./build.py lock ./mine.toml    (a recipe of your own has its lock beside it)",
        )
    ctx.progress.note("resolving the packages on top of the stack")
    lock = _Resolver(context, resolution, additions, local, named, offers).lock(digest)
    ctx.cache.keep(record, encode(lock))
    return msgspec.structs.replace(resolution, lock=_compiled_as(stack, lock))


def _compiled_as(stack: Lock, lock: Lock) -> Lock:
    """The lock with the compiler and toolkit of today's request (GPUs, a devel image), which the stack's lock has."""
    compilation = stack.compilation
    if lock.compilation and any(one.compiled and one.name in lock.additions.packages for one in lock.packages):
        # With the Debian packages that were added.
        compilation = msgspec.structs.replace(compilation or lock.compilation, base=lock.compilation.base)
    return msgspec.structs.replace(lock, compilation=compilation)


class _Resolver:
    """One resolution of additions."""

    def __init__(
        self,
        context: ResolveContext,
        resolution: Resolution,
        additions: Additions,
        local: Sequence[LockedPackage],
        named: Sequence[str],
        offers: Offers,
    ) -> None:
        self._context, self._candidate, self._stack = context, resolution.candidate, resolution.lock
        self._additions, self._offers, self._cache = additions, offers, context.ctx.cache
        self._given = local
        self._local = {one.name: one for one in local if not one.compiled}
        self._target = target_of(context.variant.base, context.variant.python)
        self._staying = {one.name: one for one in self._stack.packages if _stays(one)}
        self._conflicts = Conflicts(context, self._stack, self._staying, offers)
        self._named = list(requirements(named, self._target.python))  #: what a marker excludes is not asked for
        self._conflicts.asked = self._named
        self._asked = [one for one in self._named if not self._stays_for(one)]
        self._with_cuda = False  #: whether something with CUDA sources is compiled
        self._sdists = {one.name: self._lock_source(one) for one in local if one.compiled}
        self._local_sources = {*self._sdists}
        self._by_source = {*self._sdists}  #: packages of which an sdist may be taken
        self._barred = dict[str, ResolutionError]()  #: those of which none may, since it cannot be compiled
        self._bounds = list[str]()  #: constraints that nobody's metadata has
        self._besides = dict[str, str]()  #: what is asked for since a package imports it → that package
        self._because = dict[str, tuple[str, str]]()  #: name → the version that was not taken, and why
        self._unfit = list[str]()  #: notes on what does not fit and was asked for so
        self._cleared = set[tuple[str, str]]()  #: releases whose extras were looked at

    def lock(self, digest: str) -> Lock:
        """The stack's lock with what was asked for, and all that it needs."""
        stack, ctx = self._stack, self._context.ctx
        with self._cache.folder() as stays, self._cache.folder() as sources:
            self._sources = sources
            for one in self._sdists.values():
                _stand_in(sources, one.name, one.version)
            self._stays = [f"{name} @ {_stand_in(stays, name, one.version)}" for name, one in self._staying.items()]
            pinned, notes = self._pinned()
        there = {one.name: one for one in stack.packages}
        new = [one for one in pinned if not self._is_there(one)]
        wheels = lock_offers((one for one in new if one.name not in self._sdists), self._offers.sources)
        sdists = [self._sdists[one.name] for one in new if one.name in self._sdists]
        packages = {one.name: one for one in (*wheels, *sdists, *self._local.values())}
        links = {one.name: one.link for one in new}
        _check_hashes(packages.values(), self._additions.hashes)
        refuse_twice({*there, *packages}, self._conflicts.title)
        built_for.check(packages.values(), links, self._offers, ctx.progress)
        moved = tuple(sorted(name for name in packages if name in there))
        notes += [f"{name} {packages[name].version} instead of the stack's {there[name].version}" for name in moved]
        notes += self._already_there(packages)
        variant = own.with_apt(self._context.variant, self._additions)
        base = lock_base(ctx, variant) if self._additions.apt else stack.base
        return msgspec.structs.replace(
            stack,
            created=int(settings.now()),
            request_sha256=digest,
            base=base,
            compilation=self._compilation(variant),
            packages=tuple(sorted({**there, **packages}.values(), key=lambda one: one.name)),
            notes=(*stack.notes, *notes),
            added=Added(
                packages=tuple(sorted(packages)),
                asked=tuple(dict.fromkeys([*map(_name, self._asked), *(one.name for one in self._given)])),
                moved=moved,
            ),
        )

    def _is_there(self, one: Offer) -> bool:
        """Whether the stack has the very version."""
        there = self._stack.package(one.name)
        return there is not None and there.version == one.version

    def _already_there(self, added: Collection[str]) -> list[str]:
        """What was asked for and needs not be added, as a note."""
        kept = (self._stack.package(_name(one)) for one in self._named if _name(one) not in added)
        said = dict.fromkeys(f"{one.name} {one.version}" for one in kept if one)
        return [f"already there: {listed(said)}"] if said else []

    def _stays_for(self, wanted: Requirement) -> bool:
        """Whether it is of what stays. Raises ResolutionError where another version is asked for."""
        staying = self._staying.get(_name(wanted))
        if staying and self._conflicts.against([Clause("", wanted)]):
            raise self._conflicts.refusal(Clause("", wanted))
        return staying is not None

    def _pinned(self) -> tuple[tuple[Offer, ...], list[str]]:
        """What uv chooses, and what is to be known of it."""
        for _ in range(_MOST_TURNS):
            try:
                pinned = self._ask_uv()
            except ResolutionError as error:
                if self._take_source(error):
                    continue
                raise self._explained(error) from error
            if self._take_requirements(pinned) or self._keep_pairs(pinned) or self._keep_extras(pinned):
                continue
            if (older := self._not_newest(pinned)) is None:
                continue
            chosen = {one.name: one.version for one in pinned}
            for name, (version, why) in self._because.items():
                if chosen.get(name, version) != version:
                    older.append(f"{name} {chosen[name]}, not {version}: {why}")
            brought = [
                one.why(one.name) for asked in self._asked if (one := names.trap(asked.name)) and one.kind == "works"
            ]
            besides = [f"{by} imports {need}, and does not ask for it" for need, by in self._besides.items()]
            return pinned, [*older, *self._unfit, *brought, *besides]
        raise ResolutionError("the packages need one another in too many ways", next_step="pin them: package==1.2")

    def _ask_uv(self, *more: str, bounds: Sequence[str] = (), bounded: bool = True) -> tuple[Offer, ...]:
        """What uv chooses with these requirements too. `bounded`: by what metadata does not say, and by `bounds`."""
        lines = [*self._context.recipe.requirements, *self._context.variant.requirements, *map(str, self._asked)]
        lines += [str(clause.wanted) for clause in self._of_sdists()]
        lines += [*self._besides, *(f"{one.name}=={one.version}" for one in self._sdists.values())]
        local = [f"{one.name} @ {self._stored(one).absolute().as_uri()}" for one in self._local.values()]
        limits = [*constraints_of(self._staying["torch"].version), *self._additions.constraints]
        return resolve_pins(
            [*(one for one in lines if _name(Requirement(one)) not in self._staying), *self._stays, *local, *more],
            self._target,
            self._offers,
            constraints=[*limits, *(self._bounds if bounded else ()), *bounds],
            preferred=[one for one in self._stack.packages if one.name not in self._staying],
            wheels=self._sources,
        )

    def _of_sdists(self) -> Iterator[Clause]:
        """What the sdists that were taken require; uv sees it as asked for."""
        for one in self._sdists.values():
            for line in read_sdist(self._stored(one), one.file.name).requires:
                yield Clause(f"{one.name}=={one.version}", Requirement(line))

    def _stored(self, package: LockedPackage) -> Path:
        return self._cache.file(package.file.sha256, package.file.name)

    def _not_newest(self, pinned: Sequence[Offer]) -> list[str] | None:
        """What was asked for and is not the newest release, and why; None where that was for want of a source.

        What the stack has is kept, as pip keeps what is installed.
        """
        older = []
        for wanted in self._asked:
            name = _name(wanted)
            have = next((one for one in pinned if one.name == name), None)
            if have is None or self._is_there(have) or name in self._because or have.name in self._sdists:
                continue
            newest, has_wheel = self._newest(wanted)
            if newest is None or Version(have.version) >= newest:
                continue
            if not has_wheel and Version(have.version).is_prerelease and name not in (*self._by_source, *self._barred):
                self._offer_sources(name)  # deepspeed has one wheel, of 0.3.1.dev5
                return None
            why = f"it has no wheel for Python {self._target.python}"
            if has_wheel:
                probe = Requirement(f"{name}=={newest}")
                try:
                    self._ask_uv(str(probe), bounded=False)
                    if not self._because:
                        continue
                    why = f"of {listed(self._because)} an older release is taken"
                except ResolutionError as error:
                    if self._take_source(error, but=name):
                        return None
                    why = self._conflicts.reason(error, probe)
            older.append(f"{name} {have.version}, not {newest}: {why}")
        return older

    def _newest(self, wanted: Requirement) -> tuple[Version | None, bool]:
        """The newest final release that was not excluded, and whether it has a wheel for the image.

        None for a package of which the version is given.
        """
        if any(part.operator in ("==", "===") for part in wanted.specifier):
            return None, False
        releases = list(self._offers.releases(_name(wanted)))
        wheels = {Version(one.version) for one in releases if self._has_wheel(one)}
        fitting = wheels | {Version(one.version) for one in releases if one.is_sdist}
        newest = max(wanted.specifier.filter(one for one in fitting if not one.is_prerelease), default=None)
        return newest, newest in wheels

    def _has_wheel(self, release: Offer) -> bool:
        return not release.is_sdist and self._target.rank(release.link.name) is not None

    def _take_source(self, error: ResolutionError, but: str = "") -> bool:
        """Let uv choose among the sdists of what has no wheels. False where that is not what failed.

        A package that has no wheel at all goes first: another one may be there in a release with a wheel. `but`: whose
        sdist is not taken. What the stack has as a wheel is never compiled: numpy takes an hour, where it can be.
        """
        found = {str(canonicalize_name(name)) for name in _SOURCE_ONLY.findall(error.what)}
        found -= {but, *self._by_source, *self._barred}
        wheels = {one.name for one in self._stack.packages if not one.is_sdist}
        for name in found & wheels:
            wanting = (one for one in (*self._of_sdists(), *clauses(error.what)) if _name(one.wanted) == name)
            clause = next(
                wanting, Clause("", next((one for one in self._asked if _name(one) == name), Requirement(name)))
            )
            self._barred[name] = self._conflicts.without_wheel(clause, self._target.python)
        found -= wheels
        releases = {name: list(self._offers.releases(name)) for name in found}
        alone = {name for name, ones in releases.items() if not any(map(self._has_wheel, ones))}
        taken = alone or found
        for name in taken:
            self._offer_sources(name)
        return bool(taken)

    def _offer_sources(self, name: str) -> None:
        """Let uv choose among a package's sdists of releases without a wheel."""
        self._by_source.add(name)
        with_wheel = {one.version for one in self._offers.releases(name) if self._has_wheel(one)}
        for one in self._sdists_of(name):
            if one.version not in with_wheel:
                _stand_in(self._sources, name, one.version)

    def _sdists_of(self, name: str) -> list[Offer]:
        return [one for one in self._offers.releases(name) if one.is_sdist and one.link.sha256]

    def _take_requirements(self, pinned: Sequence[Offer]) -> bool:
        """Lock the sdists that uv chose; True where there are new ones, whose own requirements count from now on."""
        new = False
        for one in pinned:
            known = self._sdists.get(one.name)
            is_source = one.name in self._by_source and one.link.url.startswith(self._sources.absolute().as_uri())
            if known and not is_source and one.name not in self._local_sources:
                del self._sdists[one.name]  # a release with a wheel after all
                new = True
            if is_source and (known is None or known.version != one.version):
                sdist = next(sdist for sdist in self._sdists_of(one.name) if sdist.version == one.version)
                new = True
                try:
                    self._sdists[one.name] = self._lock_source(lock_offer(sdist, self._offers.sources))
                except ResolutionError as error:
                    self._bar(one.name, error)
        return new

    def _bar(self, name: str, error: ResolutionError) -> None:
        """Take no sdist of this package: another one may do with a release that has a wheel."""
        self._barred[name] = error
        self._by_source.discard(name)
        self._sdists.pop(name, None)
        for path in self._sources.glob(f"{name.replace('-', '_')}-*.whl"):
            path.unlink()

    def _keep_pairs(self, pinned: Sequence[Offer]) -> bool:
        """Bound what does not fit together by what is known of it; True where uv has to be asked again."""
        there = {one.name: one.version for one in (*self._stack.packages, *self._local.values())}
        there |= {one.name: one.version for one in pinned}
        for pair in together.broken(there):
            if pair.needed not in self._staying:
                with contextlib.suppress(ResolutionError):
                    self._ask_uv(bounds=[pair.needs])
                    self._bound(
                        pair.needs, pair.needed, there[pair.needed], f"{pair.package} needs {pair.needs}: {pair.why}"
                    )
                    return True
            try:
                self._ask_uv(bounds=[pair.without])
            except ResolutionError as error:
                if self._take_source(error):
                    return True  # a newer release, which is there as source only
                clause = Clause(f"{pair.package}=={there[pair.package]}", Requirement(pair.needs))
                raise self._conflicts.refusal(clause, pair.why) from error
            self._bound(pair.without, pair.package, there[pair.package], f"it needs {pair.needs}: {pair.why}")
            return True
        besides = {need: by for need, by in together.undeclared(there).items() if need not in self._besides}
        self._besides |= besides
        return bool(besides)

    def _bound(self, line: str, name: str, version: str, why: str) -> None:
        self._bounds.append(line)
        first, reasons = self._because.get(name, (version, ""))
        self._because[name] = first, f"{reasons}; {why}" if reasons else why

    def _keep_extras(self, pinned: Sequence[Offer]) -> bool:
        """Bound a release that is for another torch by its own extra; True where uv has to be asked again.

        Where a person asks for such a release by its version, or no other fits, that is a note.
        """
        extras = ",".join(one.name for one in together.extras() if one.package in self._staying)
        new = {one.name: one.version for one in pinned if not self._is_there(one) and one.name not in self._sdists}
        while left := {name: version for name, version in new.items() if (name, version) not in self._cleared}:
            try:
                self._ask_uv(*(f"{name}[{extras}]=={version}" for name, version in left.items()))
            except ResolutionError as error:
                found = self._conflicts.against(one for one in clauses(error.what) if "[" in one.who)
                name = found.who.partition("[")[0] if found else ""
                if found is None or name not in left:
                    break  # what the extras need besides is against something: nobody asks for that
                self._cleared.add((name, left[name]))
                if self._bound_by_extra(name, left[name], f"{name}[{extras}]", found):
                    return True
            else:
                self._cleared |= {*left.items()}
        return False

    def _bound_by_extra(self, name: str, version: str, extra: str, clause: Clause) -> bool:
        """Take the newest release that goes with its extra; False where there is none, and this one stays."""
        with contextlib.suppress(ResolutionError):
            fitting = next(one.version for one in self._ask_uv(extra) if one.name == name)
            self._bound(
                f"{name}<={fitting}", name, version, f"its extra for {clause.wanted.name} needs {clause.needed}"
            )
            return True
        needs = f"its extra for {clause.wanted.name} needs {clause.needed}"
        have = self._conflicts.limits[_name(clause.wanted)].said
        self._unfit.append(f"{name} {version} may do without {clause.wanted.name}: {needs}, and the stack has {have}")
        return False

    def _lock_source(self, package: LockedPackage) -> LockedPackage:
        """An sdist with its back-end, or one to be compiled with what that needs beside the lock's tools."""
        path = self._stored(package)
        if not (sources := compiled_sources(path)):
            return lock_sdist(package, self._offers)
        about = read_sdist(path, path.name)
        if obstacle := self._obstacle(about):
            raise ResolutionError(
                f"{package.name} {package.version} is there as source only, and has to be compiled ({sources[0]})",
                cause=obstacle,
                next_step=f"bring a wheel of it (--with ./{package.name}-….whl), or ask for another version"
                + (f"; an image with FLAVOUR=devel APT={about.tool.lower()} has what makes one" if about.tool else ""),
            )
        self._with_cuda = self._with_cuda or any(name.endswith(".cu") for name in sources)
        there = {*self._staying, *(_name(Requirement(tool)) for tool in TOOLS)}
        needed = [one for one in about.build_requires if _name(Requirement(one)) not in there]
        constraints = constraints_of(self._staying["torch"].version)
        pinned = resolve_pins(
            needed, self._target, self._offers, constraints=constraints, preferred=self._stack.packages
        )
        build = lock_offers((one for one in pinned if one.name not in there), self._offers.sources)
        return msgspec.structs.replace(package, build=build)

    def _obstacle(self, about: SdistMetadata) -> str:
        """Why an sdist cannot be compiled; empty where it can."""
        if not about.is_setup:
            return "Only what setuptools builds by a setup.py is compiled."
        if about.tool:
            return f"Its setup.py builds it by {about.tool}, and compiling has setuptools and a compiler alone."
        try:
            self._means()
        except ResolutionError as error:
            return error.what
        return ""

    def _means(self) -> Means:
        return means_for(self._context.variant, self._candidate, self._offers.sources.request)

    def _compilation(self, variant: Variant) -> Compilation | None:
        """With what the additions are compiled: what the stack has, or the compiler alone where no CUDA is wanted."""
        compilation = self._stack.compilation
        if not any(one.compiled for one in self._sdists.values()):
            return compilation
        ctx = self._context.ctx
        if compilation is None:
            means = self._means()
            if not self._with_cuda:
                means = msgspec.structs.replace(means, option=None, architectures=())
            elif means.option and not means.architectures:  # a stack that has nothing to compile names none
                torch, cuda = self._staying["torch"].version, self._candidate.torch_cuda
                found = toolkits.architectures_of(torch, cuda, means.option.version)
                means = msgspec.structs.replace(means, architectures=found)
            return lock_compilation(means, variant, self._stack.packages, self._offers, ctx)
        if not self._additions.apt:
            return compilation
        base = lock_compiler(ctx, variant, compilation.base.suite, compilation.compiler)
        return msgspec.structs.replace(compilation, base=base)

    def _explained(self, error: ResolutionError) -> ResolutionError:
        """Who wants what of which the stack has another; for a name that no index has, the nearest that we know."""
        text = "\n".join(error.what.splitlines()[1:])
        if absent := self._conflicts.absent(text):
            return absent
        direct = (Clause("", one) for one in self._asked)
        if clause := self._conflicts.against([*direct, *self._of_sdists(), *clauses(text)]):
            return self._conflicts.refusal(clause)
        needed = {str(canonicalize_name(name)) for name in _SOURCE_ONLY.findall(text)}
        return next(
            (reason for name, reason in self._barred.items() if name in needed), self._conflicts.unexplained(text)
        )


def _check_hashes(packages: Iterable[LockedPackage], hashes: Mapping[str, Sequence[str]]) -> None:
    """Raises IntegrityError for a file that a requirements file with hashes does not name."""
    for one in packages:
        known = hashes.get(one.name)
        if known and one.channel is Channel.PYPI and one.file.sha256 not in known:
            raise IntegrityError(
                f"{one.file.name} has sha256 {one.file.sha256}, which your requirements do not name",
                cause="The index has another file of that version than when the hashes were written, or a newer one.",
                next_step=f"write the hashes of {one.name} again, or take them out: the lock has its own",
            )


def _name(wanted: Requirement) -> str:
    return str(canonicalize_name(wanted.name))


def _stays(package: LockedPackage) -> bool:
    """torch, CUDA, PyG, and what is compiled against torch or comes from a channel of its own."""
    return package.compiled or package.channel is not Channel.PYPI or bool(_STAYS.fullmatch(package.name))


def _stand_in(folder: Path, name: str, version: str) -> str:
    """Write an empty wheel of this name and version; its address."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path.as_uri()
