"""The torchvision and torchaudio of each torch: `data/pairs.toml`, read by pure functions."""

import re

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from graphcrate.compat.facts.facts import table_reader


class TorchCompanion(msgspec.Struct, frozen=True, kw_only=True):
    """A torch's companions. `cuda`: what the package index's wheels were built with; `python`: that both are for."""

    torch: str
    torchvision: str
    torchaudio: str
    cuda: str
    python: tuple[str, ...]
    known: str
    source: tuple[str, ...]


class _Strict(msgspec.Struct, frozen=True, kw_only=True):
    """Releases of a package whose import fails beside a torch for another CUDA, were it 11.8 in place of 11.7."""

    package: str
    versions: str


#: what has pairs
NAMES = ("torchvision", "torchaudio")
#: one for each torch of the package index, oldest first
pairs = table_reader("pairs", tuple[TorchCompanion, ...], "pair")
_strict = table_reader("pairs", tuple[_Strict, ...], "strict")
_later = table_reader("pairs", dict[str, str], "later")


def pair_of(torch: str) -> TorchCompanion | None:
    """Look up the companions of a torch ("2.0.1+cu118"), if the table has it."""
    return next((pair for pair in pairs() if pair.torch == Version(torch).public), None)


def constraints(torch: str) -> tuple[str, ...]:
    """Requirements that keep torchvision and torchaudio to those of this torch, where anything asks for them."""
    if pair := pair_of(torch):
        return f"torchvision=={pair.torchvision}", f"torchaudio=={pair.torchaudio}"
    release = Version(torch)
    if release > Version(pairs()[-1].torch):
        return (f"torchaudio{_later()['torchaudio']}",)
    # torchvision's metadata pins torch; torchaudio's does not always, but their numbers tell.
    return (f"torchaudio=={'0' if release.major == 1 else release.major}.{release.minor}.*",)


def fitting(package: str, torch: str, torch_cuda: str) -> str:
    """The version of torchvision or torchaudio on the package index that is for this torch and CUDA; empty for none."""
    pair = pair_of(torch)
    if pair is None or not pair.python or pair.cuda != torch_cuda:
        return ""
    return {"torchvision": pair.torchvision, "torchaudio": pair.torchaudio}.get(package, "")


def other_cuda(package: str, version: str, torch_cuda: str) -> str:
    """The CUDA ("11.7") of this release, where its import fails beside a torch built with `torch_cuda`, another one.

    Empty: it does not fail, or its CUDA is not known. A torch for the CPU is never compared.
    """
    release = Version(version)
    strict = any(entry.package == package and SpecifierSet(entry.versions).contains(release) for entry in _strict())
    built = next((pair.cuda for pair in pairs() if getattr(pair, package, "") == release.public), "") if strict else ""
    if strict and release.local:
        local = re.fullmatch(r"cu(\d+)(\d)", release.local)
        built = f"{local[1]}.{local[2]}" if local else ""
    return built if torch_cuda not in ("cpu", built) else ""
