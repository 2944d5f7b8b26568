"""Which torchvision and torchaudio go with a torch: `data/pairs.toml`, read by pure functions."""

import functools

import msgspec
from packaging.version import Version

from graphcrate.compat.facts import table


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """What goes with a torch. `cuda`: what the package index's wheels were built with; `python`: that both are for."""

    torch: str
    torchvision: str
    torchaudio: str
    cuda: str
    python: tuple[str, ...]
    known: str
    source: tuple[str, ...]


#: one for each torch of the package index, oldest first
pairs = functools.cache(functools.partial(table, "pairs", tuple[Pair, ...], "pair"))
_later = functools.cache(functools.partial(table, "pairs", dict[str, str], "later"))


def pair_of(torch: str) -> Pair | None:
    """What goes with a torch ("2.0.1+cu118"), if the table has it."""
    return next((one for one in pairs() if one.torch == Version(torch).public), None)


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
