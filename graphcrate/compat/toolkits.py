"""CUDA toolkits to compile with: which fit a torch, which host compilers and GPUs each knows. Pure.

A toolkit fits a torch that was built with the same major version of CUDA: torch's build helper refuses another one, and
only warns of another minor one (CUDA promises minor version compatibility).
"""

import functools
import re
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.compat import tables
from graphcrate.model.errors import UsageError

#: Providers in order of preference; what each does is in `graphcrate.inputs.toolkits`.
PROVIDERS = ("debian", "pypi", "image")
#: Sections of Debian's archive that a toolkit is in, besides `main`.
COMPONENTS = ("contrib", "non-free")
_ARCHITECTURE = re.compile(r"(?P<sm>[1-9]\d*\.\d)(?P<kind>[af]?)(?P<ptx>\+PTX)?")


class Nvcc(msgspec.Struct, frozen=True, kw_only=True):
    """An nvcc: the newest gcc it takes, and the compute capabilities it makes code for, ascending."""

    cuda: str  #: "11.8"
    newest_gcc: int
    sm: tuple[str, ...]
    known: str


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A way to come by a toolkit. `version` is nvcc's, exact for `debian` and `pypi`, else "11.8".

    `debian`: `packages` of `suite`, from `COMPONENTS`. `wheels` and `libraries` are pins ("name==1.2"); `requirements`
    tells what to fetch of them. `image`: `reference` with its tag.
    """

    provider: str
    version: str
    suite: str = ""
    packages: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    reference: str = ""


class _Source(Option, frozen=True, kw_only=True):
    cuda: str
    known: str

    @property
    def option(self) -> Option:
        return Option(**{name: getattr(self, name) for name in Option.__struct_fields__})


class _Data(msgspec.Struct, frozen=True):
    nvcc: tuple[Nvcc, ...]
    source: tuple[_Source, ...]
    images: dict[str, str]


@functools.cache
def _data() -> _Data:
    return tables.read("toolkits", _Data)


def options(torch_cuda: str) -> tuple[Option, ...]:
    """Toolkits for a torch built with this CUDA ("11.7"), the preferred one first; none where nobody knows any.

    First what needs no registry of images.
    """
    if not re.fullmatch(r"\d+\.\d+", torch_cuda):
        return ()
    found = [source.option for source in _data().source if source.cuda == torch_cuda.partition(".")[0]]
    if not found:
        return ()
    found.sort(key=lambda option: PROVIDERS.index(option.provider))
    if reference := _data().images.get(torch_cuda):
        found.append(Option(provider="image", version=torch_cuda, reference=reference))
    return tuple(found)


def requirements(option: Option, locked: Mapping[str, str]) -> tuple[str, ...]:
    """Pins of all wheels that an option takes, sorted. `locked`: version of each package of the lock, by name.

    A library that the lock has in some version is taken in that version: it is fetched in any case.
    """
    pins = list(option.wheels)
    for pin in option.libraries:
        name, _, version = pin.partition("==")
        pins.append(f"{name}=={locked.get(name, version)}")
    return tuple(sorted(pins))


def nvcc(version: str) -> Nvcc | None:
    """What is known of the nvcc of a CUDA version ("11.8", "11.8.89"); the nearest older one of its major version."""
    wanted = _numbers(version)[:2]
    older = [one for one in _data().nvcc if _numbers(one.cuda) <= wanted and _numbers(one.cuda)[0] == wanted[0]]
    return max(older, key=lambda one: _numbers(one.cuda), default=None)


def newest_gcc(version: str) -> int:
    """The newest major version of gcc that this nvcc takes as its host compiler. Raises UsageError."""
    return _known(version).newest_gcc


def architectures(version: str) -> tuple[str, str]:
    """Lowest and highest compute capability that this nvcc makes code for. Raises UsageError."""
    sm = _known(version).sm
    return sm[0], sm[-1]


def compute_capability(architecture: str) -> str:
    """Compute capability of an entry of TORCH_CUDA_ARCH_LIST ("8.0" of "8.0+PTX"). Raises UsageError."""
    match = _ARCHITECTURE.fullmatch(architecture)
    if match is None:
        raise UsageError(
            f"{architecture!r} is no GPU architecture",
            cause="One is a compute capability, with +PTX where newer GPUs are to translate it for themselves.",
            next_step='architectures = ["7.0", "8.0+PTX"]',
        )
    return match["sm"]


def impossible(wanted: Sequence[str], version: str) -> tuple[str, ...]:
    """Those of these architectures that the nvcc of this version makes no code for. Raises UsageError."""
    sm = _known(version).sm
    return tuple(architecture for architecture in wanted if compute_capability(architecture) not in sm)


def to_compile(wanted: Sequence[str], version: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Entries of TORCH_CUDA_ARCH_LIST for GPUs of these compute capabilities, and those that get PTX alone.

    A GPU newer than the nvcc gets PTX of the newest that it makes. Raises UsageError for one that it has dropped.
    """
    highest = architectures(version)[1]
    newer = tuple(one for one in impossible(wanted, version) if _numbers(one) > _numbers(highest))
    chosen = tuple(dict.fromkeys(f"{highest}+PTX" if one in newer else one for one in wanted))
    if newer:
        chosen = tuple(one for one in chosen if one != highest)
    refuse_impossible(chosen, version)
    return chosen, newer


def refuse_impossible(wanted: Sequence[str], version: str) -> None:
    """Raises UsageError, with the nearest fix, when the nvcc of this version cannot make one of these architectures."""
    missing = impossible(wanted, version)
    if not missing:
        return
    lowest, highest = architectures(version)
    fixes = dict.fromkeys(_fix(compute_capability(architecture), version) for architecture in missing)
    same_major = [one for one in _data().nvcc if _numbers(one.cuda)[0] == _numbers(version)[0]]
    elsewhere = any(not set(map(compute_capability, missing)) - set(one.sm) for one in same_major)
    raise UsageError(
        f"nvcc {version} makes code for {lowest} to {highest}; {'; '.join(fixes)}",
        cause="nvcc knows the GPUs of its own time, and a new major version drops the oldest.",
        next_step=f"leave {', '.join(missing)} out, or take "
        + ("another toolkit: TOOLKIT=image" if elsewhere else "a variant of another CUDA version"),
    )


def _fix(capability: str, version: str) -> str:
    """ "10.0 needs CUDA 12.8": the nearest version that makes this code, where there is one, newer ones first."""
    able = [one.cuda for one in _data().nvcc if capability in one.sm]
    newer = [cuda for cuda in able if _numbers(cuda) > _numbers(version)]
    if newer:
        return f"{capability} needs CUDA {min(newer, key=_numbers)}"
    if able:
        return f"{capability} was dropped after CUDA {max(able, key=_numbers)}"
    near = sorted({sm for one in _data().nvcc for sm in one.sm}, key=lambda sm: (_distance(sm, capability), sm))
    return f"{capability} is known to no CUDA (near it are {', '.join(near[:2])})"


def _known(version: str) -> Nvcc:
    if (found := nvcc(version)) is None:
        raise UsageError(
            f"nothing is known of the nvcc of CUDA {version}",
            next_step=f"take one of these: {', '.join(one.cuda for one in _data().nvcc)}",
        )
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)) or (0,)


def _distance(one: str, other: str) -> int:
    (major, minor), (other_major, other_minor) = _numbers(one), _numbers(other)
    return abs((major - other_major) * 10 + minor - other_minor)
