"""Readers' tools and results: an artifact's tree, and the contents that were selected from it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.host.context import Context
from graphcrate.host.parallel import Advance, parallel
from graphcrate.model.contract import Settings
from graphcrate.model.errors import LayoutError
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.tree import Entry, Form
from ocilayout import spec


def whole_file(path: str, size: int, content: Iterable[bytes] | Path) -> bytes:
    """Keep all of a file, which comes in pieces or is on the disk."""
    return content.read_bytes() if isinstance(content, Path) else b"".join(content)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A reader's selection: whose content it keeps (absolute path, size), in which form, and whether it hashes files.

    `distil` makes of a file what is kept in the place of its content, in memory; it is called from several threads.
    `name`: of it and its version, where layers of a layout may be remembered.
    """

    keep: Callable[[str, int], bool]
    distil: Callable[[str, int, Iterable[bytes] | Path], bytes] = whole_file
    name: str = ""
    hashes: bool = True


@dataclass(frozen=True)
class OpenedTree:
    """Everything in an artifact, the content of those of its files that were selected, and what its documents say.

    Paths are absolute, the root is "/"; names that are no UTF-8 have surrogates. `read` raises KeyError for a content
    that was not kept.
    """

    name: str  #: as the user named it
    form: Form
    entries: Mapping[str, Entry]
    read: Callable[[str], bytes]
    owners: bool = True  #: False: the artifact has flattened owners, so they say nothing
    settings: Settings | None = None  #: of the configuration; None: it has none
    config: spec.ImageConfig | None = None
    manifest: spec.Manifest | None = None
    index: tuple[spec.Descriptor, ...] = ()  #: entries of the index that the image was chosen from
    compression: str = ""  #: of a squashfs
    unread: tuple[str, ...] = ()  #: layers that cannot be read, and why
    left: tuple[str, ...] = ()  #: layers that were left on the registry, by choice
    broken: LayoutError | None = None  #: why the layers cannot be read or contradict each other: there are no entries


@dataclass(frozen=True)
class Tools:
    """A reader's tools. Contexts that it puts into `stack` stay open until the comparison is done."""

    ctx: Context
    stack: ExitStack
    selection: Selection
    platform: Platform = DEFAULT  #: that is read of an image for several


def owners_known(entries: Mapping[str, Entry]) -> bool:
    """Return whether a tree without a record of its owners (a folder, a squashfs) has any.

    Without root, unpacking or packing gives everything one owner, and then owners say nothing.
    """
    return len({(entry.uid, entry.gid) for entry in entries.values()}) > 1


def with_hashes(
    name: str, entries: dict[str, Entry], order: Sequence[str], chunks: Callable[[str], Iterable[bytes]], tools: Tools
) -> dict[str, Entry]:
    """The entries with hashes of these files' contents, read side by side in this order, where hashes are selected."""
    if not tools.selection.hashes:
        return entries

    def hashed(path: str, advance: Advance) -> Entry:
        digest = hashlib.sha256()
        for chunk in chunks(path):
            digest.update(chunk)
            advance(len(chunk))
        return msgspec.structs.replace(entries[path], sha256=digest.hexdigest())

    with tools.ctx.progress.task(f"reading {name}", sum(entries[path].size for path in order), brief=True) as task:
        hashes = parallel(hashed, order, advance=task.advance)
    return entries | dict(zip(order, hashes, strict=True))
