"""GPUs: their names as people write them, compute capabilities, machines."""

import difflib
import functools
import re
from collections.abc import Iterable, Sequence

import msgspec

from graphcrate.compat.facts.facts import ordered, table, table_reader, torch_builds, torch_runs_on
from graphcrate.model.command import ETC, command, filled, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.recipe import Candidate

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
_MOST_NAMES, _LONGEST_NAME = 64, 100  #: of a list of GPUs
#: GPU model → compute capability ("7.0"), of those that lists name
gpus = table_reader("gpus", dict[str, str], "common")


class _Foreign(msgspec.Struct, frozen=True):
    """A device that computes and runs no CUDA: how its names begin, what it is, what to take for it."""

    says: str
    what: str
    instead: str


@functools.cache
def all_gpus() -> dict[str, str]:
    """GPU model → compute capability, of all that are known."""
    return gpus() | table("gpus", dict[str, str], "more")


_hosts = table_reader("gpus", dict[str, str], "hosts")
_small_hosts = table_reader("gpus", dict[str, str], "small_hosts")
_aliases = table_reader("gpus", dict[str, str], "aliases")
_generations = table_reader("gpus", dict[str, tuple[str, ...]], "generations")
_instances = table_reader("gpus", dict[str, str], "instances")
_foreign = table_reader("gpus", tuple[_Foreign, ...], "foreign")


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


def gpu_names(candidate: Candidate) -> tuple[str, ...]:
    """GPU models that the candidate's torch runs on natively."""
    torch, cuda = candidate.torch, candidate.torch_cuda
    return tuple(name for name, capability in gpus().items() if torch_runs_on(torch, cuda, capability))
