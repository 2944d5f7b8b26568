"""Facts of GPUs, drivers, torch builds, runtimes and sites: the package's tables, judged by pure functions."""

import difflib
import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from graphcrate.model import codec
from graphcrate.model.command import ETC, command, filled, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.recipe import Candidate
from graphcrate.model.runtime import RuntimeName
from graphcrate.model.words import listed
from treeaudit.gpus import compiles_for as compiles_for
from treeaudit.gpus import has_code as has_code

_ARCHITECTURE = re.compile(
    r"(?:(?:sm|compute)_?(?=\d+[af]?$)|(?=\d+\.))(?P<major>\d+)\.?(?P<minor>\d)[af]?", re.IGNORECASE
)  #: sm_80, 8.0
#: a model by its number alone, or an architecture: 3090, 2080ti, 89
_NUMBER = re.compile(r"(\d{2,4})(?:\s*(?:TI|SUPER|LAPTOP))?")
#: letters that a profile of NVIDIA's vGPU has behind a model's name: V100D-32Q
_PROFILE = re.compile(r"(?<=\d)[A-Z]{1,2}(?=-\d+[ABCQ]\b)")
#: 8xA100, h100x8
_COUNT = re.compile(r"^\d{1,3} *[x\u00d7*] *(?=[A-Z])|(?<=\d) *[x\u00d7*] *\d{1,3}$", re.IGNORECASE)
#: a GPU's line in what `nvidia-smi -L` and `nvidia-smi` print
_SMI = re.compile(r"^(?:GPU \d+: (?P<listed>.+?)(?: \(UUID.*)?|\| +\d+ +(?P<shown>.+?) {2,}.*)$", re.MULTILINE)
_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_MOST_NAMES, _LONGEST_NAME = 64, 100  #: of a list of GPUs
_Table = TypeVar("_Table")


class TorchBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A torch wheel: built with `cuda`, machine code for `sm`. None or empty: not known; `known`: how it is."""

    torch: str
    cuda: str
    sm: tuple[str, ...]
    ptx: tuple[str, ...] | None = None  #: PTX that the driver can compile for newer GPUs
    some: tuple[str, ...] = ()  #: machine code that few of its kernels have
    features: dict[str, tuple[str, ...]] = {}  #: machine code of its libraries of one feature that have less than `sm`
    cxx11_abi: bool | None = None  #: std::string in its new form
    glibc: str = ""  #: oldest that its libraries load with
    glibcxx: str = ""
    python: str = ""
    compile_python: str = ""  #: newest Python for torch.compile; empty: before 2.0, which has none, or not known
    pins: tuple[str, ...] = ()  #: of cuDNN and NCCL
    size: int = 0
    known: str
    by: str = ""  #: how the architectures were found
    source: str = ""


class MinimumVersion(msgspec.Struct, frozen=True):
    """The first version that will do; of a runtime with what is said of an older one (`{since}`, `{version}`)."""

    since: str
    source: str
    runtime: RuntimeName | Literal[""] = ""
    before: str = ""
    instead: str = ""  #: what to do where the older one cannot run the image at all
    lost: str = ""  #: the first version that will not; empty: all before `since`

    def objection(self, version: str) -> str:
        """Return what is said of this version; empty for one that will do."""
        if not version or not is_older(version, self.since) or (self.lost and is_older(version, self.lost)):
            return ""
        return self.before.format(since=self.since, version=version)


def data(name: str) -> bytes:
    """Read a file of the package's data."""
    return (importlib.resources.files("graphcrate.compat") / "data" / name).read_bytes()


@functools.cache
def _document(name: str) -> dict[str, Any]:
    return tomllib.loads(data(f"{name}.toml").decode())


class _Foreign(msgspec.Struct, frozen=True):
    """A device that computes and runs no CUDA: how its names begin, what it is, what to take for it."""

    says: str
    what: str
    instead: str


def table(name: str, kind: type[_Table], part: str = "") -> _Table:
    """Read `data/<name>.toml`, or a part of it, as a value of this type. Raises msgspec.ValidationError."""
    document = _document(name)
    return codec.convert(document[part] if part else document, kind)


