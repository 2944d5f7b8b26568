"""Images of all places and the trees that `run` unpacked of them: list them, remove some, prune what nothing names."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts import names
from graphcrate.artifacts.conversion.job import SUFFIXES
from graphcrate.artifacts.reports import read_report
from graphcrate.artifacts.shares import ImageCost, costs
from graphcrate.engines.embedded.unpacked_images import bytes_unpacked, last_used, remove_unpacked
from graphcrate.host.context import Context
from graphcrate.host.disk.cleaning import bytes_below
from graphcrate.host.disk.trees import remove_tree
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError
from graphcrate.model.words import joined

_REMOVED = ".removed-"  #: begins the name of a folder that is on its way out


#: folders beside an image with what its tests said, on nodes too
_PROOFS = ("passes", "trials")
_MADE = tuple(SUFFIXES.values())  #: ends of what `convert` writes


class KnownImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image, or with no name what `run` unpacked of one that is gone. Times are in Unix seconds; 0: not known."""

    name: str = ""
    place: str = ""
    digest: str
    alone: int = 0
    shared: int = 0
    unpacked: int = 0  #: bytes of its tree in the cache
    made: float = 0
    used: float = 0  #: by `run`
    names: tuple[str, ...] = ()  #: short names that mean it


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """An image that goes, with the bytes that the disk gets back, and why."""

    image: KnownImage
    why: str
    bytes: int
    files: tuple[str, ...] = ()  #: what was made of it or says that it passed its tests, which goes too


def known(places: Sequence[Path], ctx: Context) -> list[KnownImage]:
    """Return the images of these folders, and last what is unpacked of others."""
    used, short = last_used(ctx.cache), _short_names(places)
    trees = {digest: bytes_unpacked(digest, ctx.cache) for digest in used}
    images = [_known(cost, short, used, trees) for cost in costs(*places)]
    named = {image.digest for image in images}
    left = [
        KnownImage(digest=digest, unpacked=trees[digest], used=used[digest]) for digest in used if digest not in named
    ]
    return [*images, *left]


def _known(
    cost: ImageCost, short: dict[tuple[str, str], list[str]], used: dict[str, float], trees: dict[str, int]
) -> KnownImage:
    return KnownImage(
        name=cost.name,
        place=cost.place,
        digest=cost.digest,
        alone=cost.alone,
        shared=cost.shared,
        unpacked=trees.get(cost.digest, 0),
        made=cost.made,
        used=used.get(cost.digest, 0),
        names=tuple(short.get((cost.place, cost.name), ())),
    )


def _short_names(places: Sequence[Path]) -> dict[tuple[str, str], list[str]]:
    """Short names by the place and the whole name of the image that each means."""
    short: dict[tuple[str, str], list[str]] = {}
    for place in places:
        for link in sorted(place.glob("*/*")):
            if link.is_symlink() and "/" not in (target := str(link.readlink())):
                stack = link.parent.name
                short.setdefault((str(place), f"{stack}:{target}"), []).append(f"{stack}:{link.name}")
    return short


def chosen(typed: Sequence[str], images: Sequence[KnownImage]) -> list[Removal]:
    """Return the removal of images by their whole names, or by digests of what is unpacked. Raises UsageError."""
    removals = []
    for text in typed:
        hits = [image for image in images if text in (image.name, image.digest)]
        if not hits:
            meant = [image.name for image in images if image.name and text in image.names]
            near = meant or [image.name for image in images if image.name.partition(":")[0] == text.partition(":")[0]]
            raise UsageError(
                f"{text!r} is not the whole name of an image here" + (f"; there is {joined(near)}" if near else ""),
                cause="A short name may mean another image tomorrow, so none is removed by it.",
                next_step=command("images", "rm", near[0]) if near else command("images"),
            )
        removals.append(_removal(hits[0], "it was named"))
    return removals


def prunable(images: Sequence[KnownImage], own: Sequence[Path]) -> list[Removal]:
    """Return what nothing names: images without a short name in these places that a newer one replaced, and trees.

    The only image of its kind stays, also one that failed.
    """
    places = {str(place) for place in own}
    kinds = {(image.place, name) for image in images for name in image.names}
    doomed = []
    for image in images:
        report = read_report(Path(image.place, image.name.replace(":", "/"), "report.json")) if image.name else None
        if not image.name:
            doomed.append(_removal(image, "what run unpacked of an image that is gone"))
        elif report and image.place in places and not image.names:
            kind = f"{report.name}:{report.short}"
            if report.short and (image.place, kind) in kinds:
                doomed.append(_removal(image, f"{kind} is another image now"))
    return doomed


def _removal(image: KnownImage, why: str) -> Removal:
    if not image.name:
        return Removal(image=image, why=why, bytes=image.unpacked)
    folder = Path(image.place, image.name.replace(":", "/"))
    others = [path.name for path in sorted(folder.iterdir()) if path.name in _PROOFS or path.name.endswith(_MADE)]
    return Removal(image=image, why=why, bytes=bytes_below(folder) + image.unpacked, files=tuple(others))


def remove(removals: Sequence[Removal], ctx: Context) -> list[Removal]:
    """Remove them; returns what went. A folder is renamed first, so that none is seen in part. Raises OSError."""
    gone = []
    for removal in removals:
        image = removal.image
        if image.unpacked and not remove_unpacked(image.digest, ctx.cache):
            ctx.progress.warn(f"{image.name or image.digest} stays: a command runs in it")
            continue
        if image.name:
            folder = Path(image.place, image.name.replace(":", "/"))
            doomed = folder.with_name(f"{_REMOVED}{folder.name}-{os.getpid()}")
            with contextlib.suppress(FileNotFoundError):  # another run was faster
                folder.rename(doomed)
                remove_tree(doomed)
            names.tidy(folder.parent)
            with contextlib.suppress(OSError):  # other images are in it
                names.leave(folder.parent)
        gone.append(removal)
    return gone
