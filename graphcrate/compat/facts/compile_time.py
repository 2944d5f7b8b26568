"""Estimate compile times; list the GPUs that a package always makes code for (`data/compile_time.toml`)."""

import fnmatch
from collections.abc import Iterator, Sequence

import msgspec
from packaging.specifiers import SpecifierSet

from graphcrate.compat.facts import gpu_table
from graphcrate.compat.facts.build_environment import asks_for_cuda
from graphcrate.compat.facts.compilers import folder_for
from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.facts.libraries import linked
from graphcrate.compat.facts.toolkits import nvcc
from graphcrate.model.command import filled, setting
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation, Lock, LockedPackage
from graphcrate.model.words import duration, listed


class _Rate(msgspec.Struct, frozen=True, kw_only=True):
    cpp: float
    cu: float
    architecture: float


class _Package(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    files: str
    because: str
    source: str
    versions: str = ""
    makes: tuple[str, ...] = ()
    architecture: float = 0.0
    by_variable: bool = False


class _Count(msgspec.Struct, frozen=True, kw_only=True):
    cpp: int
    cu: int


class CompileTime(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of compiling one package. `seconds`: of processor; `lacks`: capabilities asked for that get no code.

    `parallel`: its back-end compiles several files at a time.
    """

    package: LockedPackage
    cpp: int
    cu: int
    seconds: float
    crates: int = 0  #: of a source in Rust
    makes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    because: str = ""
    parallel: bool = True


_rates = table_reader("compile_time", dict[str, _Rate], "rate")
_packages = table_reader("compile_time", tuple[_Package, ...], "package")
_counted = table_reader("compile_time", dict[str, _Count], "counted")
_rust = table_reader("compile_time", dict[str, float], "rust")
_around = table_reader("compile_time", dict[str, float], "around")


def of_package(
    package: LockedPackage,
    files: Sequence[str] | None,
    compilation: Compilation,
    *,
    has_torch: bool = True,
    parallel: bool = True,
) -> CompileTime | None:
    """Estimate the compiling of a package. `files`: those of its sdist that need a compiler; None: it is not at hand.

    None if unknown: nothing is at hand, and it is not of a stack.
    """
    known = _known(package)
    if package.rust:
        crates = len(package.vendored)
        return CompileTime(package=package, cpp=0, cu=0, seconds=(crates + 1) * _rust()["crate"], crates=crates)
    count = _count(package, known, files)
    if count is None:
        return None
    of_libraries = sum(library.seconds for library, _ in linked(package.name, compilation))
    because = filled(known.because) if known else ""
    rate = _rates()["small" if folder_for(package.name) else "torch" if has_torch else "plain"]
    leaves_cuda_out = known is not None and known.by_variable and not asks_for_cuda(compilation.environment)
    if compilation.toolkit is None or leaves_cuda_out:
        seconds = count.cpp * rate.cpp + of_libraries
        return CompileTime(package=package, cpp=count.cpp, cu=0, seconds=seconds, because=because, parallel=parallel)
    asked = [architecture.removesuffix("+PTX") for architecture in compilation.architectures]
    makes = _makes(known, compilation)
    made = {code for capability in asked if (code := _serving(capability, makes))} or makes or asked
    each = (known.architecture if known else 0.0) or rate.architecture
    return CompileTime(
        package=package,
        cpp=count.cpp,
        cu=count.cu,
        seconds=count.cpp * rate.cpp + count.cu * (rate.cu + len(made) * each) + of_libraries,
        makes=makes,
        lacks=tuple(capability for capability in asked if makes and not _serving(capability, makes)),
        because=because,
        parallel=parallel,
    )


def _count(package: LockedPackage, known: _Package | None, files: Sequence[str] | None) -> _Count | None:
    """Count what is compiled of these files, of all that its release is known to have; None: that is not known."""
    if files is None:
        return _counted().get(package.name)
    patterns = known.files.split() if known else ["*"]
    compiled = [file for file in files if any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns)]
    cu = sum(file.endswith(".cu") for file in compiled)
    return _Count(cpp=len(compiled) - cu, cu=cu)


def _known(package: LockedPackage) -> _Package | None:
    known = (entry for entry in _packages() if entry.name == package.name)
    return next((entry for entry in known if SpecifierSet(entry.versions).contains(package.version)), None)


def _makes(known: _Package | None, compilation: Compilation) -> tuple[str, ...]:
    """The capabilities of a package's own list that this nvcc knows; none: those asked for."""
    able = nvcc(compilation.toolkit.version).sm if compilation.toolkit else ()
    return tuple(capability for capability in known.makes if capability in able) if known else ()


def _serving(capability: str, made: Sequence[str]) -> str:
    """The machine code of these that a GPU of this capability runs: of its major number, the newest not above it."""
    major, _, minor = capability.partition(".")
    lower = [other for other in made if other.partition(".")[0] == major and int(other.partition(".")[2]) <= int(minor)]
    return max(lower, default="")


def refuse_useless(lock: Lock) -> None:
    """Raises ResolutionError for a source that makes code for none of the GPUs that are asked for."""
    compilation = lock.compilation
    if compilation is None or compilation.toolkit is None:
        return
    asked = [architecture.removesuffix("+PTX") for architecture in compilation.architectures]
    for package in lock.packages:
        known = _known(package) if package.isolated else None
        makes = _makes(known, compilation)
        if known and makes and asked and not any(_serving(capability, makes) for capability in asked):
            able = ", ".join(f"{capability} ({models[0]})" for capability in makes if (models := _models(capability)))
            raise ResolutionError(
                f"{package.name} {package.version} makes no code for {listed(_named(asked))}",
                cause=f"It compiles for a list of its own, of which nvcc {compilation.toolkit.version} knows {able}.",
                next_step=f"{_other_release(known, asked, compilation)}leave {package.name} out, or "
                f"{setting(gpu=_gpus(makes))}, where those are your GPUs",
            )


def _other_release(known: _Package, asked: Sequence[str], compilation: Compilation) -> str:
    """The setting for releases with code for one of these capabilities, to begin a list; empty where none is known."""
    for other in _packages():
        makes = _makes(other, compilation)
        served = [capability for capability in asked if _serving(capability, makes)]
        if other.name == known.name and other.versions and served:
            release = setting(with_=f"{other.name}{other.versions}")
            return f"{release}, which makes code for {listed(_named(served))}; or "
    return ""


def _gpus(capabilities: Sequence[str]) -> str:
    return ",".join(models[0].lower() for models in map(_models, capabilities) if models) or "MODEL"


def lines(works: Sequence[CompileTime], cores: int) -> Iterator[str]:
    """Yield a plan's lines on compiling: how long on these cores, what takes longest, which GPUs get no code."""
    busy = sorted((work for work in works if work.seconds), key=lambda work: -work.seconds)
    if busy:
        total = sum(work.seconds / (cores if work.parallel else 1) for work in busy) + _around()["seconds"]
        parts = [f"{work.package.name} {_files(work)}" for work in busy[:3]]
        on = "1 core" if cores == 1 else f"{cores} cores"
        more = f" and {len(busy) - 3} more" if len(busy) > 3 else ""
        yield f"some {duration(total)} on {on}: files of {', '.join(parts)}{more}"
    for work in works:
        if not work.seconds and work.because:
            yield f"{work.package.name}: {work.because}"
        if work.lacks:
            yield (
                f"{work.package.name} gets no code for {listed(_named(work.lacks))}: {work.because} "
                f"({', '.join(work.makes)}); {setting(gpu=_gpus(work.makes))} asks for no other"
            )


def _files(work: CompileTime) -> str:
    if work.package.rust:
        return f"({work.crates} crates)"
    kinds = [f"{work.cu} .cu" if work.cu else "", f"{work.cpp} C++" if work.cpp else ""]
    return f"({', '.join(filter(None, kinds))}{'' if work.parallel else ', one after another'})"


def _models(capability: str) -> tuple[str, ...]:
    return gpu_table.models_by_capability().get(capability, ())


def _named(capabilities: Sequence[str]) -> list[str]:
    return [
        f"{capability} ({_models(capability)[0]})" if _models(capability) else capability for capability in capabilities
    ]
