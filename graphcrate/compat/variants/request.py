"""A user's request for an image: small values, each for one stage of the build."""

import operator
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.compat.facts import build_environment
from graphcrate.compat.facts.slim import Choice
from graphcrate.compat.requirements import own_packages
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.model.command import OPTIONS, Command, Value, command
from graphcrate.model.options import ROWS, BuildOption
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Additions, FurtherChannel
from graphcrate.model.report import BuildParameters
from graphcrate.model.trial import Device
from sifsquash.values import Compression

#: Where compiled extensions come from. `auto`: wheels, and what has none is compiled here; `wheels`: what has no wheel
#: is left out; `source`: compiled here even where there is a wheel; `none`: left out.
Extensions = Literal["auto", "wheels", "source", "none"]

#: commands that build, or do part of it
Verb = Literal["image", "lock", "render", "publish"]


#: options that are typed once for each value; the others take several in one
_REPEATED = ("requirements", "cache", "cache-trust")


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Sources of an image's files."""

    channel: str | None = None  #: the only one that torch may come from
    mirror: str | None = None  #: a name that `resolve.sources.wheel_mirrors` knows, or an address
    wheels: Path | None = None  #: folder of the local channel
    extensions: Extensions = "auto"
    toolkit: str | None = None  #: its provider
    #: where pyg_lib's sources are, for what no channel has as a wheel: a folder, `git`, or a server's address
    pyg_lib: str | None = None
    devel: bool = False  #: the toolkit stays in the image, with a compiler
    locked: bool = False  #: nothing but what a committed lock names, or an error
    without_security: bool = False  #: lock a suite where no mirror gives the list of its security updates
    walled: bool = False  #: what is added is built in the sandbox or not at all: it is a recipe's, perhaps a stranger's
    cache: tuple[str, ...] = ()  #: places of a shared cache, in order
    cache_trust: tuple[Path, ...] = ()  #: public keys whose entries are taken from it
    cache_key: Path | None = None  #: what is compiled here is given to it, signed with this one
    cache_check: str = ""  #: of so many of its entries one is compiled here and compared
    parts_only: bool = False  #: no whole image is taken from it: a proof is of what today's code has built
    further: tuple[FurtherChannel, ...] = ()  #: that a requirements file names, for the packages that it adds

    @property
    def shown_mirror(self) -> str:
        """The mirror without a password."""
        return _redacted(self.mirror)

    @property
    def shown_cache(self) -> tuple[str, ...]:
        """The places of a shared cache without a password."""
        return tuple(map(_redacted, self.cache))

    @property
    def shown_pyg_lib(self) -> str:
        """The place of pyg_lib's sources without a password."""
        return _redacted(self.pyg_lib)


class SuiteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the test after a build."""

    run: bool = True
    device: Device = "auto"
    rerun: bool = False  #: run suites that the image passed on this kind of node before, too
    keep_going: bool = False  #: test what the audit says cannot work as a whole, too

    @property
    def skipped(self) -> bool:
        """Return whether there is no test."""
        return not self.run


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
    trust_paths: bool = False  #: the recipe's file may name what is outside of its folder, and build without walls
    words: tuple[str, ...] | None = None  #: packages as they were typed; None: those of the additions

    @property
    def own_sources(self) -> SourceOptions:
        """Those of an image with additions."""
        walled = self.sources.walled or (self.recipe is not None and not self.trust_paths)
        return msgspec.structs.replace(self.sources, further=self.additions.channels, walled=walled)

    @property
    def of_stack(self) -> "BuildRequest":
        """The same without what is added: for the image of the stack itself."""
        return msgspec.structs.replace(self, additions=Additions(), recipe=None)

    def command(self) -> Command:
        """Return the command for this request. Passwords are left out.

        What `publish` builds and has no option for is built first, by `image`; what the others have none for they do
        not need (a mirror that is configured).
        """
        given = {row.name: value for row in ROWS if (value := self._typed(row))}
        verb = self.verb
        if verb == "publish":
            given.pop("engine", None)  # of what is published, always our own
            verb = "publish" if given.keys() <= set(OPTIONS["publish"]) else "image"
        return command(
            verb, self.recipe or self.name, **{name: value for name, value in given.items() if name in OPTIONS[verb]}
        )

    def _typed(self, row: BuildOption) -> Value:
        """The value of an option as it is typed; none where the request is as without it."""
        if not row.field:
            return None
        value = operator.attrgetter(row.field)(self)
        if value == operator.attrgetter(row.field)(_UNASKED):
            return None
        if isinstance(value, dict):
            return build_environment.written(value)
        return value if row.name in _REPEATED or not isinstance(value, tuple) else " ".join(value)

    @property
    def other_platform(self) -> str:
        """The platform, where it is not the default one."""
        return self.platform.replace(DEFAULT.name, "")

    @property
    def flavour(self) -> str:
        """Packages that go by one name: a compiler with the toolkit, or those that are added."""
        return "devel" if self.sources.devel else self.additions.flavour

    @property
    def typed_additions(self) -> Additions:
        """The additions that were typed: a recipe's file has its own."""
        return Additions() if self.recipe else self.additions

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
            additions=own_packages.recorded(self.additions) if self.additions else None,
        )


#: which says nothing but a stack's name
_UNASKED = BuildRequest(name="", cuda=None)


def _redacted(address: str | None) -> str:
    from patienthttp.errors import redacted

    return redacted(address or "")
