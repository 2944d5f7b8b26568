"""A file on a server, read where its reader looks: by range requests (RFC 9110, section 14), never as a whole."""

import io
import re
from typing import TYPE_CHECKING

from graphcrate.host.net import HttpError
from graphcrate.model.errors import NetworkError
from patienthttp.errors import host_of, redacted

if TYPE_CHECKING:
    from graphcrate.host.net import Client

_TAIL = 1 << 18  #: bytes of the first request: a zip's directory is at the end
_LEAST, _MOST = 1 << 16, 1 << 24  #: bytes of the later ones: more each time that the reader goes straight on
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class RangedFile(io.BufferedIOBase):
    """A seekable, read-only file. `fetched`: bytes that came over the network so far.

    Keeps the last piece that was fetched and the end of the file, nothing else. Raises HttpError, and NetworkError for
    a server that sends whole files only or changes the file meanwhile.
    """

    def __init__(self, client: "Client", url: str) -> None:
        super().__init__()
        self._client, self._url = client, url
        self.size = self.fetched = 0
        self._position, self._ahead = 0, _LEAST
        self._piece, self._piece_begin = b"", 0
        self._tail_bytes, self._tail = self._get(f"bytes=-{_TAIL}")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the file's start")
        self._position = base + offset
        return self._position

    def read(self, count: int | None = -1, /) -> bytes:
        """As many bytes as asked for, fewer only at the end of the file."""
        left = max(self.size - self._position, 0)
        left = left if count is None or count < 0 else min(count, left)
        pieces = []
        while left:
            pieces.append(self._some(left))
            self._position += len(pieces[-1])
            left -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _some(self, count: int) -> bytes:
        """At least one byte at the position, which is before the end, at most `count`."""
        at = self._position
        if at >= self._tail:
            return self._tail_bytes[at - self._tail :][:count]
        end = self._piece_begin + len(self._piece)
        if not self._piece_begin <= at < end:
            straight_on = at == end and bool(self._piece)
            self._ahead = min(self._ahead * 4, _MOST) if straight_on else _LEAST
            last = min(at + max(self._ahead, min(count, _MOST)), self._tail)
            self._piece, self._piece_begin = self._get(f"bytes={at}-{last - 1}")
            if self._piece_begin != at:
                raise self._other("sends other ranges than asked for")
        begin = at - self._piece_begin
        return self._piece[begin : begin + count]

    def _get(self, wanted: str) -> tuple[bytes, int]:
        """The bytes of a range, and where they begin."""
        headers = {"Range": wanted, "Accept-Encoding": "identity"}
        try:
            response = self._client.request("GET", self._url, headers=headers, accept=(206,))
        except HttpError as error:
            if error.failure.status == 200:
                raise self._other("sends whole files only") from error
            raise
        told = _RANGE.fullmatch(str(response.headers.get("Content-Range", "")))
        if told is None or int(told[2]) - int(told[1]) + 1 != len(response.body):
            raise self._other("sends other ranges than asked for")
        if self.size not in (0, int(told[3])):
            raise self._other("changed the file while it was read")
        self.size = int(told[3])
        self.fetched += len(response.body)
        return response.body, int(told[1])

    def _other(self, what: str) -> NetworkError:
        return NetworkError(
            f"{redacted(self._url)}: {host_of(self._url)} {what}",
            cause="A proxy or a simple server does not know range requests.",
            next_step="name another index or mirror, or measure a wheel that lies here",
        )
