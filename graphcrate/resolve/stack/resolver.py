"""From one candidate to a lock: torch and the extensions from their channels, all else resolved by uv.

What another channel than the package index serves goes to uv by address: so no package but torch comes from PyTorch's
index, and no `2.0.1+cpu` satisfies `torch==2.0.1`. Sdists are never built for their metadata.
"""

import functools
import re
import urllib.parse
from collections.abc import Collection, Mapping, Sequence

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts import glt, pairs
from graphcrate.compat.facts.cutoff import Cutoff, cutoff_of
from graphcrate.host import settings
from graphcrate.inputs.wheels.sdist import read_sdist
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.platform import Platform
from graphcrate.model.recipe import Candidate, Channel, Variant
from graphcrate.model.words import listed
from graphcrate.resolve.sources import pyg_lib, witnessing
from graphcrate.resolve.sources.channels import names_of
from graphcrate.resolve.sources.metadata import MetadataReader
from graphcrate.resolve.sources.offers import Offer, Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.storing import is_stored
from graphcrate.resolve.sources.target import WheelTarget, target_of
from graphcrate.resolve.stack import built_for
from graphcrate.resolve.stack.base import lock_base
from graphcrate.resolve.stack.extensions import choose_compiler, find_extensions, lock_compilation, lock_found
from graphcrate.resolve.stack.locks import ResolveContext
from graphcrate.resolve.stack.pinning import (
    UnsolvableError,
    constraints_of,
    lock_offer,
    lock_offers,
    resolve_pins,
    without_times,
)

PYG = "torch-geometric"
#: build back-ends run on the host, which has at least this Python
BUILD_TARGET = WheelTarget("3.11", "2.28")
#: a wheel of a program, whatever Python starts it
_PROGRAM = re.compile(r"-py3-none-(?:many|musl)?linux\w*(?:\.\w+)*\.whl$")
CUDA_PACKAGE = re.compile(r"(nvidia|cuda)-.*|triton")


def resolve(context: ResolveContext, candidate: Candidate, digest: str) -> Lock:
    """Lock a candidate. `digest`: of the request that the lock answers.

    Raises UnavailableError for a main channel that is silent or lacks torch, ResolutionError, NetworkError.
    """
    variant, sources = context.variant, context.sources
    target = target_of(variant.base, variant.python)
    torch = find_torch(candidate, target, sources)
    offers = Offers(sources, torch.version, candidate.torch_cuda)
    extensions, missing = find_extensions(variant, candidate, target, offers)
    companions = _find_companions(context, torch, target, offers)
    offered = [*([torch] if torch.channel is not Channel.PYPI else []), *companions, *extensions]
    locked = {offer: lock_found(offer, target, offers) for offer in offered}
    geometric = _find_sdist(variant, target, offers)
    requirements = _requirements(context, torch, locked, geometric)
    pinned, cutoff, undated = _pins(context, candidate, torch, requirements, target, offers)
    names = [offer.name for offer in offered]
    others = lock_offers((offer for offer in pinned if offer.name not in names), sources)
    packages = [*locked.values(), *others, *geometric]
    _check(packages, torch, candidate)
    built_for.check(packages, {offer.name: offer.link for offer in (*pinned, *offered)}, offers, context.ctx.progress)
    compiled = [package.name for package in packages if package.compiled]
    versions = {package.name: package.version for package in packages}
    compilation = None
    if compiled:
        choice = choose_compiler(variant, candidate, sources.request)
        compilation = lock_compilation(choice, variant, packages, offers, context.ctx)
    notes = [*_notes(offered, candidate), *pyg_lib.notes(sources.request, packages)]
    if glt.NAME in versions:
        notes += _check_glt(versions[glt.NAME], versions, torch, candidate, variant)
    return Lock(
        recipe=context.recipe.name,
        cuda=variant.cuda,
        candidate=candidate.name,
        torch_cuda=candidate.torch_cuda,
        python=variant.python,
        created=settings.day_began(),
        request_sha256=digest,
        base=lock_base(context.ctx, variant),
        packages=tuple(sorted(packages, key=lambda package: package.name)),
        compilation=compilation,
        missing=tuple(missing),
        notes=(*notes, *undated),
        exclude_newer=cutoff.date if cutoff else msgspec.UNSET,
    )


