"""With what a lock's sources are compiled: a compiler that fits, tools, a CUDA toolkit. All of it locked like the rest.

`means_for` decides by facts alone whether extensions can be compiled; `lock_compilation` finds today's files.
"""

from collections.abc import Mapping, Sequence

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.artifacts import pull
from graphcrate.compat import compilers, toolkits
from graphcrate.compat.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.inputs.bases.archive import Archive
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import (
    Compilation,
    DebianPackage,
    DebianToolkit,
    ImageToolkit,
    LockedPackage,
    Toolkit,
    WheelToolkit,
)
from graphcrate.model.recipe import Candidate, Variant
from graphcrate.oci import reference
from graphcrate.resolve import base
from graphcrate.resolve.offers import Offers
from graphcrate.resolve.pinning import constraints_of, lock_offers, resolve_pins
from graphcrate.resolve.target import Target, target_of

#: pip and setuptools make the wheel; from 1.13 on ninja shares a job server: packages side by side keep to the cores
TOOLS = ("pip", "setuptools", "wheel", "ninja>=1.13")


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """How a candidate's extensions are compiled. `obstacle`: why they cannot be; then nothing else counts."""

    architectures: tuple[str, ...] = ()
    compiler: str = ""
    option: toolkits.Option | None = None  #: None: for the CPU alone
    obstacle: str = ""


def means_for(variant: Variant, candidate: Candidate, request: SourceOptions) -> Means:
    """The compiler and toolkit for a candidate. Raises UsageError where toolkit or architectures do not fit."""
    if variant.base.provider != "debian":
        return Means(obstacle="its base is an image of a registry, and only Debian's compilers are known")
    with_cuda = candidate.torch_cuda != "cpu"
    option = _option(candidate, request.toolkit) if with_cuda else None
    if with_cuda and option is None:
        return Means(obstacle=f"there is no CUDA toolkit for torch's CUDA {candidate.torch_cuda}")
    architectures = variant.architectures if option else ()
    if option is not None:
        toolkits.refuse_impossible(architectures, option.version)
    newest_gcc = toolkits.nvcc(option.version).newest_gcc if option else None
    try:
        compiler = compilers.compiler_for(variant.base.suite, newest_gcc)
    except ResolutionError as error:
        return Means(obstacle=error.what)
    return Means(architectures=architectures, compiler=compiler, option=option)


def _option(candidate: Candidate, provider: str | None) -> toolkits.Option | None:
    """The first toolkit that fits the candidate, of this provider where one is named. Raises UsageError."""
    options = toolkits.options(candidate.torch_cuda)
    fitting = [option for option in options if provider in (None, option.provider)]
    if provider is None or fitting:
        return next(iter(fitting), None)
    known = ", ".join(dict.fromkeys(option.provider for option in options))
    raise UsageError(
        f"no CUDA toolkit {provider!r} fits torch {candidate.torch}, built with CUDA {candidate.torch_cuda}",
        cause=f"There {'are' if ',' in known else 'is'} {known or 'none at all'} for it.",
        next_step="leave TOOLKIT out: the first that fits is taken",
    )


def lock_compilation(
    means: Means, variant: Variant, packages: Sequence[LockedPackage], offers: Offers, ctx: Context
) -> Compilation:
    """What compiling takes today, for an image with these packages. Raises ResolutionError, NetworkError, HostError."""
    if means.obstacle:
        raise ResolutionError(
            f"nothing can be compiled for CUDA {variant.cuda}: {means.obstacle}",
            next_step="make image … EXTENSIONS=wheels    (and without FLAVOUR=devel)",
        )
    target = target_of(variant.base, variant.python)
    installed = {package.name: package.version for package in packages}
    tools = resolve_pins(TOOLS, target, offers, constraints=constraints_of(installed["torch"]))
    return Compilation(
        architectures=means.architectures,
        compiler=means.compiler,
        base=base.lock_compiler(ctx, variant, variant.base.suite, means.compiler),
        tools=lock_offers(tools, offers.sources),
        toolkit=lock_toolkit(means.option, installed, target, offers, ctx) if means.option else None,
    )


def lock_toolkit(
    option: toolkits.Option, installed: Mapping[str, str], target: Target, offers: Offers, ctx: Context
) -> Toolkit:
    """The toolkit's files; those of the image's packages (`installed`: name → version) serve where they can.

    Raises ResolutionError when the archive or the index has another version, NetworkError.
    """
    if option.provider == "image":
        wanted = reference.parse(option.reference)
        _, digest = pull.find(wanted, ctx)
        return ImageToolkit(version=option.version, reference=wanted.name, digest=digest)
    debs = _debian(option, ctx) if option.provider == "debian" else ()
    pins = toolkits.requirements(option, installed)
    # What the wheels depend on is there to run programs, and nothing runs here. As overrides too: what they ask of one
    # another must not undo a pin.
    names = {canonicalize_name(Requirement(pin).name) for pin in pins}
    pinned = resolve_pins(pins, target, offers, overrides=pins)
    wheels = lock_offers((one for one in pinned if one.name in names), offers.sources)
    if option.provider == "debian":
        return DebianToolkit(version=option.version, suite=option.suite, packages=debs, wheels=wheels)
    return WheelToolkit(version=option.version, wheels=wheels)


def _debian(option: toolkits.Option, ctx: Context) -> tuple[DebianPackage, ...]:
    """The packages with this nvcc, the archive's first of each where it has several."""
    with ctx.cache.guard():
        archive = Archive(option.suite, ctx.cache, ctx.environment, toolkits.COMPONENTS)
        offered = archive.available(option.packages)
    packages = []
    for name in sorted(option.packages):
        of_name = [package for package in offered if package.name == name]
        fitting = [package for package in of_name if package.version.startswith(option.version)]
        if not fitting:
            has = ", ".join(package.version for package in of_name) or "none"
            raise ResolutionError(
                f"Debian {option.suite} has no {name} {option.version}",
                cause=f"The mirror has {has}; its contrib and non-free sections are needed for CUDA.",
                next_step="DEBIAN_MIRROR=http://a-mirror/debian make image …, or TOOLKIT=image",
            )
        packages.append(fitting[0])
    return tuple(packages)
