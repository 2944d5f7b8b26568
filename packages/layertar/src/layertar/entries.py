"""Layers' entries, and which entry of which layer each path of the image is in the end.

A layer that keeps the rules for names unpacks alike everywhere, and never outside its root.
"""

import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from layertar.errors import ArchiveError, TarError
from layertar.stream import TarStream, members
from ocilayout import spec

#: null, zero, full, random, urandom, tty, which every user has in /dev. Any other device is a machine's own.
HARMLESS_DEVICES = frozenset(f"c {number}" for number in ("1:3", "1:5", "1:7", "1:8", "1:9", "5:0"))
#: What a reader keeps of an entry.
Kept = TypeVar("Kept")
Other = TypeVar("Other")
#: Takes what breaks a rule, so that the reader goes on without it; it may raise the error to end the reading.
Refuse = Callable[[ArchiveError], None]


#: Faults that are collected; a hostile layer has no end of them.
MAX_FAULTS = 100


def raise_first(error: ArchiveError) -> None:
    """End reading at the first fault."""
    raise error


class Faults:
    """Faults that are collected while reading goes on; the one beyond `MAX_FAULTS` ends it."""

    def __init__(self) -> None:
        self.errors: list[ArchiveError] = []

    def add(self, error: ArchiveError) -> None:
        """Collect a fault. Raises an error of its class instead where there are too many."""
        if len(self.errors) >= MAX_FAULTS:
            raise type(error)(f"more than {MAX_FAULTS} faults: the rest was not looked at") from error
        self.errors.append(error)


def entry_path(name: str, error: type[ArchiveError] = TarError) -> str:
    """Return the path of a tar entry relative to the root, empty for the root itself. Raises where it leaves it."""
    if name.startswith("/"):
        raise error(f"the entry {name!r} has an absolute name")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise error(f"the entry {name!r} leaves the root")
    return "/".join(parts)


def device_of(kind: bytes, numbers: tuple[int, int]) -> str:
    """A device for people and for comparisons, "b 254:0"; empty for what is not one."""
    letter = {tarfile.CHRTYPE: "c", tarfile.BLKTYPE: "b"}.get(kind)
    return f"{letter} {numbers[0]}:{numbers[1]}" if letter else ""


class Entries(msgspec.Struct, Generic[Kept]):
    """One layer's entries. Paths are relative, the root is empty. Caches have it encoded."""

    #: what is kept of each entry; a hard link has the very value of its target
    by_path: dict[str, Kept] = msgspec.field(default_factory=dict, name="found")
    folders: set[str] = msgspec.field(default_factory=set)  #: those of `by_path` that are folders
    implied: set[str] = msgspec.field(default_factory=set)  #: folders above an entry that have none themselves
    removed: set[str] = msgspec.field(default_factory=set)
    emptied: set[str] = msgspec.field(default_factory=set)
    links_below: dict[str, str] = msgspec.field(default_factory=dict)  #: hard links to files of the layers below

    def mapped(self, change: Callable[[Kept], Other]) -> "Entries[Other]":
        """The same layer with `change` of what is kept of each entry."""
        by_path = {path: change(kept) for path, kept in self.by_path.items()}
        return Entries(by_path, self.folders, self.implied, self.removed, self.emptied, self.links_below)


def read_entries(
    stream: TarStream, keep: Callable[[str, tarfile.TarInfo], Kept], refuse: Refuse = raise_first
) -> Entries[Kept]:
    """Read one layer to its end. Raises the stream's error for a broken tar.

    Names that break a rule are refused: each comes once, and none is below a file or link. `keep` gets path and header
    of each entry but whiteouts and hard links. It may read the content.
    """
    reader = _LayerReader(keep, stream.error)
    for member, _ in members(stream):
        try:
            reader.add(member)
        except stream.error as error:
            refuse(error)
    layer = reader.layer
    # Not `above`: a whiteout makes no folder of those above it.
    kept = (parent for path in (*layer.by_path, *layer.links_below) for parent in parents(path))
    layer.implied = set(kept) - layer.folders - {""}
    return layer


