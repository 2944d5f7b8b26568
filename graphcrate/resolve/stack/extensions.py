"""PyG's compiled extensions: each a wheel for this torch and CUDA, or source to compile, or named as missing.

With what sources are compiled (a compiler that fits, tools, a CUDA toolkit) is locked like the rest: `choose_compiler`
decides by facts alone, `lock_compilation` finds today's files.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.artifacts import pull
from graphcrate.compat.facts import compilers, libraries, packages, suites, toolkits
from graphcrate.compat.facts.pyg_lib import NAME as PYG_LIB
from graphcrate.compat.facts.pyg_lib import wheels_for
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.model.command import ETC, command, setting, without
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import (
    Compilation,
    Cross,
    DebianPackage,
    DebianToolkit,
    ImageToolkit,
    LockedPackage,
    MissingPackage,
    Toolkit,
    WheelToolkit,
)
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import BUILT_FOR_TORCH, CHANNELS, Candidate, Channel, Variant
from graphcrate.oci import reference
from graphcrate.resolve.sources import pyg_lib
from graphcrate.resolve.sources.channels import names_of
from graphcrate.resolve.sources.offers import Offer, Offers, UnavailableError
from graphcrate.resolve.sources.target import WheelTarget, target_of
from graphcrate.resolve.stack import base
from graphcrate.resolve.stack.pinning import constraints_of, lock_offer, lock_offers, resolve_pins

#: the note on one in a lock that has the other
STANDS_IN = {
    "pyg-lib": ("torch-sparse", "NeighborLoader falls back to torch_sparse"),
    "torch-sparse": ("pyg-lib", "NeighborLoader takes pyg_lib"),
}
#: the torch in a local label of Astral's wheels
_OF_TORCH = re.compile(r"\+[a-z0-9.]*\btorch\.(\d+\.\d+)")
#: where a recipe names no release of PyG
_SOME_PYG = "2.3.1"
#: What an extension imports first and does not say in its metadata (`torch_sparse/reduce.py` and others, 0.6.18).
NEEDS = {"torch-sparse": "torch-scatter"}
#: pip and setuptools make the wheel; from 1.13 on ninja shares a job server: packages side by side keep to the cores
TOOLS = ("pip", "setuptools", "wheel", "ninja>=1.13")
#: besides, for what is compiled by its own back-end
BACK_END_TOOLS = ("cmake>=3.18",)


def find_extensions(
    variant: Variant, candidate: Candidate, target: WheelTarget, offers: Offers
) -> tuple[list[Offer], list[MissingPackage]]:
    """Find a wheel or an sdist for each of the variant's extensions, as the request has it, or why there is neither.

    Raises ResolutionError for a recipe that lacks a need, UsageError as `choose_compiler`.
    """
    listed = names_of(variant.extensions)
    for name, needed in NEEDS.items():
        if name in listed and needed not in listed:
            raise ResolutionError(
                f"{name} cannot be imported without {needed}, which this recipe does not list",
                cause=f"{name} imports it first thing; its metadata does not say so.",
                next_step=f'add "{needed.replace("-", "_")}" to the variant\'s extensions',
            )
    offered: dict[str, Offer] = {}
    missing: dict[str, MissingPackage] = {}
    for requirement in map(Requirement, variant.extensions):
        name, result = canonicalize_name(requirement.name), _find(requirement, variant, candidate, target, offers)
        if isinstance(result, Offer):
            offered[name] = result
        else:
            missing[name] = result
    for name, needed in NEEDS.items():
        if needed in missing and name in offered:
            del offered[name]
            reason = f"it cannot be imported without {needed}, which is missing"
            missing[name] = MissingPackage(name=name, reason=reason, unreachable=missing[needed].unreachable)
    for name, package in missing.items():
        lost = packages.lost(name, variant.torch_geometric or _SOME_PYG, offered)
        other, comfort = STANDS_IN.get(name, ("", ""))
        cost = f"{lost} ({comfort})" if other in offered else lost
        missing[name] = msgspec.structs.replace(package, cost=cost)
    return [*offered.values()], [missing[name] for name in listed if name in missing]


def _find(
    requirement: Requirement, variant: Variant, candidate: Candidate, target: WheelTarget, offers: Offers
) -> Offer | MissingPackage:
    name, mode = canonicalize_name(requirement.name), offers.sources.request.extensions
    if mode == "none":
        return MissingPackage(name=name, reason="left out on request (EXTENSIONS=none)")
    wheel: Offer | _NoWheel = _NoWheel(["wheels are not asked for (EXTENSIONS=source)"])
    if mode != "source":
        wheel = _wheel(requirement, variant, candidate, target, offers)
    if isinstance(wheel, Offer):
        return wheel
    source: Offer | list[str] = ["sources are not asked for (EXTENSIONS=wheels)"]
    if mode != "wheels":
        source = _source(requirement, variant, candidate, target, offers, wheel.unreachable)
    if isinstance(source, Offer):
        return source
    return MissingPackage(name=name, reason="; ".join([*wheel.reasons, *source]), unreachable=wheel.unreachable)


class _NoWheel(NamedTuple):
    """Reasons for which no channel has a wheel, and the channels that could not be asked."""

    reasons: list[str]
    unreachable: tuple[Channel, ...] = ()


def _wheel(
    requirement: Requirement, variant: Variant, candidate: Candidate, target: WheelTarget, offers: Offers
) -> Offer | _NoWheel:
    name = canonicalize_name(requirement.name)
    fitting = wheels_for(variant.torch_geometric or _SOME_PYG) if name == PYG_LIB else SpecifierSet()

    def fits(channel: Channel, version: Version) -> bool:
        """Return whether the local label says this torch. Wheels for torch 1.11 and older have none."""
        row = CHANNELS.get(channel, CHANNELS[Channel.PYG])  # wheels of a folder are PyG's
        labels = (row.local(offers.torch, offers.torch_cuda), *([] if row.extensions else [None]))
        is_built_for_torch = version.local in labels and fitting.contains(version.public)
        return is_built_for_torch and _is_allowed(requirement, version)

    reasons: list[str] = []
    unreachable: tuple[Channel, ...] = ()
    for channel in _channels(name, candidate, offers):
        if channel not in candidate.channels and not offers.takes_connection(channel):
            reasons.append(f"{channel} channel: not reached")
            unreachable += (channel,)
            continue
        try:
            what = f"{name}{fitting} for torch {offers.torch}"
            return offers.newest(channel, name, target, functools.partial(fits, channel), what)
        except UnavailableError as error:
            reasons.append(error.what + _others(channel, name, offers))
            unreachable += (channel,) * error.unreachable
    return _NoWheel(reasons, unreachable)


def _source(
    requirement: Requirement,
    variant: Variant,
    candidate: Candidate,
    target: WheelTarget,
    offers: Offers,
    unreachable: tuple[Channel, ...],
) -> Offer | list[str]:
    """Find sources that can be compiled, or say why not. `unreachable`: channels that may have a wheel."""
    name = canonicalize_name(requirement.name)
    if name == PYG_LIB and target.platform != DEFAULT:
        return [f"it is built by CMake, which is not set up here to compile for {target.platform.title}"]
    sdist = offers.newest_sdist(name, functools.partial(_is_allowed, requirement), unreachable)
    reasons = [] if sdist else ["the package index has no source of it"]
    if sdist is None and name != PYG_LIB:
        return reasons
    try:
        choose_compiler(variant, candidate, offers.sources.request)
    except ResolutionError as error:
        return [*reasons, f"it cannot be compiled: {error.what}"]
    result = sdist or pyg_lib.find(requirement, variant, candidate.torch_cuda, offers)
    if isinstance(result, Offer):
        return msgspec.structs.replace(result, unreachable=unreachable)
    return [*reasons, result]


def _is_allowed(requirement: Requirement, version: Version) -> bool:
    """Return whether the recipe allows a version; local labels are not looked at."""
    return requirement.specifier.contains(version.public, prereleases=True)


def _channels(name: str, candidate: Candidate, offers: Offers) -> list[Channel]:
    """The channels to ask for an extension's wheel: the candidate's, then those that no recipe names."""
    own = [channel for channel in candidate.channels if channel in BUILT_FOR_TORCH]
    further = [channel for channel, row in CHANNELS.items() if row.extends(name, offers.torch)]
    return [*own, *(channel for channel in further if channel not in own)]


def _others(channel: Channel, name: str, offers: Offers) -> str:
    """Name other torches that a channel has an extension for, as its wheels' local labels do."""
    if channel not in CHANNELS or not CHANNELS[channel].extensions:
        return ""
    links = [link.name for links in offers.listed(channel, name) for link in links]
    torches = {hit[1] for hit in map(_OF_TORCH.search, links) if hit}
    newest = sorted(torches, key=Version, reverse=True)[:3]
    return f" (it has {name} for torch {', '.join(newest)})" if newest else ""


