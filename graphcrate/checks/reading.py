"""Read an image once, for all that is checked of it: what contracts ask about, and its programs and libraries."""

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.artifacts.locate import locate
from graphcrate.artifacts.tree import binaries, opening
from graphcrate.artifacts.tree.opening import Fetch
from graphcrate.artifacts.tree.reader import Selection, Tools
from graphcrate.checks.audit import verbs
from graphcrate.checks.contracts.run import ASKED
from graphcrate.checks.contracts.view import view_of
from graphcrate.host.context import Context
from graphcrate.model.audit import Contents
from graphcrate.model.contract import ImageView
from graphcrate.model.platform import DEFAULT, Platform


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
    """What a reader of an image works with, or of packages that would lie `below` a folder in one.

    `chosen`: which of its programs and libraries, if not all. `platform`: of an image for several.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(ctx.cache.folder())
        selection = binaries.selection(folder, below, binaries.nothing if below else ASKED.keeps, chosen)
        if selection.name:  # what is remembered of a layer has the texts of today's checks
            selection = dataclasses.replace(selection, name=f"{selection.name}-{ASKED.name}")
        yield Tools(ctx, stack, selection, platform)
