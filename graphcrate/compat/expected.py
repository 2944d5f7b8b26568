"""What requirements say of the stack's own packages, Python and CUDA, compared with what an image has. Pure."""

import re
from collections.abc import Callable, Iterator, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from graphcrate.compat.addresses import cuda_label
from graphcrate.compat.translated import is_stacks
from graphcrate.model.command import command
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.recipe import Expected
from graphcrate.model.words import joined

_BUILT_FOR = re.compile(r"(cu\d+|cpu|rocm[\d.]+|xpu)$")  #: ends the local part of a version


def compared(expected: Sequence[Expected], lock: Lock) -> list[str]:
    """What requirements say of the stack's own that is otherwise in this image: Python, CUDA, versions, builds."""
    lines = list[str]()
    for file in dict.fromkeys(one.where.partition(":")[0] for one in expected):
        those = [one for one in expected if one.where.partition(":")[0] == file]
        lines += [line for one in those if (line := _of_system(one, lock))]
        packages = [(one, have) for one in those if not one.binding and (have := lock.package(one.name))]
        lines += _of_packages(file, packages, lock)
    return list(dict.fromkeys(lines))


def refuse_others(expected: Sequence[Expected], lock: Lock, again: Callable[[Sequence[str]], str]) -> None:
    """Raises ResolutionError that names every version of the stack's own packages that a file asks for in vain.

    `again`: what to type for the same image with more packages, which go before what the file says of them.
    """
    asked = [(one, have) for one in expected if one.binding and (have := lock.package(one.name))]
    others = [(one, have) for one, have in asked if not _fits(one, have.version)]
    if not others:
        return
    told = joined(f"{one.name}{one.specifier} ({one.where})" for one, _ in others)
    here = joined(dict.fromkeys(f"{have.name} {have.version}" for _, have in others))
    names = list(dict.fromkeys(have.name for _, have in others))
    verb, their = ("is", "its") if len(others) == 1 else ("are", "their")
    raise ResolutionError(
        f"{lock.recipe} for CUDA {lock.cuda} has {here}, and {told} {verb} asked for",
        cause="torch, CUDA and what is compiled for them stay as they are.",
        next_step=f"{again(names)}    takes the stack's in {their} place; {command('list')} has other versions",
    )


def _of_system(one: Expected, lock: Lock) -> str:
    have, named = {"python": (lock.python, "Python"), "cuda": (lock.cuda, "CUDA")}.get(one.name, ("", ""))
    if have == "cpu":
        return f"{one.where}: it is written for CUDA {_plainly(one)}, and this image is for the CPU"
    if not have or _fits(one, have):
        return ""
    return f"{one.where}: it is written for {named} {_plainly(one)}, and this image has {have}"


def _of_packages(file: str, found: Sequence[tuple[Expected, LockedPackage]], lock: Lock) -> Iterator[str]:
    """What a file says of packages, in one line for versions and one for builds."""
    if others := [(one, have) for one, have in found if not _fits(one, have.version)]:
        others.sort(key=lambda pair: pair[0].name != "torch")
        told = joined(f"{one.name} {_plainly(one)} (here {have.version})" for one, have in others)
        yield f"{file}: it is written for {told}"
    label = cuda_label(lock.torch_cuda)
    fitting = [(one, have) for one, have in found if _fits(one, have.version) and _BUILT_FOR.search(one.build)]
    stacks = [one for one, _ in fitting if is_stacks(one.name) and not one.build.endswith(label)]
    if stacks:
        named = joined(f"{one.name} {_plainly(one)}+{one.build}" for one in stacks)
        yield f"{file}: it names {named}, and this image's {'is' if len(stacks) == 1 else 'are'} built for {label}"
    for one, have in fitting:
        if not is_stacks(one.name) and Version(have.version).local != one.build:
            named = f"{one.name} {_plainly(one)}+{one.build}"
            yield f"{one.where}: it names {named}, and {have.version} is taken: no page that is asked has the other"


def _fits(one: Expected, version: str) -> bool:
    return not one.specifier or SpecifierSet(one.specifier).contains(Version(version).public, prereleases=True)


def _plainly(one: Expected) -> str:
    return one.specifier.removeprefix("==").removesuffix(".*")
