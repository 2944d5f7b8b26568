"""Diagnoses of compiles that end without wheels that work, and what to type next.

Pure: `sought` returns what only Debian's index knows, for its packages to be given to `explain`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from graphcrate.compat.facts import back_ends, suites
from graphcrate.compat.failures import cuda, error_lines, loading
from graphcrate.compat.failures.failure import CompileFailure, Diagnosis, More
from graphcrate.compat.failures.missing import Missing, missing
from graphcrate.model.command import AGAIN, setting
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import CompileStep
from graphcrate.model.words import either, listed

_SAME_AGAIN = "run the same command again"
#: kinds of what is absent that a library of the image may be linked to
LINKED_KINDS = ("header", "library")


class DebianPackages(NamedTuple):
    """Debian's packages for what is sought. `bringing`: any of them has it; `linked`: of what is compiled with it.

    `libraries`: name of a library → the package to name.
    """

    bringing: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    libraries: Mapping[str, str] = {}


NOT_LOOKED_UP = DebianPackages()


def sought(failure: CompileFailure, step: CompileStep) -> Missing | loading.Unlinked | None:
    """Return what is absent and only Debian's packages have, to be looked up for `explain`; None of most failures."""
    reason = _reason(failure, step)
    return None if isinstance(reason, Diagnosis) else reason


def explain(failure: CompileFailure, step: CompileStep, debian: DebianPackages = NOT_LOOKED_UP) -> Diagnosis:
    """Explain what happened to packages of this step, the likely cause, and what to type next."""
    match _reason(failure, step):
        case Missing() as absent:
            return _of_debian(failure, step, absent, debian)
        case loading.Unlinked() as unlinked:
            return loading.of_debian(failure, step, unlinked, debian.libraries)
        case diagnosis:
            return diagnosis


def cpu_alone(name: str) -> str:
    """Say that a wheel has no code for GPUs, and by which variable its build makes some, as far as that is known."""
    turn_on = back_ends.package(name).turn_on
    return f"{loading.without_gpu_code(name)}{f' For GPUs: {setting(build_env=turn_on).both()}' if turn_on else ''}"


def _reason(failure: CompileFailure, step: CompileStep) -> Diagnosis | Missing | loading.Unlinked:
    match failure.kind:
        case "silent":
            return _silent(failure, step)
        case "interrupted":
            return Diagnosis(what=f"compiling was interrupted (signal {failure.signal})", next_step=_SAME_AGAIN)
        case "no GPU code" | "loading":
            return loading.reason(failure, step)
        case "requirements":
            return _lacks_requirements(failure, step)
        case "compiler":
            return _of_compiler(failure, step)


def _silent(failure: CompileFailure, step: CompileStep) -> Diagnosis:
    by_back_end = _package(failure, step).back_end
    nothing, log = ("nothing", f"\n    all of it: {failure.log}") if by_back_end else ("no file", "")
    fewer = f"with fewer compilers at a time: taskset -c 0 {AGAIN}"
    kept = f"{_SAME_AGAIN}: packages that are finished are kept. If it stands still again, "
    return Diagnosis(
        what=f"compiling {', '.join(failure.names)} stands still: {nothing} was finished for "
        f"{failure.seconds / 60:.0f} minutes, and it was ended{log}",
        cause="A compiler hangs, or the machine has so little memory left that it does little but page.",
        next_step=fewer if by_back_end else f"{kept}{fewer}",
    )


def _lacks_requirements(failure: CompileFailure, step: CompileStep) -> Diagnosis:
    folder = setting(with_=f"./{_package(failure, step).name}")
    return Diagnosis(
        what=_what(failure, step),
        cause=f"Its back-end asks for {listed(failure.requirements)} besides, which its metadata does not name.",
        next_step=f"take its source, name that in [build-system] of pyproject.toml, and give its folder: {folder}",
    )


def _of_compiler(failure: CompileFailure, step: CompileStep) -> Diagnosis | Missing:
    """The reason of an error line: what is known of the package, what is absent, and what the line says of any."""
    package, what, (line,) = _package(failure, step), _what(failure, step), failure.lines
    toolkit = step.compilation.toolkit
    if package.isolated and toolkit is None and cuda.NEEDED.search(line):
        return _needs_cuda(what)
    if known := error_lines.of_package(package.name, line):
        return Diagnosis(what=what, cause=known[0], next_step=known[1])
    if package.isolated:
        there = {other.name for other in step.against}
        if toolkit is not None and (brought := cuda.of_wheel(line, toolkit.version, there)):
            return _of_wheel(what, brought)
        base = suites.bases().get(step.compilation.base.suite)
        absent = missing(line, base.python if base else "")
        if absent and (absent.package or not cuda.OF_TOOLKIT.search(line)):
            return absent
    cause, next_step = error_lines.of_any(line, step.compilation)
    if package.isolated and error_lines.WHEELS_ALONE in next_step:
        wheel = setting(with_=f"./{package.name}-….whl")
        next_step = f"ask for another version of it, or bring a wheel ({wheel})"
    return Diagnosis(what=what, cause=cause, next_step=next_step)


def _needs_cuda(what: str) -> Diagnosis:
    turned_on = setting(build_env="USE_CUDA=on")
    return Diagnosis(
        what=what,
        cause="It is compiled with CUDA's toolkit, and the image is for the CPU alone, or nothing in the source's "
        "files says that it needs it.",
        next_step=f"an image for GPUs ({setting(cuda='11.8')}); if it is one, a variable brings the toolkit: "
        f"{turned_on}",
    )


def _of_wheel(what: str, brought: cuda.OfWheel) -> Diagnosis:
    lacks = f"linked to lib{brought.library}" if brought.library else f"compiled with the header {brought.header}"
    return Diagnosis(
        what=what,
        cause=f"It is {lacks}, which neither CUDA's toolkit has nor a package of the image: {brought.project} of the "
        "index does.",
        more={"with_": (brought.project,)},
    )


def _of_debian(failure: CompileFailure, step: CompileStep, absent: Missing, debian: DebianPackages) -> Diagnosis:
    """A header, library, program or module that a package of Debian has: by our own lists, or by Debian's index."""
    packages = (absent.package,) if absent.package else debian.bringing
    suite = suites.titled(step.compilation.base.suite)
    brings = f"{either(packages or ['a package'])} of {suite}"
    finder = f", and {absent.finder} finds it" if absent.finder else ""
    cause = (
        f"It is compiled with the {absent.kind} {absent.name}, which neither its build requirements bring nor the base "
        f"with the compiler: {brings} does{finder}."
    )
    more: dict[More, tuple[str, ...]] = {
        "build_apt": (*(packages[:1] or ("PACKAGE",)), *filter(None, [absent.finder])),
    }
    if debian.linked:
        cause += f" What is linked to it needs {listed(debian.linked)} in the image, too."
        more["apt"] = debian.linked
    which = "" if packages else f"    (apt-file search {absent.name} says which)"
    return Diagnosis(what=_what(failure, step), cause=cause, next_step=which, more=more)


def _package(failure: CompileFailure, step: CompileStep) -> LockedPackage:
    """The package that failed, or the first of those that were compiled together."""
    return next(package for package in step.packages if package.name in failure.names)


def _what(failure: CompileFailure, step: CompileStep) -> str:
    package, place = _package(failure, step), f" at {failure.source}" if failure.source else ""
    return f"{package.name} {package.version} does not compile{place}: {failure.lines[0]}\n    all of it: {failure.log}"
