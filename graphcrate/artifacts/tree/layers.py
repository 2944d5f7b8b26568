"""Layers to a tree, read from their tars without unpacking anything: one pass over each, then merged in order."""

import hashlib
import json
import tarfile
from collections.abc import Iterator, Sequence

import msgspec

from graphcrate.artifacts.formats.merged import content_of
from graphcrate.artifacts.tree.reader import Opened, Place, Spool
from graphcrate.model.errors import LayoutError
from graphcrate.model.tree import Entry, Form, Kind, Tree
from graphcrate.oci import spec
from graphcrate.oci.blob import TarStream
from graphcrate.oci.entries import Entries, overlaid, read_entries

#: A folder that no layer has an entry for, as `artifacts.formats.rootfs` makes it.
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


LayerTree = Entries[Found]


def read_layer(stream: TarStream, spool: Spool) -> LayerTree:
    """Read one layer to its end, hashing its files. Raises LayoutError for one that `artifacts.formats.rootfs` would
    refuse."""
    return read_entries(stream, lambda path, member: _found(path, member, stream, spool))


def merge(layers: Sequence[LayerTree]) -> dict[str, Found]:
    """Put layers over one another, lowest first. Raises LayoutError where they contradict each other."""
    return overlaid(layers, Found(_IMPLIED))


class Documents(msgspec.Struct, frozen=True):
    """What an image says of itself beside its layers."""

    config: spec.ImageConfig
    manifest: spec.Manifest | None = None
    index: tuple[spec.Descriptor, ...] = ()


def opened(
    name: str, form: Form, layers: Sequence[LayerTree], documents: Documents, spool: Spool, broken: str = ""
) -> Opened:
    """Open an image from its layers and its documents. `broken`: why its layers cannot be read; the tree is empty."""
    try:
        merged = {} if broken else merge(layers)
    except LayoutError as error:
        if not spool.wanted.patient:
            raise
        merged, broken = {}, error.what
    tree = Tree(
        name=name,
        form=form,
        entries={f"/{path}": found.entry for path, found in merged.items()},
        settings=settings_of(documents.config),
    )

    def read(path: str) -> bytes:
        place = merged[path.removeprefix("/")].place
        if place is None:
            raise KeyError(path)
        return spool.read(place)

    config, manifest, index = documents.config, documents.manifest, documents.index
    return Opened(tree=tree, read=read, config=config, manifest=manifest, index=index, broken=broken)


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


def _found(path: str, member: tarfile.TarInfo, stream: TarStream, spool: Spool) -> Found:
    kind, mode, link = _KINDS.get(member.type), member.mode & 0o7777, ""
    if member.isfile():
        sha256, place = _content(path, member, stream, spool)
        return Found(Entry("file", mode, member.uid, member.gid, member.size, sha256), place)
    if kind is None:
        raise LayoutError(f"{path} is of an unknown type {member.type!r}")
    if kind == "symlink":
        mode, link = 0o777, member.linkname
    elif kind == "device":
        link = f"{'c' if member.ischr() else 'b'} {member.devmajor}:{member.devminor}"
    return Found(Entry(kind, mode, member.uid, member.gid, 0, "", link))


def _content(path: str, member: tarfile.TarInfo, stream: TarStream, spool: Spool) -> tuple[str, Place | None]:
    wanted = spool.wanted
    kept = wanted.keep(f"/{path}", member.size)
    if not kept and not wanted.hashes:
        return "", None
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for chunk in content_of(member, stream):
            if wanted.hashes:
                digest.update(chunk)
            yield chunk

    pieces = hashed()
    place = spool.add(wanted.distiller.of_pieces(f"/{path}", pieces)) if kept else None
    for _ in pieces:  # what nobody looked at
        pass
    return digest.hexdigest() if wanted.hashes else "", place
