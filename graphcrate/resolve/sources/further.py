"""Places that a requirements file names: which of them are asked for its packages, and which are passed over, and why.

What graphcrate asks itself, PyTorch's and PyG's pages and the public index with its mirrors, is not asked again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from graphcrate.compat.facts.addresses import STACK_HOSTS, copied_index
from graphcrate.model.command import setting
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import FurtherChannel
from graphcrate.model.words import printable
from graphcrate.resolve.sources.source import Source, SourceKind
from patienthttp.errors import host_of

_LONGEST = 200  #: characters of a file's name in a lock
_KINDS = {"index": SourceKind.INDEX, "links": SourceKind.LINKS, "folder": SourceKind.FOLDER}


def asked(channels: Iterable[FurtherChannel], indexes: Sequence[str]) -> tuple[Source, ...]:
    """Those that are not asked anyhow. `indexes`: the public index and the user's own.

    An address in a requirements file gives what that file names, and none of its requirements: its owner would else
    choose any package of an image. A folder is on this machine, where the user put it.
    """
    sources = [
        Source(
            _KINDS[channel.kind],
            channel.location,
            None if channel.kind == "folder" else channel.names,
            _place(channel),
        )
        for channel in channels
        if not _passed_over(channel, indexes)
    ]
    return tuple({(source.location, source.names): source for source in reversed(sources)}.values())[::-1]


def origins(channels: Iterable[FurtherChannel], packages: Iterable[LockedPackage]) -> list[str]:
    """Name the origins of packages, except those of the user's own index: "HOST, of requirements.txt:1: mine 1.0"."""
    hosts = {_place(channel): host_of(channel.location) or Path(channel.location).name for channel in channels}
    by_line: dict[str, list[str]] = {}
    for package in packages:
        if package.index:
            by_line.setdefault(package.index, []).append(f"{package.name} {package.version}")
    return [
        f"{', of '.join(filter(None, (hosts.get(line, ''), line)))}: {', '.join(names)}"
        for line, names in by_line.items()
    ]


def lines(channels: Iterable[FurtherChannel], indexes: Sequence[str]) -> list[str]:
    """Return a plan's line on each, without addresses, which may hold a password."""
    return list(dict.fromkeys(_line(channel, indexes) for channel in channels))


def _line(channel: FurtherChannel, indexes: Sequence[str]) -> str:
    if why := _passed_over(channel, indexes):
        return f"{channel.where}: {host_of(channel.location)} is passed over: {why}"
    if channel.kind == "folder":
        return f"{channel.where}: the folder {Path(channel.location).name} is a channel of this image"
    plain = ", without encryption," if channel.location.lower().startswith("http:") else ""
    first = "asked first" if channel.kind == "index" else "a page of links"
    host = host_of(channel.location)
    return (
        f"{channel.where}: {host}{plain} is a channel of this image ({first}) for what that file names; what these "
        "need comes from your own index; the lock has the hashes"
    )


def _place(channel: FurtherChannel) -> str:
    """The line that names a channel, without a folder of this machine: it goes into locks."""
    return printable(Path(channel.where).name)[-_LONGEST:]


def _passed_over(channel: FurtherChannel, indexes: Sequence[str]) -> str:
    """Explain why a channel is not asked; empty for one that is."""
    host = host_of(channel.location)
    if channel.kind == "folder":
        return ""
    if host in STACK_HOSTS:
        return "the stack has what it is for"
    if channel.location.rstrip("/") in [index.rstrip("/") for index in indexes]:
        return "packages come from your own index, which has the same" if channel.kind == "index" else ""
    if channel.kind == "index" and (name := copied_index(channel.location)):
        return f"a copy of the public index; {setting(mirror=name)} takes it"
    return ""
