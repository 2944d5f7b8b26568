"""Runs commands in an image with no engine: its layers unpacked into the cache once, a sandbox around each command."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from graphcrate import __version__
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.engines.backend import RuntimeVersion
from graphcrate.engines.embedded.unpacked_images import GROWTH, KEPT, LAYERS, folder_of, in_use, prune, unpacked_below
from graphcrate.engines.run_order import RunRequest, carry_out, make_order
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
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

SHELL = ("/bin/sh",)  #: which every image with a shell has


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
            image = folder_of(layout.digest, cache)
            if not (image / "root").is_dir():
                _unpack(layout, cache, progress)
            if stack.enter_context(in_use(image)):
                break
            stack.pop_all().close()  # another process pruned it in the meantime
        os.utime(image)
        prune(cache, progress)
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


def _unpack(layout: Layout, cache: Cache, progress: Progress) -> None:
    image = folder_of(layout.digest, cache)
    with cache.exclusively(f"rootfs-{image.name}"), cache.folder() as folder, contextlib.ExitStack() as stack:
        if (image / "root").is_dir():
            return
        digests = [layer.digest for layer in layout.layers]
        below, number = unpacked_below(digests, cache, stack)
        places = zip(layout.layer_blobs[number:], digests[number:], strict=True)
        there = {blob.path: place for blob, digest in places if (place := layer_files.place(cache, digest)).is_dir()}
        sizes = [
            record.unpacked_size or int(record.size * GROWTH)
            for record, blob in zip(layout.records[number:], layout.layer_blobs[number:], strict=True)
            if blob.path not in there
        ]
        prune(cache, progress, KEPT - 1)
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
