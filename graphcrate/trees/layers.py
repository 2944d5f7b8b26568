"""Layers to a tree, read from their tars without unpacking anything: one pass over each, then merged in order."""

import hashlib
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from graphcrate.errors import LayoutError
from graphcrate.model.tree import Entry, Form, Kind, Tree
from graphcrate.oci import spec
from graphcrate.oci.blob import CHUNK, TarStream, members
from graphcrate.oci.names import Names, entry_path, is_whiteout, whiteout
from graphcrate.trees.contents import is_kept
from graphcrate.trees.opened import Opened, Place, Spool

#: A folder that no layer has an entry for, as `formats.rootfs` makes it.
_IMPLIED = Entry("folder", 0o755)
_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "fifo",
}


class Found(msgspec.Struct, frozen=True):
    """An entry, and where its content is kept, if it is."""

    entry: Entry
    place: Place | None = None


@dataclass
class LayerTree:
    """What one layer says. Paths are relative, the root is empty."""

    found: dict[str, Found] = field(default_factory=dict)
    implied: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    links_below: dict[str, str] = field(default_factory=dict)


def read_layer(stream: TarStream, spool: Spool) -> LayerTree:
    """Read one layer to its end, hashing its files. Raises LayoutError for one that `formats.rootfs` would refuse."""
    names, layer = Names(), LayerTree()
    for member, archive in members(stream):
        path = names.add(member)
        if is_whiteout(path):
            gone = whiteout(path)
            if gone is not None:
                (layer.emptied if gone.emptied else layer.removed).add(gone.path)
        elif not member.islnk():
            layer.found[path] = _found(path, member, archive, stream, spool)
        elif path not in names.links_below:
            target = layer.found[entry_path(member.linkname.lstrip("/"))]
            layer.found[path] = target
    # Not `names.implied`: a whiteout makes no folder of those above it.
    files = (*layer.found, *names.links_below)
    layer.implied = {parent for path in files for parent in _parents(path)} - names.folders - {""}
    layer.links_below = names.links_below
    return layer


def merge(layers: Sequence[LayerTree]) -> dict[str, Found]:
    """Put layers over one another, lowest first. Raises LayoutError where they contradict each other."""
    merged: dict[str, Found] = {"": Found(_IMPLIED)}
    for layer in layers:
        _take_away(merged, layer)
        for path in layer.implied:
            if merged.setdefault(path, Found(_IMPLIED)).entry.kind != "folder":
                raise LayoutError(
                    f"a layer has files below {path}, which is no folder in the layers below it",
                    cause="Engines disagree on what that means: some follow a link, others replace it.",
                )
        merged.update(layer.found)
        for path, target in layer.links_below.items():
            source = merged.get(target)
            if source is None or source.entry.kind == "folder":
                raise LayoutError(f"{path} is a hard link to {target}, which is no file of this layer or those below")
            merged[path] = source
    return merged


def opened(name: str, form: Form, layers: Sequence[LayerTree], config: spec.ImageConfig, spool: Spool) -> Opened:
    """The tree of an image from its layers and its configuration."""
    merged = merge(layers)
    tree = Tree(
        name=name,
        form=form,
        entries={f"/{path}": found.entry for path, found in merged.items()},
        settings=settings_of(config),
    )

    def read(path: str) -> bytes:
        place = merged[path.removeprefix("/")].place
        assert place is not None
        return spool.read(place)

    return Opened(tree=tree, read=read)


def settings_of(config: spec.ImageConfig) -> dict[str, str]:
    """What containers of the image start with, by name. What is empty is absent."""
    run = config.run
    settings = {f"environment {name}": value for name, value in run.environment.items()}
    settings |= {f"label {name}": value for name, value in (run.labels or {}).items()}
    settings["entrypoint"] = json.dumps(run.entrypoint) if run.entrypoint else ""
    settings["command"] = json.dumps(run.cmd) if run.cmd else ""
    settings["working folder"] = run.working_dir if run.working_dir not in (None, "/") else ""
    settings["user"] = run.user or ""
    settings["volumes"] = " ".join(sorted(run.volumes or ()))
    settings["platform"] = f"{config.os}/{config.architecture}"
    return {name: value for name, value in settings.items() if value or name.startswith(("environment ", "label "))}


def _take_away(merged: dict[str, Found], layer: LayerTree) -> None:
    """Remove what the layer's whiteouts name, and folders that it replaces by something else, with all below."""
    removed = layer.removed | {
        path
        for path, found in layer.found.items()
        if found.entry.kind != "folder" and path in merged and merged[path].entry.kind == "folder"
    }
    removed |= {path for path in layer.links_below if path in merged and merged[path].entry.kind == "folder"}
    if not removed and not layer.emptied:
        return
    for path in [path for path in merged if path and _is_gone(path, removed, layer.emptied)]:
        del merged[path]


def _is_gone(path: str, removed: set[str], emptied: set[str]) -> bool:
    if path in removed:
        return True
    return any(parent in removed or parent in emptied for parent in _parents(path))


def _parents(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def _found(path: str, member: tarfile.TarInfo, archive: tarfile.TarFile, stream: TarStream, spool: Spool) -> Found:
    kind, mode, link = _KINDS.get(member.type), member.mode & 0o7777, ""
    if member.isfile():
        sha256, place = _content(path, member, archive, stream, spool)
        return Found(Entry("file", mode, member.uid, member.gid, member.size, sha256), place)
    if kind is None:
        raise LayoutError(f"{path} is of an unknown type {member.type!r}")
    if kind == "symlink":
        mode, link = 0o777, member.linkname
    elif kind == "device":
        link = f"{'c' if member.ischr() else 'b'} {member.devmajor}:{member.devminor}"
    return Found(Entry(kind, mode, member.uid, member.gid, 0, "", link))


def _content(
    path: str, member: tarfile.TarInfo, archive: tarfile.TarFile, stream: TarStream, spool: Spool
) -> tuple[str, Place | None]:
    digest = hashlib.sha256()
    chunks = _sparse(member, archive) if member.issparse() else stream.chunks(member.size)
    if is_kept(path, member.size):
        data = b"".join(chunks)
        digest.update(data)
        return digest.hexdigest(), spool.add(data)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest(), None


def _sparse(member: tarfile.TarInfo, archive: tarfile.TarFile) -> Iterator[bytes]:
    content = archive.extractfile(member)
    assert content is not None
    try:
        while chunk := content.read(CHUNK):
            yield chunk
    except tarfile.ReadError as error:
        raise LayoutError("the tar ends in the middle of a file") from error
