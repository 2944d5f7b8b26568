"""Links that a source offers: a simple index (PEP 503, PEP 691), a page of links, a folder."""

import html.parser
import threading
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.host.http import Client
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, NetworkError
from graphcrate.resolve.channels import Kind, Link, Source, local_path
from graphcrate.resolve.target import project_and_version

#: A cache on the way is to ask whether its page is still the newest, as pip wants it too (RFC 9111, section 5.2.1).
HEADERS = {
    "Accept": "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1",
    "Cache-Control": "max-age=0",
}


class Listings:
    """Reads sources, each page once. May be used from many threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pages: dict[str, tuple[Link, ...] | NetworkError] = {}
        self._locks: dict[str, threading.Lock] = {}

    def project(self, source: Source, project: str, *, again: bool = False) -> tuple[Link, ...]:
        """The wheels and sdists of a project (normalised name). Raises HttpError, NetworkError for a folder.

        `again`: a page that was read is read once more, past every cache on the way.
        """
        page = source.page(project)
        with self._locks.setdefault(page, threading.Lock()):
            if page not in self._pages or (again and not isinstance(self._pages[page], NetworkError)):
                headers = HEADERS | {"Cache-Control": "no-cache"} if again else HEADERS
                try:
                    self._pages[page] = self._read(source, page, headers)
                except NetworkError as error:
                    self._pages[page] = error
        links = self._pages[page]
        if isinstance(links, NetworkError):
            raise links
        wanted = canonicalize_name(project)
        return tuple(link for link in links if (known := project_and_version(link.name)) and known[0] == wanted)

    def _read(self, source: Source, page: str, headers: Mapping[str, str]) -> tuple[Link, ...]:
        if source.kind is Kind.FOLDER:
            return _folder(Path(source.location))
        if page.startswith("file:"):
            return _local_page(source, page)
        response = self._client.request("GET", page, headers=headers)
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
        parse = parse_json if kind.endswith("json") else parse_html
        try:
            return parse(response.body, response.url)
        except (*UNREADABLE, ValueError) as error:  # an address of it may be malformed
            raise NetworkError(
                f"{source.title} answers with something that is not an index page: {error}",
                cause="A login page, a portal or a broken mirror answers instead.",
                next_step="open the index in a browser, or name another one: MIRROR=…",
            ) from error


class _File(msgspec.Struct):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None
    yanked: bool | str = False


class _Project(msgspec.Struct):
    files: list[_File]


def parse_json(body: bytes, page: str) -> tuple[Link, ...]:
    """A project page as JSON (PEP 691, sizes by PEP 700). Raises `model.errors.UNREADABLE` and ValueError."""
    return tuple(
        Link(
            name=file.filename,
            url=urllib.parse.urljoin(page, file.url),
            sha256=file.hashes.get("sha256", "").lower(),
            size=file.size,
            yanked=file.yanked is not False,
        )
        for file in codec.decode(body, _Project).files
    )


def parse_html(body: bytes, page: str) -> tuple[Link, ...]:
    """A page of links (PEP 503): file names come from the addresses, hashes from their fragments."""
    parser = _Anchors(page)
    parser.feed(body.decode("utf-8", "replace"))
    parser.close()
    return tuple(parser.links)


class _Anchors(html.parser.HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self._base = page
        self.links: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
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
        elif tag == "a" and (name := urllib.parse.unquote(parts.path.rpartition("/")[2])):
            kind, _, value = parts.fragment.partition("=")
            self.links.append(
                Link(
                    name=name,
                    url=urllib.parse.urlunsplit(parts._replace(fragment="")),
                    sha256=value.partition("&")[0].lower() if kind == "sha256" else "",
                    yanked="data-yanked" in attributes,
                )
            )


def _local_page(source: Source, page: str) -> tuple[Link, ...]:
    """An index, or a page of links, on this machine, as pip and uv read them; no links where it lacks the project."""
    path, root = local_path(page), local_path(source.location)
    if source.kind is Kind.INDEX:
        path /= "index.html"
    try:
        return parse_html(path.read_bytes(), page)
    except OSError as error:
        if source.kind is Kind.INDEX and isinstance(error, FileNotFoundError) and root.is_dir():
            return ()
        raise NetworkError(
            f"the index {source.title} cannot be read: {error.strerror}",
            next_step="name an index that is there in pip's or uv's settings, or by MIRROR=…",
        ) from error


def _folder(folder: Path) -> tuple[Link, ...]:
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise NetworkError(
            f"the folder of wheels {folder} cannot be read: {error.strerror}",
            next_step="name a folder that is there: WHEELS=/path make image …",
        ) from error
    return tuple(Link(name=path.name, url=path.absolute().as_uri(), size=path.stat().st_size) for path in files)