#: GPU model → compute capability ("7.0"), of those that lists name
gpus = functools.cache(functools.partial(table, "gpus", dict[str, str], "common"))
#: CUDA version → the driver that came with it
toolkit_drivers = functools.cache(functools.partial(table, "drivers", dict[str, str], "toolkit"))
#: major version of CUDA → the oldest driver for its programs
_minimum_drivers = functools.cache(functools.partial(table, "drivers", dict[str, str], "minimum"))
_first_cuda = functools.cache(functools.partial(table, "drivers", dict[str, str], "first"))
_last_branches = functools.cache(functools.partial(table, "drivers", dict[str, str], "last"))
_forward = functools.cache(functools.partial(table, "drivers", dict[str, frozenset[str]], "forward"))
#: every known torch build
torch_builds = functools.cache(functools.partial(table, "torch", tuple[TorchBuild, ...], "build"))
#: platform, as OCI names it → its builds, where they are not those of `torch_builds`
ported_builds = functools.cache(functools.partial(table, "torch_ported", dict[str, tuple[TorchBuild, ...]]))
#: what runtimes, kernels, tools and C libraries take from which version on, by name
limits = functools.cache(functools.partial(table, "runtimes", dict[str, MinimumVersion]))
#: instances of Alibaba PAI by their number of GPUs
instances = functools.cache(functools.partial(table, "instances", dict[str, str]))


def limit(name: str) -> MinimumVersion:
    """Look up what `runtimes.toml` says under this name."""
    return limits()[name]


