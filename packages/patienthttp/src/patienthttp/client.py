"""HTTP: one client for indexes, mirrors, files and registries.

Proxies, certificate bundles and credentials come from the environment, as pip, curl and uv take them: `http_proxy`,
`https_proxy`, `all_proxy`, `no_proxy`; `SSL_CERT_FILE`, `PIP_CERT`, `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`,
`SSL_CERT_DIR`; `user:password@` in the address, else `NETRC` or `~/.netrc`. What goes wrong becomes an HttpError
that says which kind of failure it was; neither passwords nor queries (signed addresses) ever appear in a message.
"""

import contextlib
import hashlib
import os
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Container, Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from patienthttp import connections, patience
from patienthttp.errors import FOLLOWED, DifferentFileError, HttpError, NoAnswer, host_of
from patienthttp.patience import Patience
from patienthttp.retry import TRIES, Retry

if TYPE_CHECKING:
    import urllib3

CHUNK = 1 << 20  #: bytes read and written at once
REDIRECTS = 10
BODY_LIMIT = 256 << 20  #: bytes of a page; larger ones are files and belong in `download`
LARGEST_FILE = 16 << 30  #: bytes of a file of unknown size

#: what is sent: bytes, or a function that yields them, called again for each try
Body = bytes | Callable[[], Generator[bytes, None, None]] | None


class Response(msgspec.Struct, frozen=True):
    """An answer. `headers` ignores case; `url` is where redirects ended."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class RemoteState(msgspec.Struct, frozen=True):
    """A file on a server: the same state is the same file. `validator`: of If-Range; empty where none is given."""

    size: int
    validator: str = ""


class PartialDownload:
    """A download's file, kept on disk between runs."""

    def __init__(self, file: IO[bytes], advance: Callable[[int], None]) -> None:
        """`file` is open to append to. `advance` gets the bytes that are there, then those written; negative when they
        are thrown away.
        """
        file.seek(0)
        self._file, self._advance = file, advance
        self._hash = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type]
        self.position = file.tell()
        advance(self.position)

    @property
    def sha256(self) -> str:
        """Lower-case hex over all bytes so far."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Append."""
        self._file.write(chunk)
        self._hash.update(chunk)
        self.position += len(chunk)
        self._advance(len(chunk))

    def restart(self) -> None:
        """Throw away what is there."""
        self._file.truncate(0)
        self._hash = hashlib.sha256()
        self._advance(-self.position)
        self.position = 0


