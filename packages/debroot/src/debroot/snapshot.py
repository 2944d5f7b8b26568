"""Debian's snapshot service asked for the files of a package, by name and version (its machine-usable interface)."""

import json
import re
import urllib.parse
from typing import Protocol

SOURCE = "source"  #: the architecture of a package's sources
_SHA1 = re.compile(r"[0-9a-f]{40}")


class Named(Protocol):
    """A package by its name and version."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def architecture(self) -> str: ...


def question(service: str, package: Named) -> str:
    """The address at which the service lists the files of a package; a lock's odd characters are quoted."""
    name, version = urllib.parse.quote(package.name, safe=""), urllib.parse.quote(package.version, safe=":+~")
    if package.architecture == SOURCE:
        return f"{service}/mr/package/{name}/{version}/srcfiles"
    return f"{service}/mr/binary/{name}/{version}/binfiles"


def files(service: str, package: Named, answer: bytes) -> tuple[str, ...]:
    """Addresses of a package's files of its architecture, by the service's answer. Raises ValueError.

    A file is named by its SHA-1 there; those of a source package have no architecture.
    """
    try:
        rows = json.loads(answer)["result"]
        files = [(row["hash"], row.get("architecture", SOURCE)) for row in rows]
        hashes = [name for name, architecture in files if architecture == package.architecture]
        if not all(_SHA1.fullmatch(name) for name, _ in files):
            raise ValueError("a hash of another form")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("an answer of another form") from error
    return tuple(f"{service}/file/{name}" for name in hashes)
