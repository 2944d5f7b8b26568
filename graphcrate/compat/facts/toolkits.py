"""CUDA toolkits to compile with: which fit a torch, what each nvcc takes and makes, how one is put together. Pure.

torch's build helper refuses another major version of CUDA than its own, and warns of another minor one.
"""

from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.compat.facts import facts, gpu_table
from graphcrate.compat.facts.facts import numbers, table_reader
from graphcrate.model.command import setting
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import DebianToolkit, WheelToolkit
from graphcrate.model.plan import LAYER_MTIME
from graphcrate.model.platform import DEFAULT, Platform

#: Providers in order of preference: first what needs no registry of images. `graphcrate.inputs.toolkits` has them.
PROVIDERS = ("debian", "pypi", "image")
#: Sections of Debian's archive that a toolkit is in, besides `main`.
COMPONENTS = ("contrib", "non-free")
PACKAGES = "/opt/toolkit"  #: where a toolkit is put together: holds `debs/*.deb` and `wheels/*.whl`


class Nvcc(msgspec.Struct, frozen=True, kw_only=True):
    """An nvcc: the newest gcc it takes, and the compute capabilities it makes code for, ascending."""

    cuda: str  #: "11.8"
    newest_gcc: int
    sm: tuple[str, ...]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A way to come by a toolkit. `version` is nvcc's, exact for `debian` and `pypi`, else "11.8"."""

    provider: str
    version: str
    cuda: str = ""  #: major version of CUDA of what it compiles for
    suite: str = ""  #: of `debian`
    packages: tuple[str, ...] = ()  #: of that suite, from `COMPONENTS`
    wheels: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()  #: names of those of `wheels` with what runs on the machine that compiles
    reference: str = ""  #: of `image`, with its tag


_nvccs = table_reader("toolkits", tuple[Nvcc, ...], "nvcc")
_sources = table_reader("toolkits", tuple[Option, ...], "source")
#: CUDA version → NVIDIA's image with a toolkit (tag `…-devel-…`): of each a late patch release
_images = table_reader("toolkits", dict[str, str], "images")


def options(torch_cuda: str, platform: Platform = DEFAULT) -> tuple[Option, ...]:
    """Toolkits for a torch built with this CUDA ("11.7"), the preferred one first; none if none is known.

    `platform`: of the image. For another one than the default it is by a cross-compiler.
    """
    fitting = [option for option in _sources() if option.cuda == torch_cuda.partition(".")[0]]
    if platform != DEFAULT:
        return tuple(option for option in fitting if option.programs)
    if not fitting:
        return ()
    if reference := _images().get(torch_cuda):
        fitting.append(Option(provider="image", version=torch_cuda, reference=reference))
    return tuple(sorted(fitting, key=lambda option: PROVIDERS.index(option.provider)))


def requirements(option: Option, locked: Mapping[str, str]) -> tuple[str, ...]:
    """Pins of all wheels of an option, sorted, libraries in the version that the lock has (`locked`: by name)."""
    libraries = (pin.split("==") for pin in option.libraries)
    return tuple(sorted([*option.wheels, *(f"{name}=={locked.get(name, version)}" for name, version in libraries)]))


def of_machines(architectures: Sequence[str], platform: Platform) -> tuple[str, ...]:
    """Those of a recipe's architectures that machines of a platform run, where their GPUs are known by it; else all.

    A GPU runs code for itself, or for the newest before it in its family.
    """
    named = {each: tuple(map(int, each.removesuffix("+PTX").split("."))) for each in architectures}
    run = set[str]()
    for model in gpu_table.hosted_gpus(platform):
        major, minor = map(int, gpu_table.all_gpus()[model].split("."))
        older = [each for each, number in named.items() if number[0] == major and number[1] <= minor]
        run |= {max(older, key=lambda each: named[each])} if older else set()
    return tuple(each for each in architectures if each in run) or tuple(architectures)


def nvcc(version: str) -> Nvcc:
    """The nvcc of a CUDA version ("11.8", "11.8.89"), or the nearest older one that is known."""
    older = [nvcc for nvcc in _nvccs() if numbers(nvcc.cuda) <= numbers(version)[:2]]
    return max(older, key=lambda candidate: numbers(candidate.cuda))


def to_compile(capabilities: Sequence[str], version: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """TORCH_CUDA_ARCH_LIST for these capabilities, and those newer than the nvcc, with PTX alone. Raises UsageError."""
    made = nvcc(version).sm
    newer = tuple(
        capability for capability in capabilities if capability not in made and numbers(capability) > numbers(made[-1])
    )
    chosen = tuple(
        dict.fromkeys(f"{made[-1]}+PTX" if capability in newer else capability for capability in capabilities)
    )
    if newer:
        chosen = tuple(capability for capability in chosen if capability != made[-1])
    refuse_impossible(chosen, version)
    return chosen, newer


def architectures_of(torch: str, cuda: str, version: str, platform: Platform = DEFAULT) -> tuple[str, ...]:
    """The capabilities that this torch has code for and this nvcc makes, from Volta on; for what is compiled beside it.

    What is compiled for torch's oldest GPUs too takes twice as long, for GPUs that no recipe is for.
    """
    build = facts.torch_build(torch, cuda, platform)
    known = build.sm if build else ()
    made = [capability for capability in nvcc(version).sm if capability in known]
    return of_machines([capability for capability in made if numbers(capability) >= numbers("7.0")], platform)


def refuse_impossible(architectures: Sequence[str], version: str) -> None:
    """Raises UsageError, with the nearest fix, when the nvcc of this version cannot make one of these architectures."""
    able = nvcc(version).sm
    capabilities = {architecture: architecture.removesuffix("+PTX") for architecture in architectures}
    missing = {architecture: needed for architecture, needed in capabilities.items() if needed not in able}
    if not missing:
        return
    fixes = dict.fromkeys(_fix(capability, version) for capability in missing.values())
    same_major = [nvcc for nvcc in _nvccs() if numbers(nvcc.cuda)[0] == numbers(version)[0]]
    elsewhere = any(set(missing.values()) <= set(nvcc.sm) for nvcc in same_major)
    raise UsageError(
        f"nvcc {version} makes code for {able[0]} to {able[-1]}; {'; '.join(fixes)}",
        cause="nvcc knows the GPUs of its own time, and a new major version drops the oldest.",
        next_step=f"leave {', '.join(missing)} out, or take "
        + (f"another toolkit: {setting(toolkit='image')}" if elsewhere else "a variant of another CUDA version"),
    )


def _fix(capability: str, version: str) -> str:
    """ "10.0 needs CUDA 12.8": the nearest version that makes this code, where there is one, newer ones first."""
    able = [nvcc.cuda for nvcc in _nvccs() if capability in nvcc.sm]
    if newer := [cuda for cuda in able if numbers(cuda) > numbers(version)]:
        return f"{capability} needs CUDA {min(newer, key=numbers)}"
    if able:
        return f"{capability} was dropped after CUDA {max(able, key=numbers)}"
    return f"{capability} is known to no CUDA"


def assembly(toolkit: DebianToolkit | WheelToolkit) -> tuple[str, ...]:
    """Commands, each on one line and required to succeed, that make CUDA_HOME out of the packages in PACKAGES."""
    titles = ("both", "debian" if isinstance(toolkit, DebianToolkit) else "wheels")
    sections = (part.partition("\n") for part in facts.data("toolkit.sh.in").decode().split("# -- ")[1:])
    text = "".join(lines for title, _, lines in sections if title in titles)
    text = text.replace("@VERSION@", toolkit.version).replace("@MTIME@", str(LAYER_MTIME))
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))
