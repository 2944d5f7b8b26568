"""A source of files, in each form that lists them, and a file on offer there."""

import urllib.parse
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec


class SourceKind(StrEnum):
    """The form in which a source lists its files."""

    INDEX = "index"  #: one page per project
    LINKS = "links"  #: one page with all files
    FOLDER = "folder"  #: a folder on this machine


class Source(msgspec.Struct, frozen=True):
    """A server or folder that has files. `location` is an address (maybe with credentials) or an absolute path."""

    kind: SourceKind
    location: str
    names: tuple[str, ...] | None = None  #: normalised, of the packages that are taken from it; None: any
    where: str = ""  #: which line of a file names it: "requirements.txt:2"

    def gives(self, project: str) -> bool:
        """Return whether it may be asked for a project (normalised name)."""
        return self.names is None or project in self.names

    @property
    def title(self) -> str:
        """Return its name in a message and in a lock; it holds no credentials and no path of this machine."""
        if self.kind is SourceKind.FOLDER:
            return "the folder of wheels"
        return urllib.parse.urlsplit(self.location).hostname or urllib.parse.urlsplit(self.location).path

    def page(self, project: str) -> str:
        """Address of the page that lists this project."""
        return f"{self.location.rstrip('/')}/{project}/" if self.kind is SourceKind.INDEX else self.location


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A file on offer. `sha256` is empty and `size` None where the source is silent."""

    name: str
    url: str  #: http, https or file
    sha256: str = ""
    size: int | None = None
    yanked: bool = False  #: taken back (PEP 592)
    yanked_for: str = ""  #: the reason, where the page has one
    python: str = ""  #: Requires-Python
    is_hash_stated: bool = True  #: False: `sha256` is what the file itself has, of which no page states it
    has_metadata: bool = False  #: beside the file (PEP 658)
    metadata_sha256: str = ""  #: of that, where the page states it


def local_path(url: str) -> Path:
    """The path that a `file:` address names (RFC 8089)."""
    return Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))


def distinct(sources: Iterable[Source]) -> tuple[Source, ...]:
    """Return each source that has a location once, in order."""
    return tuple(dict.fromkeys(source for source in sources if source.location))
