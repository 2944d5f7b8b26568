"""A SIF or a squashfs to a tree, read as it is: no engine, no mount, nothing unpacked."""

from pathlib import Path

from graphcrate.artifacts.formats import sif
from graphcrate.artifacts.formats.squashfs import Content, Squashfs
from graphcrate.artifacts.tree.reader import Opened, Tools, owners_known, with_hashes
from graphcrate.model.tree import Entry, Form, Tree


def read_sif(name: str, path: Path, tools: Tools) -> Opened:
    """The primary partition of a SIF. Raises LayoutError."""
    return _read(name, "sif", path, sif.root_partition(path).offset, tools)


def read_squashfs(name: str, path: Path, tools: Tools) -> Opened:
    """A squashfs on its own: enroot's `.sqsh`, or of any other maker. Raises LayoutError."""
    return _read(name, "squashfs", path, 0, tools)


def _read(name: str, form: Form, path: Path, offset: int, tools: Tools) -> Opened:
    image = tools.stack.enter_context(Squashfs(path, offset))
    entries: dict[str, Entry] = {}
    contents: dict[str, Content] = {}
    for place, entry, content in image.entries():
        entries[place] = entry
        if content is not None:
            contents[place] = content
    distiller = tools.wanted.distiller
    # In the order of the file, so that the disk and the blocks that several small files share are read once.
    ordered = sorted(contents, key=lambda place: (contents[place].start, contents[place].fragment))
    entries = with_hashes(name, entries, ordered, lambda place: image.chunks(contents[place]), tools)
    tree = Tree(name=name, form=form, entries=entries, owners=owners_known(entries))
    return Opened(tree=tree, read=lambda place: distiller.of_pieces(place, image.chunks(contents[place])))
