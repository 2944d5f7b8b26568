"""The room that a build takes of the disk, before it begins: downloads, layers, and the image unpacked for its tests.

Of what the cache has, sizes are known: of layers by their records, of wheels by their directories. Others are estimated
by what was measured, and only what is certain is a reason to refuse.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.artifacts.formats.packed import GROWTH
from graphcrate.artifacts.wheel_archive import WheelArchive
from graphcrate.engines.embedded import records, unpacked_images
from graphcrate.host.context import Context
from graphcrate.host.disk import cleaning
from graphcrate.host.disk.cache import CACHE_ELSEWHERE, MORE_ROOM, Cache
from graphcrate.inputs import extensions as wheelhouse
from graphcrate.inputs.bases import debian
from graphcrate.model.command import command
from graphcrate.model.errors import DiskFullError, IntegrityError
from graphcrate.model.lock import DebianBase, Lock, LockedPackage
from graphcrate.model.plan import CompileStep, FilesStep, Plan, ToolkitStep, WheelsStep

#: A layer over its wheels: 2.57 GB of 2.55 for torch 2.0.1 with its libraries, bytecode counted (2026-11-25).
_LAYER = 1.01
_DEBS = 3.2  #: Debian's packages unpacked, over their files (measured, bookworm)
#: Files of a wheel over it, where the cache lacks it: 4.9 GB of 2.53 for torch 2.0.1 and its libraries (2026-11-30).
#: Other estimates of the same (`unpacked_images.GROWTH`) are on the safe side; this one is what plans and pages say.
_FILES = 1.94
#: What compiling takes besides: a base with a compiler, nvcc, objects. Torch is there unpacked for the tests.
COMPILING = 1_500_000_000
_WHEEL = 40_000_000  #: of a compiled sdist whose wheel is not there yet
_CERTAIN = 0.8  #: of what is estimated, so much is certain


@dataclass(frozen=True, kw_only=True)
class RoomStep:
    """A step of a build with the room that it takes, in bytes."""

    what: str
    size: int
    known: bool = True  #: else estimated


@dataclass(frozen=True, kw_only=True)
class Room:
    """Room that a build takes in the cache and in the folder of images, and what is free there."""

    cache: Path
    output: Path
    parts: tuple[RoomStep, ...]  #: in the cache
    copied: int  #: bytes in the folder of images: layers are hard links where it is on the cache's disk
    free: int  #: on the cache's disk
    free_output: int  #: on that of the images
    tested: bool = True  #: the image is unpacked, for which the cache gives up older unpacked ones

    @property
    def needed(self) -> int:
        """Bytes in the cache, those that are estimated too."""
        return sum(part.size for part in self.parts)

    @property
    def certain(self) -> int:
        """Bytes that it takes in the cache, at least."""
        return int(sum(part.size if part.known else part.size * _CERTAIN for part in self.parts))

    def line(self) -> str:
        """Say it in a plan."""
        about = "" if all(part.known for part in self.parts) else "about "
        needed, free = f"needs {about}{_gb(self.needed)} in {self.cache}", _gb(self.free)
        if self.copied:
            free_there = _gb(self.free_output)
            return f"{needed} ({free} are free), {_gb(self.copied)} in {self.output} ({free_there} are free)"
        return f"{needed}, {_gb(0)} in {self.output} (hard links), {free} are free"

    def require(self, title: str, cache: Cache) -> None:
        """Raises DiskFullError where what a build certainly takes is not free, nor what it would free by itself."""
        parts = ", ".join(f"{_gb(part.size)} {part.what}" for part in self.parts)
        step = f"{MORE_ROOM}; or put it on another disk: {CACHE_ELSEWHERE}"
        if self.certain > self.free:
            held = sum(cleaning.bytes_below(path) for path in unpacked_images.prunable(cache)) if self.tested else 0
            if self.certain > self.free + held:
                raise DiskFullError(
                    f"{title} needs {_gb(self.needed)}, and {_gb(self.free)} are free under {self.cache}",
                    cause=f"That is {parts}.",
                    next_step=step,
                )
        if self.copied * _CERTAIN > self.free_output:
            raise DiskFullError(
                f"{title} needs {_gb(self.copied)}, and {_gb(self.free_output)} are free under {self.output}",
                cause=f"It is on another disk than the cache {self.cache}, so layers are copies there.",
                next_step=f"{command('image', '…', output='FOLDER')}    (one on the cache's disk)",
            )


def of_build(
    plan: Plan, lock: Lock, to_fetch: int, output: Path, ctx: Context, *, tested: bool, packed: bool = False
) -> Room:
    """Count what the embedded builder takes for this plan. `to_fetch`: bytes of files that the cache lacks.

    `output`: the folder of images; `tested`: it is unpacked for its suites; `packed`: its layers are
    for a SIF while they are written.
    """
    cache = ctx.cache
    base, steps = _base(lock, cache), list(_steps(plan, lock, cache))
    parts = [RoomStep(what="to download", size=to_fetch), *_of_layers(base, steps, packed=packed)]
    if tested:
        parts.append(_of_tests(base, steps, cache))
    there = _existing(output.absolute())
    is_other = there.stat().st_dev != cache.root.stat().st_dev
    return Room(
        cache=cache.root,
        output=output,
        parts=tuple(part for part in parts if part.size),
        copied=base.debs + sum(step.packed for step in steps) if is_other else 0,
        free=cache.free_bytes(),
        free_output=_free(there),
        tested=tested,
    )


@dataclass(frozen=True, kw_only=True)
class _Base:
    """A base of Debian's packages: their bytes, and those of its files. Of another one nothing is counted."""

    debs: int = 0
    unpacked: int = 0
    digest: str = ""  #: empty: it is not made yet