def _pins(
    context: ResolveContext,
    candidate: Candidate,
    torch: Offer,
    requirements: Sequence[str],
    target: WheelTarget,
    offers: Offers,
) -> tuple[tuple[Offer, ...], Cutoff | None, list[str]]:
    """Let uv choose as of the variant's date; return that, the date, and notes.

    Without the date, and with a note, where times are missing: a mirror that says nothing of when
    its files were uploaded would have no file at all. Raises ResolutionError, NetworkError.
    """
    constraints = constraints_of(offers.torch)

    def pins(cutoff: Cutoff | None) -> tuple[Offer, ...]:
        return resolve_pins(
            requirements, target, offers, overrides=candidate.overrides, constraints=constraints, cutoff=cutoff
        )

    lines = [*requirements, *candidate.overrides, *constraints]
    if context.variant.exclude_newer:  # a file of the very version that torch names may be younger than the day
        lines += MetadataReader(offers.sources).of(torch).requires
    cutoff = cutoff_of(context.recipe, context.variant, lines)
    try:
        return pins(cutoff), cutoff, []
    except UnsolvableError as error:
        if cutoff is None:
            raise
        silent = without_times(offers.sources)
        if not silent:
            raise ResolutionError(
                f"no packages of {cutoff.date} or before satisfy the recipe\n{error.explanation}",
                cause=f"The variant for CUDA {context.variant.cuda} has exclude_newer = {cutoff.date!r}.",
                next_step="write a later exclude_newer in the recipe, or the package into exclude_newer_except "
                "(docs/recipes.md)",
            ) from error
    what = f"packages are the newest, not those of {cutoff.date}"
    note = f"{what}: {listed(silent)} gives no times of upload (PEP 700)"
    context.ctx.progress.note(note)
    return pins(None), None, [note]


def find_torch(candidate: Candidate, target: WheelTarget, sources: Sources) -> Offer:
    """The candidate's torch from its main channel. Raises UnavailableError."""
    offers = Offers(sources, candidate.torch, candidate.torch_cuda)
    torch = candidate.torch

    def accept(version: Version) -> bool:
        if torch == "*":
            return candidate.torch_cuda != "cpu" or version.local == "cpu"
        return version == Version(torch)

    what = "torch for the CPU (+cpu)" if torch == "*" else f"torch {torch}"
    return offers.newest(candidate.channels[0], "torch", target, accept, what)


def _find_companions(context: ResolveContext, torch: Offer, target: WheelTarget, offers: Offers) -> list[Offer]:
    """torchvision and torchaudio, where asked for, from PyTorch's channel if torch is. Raises UnavailableError.

    Those of the package index are for one CUDA, and many do not load beside a torch for another.
    """
    if torch.channel is not Channel.PYTORCH:
        return []
    asked = {canonicalize_name(Requirement(line).name) for line in _asked(context)}
    limits = {limit.name: limit.specifier for limit in map(Requirement, pairs.constraints(torch.version))}
    local = Version(torch.version).local

    def accept(name: str, version: Version) -> bool:
        return version.local == local and limits.get(name, SpecifierSet()).contains(version)

    return [
        offers.newest(torch.channel, name, target, functools.partial(accept, name), f"{name} for torch {torch.version}")
        for name in pairs.NAMES
        if name in asked
    ]


def _asked(context: ResolveContext) -> list[str]:
    return [*context.recipe.requirements, *context.variant.requirements]


def _notes(offers: Sequence[Offer], candidate: Candidate) -> list[str]:
    wheels = [offer.link for offer in offers if offer.channel is not Channel.LOCAL and not offer.is_sdist]
    notes = list(filter(None, map(witnessing.note, wheels)))
    if names := ", ".join(canonicalize_name(Requirement(override).name) for override in candidate.overrides):
        notes.append(
            f"`pip check` complains: torch's metadata pins other versions of {names}; the recipe overrides them"
        )
    return notes


def _find_sdist(variant: Variant, target: WheelTarget, offers: Offers) -> list[LockedPackage]:
    """torch_geometric's sdist with its locked build back-end, where that version has no wheel; else nothing."""
    if not variant.torch_geometric:
        return []
    version = Version(variant.torch_geometric)
    releases = [release for release in offers.releases(PYG) if Version(release.version) == version]
    if target.best([release.link.name for release in releases]):
        return []
    # Where there is none, uv will say what it thinks of the request.
    sdist = next((release for release in releases if release.is_sdist and release.link.sha256), None)
    return [] if sdist is None else [lock_sdist(lock_offer(sdist, offers.sources), offers)]


