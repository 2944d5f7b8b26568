"""Debian's snapshot service asked for the files of a package, by name and version (its machine-usable interface)."""

import urllib.parse
from typing import Annotated

import msgspec

from graphcrate.model import codec
from graphcrate.model.lock import DebianPackage


class _Binfile(msgspec.Struct, frozen=True):
    """A .deb at the service, by its SHA-1."""

    hash: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")]
    architecture: str


class _Binfiles(msgspec.Struct, frozen=True):
    """The answer to /mr/binary/NAME/VERSION/binfiles."""

    result: tuple[_Binfile, ...]


def question(service: str, package: DebianPackage) -> str:
    """The address at which the service lists the files of a package; a lock's odd characters are quoted."""
    name, version = urllib.parse.quote(package.name, safe=""), urllib.parse.quote(package.version, safe=":+~")
    return f"{service}/mr/binary/{name}/{version}/binfiles"


def files(service: str, package: DebianPackage, answer: bytes) -> tuple[str, ...]:
    """Addresses of a package's files of its architecture, by the service's answer. Raises what UNREADABLE lists."""
    binfiles = codec.decode(answer, _Binfiles).result
    return tuple(f"{service}/file/{file.hash}" for file in binfiles if file.architecture == package.architecture)