def _base(lock: Lock, cache: Cache) -> _Base:
    if not isinstance(lock.base, DebianBase):
        return _Base()
    debs = sum(package.file.size for package in lock.base.packages)
    if made := debian.made(lock.base, cache):
        return _Base(debs=debs, unpacked=made.unpacked_size, digest=made.digest)
    return _Base(debs=debs, unpacked=int(debs * _DEBS))


def _of_layers(base: _Base, steps: "Sequence[_Step]", *, packed: bool) -> Iterator[RoomStep]:
    """Yield what the base and layers take, and what they are made of."""
    if not base.digest:  # its layer, and the base unpacked
        yield RoomStep(what="for the base", size=base.debs + base.unpacked, known=False)
    written = [step for step in steps if step.layer]
    yield RoomStep(what="for layers", size=sum(step.layer for step in written), known=not written)
    if any(step.compiles for step in steps):
        yield RoomStep(what="to compile", size=COMPILING, known=False)
    if packed:
        size = int(sum(step.packed for step in written) * GROWTH)
        yield RoomStep(what="packed, for a SIF", size=size, known=False)


def _of_tests(base: _Base, steps: "Sequence[_Step]", cache: Cache) -> RoomStep:
    """Return what the unpacked image takes over the layers that another unpacked one has below."""
    digests = [base.digest, *(step.digest for step in steps)]
    made = list(itertools.takewhile(bool, digests))
    sizes = [(base.unpacked, bool(base.digest)), *((step.unpacked, step.known) for step in steps)]
    left = sizes[unpacked_images.lowest_unpacked(made, cache) :]
    return RoomStep(
        what="unpacked, for its tests", size=sum(size for size, _ in left), known=all(known for _, known in left)
    )


def _existing(folder: Path) -> Path:
    """Return the folder, or the lowest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


@dataclass(frozen=True, kw_only=True)
class _Step:
    """A layer: bytes that are still to be written of it, that it has in all, and those of its files."""

    digest: str = ""  #: empty: it is not made yet
    layer: int = 0
    packed: int = 0
    unpacked: int = 0
    known: bool = True  #: the size of its files
    compiles: bool = False


def _steps(plan: Plan, lock: Lock, cache: Cache) -> Iterator[_Step]:
    """The layers above the base."""
    shop = records.workshop(plan, cache)
    for step in plan.steps:
        if not isinstance(step, WheelsStep | CompileStep | FilesStep | ToolkitStep):
            continue
        if (record := shop.record(shop.key(step))) is not None:
            yield _Step(digest=record.digest, packed=record.size, unpacked=record.unpacked_size)
        elif isinstance(step, CompileStep):
            wheels = wheelhouse.cached(step, cache)
            size = sum(path.stat().st_size for path in wheels.values())
            size += _WHEEL * (len(step.packages) - len(wheels))
            unpacked, compiles = int(size * unpacked_images.GROWTH), len(wheels) < len(step.packages)
            yield _Step(layer=size, packed=size, unpacked=unpacked, known=False, compiles=compiles)
        elif isinstance(step, ToolkitStep):
            size = sum(package.file.size for package in lock.for_compilation())
            yield _Step(layer=size, packed=size, unpacked=int(size * unpacked_images.GROWTH), known=False)
        elif isinstance(step, WheelsStep):
            sizes = [_unpacked(package, cache) for package in step.packages]
            packed = int(sum(package.file.size for package in step.packages) * _LAYER)
            is_known = all(known for _, known in sizes)
            yield _Step(layer=packed, packed=packed, unpacked=sum(size for size, _ in sizes), known=is_known)
        else:
            yield _Step(unpacked=sum(len(file.content) for file in step.files))


def _unpacked(package: LockedPackage, cache: Cache) -> tuple[int, bool]:
    """Bytes of a wheel's files, and whether they are known: the cache has the wheel."""
    if not package.is_sdist:
        try:
            with WheelArchive(cache.file(package.file.sha256, package.file.name)) as archive:
                return archive.unpacked_size(), True
        except (OSError, IntegrityError):
            pass
    return int(package.file.size * _FILES), False


def _free(folder: Path) -> int:
    filesystem = os.statvfs(folder)
    return filesystem.f_bavail * filesystem.f_frsize


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
