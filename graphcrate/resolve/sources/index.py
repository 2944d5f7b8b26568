"""Links that a source offers: a simple index (PEP 503), a page of links, a folder.

Pages are read as HTML, which every index and page of links has. What JSON says besides (PEP 691, PEP 700), sizes and
times of upload, is known from uv where it matters.
"""

import html.parser
import re
import threading
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.host.net import Client, HttpError
from graphcrate.model import codec
from graphcrate.model.command import command, setting
from graphcrate.model.errors import UNREADABLE, NetworkError
from graphcrate.model.values import is_file_name, is_sha256
from graphcrate.resolve.sources.source import Link, Source, SourceKind, local_path
from graphcrate.resolve.sources.target import project_and_version
from patienthttp.errors import NoAnswer
from patienthttp.retry import TRIES

#: A cache on the way is to ask whether its page is still the newest, as pip asks too (RFC 9111, section 5.2.1).
HEADERS = {
    "Accept": "application/vnd.pypi.simple.v1+html, text/html;q=0.9, */*;q=0.1",
    "Cache-Control": "max-age=0",
}
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
#: titles of an index's pages, and of what shows a folder: known as such where they list no file
LISTING = re.compile(r"(?:simple )?(?:links for|index of|index|directory listing for)\b", re.IGNORECASE)
#: attributes of a link whose wheel has its metadata beside it (PEP 714, and PEP 658 as it was first put to use)
_METADATA = frozenset({"data-core-metadata", "data-dist-info-metadata"})


class _JsonFile(msgspec.Struct, frozen=True):
    """Fields of a file's entry (PEP 691, PEP 700, PEP 714)."""

    filename: str = ""
    url: str = ""
    hashes: dict[str, str] = {}
    size: int | None = None
    yanked: bool | str = False
    python: str | None = msgspec.field(name="requires-python", default=None)
    metadata: bool | dict[str, str] = msgspec.field(name="core-metadata", default=False)
    upload_time: str = msgspec.field(name="upload-time", default="")


class _JsonPage(msgspec.Struct, frozen=True):
    files: tuple[_JsonFile, ...] = ()


class Listings:
    """Reads sources, each page once. May be used from many threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pages: dict[str, tuple[Link, ...] | NetworkError] = {}
        self._tries: dict[str, int] = {}
        self._locks: dict[str, threading.Lock] = {}

    def project(self, source: Source, project: str, *, again: bool = False, tries: int = TRIES) -> tuple[Link, ...]:
        """The wheels and sdists of a project (normalised name). Raises HttpError, NetworkError for a folder.

        `again`: a page that was read is read once more, past every cache on the way. `tries`: more of a request that
        fails; a server that was only busy is asked again by callers that give more of them.
        """
        page = source.page(project)
        with self._locks.setdefault(page, threading.Lock()):
            read = self._pages.get(page)
            was_busy = isinstance(read, HttpError) and read.failure.is_temporary and self._tries[page] < tries
            if read is None or was_busy or (again and not isinstance(read, NetworkError)):
                headers = HEADERS | {"Cache-Control": "no-cache"} if again else HEADERS
                self._tries[page] = tries
                try:
                    self._pages[page] = self._read(source, page, headers, tries)
                except NetworkError as error:
                    self._pages[page] = error
        links = self._pages[page]
        if isinstance(links, NetworkError):
            raise links
        name = canonicalize_name(project)
        return tuple(link for link in links if (known := project_and_version(link.name)) and known[0] == name)

    def has_times(self, source: Source, project: str) -> bool:
        """Return whether an index says when files of a project that it has were uploaded (PEP 700), in JSON alone."""
        return any(self.times(source, project).values())

    def times(self, source: Source, project: str) -> Mapping[str, str]:
        """Name of a file → when it was uploaded (PEP 700); empty where an index does not say it, or has no JSON."""
        page = source.page(project)
        if page.startswith("file:"):
            return {}
        try:
            response = self._client.request("GET", page, headers=HEADERS | {"Accept": JSON_TYPE})
            return {file.filename: file.upload_time for file in codec.decode(response.body, _JsonPage).files}
        except (NetworkError, *UNREADABLE):
            return {}

    def _read(self, source: Source, page: str, headers: Mapping[str, str], tries: int) -> tuple[Link, ...]:
        if source.kind is SourceKind.FOLDER:
            return _folder(Path(source.location))
        if page.startswith("file:"):
            return _local_page(source, page)
        response = self._client.request("GET", page, headers=headers, tries=tries)
        if response.headers.get("Content-Type", "").partition(";")[0].strip() == JSON_TYPE:
            return parse_json(response.body, response.url)
        return parse_html(response.body, response.url, is_of_server=True)


def parse_html(body: bytes, page: str, *, is_of_server: bool = False) -> tuple[Link, ...]:
    """A page of links (PEP 503): file names come from the addresses, hashes from their fragments.

    Raises HttpError for a page that is damaged; of a server, also for one that is no index: a portal's login page.
    """
    parser = _Anchors(page)
    try:
        parser.feed(body.decode("utf-8", "replace"))
        parser.close()
    except AssertionError as error:  # what Python's parser has for a declaration that it does not know
        raise HttpError.of(NoAnswer.DAMAGED, page) from error
    if is_of_server and not parser.is_index and not any(project_and_version(link.name) for link in parser.links):
        raise HttpError.of(NoAnswer.FOREIGN, page, "no index of packages")
    return tuple(parser.links)


def parse_json(body: bytes, page: str) -> tuple[Link, ...]:
    """A project's page in JSON (PEP 691), of an index that has no other. Raises HttpError for a damaged one."""
    try:
        files = codec.decode(body, _JsonPage).files
    except UNREADABLE as error:
        raise HttpError.of(NoAnswer.DAMAGED, page) from error
    links = []
    for file in files:
        try:
            address = urllib.parse.urldefrag(urllib.parse.urljoin(page, file.url)).url
        except ValueError:
            continue
        beside = file.metadata if isinstance(file.metadata, dict) else {}
        if is_file_name(file.filename):
            links.append(
                Link(
                    name=file.filename,
                    url=address,
                    sha256=_sha256(f"sha256={file.hashes.get('sha256', '')}"),
                    size=file.size if file.size is None or file.size >= 0 else None,
                    yanked=file.yanked is not False,
                    yanked_for=file.yanked if isinstance(file.yanked, str) else "",
                    python=file.python or "",
                    has_metadata=file.metadata is not False,
                    metadata_sha256=_sha256(f"sha256={beside.get('sha256', '')}"),
                )
            )
    return tuple(links)


