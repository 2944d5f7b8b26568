"""Places that a requirements file names: which of them are asked for its packages, and which are passed over, and why.

What graphcrate asks itself, PyTorch's and PyG's pages and the public index with its mirrors, is not asked again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from graphcrate.host.connections import host_of
from graphcrate.model.command import setting
from graphcrate.model.recipe import CHANNELS, FurtherChannel
from graphcrate.resolve.channels import MIRRORS, Source, SourceKind

_KINDS = {"index": SourceKind.INDEX, "links": SourceKind.LINKS, "folder": SourceKind.FOLDER}
#: pages of the same owners by older names
_OF_STACKS = {*(host_of(row.root) for row in CHANNELS.values()), "pytorch-geometric.com", "download-r2.pytorch.org"}
_MIRRORS = {host_of(mirror.pypi): name for name, mirror in MIRRORS.items() if mirror.pypi}


def asked(channels: Iterable[FurtherChannel], indexes: Sequence[str]) -> tuple[Source, ...]:
    """Those that are not asked anyhow. `indexes`: the public index and the person's own."""
    found = [Source(_KINDS[one.kind], one.location) for one in channels if not _passed_over(one, indexes)]
    return tuple(dict.fromkeys(found))


def lines(channels: Iterable[FurtherChannel], indexes: Sequence[str]) -> list[str]:
    """What a plan says of each, without addresses, which may hold a password."""
    return list(dict.fromkeys(_line(one, indexes) for one in channels))


def _line(one: FurtherChannel, indexes: Sequence[str]) -> str:
    if why := _passed_over(one, indexes):
        return f"{one.where}: {host_of(one.location)} is passed over: {why}"
    if one.kind == "folder":
        return f"{one.where}: the folder {Path(one.location).name} is a channel of this image"
    plain = ", without encryption," if one.location.lower().startswith("http:") else ""
    first = "asked first for its packages" if one.kind == "index" else "a page of links"
    return f"{one.where}: {host_of(one.location)}{plain} is a channel of this image ({first}); the lock has the hashes"


def _passed_over(one: FurtherChannel, indexes: Sequence[str]) -> str:
    """Why a place is not asked; empty for one that is."""
    host = host_of(one.location)
    if one.kind == "folder":
        return ""
    if host in _OF_STACKS:
        return "the stack has what it is for"
    if one.location.rstrip("/") in [index.rstrip("/") for index in indexes]:
        return "packages come from your own index, which has the same" if one.kind == "index" else ""
    if one.kind == "index" and host in _MIRRORS:
        return f"a copy of the public index; {setting(mirror=_MIRRORS[host])} takes it"
    return ""
