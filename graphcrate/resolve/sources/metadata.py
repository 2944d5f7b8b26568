"""A release's needs, by its core metadata: from beside the wheel where the index has it (PEP 658), else out of it.

uv reads the same for itself, and keeps it in a form of its own. Here it is read only to say why uv has no answer. Of a
wheel only the part with its metadata is fetched, if its server gives parts of files.
"""

import contextlib
import hashlib
import io
import lzma
import os
import re
import threading
import zipfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING

import msgspec
from packaging.metadata import parse_email

from graphcrate.host.disk.sealed import kept
from graphcrate.host.net import Client, HttpError
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.lock import LockedFile
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link, local_path
from graphcrate.resolve.sources.storing import store

if TYPE_CHECKING:
    from typing_extensions import Buffer

LARGEST = 32 << 20  #: bytes of a wheel that is fetched whole for its metadata
LARGEST_TEXT = 4 << 20  #: of that
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_THREADS = 8


class Metadata(msgspec.Struct, frozen=True):
    """Requires-Dist (PEP 508) of a release."""

    requires: tuple[str, ...] = ()


class MetadataReader:
    """Reads each release's metadata once. May be used from many threads."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._known: dict[str, Metadata] = {}
        self._lock = threading.Lock()

    def of(self, release: Offer) -> Metadata:
        """The metadata of a wheel; without requirements where it is not known. Raises NetworkError."""
        link = release.link
        with self._lock:
            known = self._known.get(link.url)
        if known is None:
            known = self._kept(link)
            with self._lock:
                self._known[link.url] = known
        return known

    def prefetch(self, releases: Iterable[Offer]) -> None:
        """Read several side by side; what fails is read again when it is needed."""

        def read(release: Offer) -> None:
            with contextlib.suppress(NetworkError):
                self.of(release)

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(read, releases))

    def _kept(self, link: Link) -> Metadata:
        """From the cache, where it goes by the wheel's address: an index says what it likes of another one's hash."""
        cache = self._sources.cache
        key = hashlib.sha256(f"{link.url} {link.sha256}".encode()).hexdigest()
        record = cache.path("metadata", f"{key}.json") if link.sha256 else None
        if record is not None and (known := kept(record, Metadata)) is not None:
            return known
        text = self._text(link)
        if text is None:
            return Metadata()
        read = parse(text)
        if record is not None:
            cache.keep(record, msgspec.json.encode(read))
        return read

    def _text(self, link: Link) -> bytes | None:
        """METADATA; None for a wheel that cannot be read, or is too large to be fetched whole where that is needed."""
        client = self._sources.client
        if link.has_metadata and (beside := self._beside(link)) is not None:
            return beside
        if link.url.startswith("file:"):
            with local_path(link.url).open("rb") as file:
                return _of_wheel(file)
        size = link.size if link.size is not None else client.size(link.url)
        try:
            return _of_wheel(io.BufferedReader(RemoteFile(client, link.url, size), RemoteFile.LEAST))
        except HttpError as error:
            if error.failure.status != 200:  # of a server that sends whole files alone
                raise
        if not link.sha256 or size > LARGEST:
            return None
        wheel = LockedFile(name=link.name, size=size, sha256=link.sha256)
        try:
            stored = store(wheel, link.url, client, self._sources.cache)
        except IntegrityError:  # it is refused where it is to be installed
            return None
        with stored.open("rb") as file:
            return _of_wheel(file)

    def _beside(self, link: Link) -> bytes | None:
        """METADATA from beside the wheel (PEP 658); None where it is absent, or is not what the page states.

        Mirrors copy wheels and pages, and not always what is beside them.
        """
        try:
            body = self._sources.client.request("GET", f"{link.url}.metadata").body
        except HttpError as error:
            if error.failure.status is None:  # nor does it give the wheel
                raise
            return None
        is_stated = link.metadata_sha256 in ("", hashlib.sha256(body).hexdigest())
        return body if is_stated else None


class RemoteFile(io.RawIOBase):
    """A file on a server, of which parts are read (RFC 9110, section 14); its end, a zip's directory, at once."""

    LEAST = 32 << 10  #: bytes of one request

    def __init__(self, client: Client, url: str, size: int) -> None:
        super().__init__()
        self._client, self._url, self._size = client, url, size
        self._position = 0
        self._end = max(size - 4 * self.LEAST, 0)
        self._tail = b""

    def seekable(self) -> bool:
        """As every file is."""
        return True

    def readable(self) -> bool:
        """As every file is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, of which nothing is fetched yet."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("before the file's first byte")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: "Buffer") -> int:
        """Read what is there, from the end that was fetched or by a request. Raises HttpError."""
        view = memoryview(buffer).cast("B")
        count = max(min(len(view), self._size - self._position), 0)
        if count and self._position >= self._end:
            self._tail = self._tail or self._part(self._end, self._size)
            data = self._tail[self._position - self._end :][:count]
        else:
            data = self._part(self._position, self._position + count) if count else b""
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _part(self, start: int, end: int) -> bytes:
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        return self._client.request("GET", self._url, headers=headers, accept=(206,)).body[: end - start]


def parse(text: bytes) -> Metadata:
    """Read METADATA; what is malformed of it is nothing."""
    raw, _ = parse_email(text)
    return Metadata(requires=tuple(raw.get("requires_dist", ())))


def _of_wheel(file: IO[bytes] | io.BufferedReader) -> bytes | None:
    """METADATA of a wheel; None where there is none, or the archive cannot be read. Raises NetworkError."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = (name for name in archive.namelist() if _METADATA.fullmatch(name))
            if (name := next(names, None)) is None:
                return None
            with archive.open(name) as member:
                return member.read(LARGEST_TEXT)
    # what `zipfile` raises for archives that are damaged, encrypted, or packed in a way that it does not know
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, OSError, RuntimeError):
        return None
