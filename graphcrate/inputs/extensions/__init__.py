"""The wheelhouse: compiled sdists become checked wheels in the cache, made in the image's own base against its torch.

Wheels are kept under a hash of all that they depend on; `extensions.compile.provide` makes what is not there.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphcrate.compat.facts import back_ends, build_environment
from graphcrate.compat.facts.compilers import STAND_INS, folder_for, variables
from graphcrate.compat.facts.libraries import linked
from graphcrate.compat.failures import compiling
from graphcrate.compat.failures.failure import CompileFailure, same_with
from graphcrate.compat.variants import committed
from graphcrate.host.disk.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs.bases import Base, listed
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import DebianBase, DebianPackage, LockedPackage, RegistryBase
from graphcrate.model.plan import BUILD_REQUIREMENTS, CompileStep, site_packages, toolkit_id
from graphcrate.model.platform import platform_named

#: Raise it whenever the same inputs would give another wheel.
WHEELHOUSE_FORMAT = 2
#: Seconds. Each compiled file and each linked package is a line. The longest file that was measured takes a minute
#: (`compiled_extensions.toml`): what says nothing for an hour hangs.
SILENCE = 3600.0
#: the same of what is compiled by its own back-end
BACK_END_FORMAT = 2
ISOLATED_FORMAT = 7  #: the same of what users add
#: Debian's packages that what a compiler makes depends on: itself, assembler and linker, headers. Others may have had a
#: security update since, and the wheel is the same.
_COMPILING = re.compile(r"(gcc|g\+\+|cpp)-\d+|binutils|libc6(-dev)?|libstdc\+\+-\d+-dev|lib(gcc-\d+|python3\.\d+)-dev")


def key(package: LockedPackage, step: CompileStep, cache: Cache) -> str:
    """The cache key of the wheel that this step makes of a compiled sdist: its origin, and hashes of what is unknown.

    A lock may be a stranger's, with other bytes under the names and versions of Debian's packages.
    """
    if not (by_hash := _unknown(package, step, cache)):
        return origin(package, step)
    return hashlib.sha256("\n".join([origin(package, step), *by_hash]).encode()).hexdigest()


def _unknown(package: LockedPackage, step: CompileStep, cache: Cache) -> list[str]:
    """List what the origin names by version at most and runs in the compile, but for what is vouched for.

    That are committed locks, and of bases the lists that Debian has signed: each of its fixes would else compile all
    sources again, and so would packages that the user asks for to compile with. Name and hash of each, sorted.
    """
    bases = [base for base in (step.compilation.base, step.base) if isinstance(base, DebianBase)]
    running: list[DebianPackage | LockedPackage] = []
    for base in bases:
        running += () if listed.is_kept(base, cache) else base.packages
    by_hash = {each.file.sha256 for each in (*package.build, *step.compilation.tools)}
    running += (each for each in step.against if each.name != "torch" and each.file.sha256 not in by_hash)
    known = committed.files()
    strange = {
        f"{each.name} {each.file.sha256}"
        for each in running
        if (each.name, each.version, each.file.sha256) not in known
    }
    image = {step.base.digest} if isinstance(step.base, RegistryBase) else set()
    return sorted(strange | image)


def origin(package: LockedPackage, step: CompileStep) -> str:
    """Hash what decides the wheel that this step makes of a compiled sdist; Debian's packages by name and version."""
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
    """List the CUDA packages that it is known to be compiled with besides."""
    toolkit = step.compilation.toolkit
    return back_ends.wheels(package.name, toolkit.version) if package.isolated and toolkit else ()


class Shelf(NamedTuple):
    """A package's folders in the cache: of its `wheel`, and of its objects until that is made.

    Compiled code may write to the latter; only its own next build reads them.
    """

    wheel: Path
    objects: Path

    @property
    def made(self) -> Path | None:
        """Return the wheel, if it is there."""
        return next(self.wheel.glob("*.whl"), None)


def shelves(step: CompileStep, cache: Cache, apart: Path | None = None) -> dict[str, Shelf]:
    """Map the sha256 of each sdist of a step to its folders, whether anything is in them or not.

    `apart`: a folder for them that is not the cache's.
    """
    keys = {package.file.sha256: key(package, step, cache) for package in step.packages}
    if apart:
        (apart / "unfinished").mkdir(parents=True, exist_ok=True)
    place: Callable[[str, str], Path] = apart.joinpath if apart else cache.path
    return {sha256: Shelf(place("compiled", name), place("unfinished", name)) for sha256, name in keys.items()}


def cached(step: CompileStep, cache: Cache) -> dict[str, Path]:
    """Find the step's wheels that are in the cache, by the sha256 of their sdist."""
    return _made(shelves(step, cache))


def _made(shelves: Mapping[str, Shelf]) -> dict[str, Path]:
    return {sha256: wheel for sha256, shelf in shelves.items() if (wheel := shelf.made)}


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
    #: waits for layers of the step's wheels and gives where they are unpacked: those that are there are not once more
    unpacked: Callable[[], Sequence[Path]] = tuple
    apart: Path | None = None  #: a folder for what is made here, though the cache may have it

    @functools.cached_property
    def shelves(self) -> Mapping[str, Shelf]:
        """Return the folders in the cache of what is compiled, by the sha256 of its sdist."""
        return shelves(self.step, self.cache, self.apart)

    @property
    def made(self) -> dict[str, Path]:
        """Return the wheels that are in the cache now, by the sha256 of their sdist."""
        return _made(self.shelves)


class CompileError(BuildError):
    """A source that became no wheel that works, explained without what only the caller knows.

    That is the command that was typed, and Debian's index (`compat.failures.compiling.sought`).
    """

    def __init__(self, failure: CompileFailure, step: CompileStep) -> None:
        diagnosis = compiling.explain(failure, step)
        super().__init__(diagnosis.what, cause=diagnosis.cause, next_step=diagnosis.typed(same_with))
        self.failure, self.step = failure, step

    def __reduce__(self) -> tuple[object, ...]:
        return CompileError, (self.failure, self.step)
