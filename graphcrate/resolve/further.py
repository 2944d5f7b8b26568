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
    """Those that are not asked anyhow. `indexes`: the public index and the user's own."""
    sources = [
        Source(_KINDS[channel.kind], channel.location) for channel in channels if not _passed_over(channel, indexes)
    ]
    return tuple(dict.fromkeys(sources))


def lines(channels: Iterable[FurtherChannel], indexes: Sequence[str]) -> list[str]:
    """What a plan says of each, without addresses, which may hold a password."""
    return list(dict.fromkeys(_line(channel, indexes) for channel in channels))


def _line(channel: FurtherChannel, indexes: Sequence[str]) -> str:
    if why := _passed_over(channel, indexes):
        return f"{channel.where}: {host_of(channel.location)} is passed over: {why}"
    if channel.kind == "folder":
        return f"{channel.where}: the folder {Path(channel.location).name} is a channel of this image"
    plain = ", without encryption," if channel.location.lower().startswith("http:") else ""
    first = "asked first for its packages" if channel.kind == "index" else "a page of links"
    host = host_of(channel.location)
    return f"{channel.where}: {host}{plain} is a channel of this image ({first}); the lock has the hashes"


def _passed_over(channel: FurtherChannel, indexes: Sequence[str]) -> str:
    """Why a channel is not asked; empty for one that is."""
    host = host_of(channel.location)
    if channel.kind == "folder":
        return ""
    if host in _OF_STACKS:
        return "the stack has what it is for"
    if channel.location.rstrip("/") in [index.rstrip("/") for index in indexes]:
        return "packages come from your own index, which has the same" if channel.kind == "index" else ""
    if channel.kind == "index" and host in _MIRRORS:
        return f"a copy of the public index; {setting(mirror=_MIRRORS[host])} takes it"
    return ""