@functools.lru_cache(maxsize=4096)
def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, without trailing zeros: `3.10.0-1160.el7` → (3, 10), empty for none."""
    match = _VERSION.match(version.strip().removeprefix("v"))
    parts = [int(part) for part in match[0].split(".")] if match else []
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def is_older(version: str, other: str) -> bool:
    """Return whether the first version is the older one."""
    return numbers(version) < numbers(other)


@functools.cache
def all_gpus() -> dict[str, str]:
    """GPU model → compute capability, of all that are known."""
    return gpus() | table("gpus", dict[str, str], "more")


_hosts = functools.cache(functools.partial(table, "gpus", dict[str, str], "hosts"))
_small_hosts = functools.cache(functools.partial(table, "gpus", dict[str, str], "small_hosts"))
_aliases = functools.cache(functools.partial(table, "gpus", dict[str, str], "aliases"))
_generations = functools.cache(functools.partial(table, "gpus", dict[str, tuple[str, ...]], "generations"))
_instances = functools.cache(functools.partial(table, "gpus", dict[str, str], "instances"))
_foreign = functools.cache(functools.partial(table, "gpus", tuple[_Foreign, ...], "foreign"))


@functools.cache
def models_by_capability() -> dict[str, tuple[str, ...]]:
    """Compute capability → GPU models of it that lists name."""
    models: dict[str, tuple[str, ...]] = {}
    for model, capability in gpus().items():
        models[capability] = (*models.get(capability, ()), model)
    return models


@functools.lru_cache(maxsize=1024)  # a table of stacks asks for each GPU some hundred times
def gpu_model(gpu: str) -> str:
    """Return the model named as by people (`v100`), nvidia-smi or a cloud's machine, or `sm_70` of `7.0`.

    Raises UsageError: another maker's, a generation of several capabilities, or an unknown one, with the nearest.
    """
    typed = gpu.strip()
    for other in _foreign():  # first: their names hold NVIDIA's (BI-V100)
        if re.match(other.says, typed, re.IGNORECASE):
            raise UsageError(
                f"{gpu!r} is {other.what}: these images are for CUDA, which NVIDIA's GPUs run",
                next_step=filled(other.instead),
            )
    readings = (_architecture, _in_cloud, _named, _bare_number, _generation)
    if model := next(filter(None, (reading(typed.upper()) for reading in readings)), ""):
        return model
    near = difflib.get_close_matches("".join(_words(typed.upper())), all_gpus(), n=3, cutoff=0.3)
    raise UsageError(
        f"unknown GPU {gpu!r}" + (f"; the nearest are {', '.join(near)}" if near else ""),
        next_step=f"choose one of: {', '.join(gpus())}    (or an architecture: sm_80)",
    )


def _words(typed: str) -> list[str]:
    return re.findall(r"[A-Z0-9]+", typed)


def _architecture(typed: str) -> str:
    """`sm_70` of "SM_70", "7.0" or "SM_90A", of a capability that a GPU or a torch has; else nothing."""
    match = _ARCHITECTURE.fullmatch(typed)
    if not match:  # of most names; each row of a table asks for some
        return ""
    built = (capability for build in torch_builds() for capability in build.sm)
    known = {*all_gpus().values(), *built, *table("gpus", tuple[str, ...], "architectures")}
    return f"sm_{match['major']}{match['minor']}" if f"{match['major']}.{match['minor']}" in known else ""


def _named(typed: str) -> str:
    """The model whose name is among these words, the longest one; nothing where two are."""
    return _longest(_words(typed)) or _longest(_words(_PROFILE.sub("", typed)))


def _longest(words: Sequence[str]) -> str:
    joined = {"".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)}
    names = {name: name for name in all_gpus()} | _aliases()
    fitting = {name.replace("_", ""): model for name, model in names.items() if name.replace("_", "") in joined}
    longest = max(fitting, key=len, default="")
    apart = (name for name, model in fitting.items() if name not in longest and model != fitting[longest])
    return "" if not longest or any(apart) else fitting[longest]


def _bare_number(typed: str) -> str:
    match = _NUMBER.fullmatch(typed)
    return _numbered(match[1]) if match else ""


def _in_cloud(typed: str) -> str:
    machine = re.sub(r"^(ecs\.|ml\.|standard_)", "", typed.lower())
    return next((model for start, model in _instances().items() if re.match(start, machine)), "")


def _generation(typed: str) -> str:
    """The architecture of a generation with one. Raises UsageError for one with several."""
    capabilities = _generations().get(typed, ())
    if len(capabilities) > 1:
        kinds = [f"sm_{each.replace('.', '')}" for each in capabilities]
        with_models = (
            f"{kind} ({', '.join(models_by_capability()[each][:3])})" if each in models_by_capability() else kind
            for each, kind in zip(capabilities, kinds, strict=True)
        )
        raise UsageError(
            f"{typed.capitalize()} is several architectures: {', '.join(with_models)}",
            next_step=f"{command(ETC, gpu=kinds[0])}    (or several: {setting(gpu=','.join(kinds))})",
        )
    return f"sm_{capabilities[0].replace('.', '')}" if capabilities else ""


def _numbered(number: str) -> str:
    """The one model with this number (3090), or the architecture that it is (89); empty for none or several."""
    if len(number) < 4:
        return f"sm_{number}" if f"{number[:-1]}.{number[-1]}" in {*all_gpus().values()} else ""
    names = [name for name in all_gpus() if name.endswith(number) and re.sub(r"\D", "", name) == number]
    return names[0] if len(names) == 1 else ""


def compute_capability(gpu: str) -> str:
    """Compute capability of a GPU, named as `gpu_model` takes it. Raises UsageError with the nearest models."""
    model = gpu_model(gpu)
    return all_gpus().get(model) or f"{model[3:-1]}.{model[-1]}"


def gpu_models(gpus: str) -> tuple[str, ...]:
    """The models of a list as people write it (`v100,a100`, `8xA100`, `V100/A100`), or of what nvidia-smi prints.

    Raises UsageError when it names none, or an unknown one.
    """
    printed = [match["listed"] or match["shown"] for match in _SMI.finditer(gpus)]
    typed = dict.fromkeys(part.strip() for part in printed or re.split(r"[,;/\n]| and ", gpus))
    if len(typed) > _MOST_NAMES or any(len(part) > _LONGEST_NAME for part in typed):  # of a site's stranger
        raise UsageError(
            f"{gpus[:_LONGEST_NAME]!r}… is not a list of GPUs",
            cause=f"A list has at most {_MOST_NAMES} names of {_LONGEST_NAME} characters.",
            next_step=command(ETC, gpu="v100,a100"),
        )
    parts = [_COUNT.sub("", part) for part in typed]
    models = tuple(dict.fromkeys(model for part in filter(None, parts) for model in _several(part)))
    if not models:
        raise UsageError(
            f"{gpus!r} names no GPU",
            next_step=f"{command(ETC, gpu='v100')}    (or several: {setting(gpu='v100,a100')})",
        )
    return models


def _several(part: str) -> tuple[str, ...]:
    """The model of a part of a list, or those of its words where each is one by itself: "V100 A100"."""
    words = part.split()
    if len(words) > 1 and not any(re.match(other.says, part, re.IGNORECASE) for other in _foreign()):
        models = [_longest(_words(word.upper())) for word in words]
        if all(models) and not _named(part.upper()):
            return tuple(models)
    return (gpu_model(part),)


def host_platform(model: str) -> Platform | None:
    """The platform of machines with a GPU, a model of `gpu_model`; None of a bare architecture, which both may have."""
    if model not in all_gpus():
        return None
    return platform_named((_hosts() | _small_hosts()).get(model, DEFAULT.name))


def hosted_gpus(platform: Platform) -> tuple[str, ...]:
    """The GPUs that are in servers of a platform alone, of another one than the default."""
    return tuple(model for model, name in _hosts().items() if name == platform.name)


def machine_platform(models: Iterable[str]) -> Platform | None:
    """The platform of machines with these GPUs, as far as one of them tells; None where they are in different ones."""
    known = {platform for platform in map(host_platform, models) if platform}
    return known.pop() if len(known) == 1 else None if known else DEFAULT


def architectures_for(gpus: str) -> tuple[str, ...]:
    """Compute capabilities of a list of GPUs, lowest first: `v100,a100` → ("7.0", "8.0"). Raises UsageError."""
    return ordered({compute_capability(model) for model in gpu_models(gpus)})


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Compute capabilities or symbol versions by their numbers: GLIBC_2.9 before GLIBC_2.10, 10.0 before 10.0f."""

    def key(name: str) -> tuple[str, tuple[int, ...], str]:
        prefix, _, number = name.rpartition("_")
        return prefix, numbers(number), name

    return tuple(sorted(names, key=key))


