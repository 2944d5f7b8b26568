"""NVIDIA's GPUs: their names as people write them, compute capabilities, machines."""

import difflib
import functools
import importlib.resources
import re
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

from gpunames.errors import GpuNameError, NameFault

_ARCHITECTURE = re.compile(
    r"(?:(?:sm|compute)_?(?=\d+[af]?$)|(?=\d+\.))(?P<major>\d+)\.?(?P<minor>\d)[af]?", re.IGNORECASE
)  #: sm_80, 8.0
#: MIG 1g.5gb, as nvidia-smi lists a slice below its GPU
_SLICE = re.compile(r"(?:NVIDIA\s+)?MIG[ -]\d+[cg].*", re.IGNORECASE)
#: a model by its number alone, or an architecture: 3090, 2080ti, 89
_NUMBER = re.compile(r"(\d{2,4})(?:\s*(?:TI|SUPER|LAPTOP))?")
#: letters that a profile of NVIDIA's vGPU has behind a model's name: V100D-32Q
_PROFILE = re.compile(r"(?<=\d)[A-Z]{1,2}(?=-\d+[ABCQ]\b)")
#: 8xA100, h100x8
_COUNT = re.compile(r"^\d{1,3} *[x\u00d7*] *(?=[A-Z])|(?<=\d) *[x\u00d7*] *\d{1,3}$", re.IGNORECASE)
#: a GPU's line in what `nvidia-smi -L` and `nvidia-smi` print
_SMI = re.compile(r"^(?:GPU \d+: (?P<listed>.+?)(?: \(UUID.*)?|\| +\d+ +(?P<shown>.+?) {2,}.*)$", re.MULTILINE)
MOST_NAMES, LONGEST_NAME = 64, 100  #: of a list of GPUs


class _Foreign(NamedTuple):
    """A device that computes and runs no CUDA: how its names begin, what it is, what to take for it."""

    says: str
    what: str
    instead: str


@functools.cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((importlib.resources.files("gpunames") / "gpus.toml").read_text("utf-8"))


def _table(name: str) -> Any:  # noqa: ANN401 (what each table of the file is, its comment says)
    return _tables()[name]


@functools.cache
def _foreign() -> tuple[_Foreign, ...]:
    return tuple(_Foreign(row["says"], row["what"], row.get("instead", "")) for row in _table("foreign"))


def common() -> dict[str, str]:
    """Return GPU model → compute capability ("7.0"), of those that lists name."""
    return dict(_table("common"))


@functools.cache
def known() -> dict[str, str]:
    """Return GPU model → compute capability, of all that are known."""
    return {**common(), **_table("more")}


@functools.cache
def by_capability() -> dict[str, tuple[str, ...]]:
    """Return compute capability → GPU models of it that lists name."""
    names: dict[str, tuple[str, ...]] = {}
    for name, its in common().items():
        names[its] = (*names.get(its, ()), name)
    return names


@functools.lru_cache(maxsize=1024)  # a table of stacks asks for each GPU some hundred times
def model(gpu: str) -> str:
    """Return the model named as by people (`v100`), nvidia-smi or a cloud's machine, or `sm_70` of `7.0`.

    Raises GpuNameError: another maker's, a generation of several capabilities, or an unknown one, with the nearest.
    """
    typed = gpu.strip()
    for other in _foreign():  # first: their names hold NVIDIA's (BI-V100)
        if re.match(other.says, typed, re.IGNORECASE):
            raise GpuNameError(
                NameFault.FOREIGN,
                f"{gpu!r} is {other.what}, which runs no CUDA",
                name=gpu,
                maker=other.what,
                instead=other.instead,
            )
    if _SLICE.fullmatch(typed):
        raise GpuNameError(NameFault.SLICE, f"{gpu!r} is a slice of a GPU, which has that GPU's code", name=gpu)
    readings = (_architecture, _in_cloud, _named, _bare_number, _generation)
    if named := next(filter(None, (reading(typed.upper()) for reading in readings)), ""):
        return named
    near = tuple(difflib.get_close_matches("".join(_words(typed.upper())), known(), n=3, cutoff=0.3))
    nearest = f"; the nearest are {', '.join(near)}" if near else ""
    raise GpuNameError(NameFault.UNKNOWN, f"unknown GPU {gpu!r}{nearest}", name=gpu, near=near)


def _words(typed: str) -> list[str]:
    return re.findall(r"[A-Z0-9]+", typed)


