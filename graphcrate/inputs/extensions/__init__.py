"""The wheelhouse: compiled sdists become checked wheels in the cache, made in the image's own base against its torch.

Wheels lie under a hash of all that they depend on; `extensions.compile.provide` makes what is not there.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.compat import back_ends, build_environment
from graphcrate.compat.compilers import STAND_INS, folder_for, variables
from graphcrate.compat.libraries import linked
from graphcrate.compat.next_steps import Beside, same_with
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs.bases import Base
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import BUILD_REQUIREMENTS, CompileStep, site_packages, toolkit_id
from graphcrate.model.platform import platform_named

#: Raise it whenever the same inputs would give another wheel.
WHEELHOUSE_FORMAT = 2
#: Seconds. Each compiled file and each linked package is a line. The longest file that was measured (`compiling.toml`)
#: takes a minute: what says nothing for an hour hangs.
SILENCE = 3600.0
#: the same of what is compiled by its own back-end
BACK_END_FORMAT = 2
ISOLATED_FORMAT = 7  #: the same of what users add
#: Debian's packages that what a compiler makes depends on: itself, assembler and linker, headers. Others may have had a
#: security update since, and the wheel is the same.
_COMPILING = re.compile(r"(gcc|g\+\+|cpp)-\d+|binutils|libc6(-dev)?|libstdc\+\+-\d+-dev|lib(gcc-\d+|python3\.\d+)-dev")


def origin(package: LockedPackage, step: CompileStep) -> str:
    """The cache key of the wheel that this step makes of a compiled sdist."""
    compilation = step.compilation
    inputs = {
        "format": WHEELHOUSE_FORMAT,
        "sdist": package.file.sha256,
        "headers": STAND_INS if folder_for(package.name) else {},
        "torch": [other.file.sha256 for other in step.against if other.name == "torch"],
        "python": step.python,
        "variables": variables(compilation),
        "toolkit": toolkit_id(compilation.toolkit) if compilation.toolkit else "",
        "debian": sorted(
            f"{item.name} {item.version}" for item in compilation.base.packages if _COMPILING.fullmatch(item.name)
        ),
        "tools": sorted(tool.file.sha256 for tool in compilation.tools),
    }
    if (cross := compilation.crossed) is not None:
        target = platform_named(cross.platform)
        ends = (f"-{target.cross}", f"-{target.debian}-cross")
        names = (f"{item.name} {item.version}" for item in compilation.base.packages if item.name.endswith(ends))
        inputs["cross"] = [cross.platform, sorted(names), sorted(item.file.sha256 for item in cross.headers)]
    if of_libraries := [[source.file.sha256, how.key] for how, source in linked(package.name, compilation)]:
        inputs["libraries"] = of_libraries
    if package.build:
        inputs["build"] = sorted(item.file.sha256 for item in package.build)
    if package.rust:
        inputs["crates"] = sorted(crate.file.sha256 for crate in package.vendored)
    if package.isolated and (compilation.besides or package.rust):  # with their headers and libraries, and rustc
        inputs["debian"] = sorted(f"{item.name} {item.version}" for item in compilation.base.packages)
    requirements = site_packages(step.python, BUILD_REQUIREMENTS)
    if package.isolated and (asked := build_environment.asked_for(package, compilation, requirements)):
        inputs["asked"] = sorted(asked.items())
    if wheels := [other.file.sha256 for other in step.against if other.name in _wheels(package, step)]:
        inputs["wheels"] = sorted(wheels)  # of others torch's own pins decide
    if options := back_ends.of_setup(package, compilation):
        inputs["options"] = options
    if package.back_end:
        inputs["back end"] = ISOLATED_FORMAT if package.isolated else BACK_END_FORMAT
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _wheels(package: LockedPackage, step: CompileStep) -> tuple[str, ...]:
    """What of CUDA it is known to be compiled with besides."""
    toolkit = step.compilation.toolkit
    return back_ends.wheels(package.name, toolkit.version) if package.isolated and toolkit else ()


def cached(step: CompileStep, cache: Cache) -> dict[str, Path]:
    """Find the step's wheels that are in the cache, by the sha256 of their sdist."""
    wheels = {package.file.sha256: next(folder(package, step, cache).glob("*.whl"), None) for package in step.packages}
    return {sha256: wheel for sha256, wheel in wheels.items() if wheel is not None}


def folder(package: LockedPackage, step: CompileStep, cache: Cache) -> Path:
    """Where the wheel of a package lies in the cache (or will lie)."""
    return cache.path("compiled", origin(package, step))


def unfinished(package: LockedPackage, step: CompileStep, cache: Cache) -> Path:
    """Where a package's objects lie until its wheel is made. What is compiled may write there; none else reads it."""
    return cache.path("unfinished", origin(package, step))


@dataclass(frozen=True, kw_only=True)
class CompileJob:
    """Everything that a compile goes by."""

    step: CompileStep
    base: Base  #: the image's base, where the wheels have to work
    build_base: Base  #: `step.compilation.base`: the same with a compiler
    toolkit: Path | None  #: the folder of the step's CUDA toolkit
    files: Mapping[str, Path]  #: sha256 → the sdists, tools, wheels and libraries' sources that the step names
    cache: Cache
    progress: Progress
    jobs: int  #: cores to use
    log_folder: Path  #: where the output of a compile that fails goes
    #: kind and name of what a build lacks → packages of Debian, any of which brings it
    bringing: Callable[[str, str], tuple[str, ...]] = lambda kind, name: ()
    #: package of Debian to compile with → libraries that what is compiled with it will be linked to
    linking: Callable[[str], tuple[str, ...]] = lambda package: ()
    #: what to type so that more packages are there
    beside: Beside = same_with
    #: waits for layers of the step's wheels and gives where they are unpacked: those that are there are not once more
    unpacked: Callable[[], Sequence[Path]] = tuple