def builds_for(platform: Platform) -> tuple[TorchBuild, ...]:
    """Every torch build for a platform that is known."""
    return torch_builds() if platform == DEFAULT else ported_builds().get(platform.name, ())


def torch_build(torch: str, cuda: str, platform: Platform = DEFAULT) -> TorchBuild | None:
    """Look up a torch by its version ("2.0.1+cu118") and what it was built with ("11.8")."""
    version = torch.partition("+")[0]
    return next((build for build in builds_for(platform) if (build.torch, build.cuda) == (version, cuda)), None)


def torch_runs_on(torch: str, cuda: str, capability: str) -> bool | None:
    """Tell whether a torch, named as in `torch_build`, has machine code for a capability; None if unknown."""
    build = torch_build(torch, cuda)
    if build is None:
        return False if cuda == "cpu" else None
    return has_code(build.sm, capability)


def gpu_names(candidate: Candidate) -> tuple[str, ...]:
    """GPU models that the candidate's torch runs on natively."""
    torch, cuda = candidate.torch, candidate.torch_cuda
    return tuple(name for name, capability in gpus().items() if torch_runs_on(torch, cuda, capability))


def oldest_driver(cuda: str) -> str:
    """The oldest driver for programs of a CUDA, from 11 on of its major version; empty if unknown."""
    return _minimum_drivers().get(cuda.partition(".")[0], "") or own_driver(cuda)


def first_driver(gpu: str) -> str:
    """The oldest driver that knows the architecture of a GPU, named as in `gpu_model`; empty if unknown."""
    return own_driver(_first_cuda().get(compute_capability(gpu), ""))


def last_branch(gpus: Iterable[str]) -> str:
    """The last driver branch for all of these GPUs, named as in `gpu_model` ("580": V100); empty where none is."""
    ends = (_last_branches().get(compute_capability(gpu), "") for gpu in gpus)
    return min(filter(None, ends), key=numbers, default="")


def drivers_from(oldest: str, gpus: Iterable[str]) -> str:
    """Word the drivers from `oldest` on for all of these GPUs: "525.60.13 or newer", "525.60.13 to R580"."""
    last = last_branch(gpus)
    return f"{oldest} to R{last}" if last else f"{oldest} or newer"


def drivers_of_each(oldest: str, capabilities: Iterable[str]) -> str:
    """Word the drivers for machines with GPUs of one of these capabilities: "525.60.13 or newer, to R580 for V100".

    One model stands for each capability.
    """
    ends = {capability: last_branch([capability]) for capability in capabilities}
    if len({*ends.values()}) < 2:
        return drivers_from(oldest, ends)
    words = [f"{oldest} or newer"]
    for branch in dict.fromkeys(filter(None, ends.values())):
        models = [models_by_capability().get(each, (each,))[0] for each, last in ends.items() if last == branch]
        words.append(f"to R{branch} for {listed(models)}")
    return ", ".join(words)


def drivers_of(torch: str, cuda: str) -> str:
    """Word the drivers that a torch runs with, named as in `torch_build`; empty for the CPU and where it is not known.

    On GPUs that lists name and that it has machine code for.
    """
    oldest = oldest_driver(cuda)
    runs = [capability for capability in models_by_capability() if torch_runs_on(torch, cuda, capability)]
    return drivers_of_each(oldest, runs) if oldest else ""


def own_driver(cuda: str) -> str:
    """The driver that came with this CUDA version; older ones cannot compile its PTX. Empty if unknown."""
    return toolkit_drivers().get(cuda, "")


def newest_cuda(driver: str) -> str:
    """The newest CUDA version that this driver knows all of, as `nvidia-smi` shows it; empty for older ones."""
    known = [cuda for cuda, first in toolkit_drivers().items() if numbers(first) <= numbers(driver)]
    return max(known, key=numbers, default="")


def driver_showing(cuda: str) -> str:
    """Return the oldest known driver that shows this CUDA version, or the next older one of its kind; else empty."""
    asked = numbers(cuda)
    known = [version for version in toolkit_drivers() if numbers(version)[0] == asked[0] and numbers(version) <= asked]
    return own_driver(max(known, key=numbers, default=""))


def forward_compatible(gpu: str) -> bool:
    """Return whether NVIDIA's cuda-compat packages are for this GPU model; they name the base drivers they need."""
    return gpu.upper() in _forward()["gpus"]
