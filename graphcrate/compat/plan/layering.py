"""Layers of wheels: which packages share one, those that change least first. Pure."""

from collections.abc import Iterable, Sequence

from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import CHANNELS

#: A wheel of at least this many bytes is a layer of its own: it is pulled and cached alone.
_OWN_LAYER = 30_000_000
#: Docker stops at 125 layers and old engines at less; far below it.
MOST_LAYERS = 60
_CUDA = ("nvidia-", "cuda-", "triton", "pytorch-triton")
_TOOLS = {"pip", "setuptools", "wheel", "cmake", "lit", "tqdm"}
MOST_ADDED = 20  #: layers of the user's own large packages
TitledLayer = tuple[str, tuple[LockedPackage, ...]]  #: title and packages
#: channel → title of the layer with its libraries and those that change together with them
FAMILIES = {channel: f"{row.owner} family" for channel, row in CHANNELS.items() if row.libraries}
GROUPS = ("CUDA libraries", "torch and libraries", "tools", *FAMILIES.values())


def stack_layers(packages: Iterable[LockedPackage]) -> list[TitledLayer]:
    """Return titles and packages of layers: each large wheel alone, before the small ones of its group."""
    packages = sorted(packages, key=lambda package: package.name)
    large = [package for package in packages if package.file.size >= _OWN_LAYER]
    # Beyond the limit the smallest of the large wheels join their group.
    large = sorted(large, key=lambda package: -package.file.size)[: MOST_LAYERS - 10]
    layers: list[TitledLayer] = []
    for title in GROUPS:
        layers += _own_layers([package for package in packages if group(package.name) == title], large, title)
    return layers


def added_layers(packages: Sequence[LockedPackage]) -> list[TitledLayer]:
    """Return titles and packages of layers of what the user added."""
    large = [package for package in packages if package.file.size >= _OWN_LAYER][:MOST_ADDED]
    return _own_layers(packages, large, "added packages")


def _own_layers(members: Sequence[LockedPackage], large: Sequence[LockedPackage], title: str) -> list[TitledLayer]:
    """Return each of the large ones alone, then all others as `title`."""
    alone = [member for member in members if member in large]
    layers: list[TitledLayer] = [(f"{member.name} {member.version}", (member,)) for member in alone]
    small = tuple(member for member in members if member not in large)
    return [*layers, (title, small)] if small else layers


def group(name: str) -> str:
    """Return the group of `GROUPS` that a package belongs to: packages of one change together."""
    if name.startswith(_CUDA):
        return GROUPS[0]
    for channel, title in FAMILIES.items():
        if name in CHANNELS[channel].libraries | CHANNELS[channel].companions:
            return title
    return GROUPS[2] if name in _TOOLS else GROUPS[1]
