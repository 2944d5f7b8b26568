"""Next steps for a build: its command with one thing changed. Only messages read it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from graphcrate.compat.failures.failure import More, same_with
from graphcrate.compat.requirements import own_packages
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.model.command import AGAIN, Command, command
from graphcrate.model.words import listed

_MOST_NAMED = 4  #: packages in a command for another CUDA version
_MOST_WORDS = 6  #: packages in a command with others in place of what was typed


@dataclass(frozen=True)
class NextSteps:
    """The commands for a build that was typed, each with one thing of it changed."""

    typed: BuildRequest

    def on(self, cuda: str, stack: str = "") -> Command:
        """The same for another CUDA version, of another stack where one is named: channel and folder were chosen for
        the wheels of this one.
        """
        sources = msgspec.structs.replace(self.typed.sources, channel=None, wheels=None)
        name = stack or self.typed.name
        return msgspec.structs.replace(self.typed, name=name, cuda=cuda, sources=sources).command()

    def on_without(self, cuda: str, names: Collection[str]) -> Command:
        """The same for another CUDA version, without the packages of these names, which a stack has itself."""
        packages = self.typed.additions.packages
        if len(packages) > _MOST_NAMED and not self.typed.requirements:
            return command("image", "…", cuda=cuda)
        return NextSteps(
            self._asking([package for package in packages if own_packages.name_of(package) not in names])
        ).on(cuda)

    def from_channel(self, channel: str | None) -> Command:
        """The same with torch from this channel alone; None: from any."""
        sources = msgspec.structs.replace(self.typed.sources, channel=channel)
        return msgspec.structs.replace(self.typed, sources=sources).command()

    def instead(self, packages: Sequence[str]) -> str:
        """The same with these packages in place of those that were typed; empty where that is no line to type."""
        if self.typed.recipe is not None or self.typed.requirements or len(packages) > _MOST_WORDS:
            return ""
        return str(self._asking(packages).command())

    def with_packages(self, packages: Sequence[str]) -> str:
        """The same with more packages, which go before what a file says of them; of a recipe file, what to write."""
        if self.typed.recipe:
            return f"add {_quoted(packages)} to pip in {self.typed.recipe}"
        words = tuple(dict.fromkeys((*self.typed.shown_packages, *packages)))
        return str(msgspec.structs.replace(self.typed, words=words).command())

    def with_apt(self, packages: Sequence[str]) -> str:
        """The same with more of Debian's packages; of a recipe file, what to write."""
        return self.beside({"apt": packages})

    def beside(self, more: Mapping[More, Sequence[str]]) -> str:
        """The same with more packages for these options; of a recipe file, what to write."""
        if packages := more.get("with_"):
            return self.with_packages(packages)
        additions = self.typed.additions
        names = {option: tuple(dict.fromkeys((*getattr(additions, option), *more[option]))) for option in more}
        if self.typed.recipe:
            lines = [f"{option} = [{_quoted(packages)}]" for option, packages in names.items()]
            return f"{listed(lines)} in {self.typed.recipe}, then {AGAIN}"
        if additions.constraints and not self.typed.requirements:  # bounds of a file that is not known any more
            return same_with(names)
        asked = msgspec.structs.replace(additions, **names)
        return str(msgspec.structs.replace(self.typed, additions=asked).command())

    def _asking(self, packages: Sequence[str]) -> BuildRequest:
        """The request for these packages in place of those that were typed; what is in a file of them stays there."""
        additions = msgspec.structs.replace(self.typed.additions, packages=tuple(packages))
        words = self.typed.words if self.typed.requirements else None
        return msgspec.structs.replace(self.typed, additions=additions, words=words)


def _quoted(names: Sequence[str]) -> str:
    """As in an array of TOML."""
    return ", ".join(f'"{name}"' for name in names)
