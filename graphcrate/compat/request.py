"""What the user asks for when an image is to be built: small values, each for one stage of the build."""

from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.compat import build_environment, own
from graphcrate.compat.slim import Choice
from graphcrate.compat.targets import MachineRequest
from graphcrate.model.command import OPTIONS, Command, command
from graphcrate.model.compression import Compression
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Additions, FurtherChannel
from graphcrate.model.report import BuildParameters
from graphcrate.model.trial import Device

#: Where compiled extensions come from. `auto`: wheels, and what has none is compiled here; `wheels`: what has no wheel
#: is left out; `source`: compiled here even where there is a wheel; `none`: left out.
Extensions = Literal["auto", "wheels", "source", "none"]

#: commands that build, or do part of it
Verb = Literal["image", "lock", "render", "publish"]


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of an image come from."""

    channel: str | None = None  #: the only one that torch may come from
    mirror: str | None = None  #: a name that `resolve.channels` knows, or an address
    wheels: Path | None = None  #: folder of the local channel
    extensions: Extensions = "auto"
    toolkit: str | None = None  #: its provider
    #: where pyg_lib's sources are, for what no channel has as a wheel: a folder, `git`, or a server's address
    pyg_lib: str | None = None
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
    platform: str = ""  #: that the image is for; empty: what machines with its GPUs are, else the default one
    machine: MachineRequest = MachineRequest()  #: the same, by its GPUs
    sources: SourceOptions = SourceOptions()  #: of the stack; `own_sources` has those of what is added to it, too
    additions: Additions = Additions()  #: the user's own packages, files and commands
    recipe: Path | None = None  #: the user's own file that says them
    slim: Choice = "no"  #: cut to the GPUs that are named
    packs: Compression | None = None  #: its layers are packed for a SIF while they are written
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

    def command(self) -> Command:
        """What to type for this request. Passwords are left out.

        What `publish` builds and has no option for is built first, by `image`; what the others have none for they do
        not need (a mirror that is configured).
        """
        from graphcrate.host.connections import redacted

        machine, sources, suites = self.machine, self.sources, self.suites
        options = {
            "cuda": self.cuda,
            "platform": self.platform.replace(DEFAULT.name, ""),
            "target": machine.target,
            "gpu": machine.gpu,
            "driver": machine.driver,
            "channel": sources.channel,
            "mirror": redacted(sources.mirror or ""),
            "wheels": sources.wheels,
            "extensions": sources.extensions.replace("auto", ""),
            "toolkit": sources.toolkit,
            "pyg-lib": redacted(sources.pyg_lib or ""),
            "engine": self.engine.replace("auto", ""),
            "flavour": "devel" if sources.devel else self.additions.flavour,
            "slim": self.slim.replace("no", ""),
            "with": " ".join(self.shown_packages),
            "requirements": self.requirements,
            "apt": "" if self.recipe else " ".join(self.additions.apt),
            "build-apt": "" if self.recipe else " ".join(self.additions.build_apt),
            "build-env": "" if self.recipe else build_environment.written(self.additions.build_environment),
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

    @property
    def shown_packages(self) -> tuple[str, ...]:
        """The packages that its command names."""
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
            pyg_lib=asked.pyg_lib or None,
            devel=asked.flavour == "devel",
        )
        return cls(
            name=asked.recipe,
            cuda=asked.variant,
            platform=asked.platform,
            machine=machine,
            sources=sources,
            additions=asked.additions or Additions(),
            slim=asked.slim or "no",
        )

    def parameters(self, candidate: str) -> BuildParameters:
        """As provenance tells it, with the candidate that was built: enough to ask again."""
        return BuildParameters(
            recipe=self.name,
            variant=self.cuda or "",
            candidate=candidate,
            platform=self.platform.replace(DEFAULT.name, ""),
            target=self.machine.target,
            gpus=tuple(filter(None, self.machine.gpu.split(","))),
            driver=self.machine.driver,
            channel=self.sources.channel or "",
            extensions=self.sources.extensions,
            toolkit=self.sources.toolkit or "",
            pyg_lib="git" if self.sources.pyg_lib else "",  # a folder is of this machine; git has the same files
            flavour="devel" if self.sources.devel else "",
            slim=self.slim if self.slim != "no" else "",
            additions=own.recorded(self.additions) if self.additions else None,
        )