def lock_sdist(package: LockedPackage, offers: Offers) -> LockedPackage:
    """A stored sdist with its build back-end. Raises ResolutionError for one that is not pure Python, NetworkError."""
    path = offers.sources.cache.file(package.file.sha256, package.file.name)
    build = lock_back_end(read_sdist(path, path.name).build_requires, path.name, offers)
    return msgspec.structs.replace(package, compiled=False, build=build)


def lock_back_end(
    requires: Sequence[str], name: str, offers: Offers, machine: Platform | None = None
) -> tuple[LockedPackage, ...]:
    """The wheels of a build back-end (PEP 517), for the source called `name`. Raises as `lock_sdist`.

    `machine`: that alone builds it, so that a back-end may be a program for it (uv_build), which any Python starts.
    """
    target = msgspec.structs.replace(BUILD_TARGET, platform=machine or BUILD_TARGET.platform)
    pinned = resolve_pins(requires, target, offers)
    for offer in pinned:
        if not (offer.link.name.endswith("-none-any.whl") or (machine and _PROGRAM.search(offer.link.name))):
            wheels = command("image", ETC, wheels="/path")
            own = f"build it yourself: uv build --wheel    and give dist/*.whl; or {wheels}"
            raise ResolutionError(
                f"{name} cannot be built on every host: its back-end needs {offer.name}, which is not pure Python",
                next_step=own if machine else f"bring a wheel of it: {wheels}",
            )
    return lock_offers(pinned, offers.sources)


def _requirements(
    context: ResolveContext, torch: Offer, locked: Mapping[Offer, LockedPackage], geometric: Sequence[LockedPackage]
) -> list[str]:
    """List uv's requirements: names with versions, addresses of wheels from elsewhere, requirements of sdists."""
    cache, variant = context.ctx.cache, context.variant
    lines = _asked(context)
    if torch.channel is Channel.PYPI:
        # `===` compares text (PEP 440): a local build of the same version is not meant.
        lines.append(f"torch==={torch.version}")
    for offer, package in locked.items():
        if not package.compiled:
            stored = cache.file(package.file.sha256, package.file.name)
            address = stored.absolute().as_uri() if is_stored(package.file, cache) else offer.link.url
            lines.append(f"{package.name} @ {_quoted(address)}#sha256={package.file.sha256}")
    for sdist in (*geometric, *(package for package in locked.values() if package.compiled)):
        lines += read_sdist(cache.file(sdist.file.sha256, sdist.file.name), sdist.file.name).requires
    if variant.torch_geometric and not geometric:
        lines.append(f"{PYG}=={variant.torch_geometric}")
    return lines


def _check(packages: Sequence[LockedPackage], torch: Offer, candidate: Candidate) -> None:
    """Raises ResolutionError when uv's answer is not what the candidate promises."""
    by_name = {package.name: package for package in packages}
    got = by_name.get("torch")
    if got is None or Version(got.version) != Version(torch.version):
        raise ResolutionError(
            f"torch {torch.version} was asked for and {got.version if got else 'nothing'} came out",
            next_step="look for a requirement or an override on torch in the recipe",
        )
    stray = sorted(name for name in by_name if CUDA_PACKAGE.fullmatch(name))
    if candidate.torch_cuda == "cpu" and stray:
        raise ResolutionError(
            f"the CPU image would hold CUDA packages: {', '.join(stray)}",
            cause=f"{got.file.name} or another package asks for them.",
            next_step="use a +cpu build of torch",
        )


def _check_glt(
    version: str, packages: Collection[str], torch: Offer, candidate: Candidate, variant: Variant
) -> tuple[str, ...]:
    """Check a graphlearn-torch beside these packages. Raises ResolutionError for one that cannot work."""
    verdict = glt.judge(version, torch.version, candidate.torch_cuda, variant.python, packages)
    if verdict.reasons:
        step = verdict.next_step or f"take another variant: {command('list')}"
        if verdict.absent and set(verdict.absent) <= set(names_of(variant.extensions)):
            step = f"{command('image', '…', extensions='auto')}    (compiles what no channel has as a wheel)"
        raise ResolutionError(" ".join(verdict.reasons).removesuffix("."), next_step=step)
    return verdict.notes


def _quoted(address: str) -> str:
    """An address as a direct reference (PEP 508): `+` and the like quoted, what is quoted already left alone."""
    parts = urllib.parse.urlsplit(address)
    path = urllib.parse.quote(urllib.parse.unquote(parts.path))
    return urllib.parse.urlunsplit(parts._replace(path=path))
