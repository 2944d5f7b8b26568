"""Debian's snapshot service asked for the files of a package, by name and version (its machine-usable interface)."""

import urllib.parse
from typing import Annotated

import msgspec

from graphcrate.model import codec
from graphcrate.model.lock import DebianPackage

SOURCE = "source"  #: the architecture of a package's sources


class _Binfile(msgspec.Struct, frozen=True):
    """A file at the service, by its SHA-1. `architecture`: of a .deb; files of a source package have none there."""

    hash: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")]
    architecture: str = SOURCE


class _Binfiles(msgspec.Struct, frozen=True):
    """The answer to /mr/binary/NAME/VERSION/binfiles, and to /mr/package/NAME/VERSION/srcfiles."""

    result: tuple[_Binfile, ...]


def question(service: str, package: DebianPackage) -> str:
    """The address at which the service lists the files of a package; a lock's odd characters are quoted."""
    name, version = urllib.parse.quote(package.name, safe=""), urllib.parse.quote(package.version, safe=":+~")
    if package.architecture == SOURCE:
        return f"{service}/mr/package/{name}/{version}/srcfiles"
    return f"{service}/mr/binary/{name}/{version}/binfiles"


def files(service: str, package: DebianPackage, answer: bytes) -> tuple[str, ...]:
    """Addresses of a package's files of its architecture, by the service's answer. Raises what UNREADABLE lists."""
    binfiles = codec.decode(answer, _Binfiles).result
    return tuple(f"{service}/file/{file.hash}" for file in binfiles if file.architecture == package.architecture)
