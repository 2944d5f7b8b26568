"""Read an image once, for all that is checked of it: what contracts ask about, and its programs and libraries."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.artifacts.locate import locate
from graphcrate.artifacts.tree import binaries, layers, opening
from graphcrate.artifacts.tree.opening import Fetch
from graphcrate.artifacts.tree.reader import Selection, Tools
from graphcrate.checks.audit import verbs
from graphcrate.checks.contracts.run import ASKED
from graphcrate.checks.contracts.view import view_of
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.model.audit import Contents
from graphcrate.model.contract import ImageView
from graphcrate.model.errors import LayoutError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.report import LayerRecord
from graphcrate.oci import layer_files
from ocilayout.spec import LayerBlob


@dataclass(frozen=True)
class CheckedImage:
    """An image as the contracts see it, and as the audit does."""

    view: ImageView
    contents: Contents


def read_image(
    ref: str, ctx: Context, output: Path = Path("dist"), fetch: Fetch = "all", platform: Platform = DEFAULT
) -> CheckedImage:
    """Read what the user names; layers that were read before come from the cache. Raises as `opening.opened`.

    `platform`: the one that is read of images for several.
    """
    with tools(ctx, platform=platform) as reading:
        opened = opening.opened(ref, reading, output, fetch)
        view = view_of(ref, opened, ASKED)
        contents = binaries.of_opened(ref, opened, reading, kept_whole=ASKED.keeps, settings=view.settings)
        return CheckedImage(msgspec.structs.replace(view, verbs=verbs.look(contents)), contents)


def read_view(
    ref: str, ctx: Context, output: Path, fetch: Fetch, platform: Platform = DEFAULT, *, network: bool = True
) -> ImageView:
    """Read what contracts ask about alone: of a SIF or a folder that is little. Raises as `opening.opened`.

    `network`: also what tells whether NCCL finds it, which are libraries. An image of layers is read whole, as those
    have to be from end to end in any case: what is remembered of them serves a build, an audit and this alike.
    """
    if locate(ref, output).form in ("layout", "registry"):
        return read_image(ref, ctx, output, fetch, platform).view
    if not network:
        with ExitStack() as stack:
            reading = Tools(ctx, stack, Selection(keep=ASKED.keeps, hashes=False), platform)
            return view_of(ref, opening.opened(ref, reading, output, fetch), ASKED)
    chosen = binaries.is_of_network
    with tools(ctx, chosen=chosen, platform=platform) as reading:
        opened = opening.opened(ref, reading, output, fetch)
        view = view_of(ref, opened, ASKED)
        contents = binaries.of_opened(
            ref, opened, reading, kept_whole=ASKED.keeps, chosen=chosen, settings=view.settings
        )
        return msgspec.structs.replace(view, verbs=verbs.look(contents))


@contextmanager
def tools(
    ctx: Context, below: str = "", chosen: binaries.Keep | None = None, platform: Platform = DEFAULT
) -> Iterator[Tools]:
    """Yield tools for a reader of an image, or of packages that would be `below` a folder in one.

    `chosen`: which of its programs and libraries, if not all. `platform`: of an image for several.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(ctx.cache.folder())
        yield Tools(ctx, stack, _selection(folder, below, chosen), platform)


def remember(records: Sequence[LayerRecord], ctx: Context) -> None:
    """Read layers whose blobs the cache has, so that `read_image` finds there what it asks of them.

    One that cannot be read is left to `read_image`, which says why.
    """
    with tools(ctx) as reading:
        for record in records:
            blob = LayerBlob(path=ctx.cache.blob(record.digest), media_type=record.media_type)
            read = functools.partial(layers.read_compared, blob, record.digest, reading.selection)
            with suppress(LayoutError, OSError):
                layers.remembered(record.digest, reading.selection, ctx.cache, read)


def _selection(folder: Path, below: str = "", chosen: binaries.Keep | None = None) -> Selection:
    """Select the files that the checks need; see `tools`. `folder`: for temporary files."""
    selection = binaries.selection(folder, below, binaries.nothing if below else ASKED.keeps, chosen)
    if not selection.name:
        return selection
    # what is remembered of a layer has the texts of today's checks
    return dataclasses.replace(selection, name=f"{selection.name}-{ASKED.name}")


class LayerWatch:
    """Reads a layer while it is written, so that `read_image` finds in the cache what it asks of it.

    For the process that writes it, whose files the system still has in memory. One that cannot be read is left to
    `read_image`, which says why. `copies`: those that the layer's writer gives its entries to.
    """

    def __init__(self, cache: Cache, folder: Path, *, is_unpacked: bool) -> None:
        self._cache, self._selection = cache, _selection(folder)
        self.copies = () if is_unpacked else (layers.WrittenLayer(self._selection, folder),)

    def remember(self, digest: str) -> None:
        """Keep in the cache what was read; of a layer that this run has unpacked read it now."""
        files = layer_files.place(self._cache, digest)
        if not self.copies and not files.is_dir():
            return

        def read() -> layers.LayerTree:
            return self.copies[0].tree if self.copies else layers.read_unpacked(files, self._selection)

        with suppress(LayoutError):
            layers.remembered(digest, self._selection, self._cache, read)


@contextmanager
def watch_layer(cache: Cache, is_unpacked: bool) -> Iterator[LayerWatch]:
    """Yield the watch of a layer that is written in the block; `is_unpacked`: into files, too."""
    with cache.folder() as folder:
        yield LayerWatch(cache, folder, is_unpacked=is_unpacked)
