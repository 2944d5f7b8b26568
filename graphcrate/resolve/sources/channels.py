"""Channels of a stack: for each the sources to try, in order.

A mirror comes before the official address. Addresses are those of the manuals; the package index is what uv's and pip's
own variables and files name.
"""

import urllib.parse
from collections.abc import Iterable

from graphcrate.compat.facts.addresses import channel_address
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.resolve.sources.source import Source, SourceKind, distinct
from graphcrate.resolve.sources.user_indexes import UserIndexes
from graphcrate.resolve.sources.wheel_mirrors import mirror_of, mirrored


def names_of(extensions: Iterable[str]) -> tuple[str, ...]:
    """Normalised names of a recipe's extensions, which may have pins."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    return tuple(dict.fromkeys(str(canonicalize_name(Requirement(text).name)) for text in extensions))


def sources(
    channel: Channel, torch: str, torch_cuda: str, request: SourceOptions, user: UserIndexes
) -> tuple[Source, ...]:
    """The sources of a channel's files, in order. `torch` is the exact version, `*` only for `local`."""
    match channel:
        case Channel.PYPI:
            listed = [Source(SourceKind.INDEX, address) for address in (*user.extra, user.default)]
            listed += user.further
        case Channel.LOCAL:
            listed = [Source(SourceKind.FOLDER, folder) for folder in local_folders(request, user.folders)]
        case _:
            listed = [official(channel, torch, torch_cuda)]
    return distinct([mirrored(mirror_of(request), channel, torch, torch_cuda), *listed])


def official(channel: Channel, torch: str, torch_cuda: str) -> Source:
    """Return a channel's own page or index. `torch` as in `sources`."""
    kind = SourceKind.INDEX if CHANNELS[channel].is_index else SourceKind.LINKS
    return Source(kind, channel_address(channel, torch, torch_cuda))


def address_of(channel: Channel, source: Source, name: str) -> str:
    """Return the address of a file on a source of PyTorch's channel, listed by its page or not; else "".

    PyTorch's index and its mirrors keep the files of a CUDA version in one folder, as `whl/cu118/<name>`.
    """
    if channel is not Channel.PYTORCH or source.kind is SourceKind.FOLDER:
        return ""
    return f"{source.location.rstrip('/')}/{urllib.parse.quote(name)}"


def local_folders(request: SourceOptions, folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folder named on the command line, then those of uv's and pip's `find-links`."""
    named = (str(request.wheels.absolute()),) if request.wheels else ()
    return tuple(dict.fromkeys((*named, *folders)))
