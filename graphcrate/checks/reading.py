"""Read an image once, for all that is checked of it: what contracts ask about, and its programs and libraries."""

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from graphcrate.artifacts.tree import binaries, opening
from graphcrate.artifacts.tree.opening import Fetch
from graphcrate.artifacts.tree.reader import Selection, Tools
from graphcrate.checks.contracts.run import ASKED
from graphcrate.checks.contracts.view import view_of
from graphcrate.host.context import Context
from graphcrate.model.audit import Contents
from graphcrate.model.contract import ImageView


@dataclass(frozen=True)
class CheckedImage:
    """An image as the contracts see it, and as the audit does."""

    view: ImageView
    contents: Contents


def read_image(ref: str, ctx: Context, output: Path = Path("dist"), fetch: Fetch = "all") -> CheckedImage:
    """Read what the user names; layers that were read before come from the cache. Raises as `opening.opened`."""
    with tools(ctx) as reading:
        opened = opening.opened(ref, reading, output, fetch)
        view = view_of(ref, opened, ASKED)
        return CheckedImage(
            view, binaries.of_opened(ref, opened, reading, kept_whole=ASKED.keeps, settings=view.settings)
        )


def read_view(ref: str, ctx: Context, output: Path, fetch: Fetch) -> ImageView:
    """Read what contracts ask about alone: of a SIF or a folder that is little. Raises as `opening.opened`."""
    with ExitStack() as stack:
        reading = Tools(ctx, stack, Selection(keep=ASKED.keeps, hashes=False))
        return view_of(ref, opening.opened(ref, reading, output, fetch), ASKED)


@contextmanager
def tools(ctx: Context, below: str = "") -> Iterator[Tools]:
    """What a reader of an image works with, or of packages that would lie `below` a folder in one."""
    with ExitStack() as stack:
        folder = stack.enter_context(ctx.cache.folder())
        selection = binaries.selection(folder, below, binaries.nothing if below else ASKED.keeps)
        if selection.name:  # what is remembered of a layer has the texts of today's checks
            selection = dataclasses.replace(selection, name=f"{selection.name}-{ASKED.name}")
        yield Tools(ctx, stack, selection)
