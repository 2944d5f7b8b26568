"""Limits of the wait for a server, and the measure of one connection's bytes against them.

Only the time spent waiting for the server counts: a slow disk here, or a thread that has to wait its turn, is not its
fault. What is measured are the bytes of the connection, so headers, pages, files and what is sent are all held to it.
"""

import contextlib
import http.client
import io
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

CONNECT_SECONDS = 10.0  #: TCP tries again after 1, 3 and 7 s (RFC 6298)
NOTED_SECONDS = 10.0  #: silence of so long is reported, and again each time as long
SILENT_SECONDS = 30.0  #: nothing at all for so long ends a request; curl's --speed-time is 30, uv's time-out 30
#: after something was sent: a registry reads and hashes a whole layer before it answers the last request (distribution
#: specification 1.1, "Pushing blobs"); at 100 MB/s 10 GB take 100 s
ANSWER_SECONDS = 120.0
LEAST_RATE, RATE_SECONDS = 1000.0, 30.0  #: bytes per second on average of so many seconds, as curl's --speed-limit
#: of the status line and headers of an answer, with all that say "go on" (1xx), from their first byte on
HEAD_SECONDS, HEAD_BYTES = 30.0, 1 << 20
#: of one page, manifest or other small answer: at 100 kB/s the largest page of the index (30 MB) takes 300 s
ANSWER_TOTAL = 600.0
WORTH = int(LEAST_RATE * RATE_SECONDS)  #: bytes of a try that ends by these limits, to count as progress


class TooSlowError(TimeoutError):
    """The server was given up; the text says by which limit."""


class HeadTooLargeError(http.client.HTTPException):
    """The headers of an answer, or of those before it, have no end."""


@dataclass
class Patience:
    """The receiver of notes that we wait, and the clock. Safe from many threads."""

    note: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    _noted: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def asking(self, host: str, silent: float, total: float | None = None) -> Iterator[None]:
        """Hold what this thread reads and sends meanwhile to the limits: `silent` before the answer, `total` of it."""
        end = None if total is None else self.clock() + total
        token = _ASKED.set(_Asked(self, host, silent, total or 0, end))
        try:
            yield
        finally:
            _ASKED.reset(token)

    def tell(self, host: str, text: str) -> None:
        """Say why we wait, once for all connections to a host."""
        now = self.clock()
        with self._lock:
            if now - self._noted.get(host, -NOTED_SECONDS) < NOTED_SECONDS / 2:
                return
            self._noted[host] = now
        self.note(text)


@dataclass(frozen=True)
class _Asked:
    """One thread's request at the moment."""

    patience: Patience
    host: str
    silent: float
    total: float
    end: float | None


_ASKED: ContextVar[_Asked | None] = ContextVar("asked", default=None)


class Meter:
    """One direction of one request: how long the server has been silent, and how fast it is."""

    def __init__(self, silent: float | None = None) -> None:
        """`silent`: seconds; None: those before an answer."""
        asked = _ASKED.get()
        self._asked = asked or _Asked(Patience(), "the server", SILENT_SECONDS, 0, None)
        self._most = silent or self._asked.silent
        self._quiet = self._waited = self._bytes = 0.0
        self._begun = False
        self._head_end: float | None = None
        self._head_bytes = 0

    def begin_head(self) -> None:
        """Hold what comes to the limits of headers, until `end_head`."""
        self._head_end, self._head_bytes = math.inf, 0

    def end_head(self) -> None:
        """The headers are there."""
        self._head_end = None

    def answered(self) -> None:
        """The first bytes are there: from now on silence is a stall, not work."""
        self._most = min(self._most, SILENT_SECONDS)

    def wait(self, move: Callable[[], int], timeout: Callable[[float], None]) -> int:
        """Move bytes, waiting in slices that `timeout` sets. Raises TooSlowError, OSError."""
        clock = self._asked.patience.clock
        while True:
            start = clock()
            timeout(self._slice(start))
            try:
                moved = move()
            except TimeoutError:
                self._count(clock() - start, 0)
                continue
            self._count(clock() - start, moved)
            return moved

    def _slice(self, now: float) -> float:
        """Seconds until something is to be reported or done."""
        left = [NOTED_SECONDS - self._quiet % NOTED_SECONDS, self._most - self._quiet]
        left += [end - now for end in (self._asked.end, self._head_end) if end is not None]
        return max(min(left), 0.001)

    def _count(self, seconds: float, moved: int) -> None:
        before, self._quiet = self._quiet, 0.0 if moved else self._quiet + seconds
        waited = self._waited
        if self._begun:  # what a server thinks before its first byte is no speed
            self._waited, self._bytes = self._waited + seconds, self._bytes + moved
        self._begun = self._begun or moved > 0
        if self._head_end is not None and moved:
            self._count_head(moved)
        end = self._asked.end
        if end is not None and self._asked.patience.clock() >= end:
            raise TooSlowError(f"not finished after {self._asked.total:.0f} s")
        if self._quiet >= self._most:
            raise TooSlowError(f"nothing for {self._most:.0f} s")
        if self._quiet // NOTED_SECONDS > before // NOTED_SECONDS:
            self._asked.patience.tell(self._asked.host, f"waiting for {self._asked.host} since {self._quiet:.0f} s")
        slow = f"less than {LEAST_RATE / 1000:.0f} kB/s for {self._waited:.0f} s"
        is_slow = self._bytes < LEAST_RATE * self._waited
        if self._waited >= RATE_SECONDS:
            if is_slow:
                raise TooSlowError(slow)
            self._waited = self._bytes = 0.0
        elif is_slow and self._waited // NOTED_SECONDS > waited // NOTED_SECONDS:
            self._asked.patience.tell(self._asked.host, f"waiting for {self._asked.host}: {slow}")

    def _count_head(self, moved: int) -> None:
        now = self._asked.patience.clock()
        self._head_bytes += moved
        if self._head_end == math.inf:
            self._head_end = now + HEAD_SECONDS
        if self._head_bytes > HEAD_BYTES:
            raise HeadTooLargeError(f"more than {HEAD_BYTES >> 10} kB of headers")
        if self._head_end is not None and now >= self._head_end:
            raise TooSlowError(f"its headers are not there after {HEAD_SECONDS:.0f} s")


class _Timed(io.RawIOBase):
    """The bytes of an answer as they come, held to the limits."""

    def __init__(self, raw: io.RawIOBase, sock: "socket.socket") -> None:
        self._raw, self._sock, self.meter = raw, sock, Meter()
        self._later = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (a buffer; typing has no name for it in 3.11)
        moved = self.meter.wait(lambda: self._sock.recv_into(buffer), self._sock.settimeout)
        if not self._later:
            self._later = True
            self.meter.answered()
        return moved

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._raw.close()


class LimitedResponse(http.client.HTTPResponse):
    """An answer that is read under the limits."""

    def __init__(self, sock: "socket.socket", *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(sock, *arguments, **options)
        timed = _Timed(self.fp.detach(), sock)
        self._meter = timed.meter
        self.fp = io.BufferedReader(timed)

    def begin(self) -> None:
        """Read the headers, of the first answer that is none of "go on". Raises TooSlowError, HeadTooLargeError."""
        self._meter.begin_head()
        super().begin()
        self._meter.end_head()


def send(sock: "socket.socket", data: bytes | bytearray | memoryview) -> None:
    """Send all of it under the limits. Raises TooSlowError, OSError."""
    meter, view = Meter(SILENT_SECONDS), memoryview(data).cast("B")
    while view:
        view = view[meter.wait(lambda view=view: sock.send(view), sock.settimeout) :]  # type: ignore[misc]
