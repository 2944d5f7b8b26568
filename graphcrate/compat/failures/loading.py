"""Diagnoses of compiled wheels that would not work in the image, by the complaints of its Python. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from debroot.contents import package_of
from graphcrate.compat.facts import sonames
from graphcrate.compat.failures import importing
from graphcrate.compat.failures.failure import CompileFailure, Diagnosis
from graphcrate.model.command import ETC, LOCK_AGAIN, command, setting
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import CompileStep
from graphcrate.model.words import listed

_ABSENT = re.compile(r"(lib[\w+.-]{1,80}\.so[\w.]{0,20}): cannot open shared object file")  #: dlopen(3)
_OTHER_PYTHON = re.compile(r"cannot import name '\w+' from 'collections'")  #: of before 3.10
_OTHER_TORCH = re.compile(r"(module|partially initialized module) 'torch[\w.]*' has no attribute")


class Unlinked(NamedTuple):
    """Libraries of the base with the compiler that the image lacks, sorted."""

    libraries: tuple[str, ...]


def without_gpu_code(name: str) -> str:
    """Say that a package has CUDA sources and its wheel no code for GPUs."""
    return f"{name} has CUDA sources and no GPU code: it was compiled for the CPU alone."


def reason(failure: CompileFailure, step: CompileStep) -> Diagnosis | Unlinked:
    """The diagnosis, or libraries whose packages only Debian knows."""
    if failure.kind == "loading":
        if absent := sorted({name for line in failure.lines for name in _ABSENT.findall(line)}):
            return _without_libraries(failure, step, absent)
        if asks := _known_remedies(failure):
            cause = f"It works with {listed(asks)} alone, and its metadata does not say so."
            return Diagnosis(what=_what(failure, step), cause=cause, more={"with_": asks})
        if any(map(_OTHER_PYTHON.search, failure.lines)):
            return _for_other_python(failure, step)
        if any(map(_OTHER_TORCH.search, failure.lines)):
            return _for_other_torch(failure, step)
    return Diagnosis(
        what=_what(failure, step),
        cause="It was compiled against something else than the image has, or not for what was asked.",
        next_step=f"{LOCK_AGAIN}    (locks compiler, toolkit and torch again, so that they fit)",
    )


def of_debian(failure: CompileFailure, step: CompileStep, unlinked: Unlinked, packages: Mapping[str, str]) -> Diagnosis:
    """Explain libraries of Debian that are absent. `packages`: of each the one to name, as far as that is known."""
    names = (packages.get(name) or package_of(name) for name in unlinked.libraries)
    return Diagnosis(
        what=_what(failure, step),
        cause=f"It is linked to {listed(unlinked.libraries)}, which the base with the compiler has and the image has "
        "not.",
        more={"apt": tuple(dict.fromkeys(names))},
    )


def _without_libraries(failure: CompileFailure, step: CompileStep, absent: list[str]) -> Diagnosis | Unlinked:
    """The reason where the loader does not find libraries, CUDA's first."""
    folders = [(name, folder) for name in absent for folder in failure.folders.get(name, ())]
    if folders:
        words = " ".join(f"-Wl,-rpath,{folder}" for _, folder in folders)
        return Diagnosis(
            what=_what(failure, step),
            cause=f"It is linked to {listed(name for name, _ in folders)}, which the image has in "
            f"{listed(folder for _, folder in folders)}, where no loader looks.",
            next_step=str(command("image", ETC, build_env=f"LDFLAGS={words}")),
        )
    toolkit = step.compilation.toolkit
    wheels = [wheel for name in absent if (wheel := sonames.wheel_of(name, toolkit.version if toolkit else ""))]
    if wheels:
        return Diagnosis(
            what=_what(failure, step),
            cause=f"It is linked to {listed(absent)}, of which the toolkit has what is of CUDA, and no package of the "
            "image has.",
            more={"with_": tuple(dict.fromkeys(wheels))},
        )
    return Unlinked(tuple(absent))


def _known_remedies(failure: CompileFailure) -> tuple[str, ...]:
    """List what is known to help where an import ends so, each once."""
    asks = (importing.known(name, line) for line in failure.lines for name in failure.names)
    return tuple(dict.fromkeys(filter(None, asks)))


def _for_other_python(failure: CompileFailure, step: CompileStep) -> Diagnosis:
    fixed = setting(with_="./folder")
    return Diagnosis(
        what=_what(failure, step),
        cause=f"Its Python code is for Python before 3.10, and the image has {step.python}.",
        next_step=f"a newer release of it, or a source that imports from collections.abc: {fixed}",
    )


def _for_other_torch(failure: CompileFailure, step: CompileStep) -> Diagnosis:
    torch = next((package.version for package in step.against if package.name == "torch"), "")
    first = _packages(failure, step)[0]
    older, newer = setting(with_=f"{first.name}<{first.version}"), command("list")
    return Diagnosis(
        what=_what(failure, step),
        cause=f"It was written for another torch than the image has ({torch}), and its metadata does not say so.",
        next_step=f"an older release of it: {older}; or an image with a newer torch    ({newer} shows which)",
    )


def _packages(failure: CompileFailure, step: CompileStep) -> list[LockedPackage]:
    by_name = {package.name: package for package in step.packages}
    return [by_name[name] for name in failure.names]


def _what(failure: CompileFailure, step: CompileStep) -> str:
    packages = ", ".join(f"{package.name} {package.version}" for package in _packages(failure, step))
    no_code = failure.kind == "no GPU code"
    complaints = map(without_gpu_code, failure.lines) if no_code else failure.lines
    return f"{packages} compiled, and would not work in the image: " + "\n    ".join(complaints)
