"""How long we wait for a server: the numbers, and what measures the bytes of one connection against them.

Only the time spent waiting for the server counts: a slow disk here, or a thread that has to wait its turn, is not its
fault. What is measured are the bytes of the connection, so headers, pages, files and what is sent are all held to it.
"""

import contextlib
import http.client
import io
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
#: of one page, manifest or other small answer: at 100 kB/s the largest page of the index (30 MB) takes 300 s
ANSWER_TOTAL = 600.0
WORTH = int(LEAST_RATE * RATE_SECONDS)  #: bytes of a try that ends by these limits, to count as progress


class TooSlowError(TimeoutError):
    """The server was given up; the text says by which limit."""


@dataclass
class Patience:
    """Who hears that we wait, and the clock. Safe from many threads."""

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
    """What one thread asks for at the moment."""

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
        if self._asked.end is not None:
            left.append(self._asked.end - now)
        return max(min(left), 0.001)

    def _count(self, seconds: float, moved: int) -> None:
        before, self._quiet = self._quiet, 0.0 if moved else self._quiet + seconds
        waited = self._waited
        if self._begun:  # what a server thinks before its first byte is no speed
            self._waited, self._bytes = self._waited + seconds, self._bytes + moved
        self._begun = self._begun or moved > 0
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


class _Timed(io.RawIOBase):
    """The bytes of an answer as they come, held to the limits."""

    def __init__(self, raw: io.RawIOBase, sock: "socket.socket") -> None:
        self._raw, self._sock, self._meter = raw, sock, Meter()
        self._later = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (a buffer; typing has no name for it in 3.11)
        moved = self._meter.wait(lambda: self._sock.recv_into(buffer), self._sock.settimeout)
        if not self._later:
            self._later = True
            self._meter.answered()
        return moved

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._raw.close()


class LimitedResponse(http.client.HTTPResponse):
    """An answer that is read under the limits."""

    def __init__(self, sock: "socket.socket", *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock))


def send(sock: "socket.socket", data: bytes | bytearray | memoryview) -> None:
    """Send all of it under the limits. Raises TooSlowError, OSError."""
    meter, view = Meter(SILENT_SECONDS), memoryview(data).cast("B")
    while view:
        view = view[meter.wait(lambda view=view: sock.send(view), sock.settimeout) :]  # type: ignore[misc]