def _architecture(typed: str) -> str:
    """Return `sm_70` for "SM_70", "7.0" or "SM_90A", of a capability that a GPU has; else nothing."""
    match = _ARCHITECTURE.fullmatch(typed)
    if not match:  # of most names; each row of a table asks for some
        return ""
    capabilities = {*known().values(), *_table("architectures")}
    return f"sm_{match['major']}{match['minor']}" if f"{match['major']}.{match['minor']}" in capabilities else ""


def _named(typed: str) -> str:
    """Find the model whose name is among these words, the longest one; nothing where two are."""
    return _longest(_words(typed)) or _longest(_words(_PROFILE.sub("", typed)))


def _longest(words: Sequence[str]) -> str:
    joined = {"".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)}
    names = {name: name for name in known()} | _table("aliases")
    fitting = {name.replace("_", ""): of_name for name, of_name in names.items() if name.replace("_", "") in joined}
    longest = max(fitting, key=len, default="")
    apart = (name for name, of_name in fitting.items() if name not in longest and of_name != fitting[longest])
    return "" if not longest or any(apart) else fitting[longest]


def _bare_number(typed: str) -> str:
    match = _NUMBER.fullmatch(typed)
    return _numbered(match[1]) if match else ""


def _in_cloud(typed: str) -> str:
    machine = re.sub(r"^(ecs\.|ml\.|standard_)", "", typed.lower())
    return next((within for start, within in _table("instances").items() if re.match(start, machine)), "")


def _generation(typed: str) -> str:
    """Return the architecture of a generation with one. Raises GpuNameError for one with several."""
    capabilities = _table("generations").get(typed, ())
    if len(capabilities) > 1:
        kinds = tuple(f"sm_{each.replace('.', '')}" for each in capabilities)
        with_models = (
            f"{kind} ({', '.join(by_capability()[each][:3])})" if each in by_capability() else kind
            for each, kind in zip(capabilities, kinds, strict=True)
        )
        what = f"{typed.capitalize()} is several architectures: {', '.join(with_models)}"
        raise GpuNameError(NameFault.SEVERAL, what, name=typed, architectures=kinds)
    return f"sm_{capabilities[0].replace('.', '')}" if capabilities else ""


def _numbered(number: str) -> str:
    """Find the one model with this number (3090), or the architecture that it is (89); empty for none or several."""
    if len(number) < 4:
        return f"sm_{number}" if f"{number[:-1]}.{number[-1]}" in {*known().values()} else ""
    names = [name for name in known() if name.endswith(number) and re.sub(r"\D", "", name) == number]
    return names[0] if len(names) == 1 else ""


def capability(gpu: str) -> str:
    """Return the compute capability of a GPU, named as `model` takes it. Raises GpuNameError."""
    named = model(gpu)
    return known().get(named) or f"{named[3:-1]}.{named[-1]}"


def models(text: str) -> tuple[str, ...]:
    """Read a list as people write it (`v100,a100`, `8xA100`, `V100/A100`), or what nvidia-smi prints.

    Raises GpuNameError when it names none, or an unknown one.
    """
    printed = [match["listed"] or match["shown"] for match in _SMI.finditer(text)]
    typed = dict.fromkeys(part.strip() for part in printed or re.split(r"[,;/\n]| and ", text))
    if len(typed) > MOST_NAMES or any(len(part) > LONGEST_NAME for part in typed):  # a stranger's
        raise GpuNameError(NameFault.LONG, f"{text[:LONGEST_NAME]!r}… is not a list of GPUs", name=text)
    parts = [_COUNT.sub("", part) for part in typed]
    read = tuple(dict.fromkeys(each for part in filter(None, parts) for each in _several(part)))
    if not read:
        raise GpuNameError(NameFault.NONE, f"{text!r} names no GPU", name=text)
    return read


def host(gpu: str) -> str:
    """Return the platform of the machines with a model, as OCI names it ("linux/arm64"); empty: x86-64, as a rule."""
    hosts: dict[str, str] = {**_table("hosts"), **_table("small_hosts")}
    return hosts.get(gpu, "")


def server_gpus(platform: str) -> tuple[str, ...]:
    """Name the models that are in servers of this platform alone, where that is not x86-64."""
    return tuple(name for name, there in _table("hosts").items() if there == platform)


def _several(part: str) -> tuple[str, ...]:
    """Read the model of a part of a list, or those of its words where each is one by itself: "V100 A100"."""
    words = part.split()
    if len(words) > 1 and not any(re.match(other.says, part, re.IGNORECASE) for other in _foreign()):
        each = [_longest(_words(word.upper())) for word in words]
        if all(each) and not _named(part.upper()):
            return tuple(each)
    return (model(part),)
