"""The image that a SIF or a squashfs says it was made of, and the one that a delta goes over: told by digest, found."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from graphcrate.artifacts.formats.translated import layout_errors
from graphcrate.model.command import command
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.model.words import joined
from sifsquash import images, sif
from sifsquash.squashfs import Squashfs
from sifsquash.values import Compression

#: in a delta: the title of the image that it goes over
OVER = ".singularity.d/over"
#: folders of SIFs that deltas go over, separated by colons
BASES = "GRAPHCRATE_BASES"
#: of a folder of images, where `publish` puts such SIFs
BASES_FOLDER = "bases"
_FRONT = 1 << 16  #: bytes of a SIF that have its definition, which names the layout
_TITLE = r"([A-Za-z0-9][!-9;-?A-~]*(?::[!-9;-?A-~]+)?)@(sha256:[0-9a-f]{64})"
#: in the labels beside the file system, which its engine writes before that is checked
_APPTAINER = re.compile(rb'"org\.label-schema\.usage\.apptainer\.version":"(\d+\.\d+\.\d+)', re.ASCII)
_FROM = re.compile(rf"From: {_TITLE}\n".encode(), re.ASCII)


class Origin(NamedTuple):
    """An image by its name with the tag, and its digest."""

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}"


def of_sif(path: Path) -> Origin | None:
    """Return the image that a SIF of ours was made of; None for any other file."""
    with contextlib.suppress(OSError, LayoutError), layout_errors():
        with path.open("rb") as file:
            head = file.read(_FRONT)
        if sif.is_sif(head) and (stated := _FROM.search(head[: sif.root_offset(path)])):
            return Origin(stated[1].decode(), stated[2].decode())
    return None


def apptainer(path: Path) -> str:
    """Return the release of Apptainer that wrote a SIF: "1.5.0"; empty for a file of anyone else."""
    with contextlib.suppress(OSError):
        with path.open("rb") as file:
            head = file.read(_FRONT)
        if sif.is_sif(head) and (stated := _APPTAINER.search(head)):
            return stated[1].decode()
    return ""


def is_of(path: Path, digest: str) -> bool:
    """Return whether a SIF or a squashfs, in any compression, names the layout of this digest as its source."""
    encoded = digest.encode()
    with contextlib.suppress(OSError, LayoutError), layout_errors():
        with path.open("rb") as file:
            head = file.read(_FRONT)
        if sif.is_sif(head):
            return encoded in head[: sif.root_offset(path)]
        with Squashfs(path) as image:
            return encoded in image.content("/etc/rc")
    return False


def compression_of(path: Path) -> Compression | None:
    """Return how a SIF or a squashfs is compressed; None for another file, or a kind that we do not write."""
    with contextlib.suppress(OSError, LayoutError, ValueError), layout_errors():
        with Squashfs(path, images.root_offset(path)) as image:
            return Compression(image.compression)
    return None


def is_delta(path: Path) -> bool:
    """Return whether a squashfs has what an image has over another one."""
    with contextlib.suppress(OSError, LayoutError), layout_errors(), Squashfs(path) as image:
        return bool(image.content(f"/{OVER}"))
    return False


def over(path: Path) -> Origin:
    """Return the image that a delta goes over. Raises LayoutError for one that does not say it by name@digest."""
    with layout_errors(), Squashfs(path) as image:
        text = image.content(f"/{OVER}")
    stated = re.fullmatch(f"{_TITLE}\n".encode(), text, re.ASCII)
    if stated is None:
        raise LayoutError(f"{path} does not say which image it goes over", cause=f"/{OVER} in it has no name@digest.")
    return Origin(stated[1].decode(), stated[2].decode())


def base_of(delta: Path, environment: Mapping[str, str]) -> Path:
    """Find the SIF that a delta goes over, by the digest in its definition. Raises UsageError where it is not found."""
    below = over(delta)
    folders = tuple(dict.fromkeys(_folders(delta, below, environment)))
    files = [file for folder in folders for file in sorted(folder.glob("*.sif"))]
    base = next((file for file in files if is_of(file, below.digest)), None)
    if base is None:
        others = f" {joined([file.name for file in files[:3]])} there: of other images." if files else ""
        raise UsageError(
            f"{delta} goes over {below.name}, of which no SIF is here",
            cause=f"None in {joined([str(folder) for folder in folders])} was made of {below.digest}.{others}",
            next_step=f"{command('convert', str(below), to='sif')}    makes it; one that is elsewhere: {BASES}=FOLDER",
        )
    for path in (delta, base):
        if strange := next((letter for letter in ":," if letter in str(path)), ""):
            raise UsageError(
                f"{path} cannot be mounted over an image: {strange!r} in a path parts Apptainer's options",
                next_step="mv    gives it another name, or its folder",
            )
    return base


def _folders(delta: Path, below: Origin, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders that may have a delta's base: its own, those that are named, and that of the base's build."""
    for folder in (delta.parent, delta.resolve().parent):
        yield folder
        if (bases := folder / BASES_FOLDER).is_dir():
            yield bases
    yield from (Path(text).expanduser() for text in environment.get(BASES, "").split(":") if text)
    built = delta.resolve().parents[2:3]
    yield from (folder for dist in built if (folder := dist.joinpath(*below.name.split(":"))).is_dir())
