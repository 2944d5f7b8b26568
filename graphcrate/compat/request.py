"""What a person asks for when an image is to be built."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from graphcrate.compat import own
from graphcrate.compat.slim import Choice
from graphcrate.compat.targets import MachineRequest
from graphcrate.model.recipe import Additions, FurtherChannel
from graphcrate.model.report import BuildParameters, BuildReport

#: Where compiled extensions come from. `auto`: wheels, and what has none is compiled here; `wheels`: what has no wheel
#: is left out; `source`: compiled here even where there is a wheel; `none`: left out.
Extensions = Literal["auto", "wheels", "source", "none"]


def _quoted(names: Sequence[str]) -> str:
    """As in an array of TOML."""
    return ", ".join(f'"{name}"' for name in names)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says about sources; `toolkit`: its provider; `devel`: it stays in the image, with a compiler.

    `locked`: nothing but what a committed lock names, or an error.
    """

    channel: str | None = None
    mirror: str | None = None
    wheels: Path | None = None
    extensions: Extensions = "auto"
    toolkit: str | None = None
    devel: bool = False
    locked: bool = False

    @property
    def further(self) -> tuple[FurtherChannel, ...]:
        """Places that the person's requirements name besides."""
        return ()


class BuildRequest(SourceOptions, frozen=True, kw_only=True):
    """What a person asked for."""

    name: str
    cuda: str | None  #: None: the newest that runs on the machine, if one is named
    gpu: str = ""  #: one model or several: "v100,a100"
    driver: str = ""  #: NVIDIA's
    target: str = ""  #: a machine of targets/
    output: Path = Path("dist")
    smoke: bool = True
    keep_going: bool = False  #: test what the audit says cannot work as a whole, too
    rerun: bool = False  #: run suites that the image passed on this kind of node before, too
    device: Literal["auto", "cpu", "cuda"] = "auto"  #: of the smoke test
    engine: str = "auto"  #: `auto`: the embedded builder, and where it cannot work the first engine that answers
    additions: Additions = Additions()  #: a person's own packages, files and commands
    recipe: Path | None = None  #: the file of a person's own that says them
    slim: Choice = "no"  #: cut to the GPUs that are named
    verb: Literal["image", "lock", "render", "publish"] = "image"  #: the command that was typed
    requirements: tuple[Path, ...] = ()  #: files as they were typed; the additions have what is in them
    words: tuple[str, ...] | None = None  #: packages as they were typed; None: those of the additions

    @property
    def further(self) -> tuple[FurtherChannel, ...]:
        """As `SourceOptions` has it."""
        return self.additions.channels

    @property
    def said(self) -> MachineRequest:
        """What was said of the machine that the image is for."""
        return MachineRequest(target=self.target, gpu=self.gpu, driver=self.driver)

    def command_with_apt(self, packages: Sequence[str]) -> str:
        """What to type for this request with more of Debian's packages; of a recipe of one's own, what to write."""
        apt = tuple(dict.fromkeys((*self.additions.apt, *packages)))
        if self.recipe:
            return f"apt = [{_quoted(apt)}] in {self.recipe}, then the same command"
        if self.additions.constraints and not self.requirements:  # bounds of a file that is not known any more
            return f'the same command with APT="{" ".join(apt)}"'
        more = msgspec.structs.replace(self.additions, apt=apt)
        return msgspec.structs.replace(self, additions=more).command()

    def command_with(self, packages: Sequence[str]) -> str:
        """What to type for this request with more packages, which go before what a file says of them."""
        if self.recipe:
            return f"add {_quoted(packages)} to pip in {self.recipe}"
        return msgspec.structs.replace(self, words=tuple(dict.fromkeys((*self._words(), *packages)))).command()

    def command(self) -> str:
        """What to type for this request: of make, where make has a setting for all of it. Passwords are left out."""
        from graphcrate.host.connections import redacted

        names = (
            "cuda target gpu driver channel mirror wheels extensions toolkit engine flavour slim with requirements apt"
        )
        settings = {name: getattr(self, name, None) for name in names.split()} | {
            "mirror": redacted(self.mirror or ""),
            "flavour": "devel" if self.devel else self.additions.flavour,
            "with": " ".join(self._words()),
            "requirements": " ".join(map(str, self.requirements)),
            "apt": "" if self.recipe else " ".join(self.additions.apt),
        }
        settings |= {"locked": "yes" if self.locked else ""}
        said = {name: str(value) for name, value in settings.items() if value not in (None, "", "auto", "no")}
        more = [] if self.output == Path("dist") else ["--output", str(self.output)]
        more += [] if self.smoke else ["--no-smoke"]
        more += ["--rerun"] if self.rerun else []
        more += ["--keep-going"] if self.keep_going else []
        more += [] if self.device == "auto" else ["--device", self.device]
        stack = [] if self.name == "pyg" else [f"STACK={self.name}"]
        stack = [f"RECIPE={self.recipe}"] if self.recipe else stack
        if not (more or self.verb == "render" or len(self.requirements) > 1):
            return shlex.join(["make", self.verb, *stack, *(f"{name.upper()}={value}" for name, value in said.items())])
        more += ["--locked"] if said.pop("locked", "") else []
        said.pop("requirements", None)
        options = [word for name, value in said.items() for word in (f"--{name}", value)]
        options += [word for path in self.requirements for word in ("--requirements", str(path))]
        return shlex.join(["./build.py", self.verb, str(self.recipe or self.name), *options, *more])

    def _words(self) -> tuple[str, ...]:
        if self.words is not None or self.recipe:
            return self.words or ()
        return self.additions.packages

    @classmethod
    def again(cls, asked: BuildParameters, **options: Any) -> "BuildRequest":  # noqa: ANN401
        """The request for an image that was built before, by its provenance; `options` change it."""
        same = ("driver", "target", "channel", "extensions", "toolkit", "slim", "additions")
        fields = {
            "name": asked.recipe,
            "cuda": asked.variant,
            "gpu": ",".join(asked.gpus),
            "devel": asked.flavour == "devel",
            **{name: value for name in same if (value := getattr(asked, name))},
        }
        return cls(**{**fields, **options})

    def asked(self, report: BuildReport) -> BuildParameters:
        """As provenance tells it: enough to ask again."""
        return BuildParameters(
            recipe=self.name,
            variant=report.cuda,
            candidate=report.candidate,
            target=self.target,
            gpus=tuple(filter(None, self.gpu.split(","))),
            driver=self.driver,
            channel=self.channel or "",
            extensions=self.extensions,
            toolkit=self.toolkit or "",
            flavour="devel" if self.devel else "",
            slim=self.slim if self.slim != "no" else "",
            additions=own.recorded(self.additions) if self.additions else None,
        )
