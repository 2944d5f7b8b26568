"""Reading targets strictly, and joining them with what a person says on the command line. Pure but for `load`."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.compat import drivers, facts, toml
from graphcrate.compat.hosts import ALSO_CALLED, refuse_no_versions, refuse_unclear_version, runtimes_of
from graphcrate.model.contract import RUNTIMES, Runtime
from graphcrate.model.errors import UsageError
from graphcrate.model.target import Target

_FIELDS = f"fields are {', '.join(Target.__struct_fields__)}"


def load(path: Path) -> Target:
    """Read and validate a target file. Raises RecipeError."""
    return parse(toml.read(path, "target"), str(path))


def parse(text: str, name: str) -> Target:
    """Validate a target's text; `name` stands before the line in errors. Raises RecipeError."""
    return toml.parse(text, name, Target, _contradictions, _FIELDS)


def _contradictions(target: Target) -> Iterator[tuple[str, str]]:
    for model in target.gpus or ():
        try:
            facts.compute_capability(model)
        except UsageError as error:
            yield "gpus", f"{error.what}; {error.next_step}"
    versions = [("drivers", driver) for driver in target.drivers]
    versions += [("kernel", target.kernel), ("glibc", target.glibc)]
    versions += [(f"runtimes.{name}", version) for name, version in target.runtimes.items()]
    for field, version in versions:
        if version and not drivers.numbers(version):
            yield field, f"{version!r} is no version: write it like 450.80.02 or 3.10"
    if len(set(target.drivers)) < len(target.drivers) or "" in target.drivers:
        yield "drivers", "a driver stands twice or is empty"
    if target.gpus == () and target.drivers:
        yield "drivers", "a machine without a GPU has no driver"
    for name in target.runtimes:
        if name not in RUNTIMES:
            meant = ALSO_CALLED.get(name)
            told = f"; it is called {meant} here" if meant else f"; there are {', '.join(RUNTIMES)}"
            yield f"runtimes.{name}", f"there is no runtime {name!r}{told}"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A target as the command line has it. Empty: nothing was said."""

    target: str = ""  #: name of a file in targets/
    gpu: str = ""  #: "v100,a100"
    driver: str = ""
    runtimes: tuple[str, ...] = ()
    runtime_version: str = ""
    kernel: str = ""
    glibc: str = ""

    @property
    def nothing(self) -> bool:
        return self == Said()


def joined(said: Said, known: Target) -> Target:
    """The named target (or an empty one) with what was said besides. Raises UsageError where they contradict."""
    found = runtimes_of(said.runtimes)
    refuse_no_versions(
        {
            "driver": said.driver,
            "kernel": said.kernel,
            "glibc": said.glibc,
            "runtime-version": said.runtime_version,
        }
    )
    runtimes = _runtimes(said, found, known)
    models = facts.gpu_models(said.gpu) if said.gpu else None
    if known.gpus is not None and models is not None and not _fits(models, known):
        raise _contradiction(said.target, f"GPU {', '.join(known.gpus) or 'none'}", "gpu", said.gpu)
    return msgspec.structs.replace(
        known,
        gpus=_models(known) if models is None else models,
        drivers=_drivers(said, known),
        kernel=_text(said.target, "kernel", said.kernel, known.kernel),
        glibc=_text(said.target, "glibc", said.glibc, known.glibc),
        runtimes=runtimes,
    )


def _drivers(said: Said, known: Target) -> tuple[str, ...]:
    if not said.driver:
        return known.drivers
    if known.gpus == ():
        raise _contradiction(said.target, "no GPU", "driver", said.driver)
    if known.drivers and said.driver not in known.drivers:
        raise _contradiction(said.target, f"driver {' or '.join(known.drivers)}", "driver", said.driver)
    return (said.driver,)


def _runtimes(said: Said, named: Sequence[Runtime], known: Target) -> Mapping[str, str]:
    refuse_unclear_version(named, said.runtime_version)
    if not named:
        return known.runtimes
    for name in named:
        has = known.runtimes.get(name, "")
        if known.runtimes and name not in known.runtimes:
            raise _contradiction(said.target, " and ".join(known.runtimes), "runtime", name)
        if has and said.runtime_version and has != said.runtime_version:
            raise _contradiction(said.target, f"{name} {has}", "runtime-version", said.runtime_version)
    return {name: said.runtime_version or known.runtimes.get(name, "") for name in named}


def _models(known: Target) -> tuple[str, ...] | None:
    return None if known.gpus is None else tuple(map(facts.gpu_model, known.gpus))


def _fits(models: Sequence[str], known: Target) -> bool:
    """Whether all of these are GPUs of the machine, by their names or by the architecture alone."""
    names = _models(known) or ()
    return set(models) <= {*names, *(facts.gpu_model(facts.compute_capability(name)) for name in names)}


def _text(target: str, option: str, said: str, known: str) -> str:
    if said and known and drivers.numbers(said) != drivers.numbers(known):
        raise _contradiction(target, f"{option} {known}", option, said)
    return said or known


def _contradiction(target: str, has: str, option: str, said: str) -> UsageError:
    return UsageError(
        f"target {target} has {has}, and --{option} says {said}",
        next_step=f"leave out --{option}, or --target and say all of the machine",
    )


def unknown(name: str, known: Sequence[str]) -> UsageError:
    """The error for a target that is none, with the nearest that are."""
    near = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.3)
    return UsageError(
        f"there is no target {name!r}" + (f"; the nearest is {' or '.join(near)}" if near else ""),
        next_step=f"choose one of: {', '.join(known)}    (or the path of a .toml like those in targets/)",
    )
