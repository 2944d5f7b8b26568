"""With what a lock's sources are compiled: a compiler that fits, tools, a CUDA toolkit. All of it locked like the rest.

`means_for` decides, from facts alone and before anything is fetched, whether a candidate's extensions can be compiled;
`lock_compilation` finds out which files that takes today.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from graphcrate.compat import compilers, toolkits
from graphcrate.compat.request import SourceOptions
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import Compilation, LockedPackage, Toolkit
from graphcrate.model.recipe import Candidate, Variant

if TYPE_CHECKING:
    from graphcrate.host.context import Context
    from graphcrate.resolve.offers import Offers

#: pip and setuptools make the wheel; from 1.13 on ninja shares a job server: packages side by side keep to the cores
TOOLS = ("pip", "setuptools", "wheel", "ninja>=1.13")


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """How a candidate's extensions are compiled. `obstacle`: why they cannot be; then nothing else is set."""

    architectures: tuple[str, ...] = ()
    suite: str = ""
    compiler: str = ""
    option: toolkits.Option | None = None  #: None: for the CPU alone
    obstacle: str = ""


def refuse_unknown_toolkit(request: SourceOptions) -> None:
    """Raises UsageError when the toolkit asked for is none that graphcrate knows of."""
    if request.toolkit is not None and request.toolkit not in toolkits.PROVIDERS:
        raise UsageError(
            f"there is no CUDA toolkit {request.toolkit!r}; there are {', '.join(toolkits.PROVIDERS)}",
            next_step="make image CUDA=11.8 TOOLKIT=debian    (or without TOOLKIT: the first that fits)",
        )


def means_for(variant: Variant, candidate: Candidate, request: SourceOptions) -> Means:
    """The compiler and the toolkit for a candidate. Pure.

    Raises UsageError when the toolkit asked for does not fit its CUDA version, or makes no code for one of its
    architectures.
    """
    if variant.base.provider != "debian":
        return Means(obstacle="its base is an image of a registry, and only Debian's compilers are known")
    suite = variant.base.suite
    if candidate.torch_cuda == "cpu":
        return _with_compiler(Means(suite=suite), None)
    options = toolkits.options(candidate.torch_cuda)
    if request.toolkit is not None:
        options = _chosen(options, candidate, request.toolkit)
    if not options:
        return Means(obstacle=f"there is no CUDA toolkit for torch's CUDA {candidate.torch_cuda}")
    option = options[0]
    toolkits.refuse_impossible(variant.architectures, option.version)
    means = Means(architectures=variant.architectures, suite=suite, option=option)
    return _with_compiler(means, toolkits.nvcc(option.version).newest_gcc)


def _with_compiler(means: Means, newest_gcc: int | None) -> Means:
    try:
        compiler = compilers.compiler_for(means.suite, newest_gcc)
    except ResolutionError as error:
        return Means(obstacle=error.what)
    return msgspec.structs.replace(means, compiler=compiler)


def _chosen(options: Sequence[toolkits.Option], candidate: Candidate, provider: str) -> tuple[toolkits.Option, ...]:
    fitting = tuple(option for option in options if option.provider == provider)
    if not fitting:
        known = ", ".join(dict.fromkeys(option.provider for option in options))
        raise UsageError(
            f"no CUDA toolkit {provider!r} fits torch {candidate.torch}, built with CUDA {candidate.torch_cuda}",
            cause=f"There {'are' if ',' in known else 'is'} {known or 'none at all'} for it.",
            next_step="leave TOOLKIT out: the first that fits is taken",
        )
    return fitting


def lock_compilation(
    means: Means,
    variant: Variant,
    packages: Sequence[LockedPackage],
    offers: "Offers",
    ctx: "Context",
) -> Compilation:
    """What compiling takes today, for an image with these packages. Raises ResolutionError, NetworkError, HostError."""
    # Here, since a lock that is at hand has no need of them.
    from graphcrate.resolve import base, toolkit
    from graphcrate.resolve.pinning import constraints_of, pin_wheels
    from graphcrate.resolve.target import target_of

    if means.obstacle:
        raise ResolutionError(
            f"nothing can be compiled for CUDA {variant.cuda}: {means.obstacle}",
            next_step="make image … EXTENSIONS=wheels    (and without FLAVOUR=devel)",
        )
    target = target_of(variant.base, variant.python)
    installed = {package.name: package.version for package in packages}
    found: Toolkit | None = None
    if means.option is not None:
        found = toolkit.lock_toolkit(means.option, installed, target, offers)
    return Compilation(
        architectures=means.architectures,
        compiler=means.compiler,
        base=base.lock_compiler(ctx, variant, means.suite, means.compiler),
        tools=pin_wheels(TOOLS, target, offers, constraints=constraints_of(installed["torch"])),
        toolkit=found,
    )