def lock_found(offer: Offer, target: WheelTarget, offers: Offers) -> LockedPackage:
    """Lock what `find_extensions` found; with what its own back-end needs, where that compiles it."""
    package = lock_offer(offer, offers.sources)
    if not package.back_end:
        return package
    tools = lock_offers(resolve_pins(BACK_END_TOOLS, target, offers), offers.sources)
    return msgspec.structs.replace(package, build=tools)


class CompilerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The compiler of a candidate's extensions."""

    architectures: tuple[str, ...] = ()
    compiler: str
    option: toolkits.Option | None = None  #: None: for the CPU alone


def choose_compiler(variant: Variant, candidate: Candidate, request: SourceOptions) -> CompilerChoice:
    """The compiler and toolkit for a candidate, by facts alone.

    Raises ResolutionError where nothing can be compiled, UsageError where toolkit or architectures do not fit.
    """
    if variant.base.provider == "registry":
        raise _no_compiler("its base is an image of a registry, and only Debian's compilers are known")
    if candidate.torch_cuda == "cpu":
        return CompilerChoice(compiler=compilers.compiler_for(variant.base.suite, None, variant.base.runs_on))
    option = _option(candidate, request.toolkit, variant.base.runs_on)
    if option is None:
        title = "" if variant.base.runs_on == DEFAULT else f" that compiles for {variant.base.runs_on.title}"
        raise _no_compiler(f"there is no CUDA toolkit for torch's CUDA {candidate.torch_cuda}{title}")
    toolkits.refuse_impossible(variant.architectures, option.version)
    newest = toolkits.nvcc(option.version).newest_gcc
    compiler = compilers.compiler_for(variant.base.suite, newest, variant.base.runs_on)
    return CompilerChoice(architectures=variant.architectures, compiler=compiler, option=option)


