"""What the user asks for when an image is to be built: small values, each for one stage of the build."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.compat import own
from graphcrate.compat.slim import Choice
from graphcrate.compat.targets import MachineRequest
from graphcrate.model.command import OPTIONS, Command, command, setting
from graphcrate.model.recipe import Additions, FurtherChannel
from graphcrate.model.report import BuildParameters, BuildReport
from graphcrate.model.trial import Device

#: Where compiled extensions come from. `auto`: wheels, and what has none is compiled here; `wheels`: what has no wheel
#: is left out; `source`: compiled here even where there is a wheel; `none`: left out.
Extensions = Literal["auto", "wheels", "source", "none"]

#: commands that build, or do part of it
Verb = Literal["image", "lock", "render", "publish"]


def _quoted(names: Sequence[str]) -> str:
    """As in an array of TOML."""
    return ", ".join(f'"{name}"' for name in names)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of an image come from."""

    channel: str | None = None  #: the only one that torch may come from
    mirror: str | None = None  #: a name that `resolve.channels` knows, or an address
    wheels: Path | None = None  #: folder of the local channel
    extensions: Extensions = "auto"
    toolkit: str | None = None  #: its provider
    devel: bool = False  #: the toolkit stays in the image, with a compiler
    locked: bool = False  #: nothing but what a committed lock names, or an error
    further: tuple[FurtherChannel, ...] = ()  #: that a requirements file names, for the packages that it adds


class SuiteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an image is tested after its build."""

    run: bool = True
    device: Device = "auto"
    rerun: bool = False  #: run suites that the image passed on this kind of node before, too
    keep_going: bool = False  #: test what the audit says cannot work as a whole, too


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A build as the user asked for it: a small value for each stage, and how it was typed, to write it again."""

    name: str
    cuda: str | None  #: None: the newest that runs on the machine, if one is named
    machine: MachineRequest = MachineRequest()  #: that the image is for
    sources: SourceOptions = SourceOptions()  #: of the stack; `own_sources` has those of what is added to it, too
    additions: Additions = Additions()  #: the user's own packages, files and commands
    recipe: Path | None = None  #: the user's own file that says them
    slim: Choice = "no"  #: cut to the GPUs that are named
    suites: SuiteOptions = SuiteOptions()
    engine: str = "auto"  #: `auto`: the embedded builder, and where it cannot work the first engine that answers
    output: Path = Path("dist")
    verb: Verb = "image"  #: the command that was typed
    requirements: tuple[Path, ...] = ()  #: files as they were typed; the additions have what is in them
    words: tuple[str, ...] | None = None  #: packages as they were typed; None: those of the additions

    @property
    def own_sources(self) -> SourceOptions:
        """Those of an image with additions."""
        return msgspec.structs.replace(self.sources, further=self.additions.channels)

    @property
    def of_stack(self) -> "BuildRequest":
        """The same without what is added: for the image of the stack itself."""
        return msgspec.structs.replace(self, additions=Additions(), recipe=None)

    def asking(self, packages: Sequence[str]) -> "BuildRequest":
        """The same with these packages in place of those that were typed; what is in a file of them stays there."""
        additions = msgspec.structs.replace(self.additions, packages=tuple(packages))
        words = self.words if self.requirements else None
        return msgspec.structs.replace(self, additions=additions, words=words)

    def on(self, cuda: str) -> "BuildRequest":
        """The same for another CUDA version: channel and folder were chosen for the wheels of this one."""
        sources = msgspec.structs.replace(self.sources, channel=None, wheels=None)
        return msgspec.structs.replace(self, cuda=cuda, sources=sources)

    def from_channel(self, channel: str | None) -> "BuildRequest":
        """The same with torch from this channel alone; None: from any."""
        return msgspec.structs.replace(self, sources=msgspec.structs.replace(self.sources, channel=channel))

    def command_with_apt(self, packages: Sequence[str]) -> str:
        """What to type for this request with more of Debian's packages; of a recipe of one's own, what to write."""
        apt = tuple(dict.fromkeys((*self.additions.apt, *packages)))
        if self.recipe:
            return f"apt = [{_quoted(apt)}] in {self.recipe}, then the same command"
        if self.additions.constraints and not self.requirements:  # bounds of a file that is not known any more
            return f"the same command with {setting(apt=' '.join(apt))}"
        more = msgspec.structs.replace(self.additions, apt=apt)
        return str(msgspec.structs.replace(self, additions=more).command())

    def command_with(self, packages: Sequence[str]) -> str:
        """What to type for this request with more packages, which go before what a file says of them."""
        if self.recipe:
            return f"add {_quoted(packages)} to pip in {self.recipe}"
        return str(msgspec.structs.replace(self, words=tuple(dict.fromkeys((*self._words(), *packages)))).command())

    def command(self) -> Command:
        """What to type for this request. Passwords are left out.

        What `publish` builds and has no option for is built first, by `image`; what the others have none for they do
        not need (a mirror that is configured).
        """
        from graphcrate.host.connections import redacted

        machine, sources, suites = self.machine, self.sources, self.suites
        options = {
            "cuda": self.cuda,
            "target": machine.target,
            "gpu": machine.gpu,
            "driver": machine.driver,
            "channel": sources.channel,
            "mirror": redacted(sources.mirror or ""),
            "wheels": sources.wheels,
            "extensions": sources.extensions.replace("auto", ""),
            "toolkit": sources.toolkit,
            "engine": self.engine.replace("auto", ""),
            "flavour": "devel" if sources.devel else self.additions.flavour,
            "slim": self.slim.replace("no", ""),
            "with": " ".join(self._words()),
            "requirements": self.requirements,
            "apt": "" if self.recipe else " ".join(self.additions.apt),
            "locked": sources.locked,
            "output": "" if self.output == Path("dist") else self.output,
            "no-smoke": not suites.run,
            "rerun": suites.rerun,
            "keep-going": suites.keep_going,
            "device": suites.device.replace("auto", ""),
        }
        given = {name: value for name, value in options.items() if value}
        verb = self.verb
        if verb == "publish":
            given.pop("engine", None)  # of what is published, always our own
            verb = "publish" if given.keys() <= set(OPTIONS["publish"]) else "image"
        return command(
            verb, self.recipe or self.name, **{name: value for name, value in given.items() if name in OPTIONS[verb]}
        )

    def _words(self) -> tuple[str, ...]:
        if self.words is not None or self.recipe:
            return self.words or ()
        return self.additions.packages

    @classmethod
    def again(cls, asked: BuildParameters) -> "BuildRequest":
        """The request for an image that was built before, by its provenance."""
        machine = MachineRequest(target=asked.target, gpu=",".join(asked.gpus), driver=asked.driver)
        sources = SourceOptions(
            channel=asked.channel or None,
            extensions=asked.extensions or "auto",
            toolkit=asked.toolkit or None,
            devel=asked.flavour == "devel",
        )
        return cls(
            name=asked.recipe,
            cuda=asked.variant,
            machine=machine,
            sources=sources,
            additions=asked.additions or Additions(),
            slim=asked.slim or "no",
        )

    def asked(self, report: BuildReport) -> BuildParameters:
        """As provenance tells it: enough to ask again."""
        return BuildParameters(
            recipe=self.name,
            variant=report.cuda,
            candidate=report.candidate,
            target=self.machine.target,
            gpus=tuple(filter(None, self.machine.gpu.split(","))),
            driver=self.machine.driver,
            channel=self.sources.channel or "",
            extensions=self.sources.extensions,
            toolkit=self.sources.toolkit or "",
            flavour="devel" if self.sources.devel else "",
            slim=self.slim if self.slim != "no" else "",
            additions=own.recorded(self.additions) if self.additions else None,
        )
