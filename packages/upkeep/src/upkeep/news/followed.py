"""News of channels, and the variants that follow them. Pure."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from packaging.version import Version

from graphcrate.compat.facts.facts import TorchBuild
from graphcrate.compat.variants.ported import on_platform
from graphcrate.model.lock import Lock
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant
from graphcrate.resolve.sources.target import WheelTarget, target_of
from upkeep.news.changes import HeldBack
from upkeep.releases import ListedRelease

#: channels whose torch an update follows; a folder has what its owner puts there
FOLLOWED = (Channel.PYPI, Channel.PYTORCH)


class News(NamedTuple):
    """News of channels, with measurements. `today` decides which packages are of their time."""

    torch: Sequence[ListedRelease]
    builds: Sequence[TorchBuild]
    pyg: Sequence[ListedRelease]
    today: datetime.date
    packages: Mapping[str, Sequence[ListedRelease]] = {}  #: of the stack beside these, by normalised name
    companions: Mapping[str, Sequence[ListedRelease]] = {}  #: torchvision and torchaudio, where an index has them
    refused: frozenset[str] = frozenset()  #: "torch 2.99.0": what was tried and did not do
    ported: Mapping[str, Sequence[TorchBuild]] = {}  #: other platform, as OCI names it → torch's wheels for it

    def build(self, torch: str, cuda: str, platform: Platform = DEFAULT) -> TorchBuild | None:
        """Look up a torch ("2.12.1+cu130") for a CUDA."""
        version = Version(torch).public
        builds = self.builds if platform == DEFAULT else self.ported.get(platform.name, ())
        return next((build for build in builds if (build.torch, build.cuda) == (version, cuda)), None)

    def cuda_of(self, release: ListedRelease) -> str:
        """Return a torch's CUDA: what its channel is for, or what its wheel says. Empty: not measured."""
        if release.cuda:
            return release.cuda
        measured = (build for build in self.builds if build.known == "measured" and build.source in release.files)
        return next((build.cuda for build in measured if build.torch == str(release.number)), "")


class Followed(NamedTuple):
    """A variant with the candidate that an update follows."""

    recipe: Recipe
    variant: Variant
    way: Candidate
    ported: Mapping[str, Lock] = {}  #: other platform, as OCI names it → the variant's lock for it

    def target(self, platform: Platform = DEFAULT) -> WheelTarget:
        """Return the target that wheels of it have to fit."""
        variant = on_platform(self.variant, platform)
        return target_of(variant.base, variant.python)

    def held(self, cuda: str, release: str, reasons: Iterable[str]) -> HeldBack:
        return HeldBack(recipe=self.recipe.name, cuda=cuda, release=release, reasons=tuple(reasons))

    def hold(self, held: list[HeldBack], cuda: str, release: ListedRelease, reasons: tuple[str, ...]) -> None:
        """Add a torch that is held back, but not an older one for the reasons of a newer one."""
        if all(other.reasons != reasons for other in held):
            held.append(self.held(cuda, f"torch {release.version}", reasons))