def _no_compiler(reason: str) -> ResolutionError:
    step = command("image", "…", extensions="wheels")
    return ResolutionError(reason, next_step=f"{step}    (and without {setting(flavour='devel')})")


def _option(candidate: Candidate, provider: str | None, platform: Platform) -> toolkits.Option | None:
    """The first toolkit that fits the candidate, of this provider where one is named. Raises UsageError."""
    options = toolkits.options(candidate.torch_cuda, platform)
    fitting = [option for option in options if provider in (None, option.provider)]
    if provider is None or fitting:
        return next(iter(fitting), None)
    known = ", ".join(dict.fromkeys(option.provider for option in options))
    raise UsageError(
        f"no CUDA toolkit {provider!r} fits torch {candidate.torch}, built with CUDA {candidate.torch_cuda}",
        cause=f"There {'are' if ',' in known else 'is'} {known or 'none at all'} for it.",
        next_step=f"{without('toolkit')}    (the first that fits is taken)",
    )


def lock_compilation(
    choice: CompilerChoice, variant: Variant, installed: Sequence[LockedPackage], offers: Offers, ctx: Context
) -> Compilation:
    """Lock today's compilation of an image with these packages. Raises ResolutionError, NetworkError, HostError."""
    target = target_of(variant.base, variant.python)
    versions = {package.name: package.version for package in installed}
    tools = resolve_pins(TOOLS, target, offers, constraints=constraints_of(versions["torch"]))
    cross: Cross | msgspec.UnsetType = msgspec.UNSET
    if compilers.crosses_to(choice.compiler):
        cross = lock_cross(variant.base.suite, variant.python, target.platform, ctx)
    compilation = Compilation(
        architectures=choice.architectures,
        compiler=choice.compiler,
        base=base.lock_compiler(ctx, variant, variant.base.suite, choice.compiler),
        tools=lock_offers(tools, offers.sources),
        toolkit=lock_toolkit(choice.option, versions, target, offers, ctx) if choice.option else None,
        cross=cross,
    )
    return libraries.with_libraries(compilation, [package.name for package in installed if package.compiled])


