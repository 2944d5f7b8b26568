"""How long compiling takes, and which GPUs a package makes code for whatever it is asked (`data/compile_time.toml`)."""

import fnmatch
import functools
from collections.abc import Iterator, Sequence

import msgspec

from graphcrate.compat import facts
from graphcrate.compat.compilers import folder_for
from graphcrate.compat.facts import table
from graphcrate.compat.toolkits import nvcc
from graphcrate.model.command import filled, setting
from graphcrate.model.lock import Compilation, LockedPackage
from graphcrate.model.words import listed


class _Rate(msgspec.Struct, frozen=True, kw_only=True):
    cpp: float
    cu: float
    architecture: float


class _Package(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    files: str
    because: str
    source: str
    makes: tuple[str, ...] = ()
    architecture: float = 0.0


class _Count(msgspec.Struct, frozen=True, kw_only=True):
    cpp: int
    cu: int


class CompileTime(msgspec.Struct, frozen=True, kw_only=True):
    """What compiling one package takes. `seconds`: of processor; `lacks`: capabilities asked for that get no code."""

    package: LockedPackage
    cpp: int
    cu: int
    seconds: float
    makes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    because: str = ""


_rates = functools.cache(functools.partial(table, "compile_time", dict[str, _Rate], "rate"))
_packages = functools.cache(functools.partial(table, "compile_time", tuple[_Package, ...], "package"))
_counted = functools.cache(functools.partial(table, "compile_time", dict[str, _Count], "counted"))
_around = functools.cache(functools.partial(table, "compile_time", dict[str, float], "around"))


def of_package(
    package: LockedPackage, files: Sequence[str] | None, compilation: Compilation, *, has_torch: bool = True
) -> CompileTime | None:
    """What compiling a package takes. `files`: those of its sdist that a compiler wants; None: it is not at hand.

    None where nobody knows: nothing is at hand, and it is not of a stack.
    """
    known = next((entry for entry in _packages() if entry.name == package.name), None)
    if files is None:
        count = _counted().get(package.name)
        if count is None:
            return None
        cpp, cu = count.cpp, count.cu
    else:
        mine = [file for file in files if known is None or fnmatch.fnmatchcase(file, known.files)]
        cu = sum(file.endswith(".cu") for file in mine)
        cpp = len(mine) - cu
    toolkit = compilation.toolkit
    asked = [architecture.removesuffix("+PTX") for architecture in compilation.architectures] if toolkit else []
    able = nvcc(toolkit.version).sm if toolkit else ()
    makes = tuple(capability for capability in known.makes if capability in able) if known else ()
    made = makes or tuple(asked)
    rate = _rates()["small" if folder_for(package.name) else "torch" if has_torch or cu else "plain"]
    each = (known.architecture if known else 0.0) or rate.architecture
    # Without a GPU the CUDA files are left out.
    seconds = cpp * rate.cpp + (cu * (rate.cu + len(made) * each) if toolkit else 0.0)
    return CompileTime(
        package=package,
        cpp=cpp,
        cu=cu if toolkit else 0,
        seconds=seconds,
        makes=makes,
        lacks=tuple(capability for capability in asked if makes and not _covered(capability, makes)),
        because=filled(known.because) if known else "",
    )


def _covered(capability: str, made: Sequence[str]) -> bool:
    """Whether machine code of these runs on a GPU of this capability: the same major number, and not above it."""
    major, _, minor = capability.partition(".")
    return any(other.partition(".")[0] == major and int(other.partition(".")[2]) <= int(minor) for other in made)


def lines(works: Sequence[CompileTime], cores: int) -> Iterator[str]:
    """What a plan says of compiling: how long on these cores, what takes longest, which GPUs get no code."""
    busy = sorted((work for work in works if work.seconds), key=lambda work: -work.seconds)
    if busy:
        total = sum(work.seconds for work in busy) / cores + _around()["seconds"]
        parts = [f"{work.package.name} {_files(work)}" for work in busy[:3]]
        on = "1 core" if cores == 1 else f"{cores} cores"
        more = f" and {len(busy) - 3} more" if len(busy) > 3 else ""
        yield f"some {_duration(total)} on {on}: files of {', '.join(parts)}{more}"
    for work in works:
        if not work.seconds and work.because:
            yield f"{work.package.name}: {work.because}"
        if work.lacks:
            gpus = ",".join(models[0].lower() for models in map(_models, work.makes) if models)
            yield (
                f"{work.package.name} gets no code for {listed(_named(work.lacks))}: {work.because} "
                f"({', '.join(work.makes)}); {setting(gpu=gpus or 'MODEL')} asks for no other"
            )


def _files(work: CompileTime) -> str:
    of_its_own = f" for {listed(work.makes)}" if work.makes and work.cu else ""
    kinds = [f"{work.cu} .cu{of_its_own}" if work.cu else "", f"{work.cpp} C++" if work.cpp else ""]
    return f"({', '.join(filter(None, kinds))})"


def _duration(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    if minutes < 100:
        return "a minute" if minutes == 1 else f"{minutes} minutes"
    return f"{seconds / 3600:.1f} hours"


def _models(capability: str) -> tuple[str, ...]:
    return facts.models_by_capability().get(capability, ())


def _named(capabilities: Sequence[str]) -> list[str]:
    return [
        f"{capability} ({_models(capability)[0]})" if _models(capability) else capability for capability in capabilities
    ]