class _Anchors(html.parser.HTMLParser):
    """The links of a page. `is_index`: it is marked as an index of packages or a listing of files, be it empty."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._base = page
        self._tag = ""
        self.links: list[Link] = []
        self.is_index = False

    def handle_data(self, data: str) -> None:
        """Look at titles, by which listings without the mark of PEP 629 are known."""
        if self._tag in ("title", "h1") and LISTING.match(data.strip()):
            self.is_index = True

    def handle_endtag(self, tag: str) -> None:
        """Leave a title."""
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._tag = tag
        if tag == "meta" and attributes.get("name") == "pypi:repository-version":
            self.is_index = True
        target = attributes.get("href")
        if not target:
            return
        try:
            address = urllib.parse.urljoin(self._base, target)
            parts = urllib.parse.urlsplit(address)
        except ValueError:
            return
        if tag == "base":
            self._base = address
        elif tag == "a" and is_file_name(name := urllib.parse.unquote(parts.path.rpartition("/")[2])):
            self.links.append(
                Link(
                    name=name,
                    url=urllib.parse.urlunsplit(parts._replace(fragment="")),
                    sha256=_sha256(parts.fragment.partition("&")[0]),
                    yanked="data-yanked" in attributes,
                    yanked_for=attributes.get("data-yanked") or "",
                    python=attributes.get("data-requires-python") or "",
                    has_metadata=not _METADATA.isdisjoint(attributes),
                    metadata_sha256=next(
                        (sha256 for name in _METADATA if (sha256 := _sha256(attributes.get(name) or ""))), ""
                    ),
                )
            )


def _sha256(text: str) -> str:
    """Return the hash of `sha256=<hex>`, as addresses and attributes of a page have it; "" for anything else."""
    kind, _, value = text.partition("=")
    return value.lower() if kind == "sha256" and is_sha256(value.lower()) else ""


def _local_page(source: Source, page: str) -> tuple[Link, ...]:
    """An index, or a page of links, on this machine, as pip and uv read them; no links where it lacks the project."""
    path, root = local_path(page), local_path(source.location)
    if source.kind is SourceKind.INDEX:
        path /= "index.html"
    try:
        return parse_html(path.read_bytes(), page)
    except OSError as error:
        if source.kind is SourceKind.INDEX and isinstance(error, FileNotFoundError) and root.is_dir():
            return ()
        raise NetworkError(
            f"the index {source.title} cannot be read: {error.strerror}",
            next_step=f"name an index that is there in pip's or uv's settings, or by {setting(mirror='…')}",
        ) from error


def _folder(folder: Path) -> tuple[Link, ...]:
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise NetworkError(
            f"the folder of wheels {folder} cannot be read: {error.strerror}",
            next_step=f"name a folder that is there: {command('image', '…', wheels='/path')}",
        ) from error
    return tuple(Link(name=path.name, url=path.absolute().as_uri(), size=path.stat().st_size) for path in files)
