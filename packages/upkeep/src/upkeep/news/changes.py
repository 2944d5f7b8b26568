"""Changes to a recipe's variants by new releases, and releases that are held back."""

from typing import Literal

import msgspec

from graphcrate.model.platform import DEFAULT, Platform


class VariantChange(msgspec.Struct, frozen=True, kw_only=True):
    """A variant that gets another torch or PyG, or is new. `like`: CUDA of the variant that its text is made of."""

    recipe: str
    cuda: str
    kind: Literal["replace", "new", "renew"]  #: renew: locked again, for newer packages of the stack
    like: str
    candidate: str
    torch: str
    torch_before: str
    pyg: str = ""
    pyg_before: str = ""
    exclude_newer: str = ""  #: day; empty: none
    platforms: tuple[str, ...] = ()  #: other ones whose locks are made again too, as OCI names them: "linux/arm64"
    gained: tuple[str, ...] = ()  #: GPU models that it runs on, and the one before, or that it is like, does not
    lost: tuple[str, ...] = ()
    driver: str = ""  #: the oldest
    driver_before: str = ""
    without: tuple[str, ...] = ()  #: requirements that a new variant lacks, as no release of them goes with its torch
    why: tuple[str, ...] = ()  #: what a reviewer has to know, in sentences

    @property
    def title(self) -> str:
        """ "pyg CUDA 13.0"."""
        return f"{self.recipe} CUDA {self.cuda}"

    def title_on(self, platform: Platform) -> str:
        """ "torch CUDA 13.0, arm64"; the title alone for the default platform."""
        return self.title if platform == DEFAULT else f"{self.title}, {platform.title}"

    def without_platform(self, platform: Platform, why: str) -> "VariantChange | None":
        """A new variant without another platform; None of one that is there, whose images for that stay."""
        if self.kind != "new":
            return None
        platforms = tuple(name for name in self.platforms if name != platform.name)
        return msgspec.structs.replace(self, platforms=platforms, why=(*self.why, f"it is not locked {why}"))

    @property
    def brings(self) -> str:
        """Name what it brings, where it has to be taken back: PyG before torch, which was looked at more closely."""
        if self.pyg != self.pyg_before:
            return f"torch_geometric {self.pyg}"
        return f"torch {self.torch}" if self.torch != self.torch_before else "newer packages"


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """A release that a variant does not get, and why."""

    recipe: str
    cuda: str
    release: str  #: "torch 2.99.0"
    reasons: tuple[str, ...]


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to a recipe's variants. What is in neither stays as it is."""

    changes: tuple[VariantChange, ...] = ()
    held: tuple[HeldBack, ...] = ()
