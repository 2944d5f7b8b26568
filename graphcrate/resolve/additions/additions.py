"""The user's packages on top of a stack: torch, CUDA and what is compiled for them stay, everything else may move.

uv sees what stays as empty wheels of those names and versions, and keeps the other versions of the stack's lock where
nothing is against them. So a package that needs another torch is refused with that requirement, and an image with one
more package shares its layers with the stack's own.

A wheel goes before any sdist, be it of an older release; and what metadata does not say of releases that do not fit
each other, `compat.facts.together` does.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from packaging.requirements import Requirement

from graphcrate.compat.facts import back_ends, cpu_only, sonames, together
from graphcrate.compat.facts.compilers import folder_for
from graphcrate.compat.facts.packages import requirements
from graphcrate.compat.requirements import own_packages
from graphcrate.host import settings
from graphcrate.host.disk.sealed import kept
from graphcrate.model.command import command, setting
from graphcrate.model.errors import IntegrityError, LockedError
from graphcrate.model.lock import Added, Lock, LockedPackage, encode
from graphcrate.model.recipe import Additions, Channel
from graphcrate.model.words import listed
from graphcrate.resolve.additions.conflicts import Conflicts
from graphcrate.resolve.additions.extras import with_extras
from graphcrate.resolve.additions.local import store_local
from graphcrate.resolve.additions.obstacles import Clause
from graphcrate.resolve.additions.refusals import refuse_traps, refuse_twice, without_lacking
from graphcrate.resolve.additions.sdists import Sdists
from graphcrate.resolve.additions.solving import Solver, name_of
from graphcrate.resolve.sources.offers import Offer, Offers
from graphcrate.resolve.stack import built_for
from graphcrate.resolve.stack.base import lock_base
from graphcrate.resolve.stack.locks import Resolution, ResolveContext
from graphcrate.resolve.stack.pinning import lock_offers
from graphcrate.resolve.stack.resolver import PYG

#: Raise it whenever the same additions would be resolved otherwise.
RULES = 20
_STAYS = re.compile(rf"torch|triton|{PYG}|(nvidia|cuda)-.*")


def add(
    context: ResolveContext,
    resolution: Resolution,
    additions: Additions,
    committed: Lock | None,
    *,
    fresh: bool = False,
) -> Resolution:
    """The resolution with the additions' packages in its lock, which says which those are.

    `committed`: the lock beside the user's recipe; it and the cache's are taken as long as they answer the same
    request, but for `fresh`. Raises ResolutionError for what contradicts the stack or does not exist, NetworkError,
    BuildError for a project that cannot be made a wheel, LockedError when only committed locks may answer.
    """
    ctx, stack, only_committed = context.ctx, resolution.lock, context.request.locked
    offers = Offers.of_lock(context.sources, stack)
    additions = without_lacking(stack, additions, offers)
    refuse_traps(context, stack, additions.packages, offers)
    packages = own_packages.wanted_packages(additions)
    local = [store_local(package, offers, context) for package in packages if own_packages.is_local(package)]
    named = [package for package in packages if not own_packages.is_local(package)]
    # By what the stack is, not by what it was asked for: the same request is locked again with other packages.
    asked = [RULES, stack.contents_sha256, stack.candidate, additions.constraints, sorted(additions.apt), sorted(named)]
    asked.append(sorted(package.file.sha256 for package in local))
    if additions.build_apt:
        asked.append({"build_apt": sorted(additions.build_apt)})
    if additions.build_environment:
        asked.append({"build_env": sorted(additions.build_environment.items())})
    if any(_STAYS.fullmatch(name_of(requirement)) and requirement.extras for requirement in map(Requirement, named)):
        asked.append({"extras": 1})  # raised where they are taken otherwise; 0: they were not
    if additions.channels:  # by name: an address may hold a password
        asked.append([[source.title, source.names] for source in context.sources.user.further])
    digest = hashlib.sha256(msgspec.json.encode(asked)).hexdigest()
    record = ctx.cache.path("resolutions", f"{digest}.json")
    if not fresh:
        known = None if only_committed else kept(record, Lock)
        for lock in (committed, None if known and _is_outdated(known) else known):
            if lock is not None and lock.request_sha256 == digest:
                return msgspec.structs.replace(resolution, lock=_compiled_as(stack, lock))
    if only_committed:
        is_other = "the lock beside your recipe answers other packages, or another stack"
        raise LockedError(
            is_other if committed else "what you add to the stack is not locked",
            cause=f"{setting(locked=True).both()} builds from committed locks alone.",
            next_step=f"{command('lock', 'mine.toml')}    (a recipe of your own has its lock beside it)",
        )
    ctx.progress.note("resolving the packages on top of the stack")
    lock = _lock(context, resolution, additions, local, named, offers, digest=digest)
    ctx.cache.keep(record, encode(lock))
    return msgspec.structs.replace(resolution, lock=_compiled_as(stack, lock))


def _is_outdated(lock: Lock) -> bool:
    """Return whether a lock of the cache has what would not be chosen with what is known now."""
    there = {package.name: package.version for package in lock.packages}
    twice = any(other in there for name in there for other in sonames.of_other_cuda(name))
    return twice or bool(together.broken(there)) or _compiles_otherwise(lock)


def _compiles_otherwise(lock: Lock) -> bool:
    """Return whether a lock of the cache is older than today's way to compile its sources.

    Before sources were built by their own back-ends; not all of those compile. Or before a package was known to ask for
    what its lock does not have.
    """
    added = [package for package in lock.packages if package.name in lock.additions.packages and package.compiled]
    there = [package.name for package in lock.packages]
    return any(
        (not package.back_end and folder_for(package.name) is None) or back_ends.lacks(package, there, lock.torch_cuda)
        for package in added
    )


def _compiled_as(stack: Lock, lock: Lock) -> Lock:
    """The lock with the compiler and toolkit of today's request (GPUs, a devel image), which the stack's lock has."""
    compilation = stack.compilation
    if lock.compilation and any(
        package.compiled and package.name in lock.additions.packages for package in lock.packages
    ):
        # With the Debian packages that were added, and what the added sources are linked to.
        theirs = lock.compilation
        compilation = msgspec.structs.replace(
            compilation or theirs,
            base=theirs.base,
            libraries=theirs.libraries,
            with_apt=theirs.with_apt,
            with_env=theirs.with_env,
        )
    return msgspec.structs.replace(lock, compilation=compilation)


def _lock(
    context: ResolveContext,
    resolution: Resolution,
    additions: Additions,
    local: Sequence[LockedPackage],
    named: Sequence[str],
    offers: Offers,
    *,
    digest: str,
) -> Lock:
    """The stack's lock with what was asked for, and all that it needs. `local`: the user's own, `named`: the rest."""
    stack, ctx = resolution.lock, context.ctx
    staying = {package.name: package for package in stack.packages if _stays(package)}
    conflicts = Conflicts(context, stack, staying, offers)
    required = with_extras([*requirements(named, context.variant.python)], conflicts, offers, context.variant.python)
    conflicts.asked = required
    asked = [requirement for requirement in required if not _stays_for(requirement, conflicts)]
    wheels = [package for package in local if not package.compiled]
    with ctx.cache.folder() as folder, ctx.cache.folder() as sources:
        to_compile = [package for package in local if package.compiled]
        sdists = Sdists(context, stack, resolution.candidate, conflicts, sources, to_compile)
        solver = Solver(context, stack, conflicts, sdists, asked, wheels, additions.constraints, folder)
        pinned, notes = solver.solve()
    notes += sdists.notes([name_of(requirement) for requirement in required])
    new = [offer for offer in pinned if not _has(stack, offer)]
    packages = _locked(new, sdists, wheels, offers)
    _check_hashes(packages.values(), additions.hashes)
    there = {package.name: package for package in stack.packages}
    refuse_twice({*there, *packages}, conflicts.title)
    built_for.check(packages.values(), {offer.name: offer.link for offer in new}, offers, ctx.progress)
    moved = tuple(sorted(name for name in packages if name in there))
    notes += [f"{name} {packages[name].version} instead of the stack's {there[name].version}" for name in moved]
    notes += cpu_only.notes(packages.values(), stack.torch_cuda)
    variant = own_packages.with_apt(context.variant, additions)
    return msgspec.structs.replace(
        stack,
        created=max(stack.created, settings.day_began()),
        request_sha256=digest,
        base=lock_base(ctx, variant) if additions.apt else stack.base,
        compilation=sdists.compilation(variant, additions),
        packages=tuple(sorted({**there, **packages}.values(), key=lambda package: package.name)),
        notes=(*stack.notes, *notes, *_already_there(stack, required, packages)),
        added=Added(
            packages=tuple(sorted(packages)),
            asked=tuple(dict.fromkeys([*map(name_of, asked), *(package.name for package in local)])),
            moved=moved,
        ),
    )


def _locked(
    new: Sequence[Offer], sdists: Sdists, wheels: Sequence[LockedPackage], offers: Offers
) -> dict[str, LockedPackage]:
    """Map what is new, by name, as a lock has it."""
    of_index = lock_offers((offer for offer in new if offer.name not in sdists.locked), offers.sources)
    compiled = [sdists.locked[offer.name] for offer in new if offer.name in sdists.locked]
    return {package.name: package for package in (*of_index, *compiled, *wheels)}


def _has(stack: Lock, offer: Offer) -> bool:
    """Return whether the stack has the very version."""
    there = stack.package(offer.name)
    return there is not None and there.version == offer.version


def _already_there(stack: Lock, required: Sequence[Requirement], added: Collection[str]) -> list[str]:
    """Note what was asked for and is already there."""
    there = (stack.package(name_of(requirement)) for requirement in required if name_of(requirement) not in added)
    names = dict.fromkeys(f"{package.name} {package.version}" for package in there if package)
    return [f"already there: {listed(names)}"] if names else []


def _stays_for(requirement: Requirement, conflicts: Conflicts) -> bool:
    """Return whether it is of what stays. Raises ResolutionError where another version is asked for."""
    stays = name_of(requirement) in conflicts.staying
    if stays and conflicts.is_against(Clause("", requirement)):
        raise conflicts.refusal(Clause("", requirement))
    return stays


def _check_hashes(packages: Iterable[LockedPackage], hashes: Mapping[str, Sequence[str]]) -> None:
    """Raises IntegrityError for a file that a requirements file with hashes does not name."""
    for package in packages:
        known = hashes.get(package.name)
        if known and package.channel is Channel.PYPI and package.file.sha256 not in known:
            raise IntegrityError(
                f"{package.file.name} has sha256 {package.file.sha256}, which your requirements do not name",
                cause="The index has another file of that version than when the hashes were written, or a newer one.",
                next_step=f"write the hashes of {package.name} again, or take them out: the lock has its own",
            )


def _stays(package: LockedPackage) -> bool:
    """torch, CUDA, PyG, and what is compiled against torch or comes from a channel of its own."""
    return package.compiled or package.channel is not Channel.PYPI or bool(_STAYS.fullmatch(package.name))
