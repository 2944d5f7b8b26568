"""What layers say, entry by entry, and which entry of which layer each path of the image is in the end."""

import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from graphcrate.model.errors import LayoutError
from graphcrate.oci.blob import TarStream, members
from graphcrate.oci.names import Names, entry_path

#: What a reader keeps of an entry.
Kept = TypeVar("Kept")
Other = TypeVar("Other")


@dataclass
class Entries(Generic[Kept]):
    """What one layer says. Paths are relative, the root is empty."""

    found: dict[str, Kept] = field(default_factory=dict)  #: a hard link has the very value of its target
    folders: set[str] = field(default_factory=set)  #: those of `found` that are folders
    implied: set[str] = field(default_factory=set)  #: folders above an entry that have none themselves
    removed: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    links_below: dict[str, str] = field(default_factory=dict)  #: hard links to files of the layers below

    def mapped(self, change: Callable[[Kept], Other]) -> "Entries[Other]":
        """The same layer with `change` of what is kept of each entry."""
        found = {path: change(kept) for path, kept in self.found.items()}
        return Entries(found, self.folders, self.implied, self.removed, self.emptied, self.links_below)


def read_entries(stream: TarStream, keep: Callable[[str, tarfile.TarInfo], Kept]) -> Entries[Kept]:
    """Read one layer to its end. Raises LayoutError for one that `artifacts.formats.rootfs` would refuse.

    `keep` gets path and header of each entry but whiteouts and hard links. It may read the content.
    """
    names, found = Names(), dict[str, Kept]()
    for member, _ in members(stream):
        path = names.add(member)
        if path in names.whiteouts or path in names.links_below:
            continue
        found[path] = found[entry_path(member.linkname.lstrip("/"))] if member.islnk() else keep(path, member)
    # Not `names.implied`: a whiteout makes no folder of those above it.
    implied = {parent for path in (*found, *names.links_below) for parent in parents(path)} - names.folders - {""}
    return Entries(found, names.folders, implied, names.removed, names.emptied, names.links_below)


def overlaid(layers: Sequence[Entries[Kept]], implied: Kept) -> dict[str, Kept]:
    """Put layers over one another, lowest first. `implied` stands for a folder that no layer has an entry for.

    Raises LayoutError where they contradict each other.
    """
    merged, folders = {"": implied}, {""}
    for layer in layers:
        _take_away(merged, folders, layer)
        for path in layer.implied:
            if path not in merged:
                merged[path] = implied
                folders.add(path)
            elif path not in folders:
                raise LayoutError(
                    f"a layer has files below {path}, which is not a folder in the layers below it",
                    cause="Engines disagree on what that means: some follow a link, others replace it.",
                )
        merged.update(layer.found)
        folders |= layer.folders
        for path, target in layer.links_below.items():
            if target not in merged or target in folders:
                raise LayoutError(
                    f"{path} is a hard link to {target}, which is not a file of this layer or those below"
                )
            merged[path] = merged[target]
    return merged


def parents(path: str) -> Iterator[str]:
    """The folders above a path, the nearest first, the root ("") last; none of the root."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _take_away(merged: dict[str, Kept], folders: set[str], layer: Entries[Kept]) -> None:
    """Remove what the layer's whiteouts name, and folders that it replaces by something else, with all below."""
    replaced = {path for path in layer.found if path in folders and path not in layer.folders}
    removed = layer.removed | replaced | {path for path in layer.links_below if path in folders}
    if not removed and not layer.emptied:
        return
    for path in [path for path in merged if path and _is_gone(path, removed, layer.emptied)]:
        del merged[path]
        folders.discard(path)


def _is_gone(path: str, removed: set[str], emptied: set[str]) -> bool:
    if path in removed:
        return True
    return any(parent in removed or parent in emptied for parent in parents(path))
