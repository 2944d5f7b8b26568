"""Requirements on the stack's own packages, Python and CUDA, compared with what an image has. Pure."""

import re
from collections.abc import Callable, Iterator, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from graphcrate.compat.facts import names
from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.compat.requirements.translated import is_stacks
from graphcrate.model.command import command, filled
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.recipe import Expected
from graphcrate.model.words import listed

_BUILT_FOR = re.compile(r"(cu\d+|cpu|rocm[\d.]+|xpu)$")  #: ends the local part of a version


def compared(expected: Sequence[Expected], lock: Lock) -> list[str]:
    """Compare requirements on the stack's own with this image: Python, CUDA, versions, builds."""
    lines = list[str]()
    for file in dict.fromkeys(entry.where.partition(":")[0] for entry in expected):
        those = [entry for entry in expected if entry.where.partition(":")[0] == file]
        lines += [line for expected in those if (line := _of_system(expected, lock))]
        packages = [
            (expected, have) for expected in those if not expected.binding and (have := lock.package(expected.name))
        ]
        lines += _of_packages(file, packages, lock)
    lines += [f"{where}: {name} is passed over, as {why}" for name, (where, why) in lacking(expected, lock).items()]
    return list(dict.fromkeys(lines))


def lacking(expected: Sequence[Expected], lock: Lock) -> dict[str, tuple[str, str]]:
    """Return what files alone ask for, and the image and all places lack though its recipe names it: where, and why."""
    missing = {package.name for package in lock.missing if not lock.package(package.name)}
    asked = {entry.name: entry.where for entry in expected if entry.binding and entry.name in missing}
    traps = {name: trap for name in asked if (trap := names.trap(name)) and trap.kind == "elsewhere"}
    return {name: (asked[name], f"{trap.why(name)}: {filled(trap.next)}") for name, trap in traps.items()}


def refuse_others(
    expected: Sequence[Expected],
    lock: Lock,
    again: Callable[[Sequence[str]], str],
    elsewhere: Callable[[Callable[[Lock], bool]], str] = lambda _: "",
) -> None:
    """Raises ResolutionError that names every version of the stack's own packages that a file asks for in vain.

    `again`: what to type for the same image with more packages, which go before what the file says of them.
    `elsewhere`: what to type for another variant whose lock fits; empty where none does.
    """
    asked = [(entry, have) for entry in expected if entry.binding and (have := lock.package(entry.name))]
    others = [(entry, have) for entry, have in asked if not _fits(entry, have.version)]
    if not others:
        return
    versions = listed(f"{entry.name}{entry.specifier} ({entry.where})" for entry, _ in others)
    here = listed(dict.fromkeys(f"{have.name} {have.version}" for _, have in others))
    stacks = list(dict.fromkeys(have.name for _, have in others))

    def fits(other: Lock) -> bool:
        there = [(entry, other.package(have.name)) for entry, have in asked]
        return all(have is not None and _fits(entry, have.version) for entry, have in there)

    step = elsewhere(fits)
    verb, their = ("is", "its") if len(others) == 1 else ("are", "their")
    in_place = f"{again(stacks)}    takes the stack's in {their} place"
    raise ResolutionError(
        f"{lock.recipe} for CUDA {lock.cuda} has {here}, and {versions} {verb} asked for",
        cause="torch, CUDA and what is compiled for them stay as they are.",
        next_step=f"{step}; or {in_place}" if step else f"{in_place}; {command('list')} has other versions",
    )


def _of_system(expected: Expected, lock: Lock) -> str:
    have, named = {"python": (lock.python, "Python"), "cuda": (lock.cuda, "CUDA")}.get(expected.name, ("", ""))
    if have and expected.build == "cpu":
        return "" if have == "cpu" else f"{expected.where}: it is written for the CPU, and this image has CUDA {have}"
    if have == "cpu":
        return f"{expected.where}: it is written for CUDA {_plainly(expected)}, and this image is for the CPU"
    if not have or _fits(expected, have):
        return ""
    return f"{expected.where}: it is written for {named} {_plainly(expected)}, and this image has {have}"


def _of_packages(file: str, packages: Sequence[tuple[Expected, LockedPackage]], lock: Lock) -> Iterator[str]:
    """Compare a file's packages, in one line for versions and one for builds."""
    if others := [(entry, have) for entry, have in packages if not _fits(entry, have.version)]:
        others.sort(key=lambda pair: pair[0].name != "torch")
        versions = dict.fromkeys(f"{entry.name} {_plainly(entry)} (here {have.version})" for entry, have in others)
        yield f"{file}: it is written for {listed(versions)}"
    label = cuda_label(lock.torch_cuda)
    fitting = [
        (entry, have) for entry, have in packages if _fits(entry, have.version) and _BUILT_FOR.search(entry.build)
    ]
    stacks = [entry for entry, _ in fitting if is_stacks(entry.name) and not entry.build.endswith(label)]
    if stacks:
        named = listed(f"{expected.name} {_plainly(expected)}+{expected.build}" for expected in stacks)
        yield f"{file}: it names {named}, and this image's {'is' if len(stacks) == 1 else 'are'} built for {label}"
    for expected, have in fitting:
        if not is_stacks(expected.name) and Version(have.version).local != expected.build:
            named = f"it names {expected.name} {_plainly(expected)}+{expected.build}"
            yield f"{expected.where}: {named}, and {have.version} is taken: no page that is asked has the other"


def _fits(expected: Expected, version: str) -> bool:
    return not expected.specifier or SpecifierSet(expected.specifier).contains(
        Version(version).public, prereleases=True
    )


def _plainly(expected: Expected) -> str:
    return expected.specifier.removeprefix("==").removesuffix(".*")
