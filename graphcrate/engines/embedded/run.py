"""Runs commands in an image with no engine: its layers unpacked into the cache once, a sandbox around each command.

An unpacked image takes gigabytes and is of use only while people try it: the two used last are kept, and what a build
tried a stack in goes when it ends.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from graphcrate import __version__
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.engines.backend import RuntimeVersion
from graphcrate.engines.run_order import RunRequest, carry_out, make_order
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.cleaning import bytes_below
from graphcrate.host.disk.living import ignoring_no_locks
from graphcrate.host.disk.trees import remove_tree
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox.emulation import Emulator, is_native
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.inputs.emulators import prepare_emulator, stored_emulator
from graphcrate.model.errors import LayoutError
from graphcrate.model.platform import SUPPORTED, Platform
from graphcrate.model.report import Artifact
from graphcrate.oci import layer_files
from graphcrate.oci.layout import Layout, read_layout
from nsbox import walls

KEPT = 2
SHELL = ("/bin/sh",)  #: which every image with a shell has
FOLDER = "rootfs"
LAYERS = "layers.json"  #: beside an unpacked image: the digests of its layers
#: Unpacked over compressed size, for the check of room where the layout does not say: 1.94 was measured for torch
#: 2.0.1 with its CUDA libraries, 2.9 for the base.
GROWTH = 2.2


@dataclass(frozen=True)
class Unpacked:
    """An unpacked image. Nothing that runs in it can change it."""

    layout: Layout
    rootfs: Path
    emulator: Emulator | None = None  #: of an image for another processor than this machine's

    def run(self, command: Exec) -> Completed:
        """See `host.sandbox.sandbox.Inside.run`, and `host.sandbox.sandbox.run_in`.

        The working folder is the image's unless given.
        """
        variables = {**self.layout.environment, **command.environment}
        cwd = command.cwd or self.layout.config.run.working_dir or "/"
        order = dataclasses.replace(command, environment=variables, cwd=cwd, emulator=self.emulator)
        return run_in(self.rootfs, order)


def runtime(environment: Mapping[str, str]) -> RuntimeVersion:
    """Name graphcrate itself: a sandbox of its own."""
    return RuntimeVersion("graphcrate", __version__)


def opened(artifact: Artifact, *, cache: Cache, progress: Progress) -> AbstractContextManager[Unpacked]:
    """Open the artifact's layout; see `unpacked`."""
    return unpacked(_layout(artifact), cache=cache, progress=progress)


def _layout(artifact: Artifact) -> Layout:
    """The artifact's layout; of one for several platforms, the image that it is."""
    path = Path(artifact.reference)
    for platform in SUPPORTED:
        with contextlib.suppress(LayoutError):
            layout = read_layout(path, platform=platform)
            if layout.digest == artifact.digest:
                return layout
    return read_layout(path)


@contextlib.contextmanager
def unpacked(layout: Layout, *, cache: Cache, progress: Progress | None = None) -> Iterator[Unpacked]:
    """Unpack the image unless it is unpacked, and keep it meanwhile. Raises DiskFullError first, LayoutError."""
    progress = progress or Progress()
    with contextlib.ExitStack() as stack:
        while True:
            image = _image_folder(layout.digest, cache)
            if not (image / "root").is_dir():
                _unpack(layout, cache, progress)
            if stack.enter_context(_in_use(image)):
                break
            stack.pop_all().close()  # another process pruned it in the meantime
        os.utime(image)
        _prune(cache, progress)
        yield Unpacked(layout, image / "root", stored_emulator(layout.platform, cache))


def run_inside(layout: Layout, request: RunRequest, ctx: Context) -> int:
    """Run a command in the image, with this terminal and the working directory at /work; returns its exit code.

    Says first which walls around it this machine lacks, and where a folder holds more than work. Raises HostError
    where it is the kernel's own.
    """
    order = make_order(request, ctx, own_program(layout), gpu=is_native(layout.platform))
    if lacking := walls.sentence(walls.missing(), os.uname().release):
        ctx.progress.note(f"{lacking}; docs/sandbox.md says what they keep out")
    if prepare_emulator(layout.platform, ctx):
        ctx.progress.note(emulated(layout.platform))
    with unpacked(layout, cache=ctx.cache, progress=ctx.progress) as inside:
        return carry_out(inside, order, request, ctx)


def own_program(layout: Layout) -> Exec:
    """Return what an image itself starts, and where; a shell where it names nothing."""
    run = layout.config.run
    folder = run.working_dir or ""
    return Exec((*(run.entrypoint or ()), *(run.cmd or ())) or SHELL, cwd="" if folder == "/" else folder)


def emulated(platform: Platform) -> str:
    """Return the line on programs that an emulator runs."""
    return f"the image is for {platform.title}, which an emulator runs here: slowly, and without GPUs"