class Client:
    """Keeps connections open; may be used from many threads."""

    agent = "patienthttp"  #: what it calls itself

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        note: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`environment` is read when the first connection is made; `sleep` pauses between tries.

        `note` gets a line where a server lets us wait; `clock` is what it is measured by.
        """
        self._environment = environment
        self._sleep = sleep
        self._patience = Patience(note, clock)
        self._pools: dict[tuple[str, bool], urllib3.PoolManager] = {}
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
        accept: Container[int] = (200,),
        tries: int = TRIES,
        limit: int = BODY_LIMIT,
    ) -> Response:
        """Ask, follow redirects, try again where that can help. Raises HttpError for a status not in `accept`."""
        return self.retry(tries).call(
            lambda: self.send(method, url, headers=headers, body=body, accept=accept, limit=limit)
        )

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = {},
        body: Body = None,
        accept: Container[int] = (200,),
        limit: int = BODY_LIMIT,
    ) -> Response:
        """As `request`, but one try. Of a body that is a function, `headers` give the Content-Length.

        `limit`: bytes of the answer. What is sent may take as long as it has to; the answer then has its own time.
        """
        silent = patience.SILENT_SECONDS if body is None else patience.ANSWER_SECONDS
        total = patience.ANSWER_TOTAL if body is None else None
        with self._patience.asking(host_of(url), silent, total):
            response, final = self._open(method, url, headers, body, accept)
            try:
                status = response.status
                if status not in accept:
                    raise connections.refused(final, response)
                return Response(status, response.headers, self._body(response, final, limit), final)
            finally:
                response.release_conn()

    def retry(self, tries: int = TRIES) -> Retry:
        """A budget of tries and pauses for a piece of work of many requests with `send`."""
        retry = Retry(self._sleep, tries=tries)
        retry.note = self._patience.note
        return retry

    def download(
        self,
        url: str,
        partial: Path,
        *,
        size: int | None,
        sha256: str | None,
        most: int = LARGEST_FILE,
        headers: Mapping[str, str] = {},
        advance: Callable[[int], None],
        tries: int = TRIES,
    ) -> str:
        """Fill `partial` with the file at `url`, going on where an earlier try stopped, from any server.

        The hash decides, not the server's validators: a part taken from one mirror is completed from another, and a
        part that turns out wrong is fetched once more from its start. `advance` gets bytes (negative when a part is
        thrown away); `tries`: more of a request that fails; `most`: bytes of a file of unknown size.
        Returns the sha256, also where none was promised (None: then `partial` is new, or `headers` have the If-Range of
        what it is a part of). Raises DifferentFileError for other bytes than promised (`partial` is removed),
        HttpError, and OSError of the disk.
        """
        least, most = (0, most) if size is None else (size, size)
        with partial.open("a+b") as file:
            part = PartialDownload(file, advance)
            while True:
                resumed = part.position > 0
                if size is None or part.position < size:
                    # Each piece that arrives resets the count of failures.
                    self.retry(tries).call(lambda: self._filled(part, url, most, headers), lambda: part.position)
                if least <= part.position <= most:
                    if sha256 in (None, part.sha256):
                        file.flush()
                        os.fsync(file.fileno())  # so that a rename afterwards names a whole file
                        return part.sha256
                    difference = f"has sha256 {part.sha256} instead of {sha256}"
                else:
                    difference = f"has {part.position} bytes instead of {'' if least else 'at most '}{most}"
                part.restart()
                if not resumed:
                    break
        partial.unlink(missing_ok=True)
        raise DifferentFileError(
            f"{urllib.parse.unquote(url.partition('?')[0].rpartition('/')[2])} from {host_of(url)} {difference}",
            cause="The server has another file under this name: a stale mirror, a damaged copy or an attack.",
            next_step="try another source",
        )

    def size(self, url: str, *, tries: int = TRIES) -> int:
        """The bytes of a file, which is not fetched. Raises HttpError, also where the server does not say how many."""
        return self.state(url, tries=tries).size

    def state(self, url: str, *, tries: int = TRIES) -> RemoteState:
        """Ask for size and validator of a file, which is not fetched. Raises HttpError as `size`."""
        headers, retry = {"Accept-Encoding": "identity"}, self.retry(tries)
        response = retry.call(lambda: self.send("HEAD", url, headers=headers, accept=(200, 403, 405, 501)))
        length = response.headers.get("Content-Length", "")
        if response.status != 200 or not length.isdigit():
            part = headers | {"Range": "bytes=0-0"}
            response = retry.call(lambda: self.send("GET", url, headers=part, accept=(206,)))
            length = response.headers.get("Content-Range", "").rpartition("/")[2]
        if not length.isdigit():
            raise HttpError.of(NoAnswer.ADDRESS, url, "the server does not say how large the file is")
        tag = response.headers.get("ETag", "")
        is_strong = tag.startswith('"')  # a weak one may stand for other bytes, too (RFC 9110, section 13.1.5)
        return RemoteState(int(length), tag if is_strong else response.headers.get("Last-Modified", ""))

    def reaches(self, url: str, seconds: float) -> bool:
        """Return whether the host (or the proxy before it) takes a connection within this time. Asks for nothing."""
        answered = threading.Event()

        def knock() -> None:
            with contextlib.suppress(OSError, ValueError):
                parts = urllib.parse.urlsplit(connections.proxy_for(url, self._environment) or url)
                port = parts.port or (443 if parts.scheme == "https" else 80)
                socket.create_connection((parts.hostname or "", port), timeout=seconds).close()
                answered.set()

        # Looking up a name cannot be interrupted, so it is left behind when the time is over.
        thread = threading.Thread(target=knock, daemon=True)
        thread.start()
        thread.join(seconds)
        return answered.is_set()

    def _filled(self, part: PartialDownload, url: str, most: int, headers: Mapping[str, str]) -> None:
        with self._patience.asking(host_of(url), patience.SILENT_SECONDS):
            self._fill(part, url, most, headers)

    def _fill(self, part: PartialDownload, url: str, most: int, headers: Mapping[str, str]) -> None:
        """Add what the server sends to the part, up to the piece that makes it more than `most`. Raises HttpError."""
        asked = dict(headers) | {"Accept-Encoding": "identity"}
        if part.position:
            asked["Range"] = f"bytes={part.position}-"
        response, final = self._open("GET", url, asked, None, (200, 206, 416))
        finished = False
        try:
            there = response.headers.get("Content-Range") or ""  # RFC 9110, section 14.4
            if response.status == 416 or (response.status == 206 and not there.startswith(f"bytes {part.position}-")):
                part.restart()
                raise HttpError.of(NoAnswer.CUT, final, "the server cannot go on where the part ends")
            if response.status not in (200, 206):
                raise connections.refused(final, response)
            if response.status == 200:
                part.restart()
            for chunk in _chunks(response, final):
                part.write(chunk)
                if part.position > most:
                    return
            finished = True
        finally:
            # A body that was left in the middle would be read as the next answer.
            response.release_conn() if finished else response.close()

    def _body(self, response: "urllib3.BaseHTTPResponse", url: str, limit: int) -> bytes:
        content = bytearray()
        for chunk in _chunks(response, url):
            content += chunk
            if len(content) > limit:
                response.close()
                raise HttpError.of(NoAnswer.TOO_LARGE, url, f"more than {limit >> 20} MiB")
        return bytes(content)

    def _open(
        self, method: str, url: str, headers: Mapping[str, str], body: Body, accept: Container[int]
    ) -> tuple["urllib3.BaseHTTPResponse", str]:
        """Send one request and follow redirects; return the answer of any final status, with the final address."""
        sent = dict(headers)
        for _ in range(REDIRECTS):
            response = self._send(method, url, sent, body)
            location = response.headers.get("Location")
            if response.status not in FOLLOWED or response.status in accept or not location:
                return response, url
            response.drain_conn()
            target = urllib.parse.urljoin(url, location)
            if urllib.parse.urlsplit(target)[:2] != urllib.parse.urlsplit(url)[:2]:
                # A token is for one host alone, and storage services refuse to see one.
                sent = {name: value for name, value in sent.items() if name.lower() not in ("authorization", "cookie")}
            if response.status == 303 and method != "HEAD":
                method, body = "GET", None
            url = target
        raise HttpError.of(NoAnswer.REDIRECTS, url)

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: Body) -> "urllib3.BaseHTTPResponse":
        if not host_of(url) or urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise HttpError.of(NoAnswer.ADDRESS, url)
        address, credentials = connections.without_credentials(url)
        sent = {"User-Agent": self.agent} | dict(headers)
        if not any(name.lower() == "authorization" for name in sent):
            sent |= connections.authorization(address, credentials, self._environment)
        with contextlib.ExitStack() as stack:
            pieces = stack.enter_context(contextlib.closing(body())) if callable(body) else body
            try:
                return self._pool(address).request(
                    method,
                    address,
                    headers=sent,
                    body=pieces,
                    redirect=False,
                    retries=False,
                    preload_content=False,
                )
            except connections.transport_errors() as error:
                proxy = connections.proxy_for(url, self._environment)
                raise connections.broken(url, error, proxy=proxy) from error

    def _pool(self, url: str) -> "urllib3.PoolManager":
        proxy = connections.usable_proxy(url, self._environment)
        key = proxy, "https:" in (url[:6], proxy[:6])
        with self._lock:
            if key not in self._pools:
                from patienthttp.pool import make_pool  # urllib3 takes 50 ms

                self._pools[key] = make_pool(*key, self._environment)
            return self._pools[key]


def _chunks(response: "urllib3.BaseHTTPResponse", url: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read(CHUNK)
        except connections.transport_errors() as error:
            raise connections.broken(url, error, body=True) from error
        if not chunk:
            return
        yield chunk
