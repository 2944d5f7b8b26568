"""Questions to the site: a machine, a stack and packages, read strictly, and the request that each amounts to.

Pure. Everything in a question is a stranger's word: lengths and characters are limited here, and what the words mean
is judged by the readers of the command line.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from graphcrate.compat.variants.request import BuildRequest, SourceOptions
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, UsageError
from graphcrate.model.recipe import Additions
from graphcrate.model.runtime import RUNTIMES, RuntimeName, runtime_name

FileForm = Literal["sif", "sqsh", "docker"]
#: forms of files to download, as `convert --to` has them, each with the runtime that opens it
FORMS: Mapping[FileForm, RuntimeName] = {
    form: name for name, row in RUNTIMES.items() for form in get_args(FileForm) if row.own.file and row.own.to == form
}
#: options of `image` → fields of a question
OPTIONS: Mapping[str, str] = {
    "with": "packages",
    **{name: name for name in ("cuda", "gpu", "driver", "apt", "slim", "flavour")},
}
_END = r"(?!\n)$"  #: of a text: `$` alone would let a newline follow
_ONE_LINE = rf"^[^\x00-\x1f\x7f-\x9f]*{_END}"
_LINES = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$"
_SMI_DRIVER = re.compile(r"Driver Version: *(\d+(?:\.\d+)+)")

Name = Annotated[str, msgspec.Meta(pattern=rf"^[a-z0-9][a-z0-9-]*{_END}", max_length=60)]
Line = Annotated[str, msgspec.Meta(pattern=_ONE_LINE, max_length=100)]
Words = Annotated[str, msgspec.Meta(pattern=_ONE_LINE, max_length=2000)]
#: of files that `image` takes; and of those that `adopt` and `init` make its words of
_LISTS, _CODE = r"[A-Za-z0-9][\w.-]{0,60}\.(?:txt|in|ya?ml|toml|lock)", r"[A-Za-z0-9][\w-]{0,60}\.py"
_SCRIPTS = (
    r"(?:[A-Za-z0-9][\w.-]{0,60}\.)?(?:Docker|docker|Container)file(?:\.[\w-]{1,20})?|Singularity|README|"
    r"[A-Za-z0-9][\w.-]{0,60}\.(?:def|sh|bash|md|rst)"
)
#: What a dropped file may be called: its name says its format. The program reads its defaults in graphcrate.toml.
FileName = Annotated[
    str, msgspec.Meta(pattern=rf"^(?!graphcrate\.toml)({_LISTS}|{_SCRIPTS}|{_CODE})?{_END}", max_length=70)
]
FileText = Annotated[str, msgspec.Meta(pattern=_LINES, max_length=200_000)]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request of a site's user. An empty field was not filled in."""

    stack: Name = "pyg"
    cuda: Annotated[str, msgspec.Meta(pattern=rf"^([0-9][0-9.]*|cpu)?{_END}", max_length=10)] = ""
    gpu: Annotated[str, msgspec.Meta(pattern=_LINES, max_length=20_000)] = ""  #: or what nvidia-smi prints
    driver: Line = ""
    runtime: Annotated[str, msgspec.Meta(pattern=rf"^[A-Za-z0-9-]*{_END}", max_length=40)] = ""
    packages: Words = ""
    apt: Words = ""
    file: FileName = ""  #: that was dropped
    text: FileText = ""  #: that it has
    flavour: Literal["runtime", "devel", "jupyter"] = "runtime"
    slim: Literal["no", "yes", "all"] = "no"

    @property
    def known_driver(self) -> str:
        """The driver that was named, or that nvidia-smi prints."""
        shown = _SMI_DRIVER.search(self.gpu)
        return self.driver.strip() or (shown[1] if shown else "")

    @property
    def file_name(self) -> str:
        """The name of the dropped file, or an empty text."""
        return (self.file or "requirements.txt") if self.text.strip() else ""

    @property
    def requirements(self) -> str:
        """The same, of a file that `image` takes."""
        return self.file_name if re.fullmatch(_LISTS, self.file_name) else ""

    @property
    def is_read_first(self) -> bool:
        """Return whether packages are to be read out of its file before anything can be planned."""
        return bool(self.file_name) and not self.requirements

    @property
    def form(self) -> FileForm | None:
        """The form of file that its runtime opens; None where it opens none, or none was named."""
        runtime = runtime_name(self.runtime)
        return next((form for form, name in FORMS.items() if name == runtime), None)

    @property
    def machine(self) -> MachineRequest:
        """The machine, as `explain` takes it."""
        runtimes = (self.runtime,) if self.runtime else ()
        return MachineRequest(gpu=self.gpu.strip(), driver=self.known_driver, runtimes=runtimes)

    @property
    def fields(self) -> dict[str, str]:
        """The fields that were filled in, as a form has them."""
        filled: dict[str, str] = msgspec.to_builtins(self)
        return filled

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


class DroppedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of which packages are to be read: a Dockerfile, a definition, a script, Python code."""

    name: FileName
    text: FileText


def read(data: bytes) -> Question:
    """Read a question in JSON. Raises UsageError."""
    try:
        return codec.decode(data, Question)
    except UNREADABLE as error:
        raise _refused(str(error)) from error


def of_file(data: bytes) -> Question:
    """Read a dropped file in JSON as the question that has nothing else. Raises UsageError."""
    try:
        dropped = codec.decode(data, DroppedFile)
    except UNREADABLE as error:
        raise _refused(str(error), DroppedFile) from error
    question = Question(file=dropped.name, text=dropped.text)
    if not question.file_name:
        raise UsageError(f"{dropped.name} is empty", next_step="send its lines as `text`")
    if question.requirements:
        raise UsageError(
            f"{dropped.name} needs no reading: a plan takes it as it is", next_step="send it to /v1/plans, as `text`"
        )
    return question


def of_form(fields: Mapping[str, str]) -> Question:
    """Read a question from the fields of a form; one that is empty was not filled in. Raises UsageError."""
    try:
        return codec.convert({name: value for name, value in fields.items() if value.strip()}, Question)
    except UNREADABLE as error:
        raise _refused(str(error)) from error


def _refused(why: str, kind: type[msgspec.Struct] = Question) -> UsageError:
    fields = ", ".join(kind.__struct_fields__)
    return UsageError(f"the question cannot be read: {why}", next_step=f"its fields are {fields}; /v1/openapi.json")
