"""One conversion: what was asked for, of which image, where the result goes, and what came of it."""

import datetime
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import check_writable
from graphcrate.model.command import for_shell
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import Platform
from graphcrate.model.report import BuildReport
from graphcrate.model.words import joined
from graphcrate.oci.layout import Layout
from sifsquash.values import Compression

ResultForm = Literal["sif", "sqsh", "delta", "docker", "rootfs", "oci-archive"]
#: Names of the results, after the image's.
SUFFIXES: Mapping[ResultForm, str] = {
    "sif": ".sif",
    "sqsh": ".sqsh",
    "delta": ".delta.sqsh",
    "docker": ".docker.tar",
    "rootfs": ".rootfs",
    "oci-archive": ".oci.tar",
}
CHUNK = 1 << 20
#: options of the command line → the field of the request, and the kinds of results that it is for
Options = Mapping[str, tuple[str, tuple[str, ...]]]
_SQUASHED = ("sif", "sqsh", "delta")
OPTIONS: Options = {
    "--compression": ("compression", _SQUASHED),
    "--kernel": ("kernel", _SQUASHED),
    "--over": ("over", ("delta",)),
}


class ConvertRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One conversion: of which image, to what, where to."""

    ref: str
    to: ResultForm
    output: Path | None = None  #: None: beside the layout, named after the image
    force: bool = False
    compression: Compression | None = None  #: of a SIF or squashfs; None: what `kernel` mounts, zstd for enroot
    kernel: str | None = None  #: of the machine that the result is for
    over: str | None = None  #: of a difference: the image that it is to
    link: Path | None = None  #: to be a symbolic link to the result
    hashed: bool = False  #: whether the result's hash is wanted
    platform: Platform | None = None  #: of a layout for several, the one that is meant; None: this machine's
    images: Path = Path("dist")


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `size` in bytes, of a folder that of its layers' tars; `sha256` in hex, empty unless asked for."""

    path: str
    form: ResultForm
    layout: str  #: digest of the image that it was made from
    size: int
    seconds: float
    compression: str = ""  #: of a squashfs
    sha256: str = ""
    unchanged: bool = False  #: it was there already, made of the same layout in the same way
    start: str = ""  #: of a difference: what its users type


class Conversion(NamedTuple):
    """One conversion on its way."""

    request: ConvertRequest
    ctx: Context
    layout: Layout
    name: str
    target: Path
    kernel: str | None  #: that the result is for
    created: int  #: when the image was made, in Unix seconds: the time of all that is added
    pull: Callable[[], None]  #: brings what a registry's image lacks here; the rest is looked at before

    @property
    def title(self) -> str:
        """Return the title under which the result names its source."""
        return title_of(self.name, self.layout)

    @property
    def layers_size(self) -> int:
        return sum(layer.size for layer in self.layout.layers)


class WrittenFile(NamedTuple):
    """A writer's facts about its result. `size` None: that of the file."""

    compression: str = ""
    unchanged: bool = False
    size: int | None = None
    start: str = ""


def check_options(request: object, options: Options, kind: str, to: str) -> None:
    """Raises UsageError for an option that does not apply to this kind of result."""
    for option, (field, kinds) in options.items():
        if getattr(request, field) not in (None, False, ()) and kind not in kinds:
            raise UsageError(
                f"{option} does not apply to {to}",
                cause=f"It is for {joined(kinds)}.",
                next_step=f"leave {option} out",
            )


def created_of(layout: Layout) -> int:
    """The image's time of creation in Unix seconds; 0 where it states none that a squashfs can hold."""
    try:
        moment = datetime.datetime.fromisoformat(layout.config.created or "")
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return min(max(int(moment.timestamp()), 0), 0xFFFFFFFF)


def refuse_existing(job: Conversion) -> None:
    """Raises UsageError where something stands that may not be replaced."""
    if job.target.is_dir() and not job.target.is_symlink():
        raise UsageError(
            f"{job.target} is a folder that is there already",
            cause="Folders are never replaced, not by --force either.",
            next_step=f"rm -r {for_shell(job.target)}    or name another place: --output PATH",
        )
    check_writable(job.target.parent)  # now, and not after a minute of compressing
    if os.path.lexists(job.target) and not job.request.force:
        raise UsageError(
            f"{job.target} exists already",
            cause="It was made from another image, or does not say from which.",
            next_step="--force replaces it; --output PATH writes elsewhere",
        )


def leave(job: Conversion, compression: str = "") -> WrittenFile:
    """Say that the result is there already, and leave it."""
    job.ctx.progress.note(f"{job.target} is there, made of the same layout in the same way")
    return WrittenFile(compression, unchanged=True)


def short_name(report: BuildReport) -> str:
    """Return an image's name without its registry and folders."""
    return report.name.rpartition("/")[2] or "image"


def title_of(name: str, layout: Layout) -> str:
    """Return NAME[:TAG]@DIGEST of an image."""
    tag = f":{layout.tag}" if layout.tag else ""
    return f"{name}{tag}@{layout.digest}"
