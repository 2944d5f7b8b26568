"""Sources and the links they offer, as values."""

import urllib.parse
from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """How a source lists its files."""

    INDEX = "index"  #: one page per project
    LINKS = "links"  #: one page with all files
    FOLDER = "folder"  #: a folder on this machine


class Source(msgspec.Struct, frozen=True):
    """A place that serves files. `location` is an address (maybe with credentials) or an absolute path."""

    kind: Kind
    location: str

    @property
    def title(self) -> str:
        """What to call it in a message and in a lock; holds no credentials and no path of this machine."""
        if self.kind is Kind.FOLDER:
            return "the folder of wheels"
        return urllib.parse.urlsplit(self.location).hostname or urllib.parse.urlsplit(self.location).path

    def page(self, project: str) -> str:
        """Address of the page that lists this project."""
        return f"{self.location.rstrip('/')}/{project}/" if self.kind is Kind.INDEX else self.location


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A file on offer. `sha256` is empty and `size` None where the source is silent."""

    name: str
    url: str  #: http, https or file
    sha256: str = ""
    size: int | None = None
    yanked: bool = False
