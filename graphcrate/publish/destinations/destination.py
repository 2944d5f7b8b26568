"""A destination of `publish`: a value with its own form on the command line, and a method that delivers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import msgspec

from graphcrate.artifacts import origin
from graphcrate.artifacts.conversion.job import SUFFIXES, Converted, ConvertRequest, ResultForm
from graphcrate.artifacts.conversion.run import convert
from graphcrate.host.context import Context
from graphcrate.publish.policy import ImageEvidence, PublishRequest

#: annotation of what went out without a pass on a GPU; the statement about its suites has a field for it
CPU_ONLY = "graphcrate.cpu-only"
EMULATED = "graphcrate.emulated"  #: the same of what an emulator alone has tried


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """`publish --json`. `lines`: runtime → what its users type."""

    name: str
    tag: str
    destination: str = ""
    reference: str
    digest: str  #: of the image's manifest there, or of the file
    layout: str = ""  #: of the manifest that `make image` named: the same image below dist/
    platform: str = ""  #: that the image is for
    index: str = ""  #: digest of the index that the reference names, where that holds images for other platforms too
    form: str = ""
    tags: tuple[str, ...] = ()
    bytes_sent: int = 0
    bytes_there: int = 0
    bytes_mounted: int = 0
    proofs: tuple[str, ...] = ()  #: digests of the manifests that hold statements and signatures
    signed: str = ""  #: "key"; empty: unsigned
    cpu_only: bool = False
    emulated: bool = False
    seconds: float = 0.0
    lines: Mapping[str, str] = {}


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that `publish` would put somewhere. `bytes`: of what is not made yet about as many."""

    what: str
    place: str
    bytes: int
    bytes_there: int = 0
    is_made: bool = True


class Deliveries(msgspec.Struct, frozen=True, kw_only=True):
    """`publish --plan --json` of an image that is there."""

    name: str
    tag: str
    destination: str
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True)
class Destination(ABC):
    """A destination of images. A new kind is a module beside this one and a row of `publication.DESTINATIONS`."""

    title: ClassVar[str]  #: in sentences: "a registry"
    forms: ClassVar[str]  #: lines of the help: what `--to` takes, and what comes of it
    options: ClassVar[frozenset[str]]  #: of the command, those that apply; see `publish.publication.OPTIONS`

    @classmethod
    @abstractmethod
    def parse(cls, text: str, environment: Mapping[str, str]) -> Self | None:
        """Read what `--to` says; None where it has another destination's form. Raises UsageError."""

    @property
    @abstractmethod
    def receiver(self) -> str:
        """The party that hands the image on, for a sentence about NVIDIA's terms."""

    @property
    def is_own(self) -> bool:
        """Return whether it is a registry on this machine, so that no one else gets the image."""
        return False

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags that `--to` itself names."""
        return ()

    @abstractmethod
    def check(self) -> None:
        """Fail before anything is built, where that can be known. Raises HostError."""

    @abstractmethod
    def require_answer(self, name: str, tag: str, request: PublishRequest, ctx: Context) -> None:
        """Ask for an image of this name, where one has to log in or may be at a wrong address. Raises NetworkError."""

    @abstractmethod
    def plan(self, image: ImageEvidence, request: PublishRequest, ctx: Context) -> tuple[Delivery, ...]:
        """Tell what `publish` would deliver, and ask what is there. Raises as that does where it is known by now."""

    @abstractmethod
    def publish(self, image: ImageEvidence, request: PublishRequest, ctx: Context) -> Published:
        """Deliver an image that may go out. Raises what converting, writing or sending raises."""


def made_of(image: ImageEvidence, form: ResultForm) -> Path | None:
    """Find the image in a runtime's own form beside its layout; None for one that is still to be made of it."""
    path = image.layout.path.parent / f"{image.report.name.rpartition('/')[2]}{SUFFIXES[form]}"
    return path if origin.is_of(path, image.layout.digest) else None


def converted(image: ImageEvidence, request: PublishRequest, form: ResultForm, ctx: Context) -> Converted:
    """Return the image in a runtime's own form, beside its layout; made where it is not there yet.

    One that is there keeps its compression, unless one is asked for: it may have been made for an old kernel.
    """
    is_squashed = form != "oci-archive" or request.forms == (form,)  # alone, it refuses the options
    compression = request.compression
    if not (compression or request.kernel or form == "oci-archive") and (made := made_of(image, form)):
        compression = origin.compression_of(made)
    order = ConvertRequest(
        ref=str(image.layout.path),
        to=form,
        compression=compression if is_squashed else None,
        kernel=request.kernel if is_squashed else None,
        over=request.over if form == "delta" else None,
        images=request.output,
        force=True,
        hashed=True,
    )
    return convert(order, ctx)