def lock_cross(suite: str, python: str, platform: Platform, ctx: Context) -> Cross:
    """Lock a cross-compiler's further needs, as the suite has them today. Raises ResolutionError, NetworkError."""
    name = compilers.headers(python)
    with ctx.cache.guard():
        archive = SuiteArchive(suite, ctx, platform=platform)
        offered = [package for package in archive.available([name]) if package.architecture == platform.debian]
    if not offered:
        raise ResolutionError(
            f"{suites.titled(suite)} has no {name} for {platform.title}",
            next_step=suites.distribution_of(suite).another_mirror,
        )
    return Cross(platform=platform.name, headers=(offered[0],))


def lock_toolkit(
    option: toolkits.Option, installed: Mapping[str, str], target: WheelTarget, offers: Offers, ctx: Context
) -> Toolkit:
    """The toolkit's files; those of the image's packages (`installed`: name → version) serve where they can.

    Raises ResolutionError when the archive or the index has another version, NetworkError.
    """
    if option.provider == "image":
        image = reference.parse(option.reference)
        _, digest = pull.find(image, ctx, target.platform)
        return ImageToolkit(version=option.version, reference=image.name, digest=digest)
    debs, listed = _debian(option, target.platform, ctx) if option.provider == "debian" else ((), "")
    pins = toolkits.requirements(option, installed)
    # What the wheels depend on is there to run programs, and nothing runs here. As overrides too: what they ask of one
    # another must not undo a pin.
    names = {canonicalize_name(Requirement(pin).name) for pin in pins}
    pinned = resolve_pins(pins, target, offers, overrides=pins)
    if target.platform != DEFAULT:  # what runs while something is compiled runs here
        own = [pin for pin in pins if Requirement(pin).name in option.programs]
        here = resolve_pins(own, WheelTarget(target.python, target.glibc), offers, overrides=own)
        programs = {offer.name: offer for offer in here if offer.name in option.programs}
        pinned = tuple(programs.get(offer.name, offer) for offer in pinned)
    wheels = lock_offers((offer for offer in pinned if offer.name in names), offers.sources)
    if option.provider == "debian":
        return DebianToolkit(version=option.version, suite=option.suite, packages=debs, wheels=wheels, listed=listed)
    return WheelToolkit(version=option.version, wheels=wheels)


def _debian(option: toolkits.Option, platform: Platform, ctx: Context) -> tuple[tuple[DebianPackage, ...], str]:
    """The packages with this nvcc, the archive's first of each where it has several; and when they were listed."""
    with ctx.cache.guard():
        archive = SuiteArchive(option.suite, ctx, toolkits.COMPONENTS, platform)
        offered = archive.available(option.packages)
    chosen = []
    for name in sorted(option.packages):
        of_name = [package for package in offered if package.name == name]
        fitting = [package for package in of_name if package.version.startswith(option.version)]
        if not fitting:
            has = ", ".join(package.version for package in of_name) or "none"
            mirror = suites.distribution_of(option.suite).another_mirror
            raise ResolutionError(
                f"{suites.titled(option.suite)} has no {name} {option.version}",
                cause=f"The mirror has {has}; its contrib and non-free sections are needed for CUDA.",
                next_step=f"{mirror}, or {command('image', ETC, toolkit='image')}",
            )
        chosen.append(fitting[0])
    return tuple(chosen), archive.listed