class _LayerReader(Generic[Kept]):
    """The entries of one layer, added in the order of its tar."""

    def __init__(self, keep: Callable[[str, tarfile.TarInfo], Kept], error: type[ArchiveError]) -> None:
        self.layer = Entries[Kept]()
        self._keep, self._error = keep, error
        self._others: set[str] = set()  #: all but folders, whiteouts too
        self._above: set[str] = set()  #: folders above any of them

    def add(self, member: tarfile.TarInfo) -> None:
        """Add an entry. Raises for one that breaks a rule."""
        layer, path = self.layer, entry_path(member.name, self._error)
        if path in layer.folders or path in self._others:
            raise self._error(f"{path or 'the root'} is in it twice")
        self._check_parents(path)
        if member.isdir():
            layer.folders.add(path)
            layer.by_path[path] = self._keep(path, member)
            return
        if not path or path in self._above:
            raise self._error(f"{path or 'the root'} is a folder and no folder")
        self._others.add(path)
        if path.rpartition("/")[2].startswith(spec.WHITEOUT):
            _take_whiteout(layer, path, self._error)
        elif member.islnk():
            # Some writers give link targets a leading slash; they mean the image's root.
            target = entry_path(member.linkname.lstrip("/"), self._error)
            if target in layer.by_path and target not in layer.folders:
                layer.by_path[path] = layer.by_path[target]
            else:
                layer.links_below[path] = target
        else:
            layer.by_path[path] = self._keep(path, member)

    def _check_parents(self, path: str) -> None:
        for parent in parents(path):
            if not parent or parent in self._above:
                break  # those above it are known, too
            if parent in self._others:
                raise self._error(f"{path} is below {parent}, which is not a folder")
            self._above.add(parent)


def _take_whiteout(layer: Entries[Kept], path: str, error: type[ArchiveError]) -> None:
    parent, slash, name = path.rpartition("/")
    removed = name.removeprefix(spec.WHITEOUT)
    if name == spec.OPAQUE:
        layer.emptied.add(parent)
    elif removed in ("", ".", ".."):
        raise error(f"the whiteout {path!r} removes nothing that can be named")
    elif not removed.startswith(spec.WHITEOUT):  # aufs's own files (`.wh..wh.…`) mean nothing elsewhere
        layer.removed.add(f"{parent}{slash}{removed}")


def overlaid(
    layers: Sequence[Entries[Kept]],
    implied: Kept,
    refuse: Refuse = raise_first,
    error: type[ArchiveError] = TarError,
) -> dict[str, Kept]:
    """Put layers over one another, lowest first. `implied` stands for a folder that no layer has an entry for.

    What contradicts the layers below is refused, with an error of this class.
    """
    merged, folders = {"": implied}, {""}
    for layer in layers:
        _take_away(merged, folders, layer)
        for path in layer.implied:
            if path not in merged:
                merged[path] = implied
                folders.add(path)
            elif path not in folders:
                refuse(
                    error(
                        f"a layer has files below {path}, which is not a folder in the layers below it",
                        cause="Engines disagree on what that means: some follow a link, others replace it.",
                    )
                )
        merged.update(layer.by_path)
        folders |= layer.folders
        for path, target in layer.links_below.items():
            if target in merged and target not in folders:
                merged[path] = merged[target]
            else:
                refuse(error(f"{path} is a hard link to {target}, which is not a file of this layer or those below"))
    return merged


def parents(path: str) -> Iterator[str]:
    """The folders above a path, the nearest first, the root ("") last; none of the root."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _take_away(merged: dict[str, Kept], folders: set[str], layer: Entries[Kept]) -> None:
    """Remove what the layer's whiteouts name, and folders that it replaces by something else, with all below."""
    replaced = {path for path in layer.by_path if path in folders and path not in layer.folders}
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
