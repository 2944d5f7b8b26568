"""Questions to the site: a machine, a stack and packages, read strictly, and the command line that each amounts to.

Pure. Everything in a question is a stranger's word: lengths and characters are limited here, and what the words mean
is judged by the readers of the command line.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from graphcrate.compat.variants.request import BuildRequest, SourceOptions
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host.arguments import Argv, line
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.recipe import Additions

_ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"
_LINES = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$"
_SMI_DRIVER = re.compile(r"Driver Version: *(\d+(?:\.\d+)+)")

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=60)]
Line = Annotated[str, msgspec.Meta(pattern=_ONE_LINE, max_length=100)]
Words = Annotated[str, msgspec.Meta(pattern=_ONE_LINE, max_length=2000)]
#: What a requirements file may be called: its name says its format.
FileName = Annotated[
    str, msgspec.Meta(pattern=r"^([A-Za-z0-9][\w.-]{0,60}\.(txt|in|ya?ml|toml|lock))?$", max_length=70)
]
FileText = Annotated[str, msgspec.Meta(pattern=_LINES, max_length=200_000)]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request of a site's user. An empty field was not filled in."""

    stack: Name = "pyg"
    cuda: Annotated[str, msgspec.Meta(pattern=r"^([0-9][0-9.]*|cpu)?$", max_length=10)] = ""
    gpu: Annotated[str, msgspec.Meta(pattern=_LINES, max_length=20_000)] = ""  #: or what nvidia-smi prints
    driver: Line = ""
    runtime: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]*$", max_length=40)] = ""
    packages: Words = ""
    apt: Words = ""
    file: FileName = ""  #: of requirements
    text: FileText = ""  #: that it has
    flavour: Literal["runtime", "devel", "jupyter"] = "runtime"
    slim: Literal["no", "yes", "all"] = "no"

    @property
    def known_driver(self) -> str:
        """The driver that was named, or that nvidia-smi prints."""
        shown = _SMI_DRIVER.search(self.gpu)
        return self.driver.strip() or (shown[1] if shown else "")

    @property
    def requirements(self) -> str:
        """The name of the requirements file; empty where there is none."""
        return (self.file or "requirements.txt") if self.text.strip() else ""

    @property
    def machine(self) -> MachineRequest:
        """The machine, as `explain` takes it."""
        runtimes = (self.runtime,) if self.runtime else ()
        return MachineRequest(gpu=self.gpu.strip(), driver=self.known_driver, runtimes=runtimes)

    def request(self, gpu: str) -> BuildRequest:
        """Return the request of `image`. `gpu`: the models as they are written to it."""
        words = tuple(self.packages.split())
        return BuildRequest(
            name=self.stack,
            cuda=self.cuda or None,
            machine=msgspec.structs.replace(self.machine, gpu=gpu, runtimes=()),
            sources=SourceOptions(devel=self.flavour == "devel"),
            additions=Additions(
                packages=words,
                apt=tuple(self.apt.split()),
                flavour=self.flavour if self.flavour == "jupyter" else "",
            ),
            words=words,
            requirements=(Path(self.requirements),) if self.requirements else (),
            slim=self.slim,
        )

    def key(self) -> str:
        """Hash what was asked: equal questions are one plan."""
        return hashlib.sha256(encode(self)).hexdigest()[:32]


def read(data: bytes) -> Question:
    """Read a question in JSON. Raises UsageError."""
    try:
        return codec.decode(data, Question)
    except UNREADABLE as error:
        raise _refused(str(error)) from error


def of_form(fields: Mapping[str, str]) -> Question:
    """Read a question from the fields of a form; one that is empty was not filled in. Raises UsageError."""
    try:
        return codec.convert({name: value for name, value in fields.items() if value.strip()}, Question)
    except UNREADABLE as error:
        raise _refused(str(error)) from error


def image_words(program: Argv, request: BuildRequest, *options: str) -> Argv:
    """Return the command line of `image` for a request, each value in one word with its option."""
    typed = request.command()
    values = (f"--{each.name}" if each.value is None else f"--{each.name}={each.value}" for each in typed.settings)
    return line(*program, "image", *values, "--walled", *options, strange=(request.name,))


def _refused(why: str) -> UsageError:
    fields = ", ".join(Question.__struct_fields__)
    return UsageError(f"the question cannot be read: {why}", next_step=f"its fields are {fields}; /v1/openapi.json")