def _image_folder(digest: str, cache: Cache) -> Path:
    return cache.root / FOLDER / digest.removeprefix("sha256:")


def _unpack(layout: Layout, cache: Cache, progress: Progress) -> None:
    image = _image_folder(layout.digest, cache)
    with cache.exclusively(f"rootfs-{image.name}"), cache.folder() as folder, contextlib.ExitStack() as stack:
        if (image / "root").is_dir():
            return
        digests = [layer.digest for layer in layout.layers]
        below, number = _below(digests, cache, stack)
        places = zip(layout.layer_blobs[number:], digests[number:], strict=True)
        there = {blob.path: place for blob, digest in places if (place := layer_files.place(cache, digest)).is_dir()}
        sizes = [
            record.unpacked_size or int(record.size * GROWTH)
            for record, blob in zip(layout.records[number:], layout.layer_blobs[number:], strict=True)
            if blob.path not in there
        ]
        _prune(cache, progress, KEPT - 1)
        cache.require(sum(sizes), "unpacking the image")
        with progress.task("unpacking the image", sum(layer.size for layer in layout.layers[number:])) as task:
            unpack(
                layout.layer_blobs[number:],
                folder / "image" / "root",
                advance=task.advance,
                below=below,
                unpacked=there,
            )
        (folder / "image" / LAYERS).write_text(json.dumps(digests))
        remove_tree(image)  # half an image, as older versions left it
        cache.adopt(folder / "image", image)


def _below(digests: Sequence[str], cache: Cache, stack: contextlib.ExitStack) -> tuple[Path | None, int]:
    """The unpacked image with most of the lowest of these layers and no other, held by `stack`; how many it has."""
    best: tuple[Path | None, int] = None, 0
    for known in (cache.root / FOLDER).glob(f"*/{LAYERS}"):
        with contextlib.suppress(OSError, ValueError):
            layers = json.loads(known.read_bytes())
            if (
                len(layers) > best[1]
                and layers == digests[: len(layers)]
                and stack.enter_context(_in_use(known.parent))
            ):
                best = known.with_name("root"), len(layers)
    return best


def lowest_unpacked(digests: Sequence[str], cache: Cache) -> int:
    """Count the lowest of these layers that an unpacked image in the cache shares."""
    with contextlib.ExitStack() as stack:
        return _below(digests, cache, stack)[1]


@contextlib.contextmanager
def removed_after(digest: str, cache: Cache) -> Iterator[None]:
    """Remove the unpacked image of this digest at the block's end, if it was not there before and is not in use.

    After an error it stays, to be looked into.
    """
    image = _image_folder(digest, cache)
    was_there = image.is_dir()
    yield
    if not was_there:
        _remove(image, cache)


def last_used(cache: Cache) -> dict[str, float]:
    """Return when each unpacked image was run last, by its digest."""
    return {f"sha256:{image.name}": image.stat().st_mtime for image in _by_use(cache) if (image / "root").is_dir()}


def remove_unpacked(digest: str, cache: Cache) -> bool:
    """Remove an unpacked image unless a command runs in it; return whether it did."""
    return _remove(_image_folder(digest, cache), cache)


def bytes_unpacked(digest: str, cache: Cache) -> int:
    """Return the bytes that an unpacked image takes of the disk."""
    return bytes_below(_image_folder(digest, cache))


def prunable(cache: Cache) -> list[Path]:
    """The unpacked images that make room before another is unpacked."""
    return _by_use(cache)[KEPT - 1 :]


@contextlib.contextmanager
def _in_use(image: Path) -> Iterator[bool]:
    """Share the folder's lock; False if the folder is gone by the time we have it."""
    try:
        descriptor = os.open(image, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        with ignoring_no_locks():  # on such a disk nothing is removed, as below
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield (image / "root").is_dir()
    finally:
        os.close(descriptor)


def _prune(cache: Cache, progress: Progress, keep: int = KEPT) -> None:
    """Remove all but the images used last."""
    for image in _by_use(cache)[keep:]:
        if _remove(image, cache):
            progress.note("making room: removing an unpacked image that was not used lately")


def _by_use(cache: Cache) -> list[Path]:
    """The unpacked images, those used last first."""
    used = dict[Path, float]()
    for image in (cache.root / FOLDER).glob("*"):
        with contextlib.suppress(FileNotFoundError):  # another run removed it
            used[image] = image.stat().st_mtime
    return sorted(used, key=lambda image: used[image], reverse=True)


def _remove(image: Path, cache: Cache) -> bool:
    """Remove an unpacked image that is not in use, and return whether it did: renamed first, never seen in part."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), ignoring_no_locks():
        descriptor = os.open(image, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with cache.folder() as folder:
                image.rename(folder / "rootfs")
            return True
        finally:
            os.close(descriptor)
    return False
