"""The text of graphcrate/compat/data/torch.toml: builds that were measured replace what was known of them before."""

import json
from collections.abc import Collection, Iterable, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts import facts, gpu_table
from graphcrate.compat.facts.facts import TorchBuild
from graphcrate.compat.facts.packages import of_feature
from graphcrate.model.errors import IntegrityError
from tools.generate import ROOT
from tools.wheel_contents import Measurement

#: how the architectures were found where all libraries were read
EACH = "fat binaries of each library"
TORCH = ROOT / "graphcrate" / "compat" / "data" / "torch.toml"
PORTED = TORCH.with_name("torch_ported.toml")
PORTED_HEAD = """\
# torch's wheels for other platforms than x86-64, by the platform's name; all else as in torch.toml. Written by
# `python -m tools.measure_wheel torch VERSION --update --platform linux/arm64`.
"""
#: what torch's metadata pins and other packages collide with
PINNED = ("nvidia-cudnn", "nvidia-nccl")
HEAD = """\
# torch's wheels for Linux on x86-64, by version and the CUDA that they were built with. Written by
# `python -m tools.measure_wheel torch --from 1.13.0 --update`, which keeps what it did not measure.
# measured: read from the bytes of the wheel that `source` names. `by` says how the architectures were found: in the fat
# binaries of each library, or in the list that torch.cuda.get_arch_list() shows; then `glibc` and `glibcxx` are those
# of its libraries of less than 32 MB. `sm` and `ptx`: what every library has, in at least half of its parts, for lack
# of which the audit fails an image (compat/facts/gpu_code.py); `some`: what fewer have. `features`: all that a library
# of one feature has (features.toml), where a GPU that the feature is for has code in the others and none in it.
# `compile_python`: the newest Python for which torch.compile works, as torch/_dynamo/eval_frame.py says it.
# documented: PyTorch's release notes and build scripts.
"""
_FIELDS = (
    "torch",
    "cuda",
    "sm",
    "ptx",
    "some",
    "features",
    "cxx11_abi",
    "glibc",
    "glibcxx",
    "python",
    "compile_python",
    "pins",
    "size",
)


def build_of(found: Measurement) -> TorchBuild:
    """The fact in a measurement of a torch wheel. Raises IntegrityError where torch's own list contradicts its code."""
    told = [name.partition("_")[2] for name in found.told if name.startswith("sm_")]
    listed = tuple(f"{name[:-1]}.{name[-1]}" for name in told)
    read_all = not found.unread
    if read_all and found.told and set(listed) != set(found.sass):
        raise IntegrityError(
            f"{found.file} says it has code for {', '.join(listed)}, and has it for {', '.join(found.sass)}",
            cause="Torch's own list and its fat binaries disagree; nobody has met such a wheel yet.",
        )
    if not read_all and not listed and found.cuda != "cpu":
        raise IntegrityError(
            f"{found.file}: torch's own list of architectures was not found",
            cause="Its place or form changed, or the library that has it was left out.",
            next_step="the same command with --libraries all",
        )
    compute = [name.partition("_")[2] for name in found.told if name.startswith("compute_")]
    ptx = tuple(f"{name[:-1]}.{name[-1]}" for name in compute)
    return TorchBuild(
        torch=found.version.partition("+")[0],
        cuda=found.cuda,
        sm=found.sass if read_all else listed,
        ptx=found.ptx if read_all else ptx,
        some=found.some if read_all else (),
        features={stem: has for stem, has in found.features.items() if _lacks(stem, has, found.sass)}
        if read_all
        else {},
        cxx11_abi=found.cxx11_abi,
        glibc=found.glibc,
        glibcxx=found.glibcxx,
        python=found.python,
        compile_python=found.compile_python,
        pins=_pins(found.requires),
        size=found.size,
        known="measured",
        by=EACH if read_all else "torch's own list",
        source=found.file,
    )


def _lacks(stem: str, has: Collection[str], sm: Collection[str]) -> bool:
    """Return whether a GPU that a feature is made for runs torch without it."""
    only = of_feature(stem)
    since = only.since if only else "0"
    capabilities = (one for one in gpu_table.all_gpus().values() if not facts.is_older(one, since))
    return any(facts.has_code(sm, one) and not facts.has_code(has, one) for one in capabilities)


def _pins(requires: Iterable[str]) -> tuple[str, ...]:
    parsed = (Requirement(line) for line in requires)
    return tuple(
        sorted(
            f"{canonicalize_name(one.name)}{one.specifier}"
            for one in parsed
            if canonicalize_name(one.name).startswith(PINNED)
        )
    )


def written(known: Iterable[TorchBuild], fresh: Iterable[TorchBuild]) -> str:
    """The text of torch.toml."""
    return "\n".join([HEAD, *(_entry(build) for build in _ordered([*known, *fresh]))])


def ported_written(known: Mapping[str, Iterable[TorchBuild]], platform: str, fresh: Iterable[TorchBuild]) -> str:
    """The text of torch_ported.toml. `known`: by platform; `fresh`: of this one."""
    builds = {**known, platform: [*known.get(platform, ()), *fresh]}
    entries = [_entry(build, json.dumps(name)) for name in sorted(builds) for build in _ordered(builds[name])]
    return "\n".join([PORTED_HEAD, *entries])


def _ordered(builds: Iterable[TorchBuild]) -> list[TorchBuild]:
    """Each once, the last one given, by their versions."""
    by_version = {(build.torch, build.cuda): build for build in builds}
    return sorted(by_version.values(), key=lambda build: (Version(build.torch), _number(build.cuda)))


def _number(cuda: str) -> tuple[int, ...]:
    return () if cuda == "cpu" else tuple(map(int, cuda.split(".")))


def _entry(build: TorchBuild, table: str = "build") -> str:
    lines = [f"[[{table}]]"]
    for name in (*_FIELDS, "known", "by", "source"):
        value = getattr(build, name)
        if value is None or (value in ("", 0, (), {}) and name not in ("sm", "ptx", "cxx11_abi")):
            continue
        inside = ", ".join(f"{key} = {json.dumps(one)}" for key, one in value.items()) if name == "features" else ""
        lines.append(f"{name} = {{ {inside} }}" if inside else f"{name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"
