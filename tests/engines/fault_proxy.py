"""Between a client and a real registry: an HTTP server on loopback that fails as registries and their proxies do.

It takes each body whole before it passes it on, as nginx does by default. Which request fails is decided by a
function of what is asked and how often it was asked before, so one seed gives the same faults in any order of threads.
"""

import collections
import contextlib
import dataclasses
import hashlib
import http.client
import re
import socket
import struct
import threading
import typing
import urllib.parse
from http.server import ThreadingHTTPServer

from tests.loopback import Answers, Loopback

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/uploads/)\d+")
_RESET = struct.pack("ii", 1, 0)  #: SO_LINGER: close with RST
_PIECE = 1 << 16
HOP = ("connection", "transfer-encoding", "keep-alive")
#: Faults that the registry behind the proxy does not notice.
UNNOTICED = ("429", "429 after", "503", "500 late", "reset")
#: Faults of answers with a body: it breaks off, or a bit of it is another.
BROKEN = ("short", "flipped")
#: Faults after which it has more than its client knows of: the answer is lost, or a body breaks off.
NOTICED = ("lost", "cut")


class Seen(typing.NamedTuple):
    """A request as it came in. `times`: how often it was asked before."""

    method: str
    path: str
    times: int


def seeded(seed, share=0.2):
    """Let this share of requests fail, each kind that the registry bears as often as the others.

    Debian's docker-registry 2.8 forgets an upload that got a chunk without its client knowing.
    """

    def decide(seen):
        key = f"{seed} {seen.method} {_UUID.sub('', urllib.parse.urlsplit(seen.path).path)} {seen.times}"
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
        choice = UNNOTICED if seen.method == "PATCH" else UNNOTICED + NOTICED
        return choice[int(number / share * len(choice))] if number < share else ""

    return decide


def first(fault, method, part="", times=1):
    """Let the first requests of this method fail that have `part` in their path."""
    left = [fault] * times

    def decide(seen):  # the proxy asks once at a time
        return left.pop() if left and method == seen.method and part in seen.path else ""

    return decide


@dataclasses.dataclass
class FaultProxy(Loopback):
    """Use as a context manager; `address` is what the client is told. `decide` names the fault of a request."""

    upstream: str
    decide: object = lambda seen: ""
    seen: list[Seen] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    received: int = 0  # bytes of bodies that reached us, those of failed requests too

    def __enter__(self):
        self.counts, self.lock = collections.Counter(), threading.Lock()
        self.kind = _Server
        return self.start(_Between, proxy=self)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def server_bind(self):
        # What is in flight when we answer early is then as little as on a real line.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        super().server_bind()

    def handle_error(self, request, client_address):
        """Clients that go away are what this is about."""


class _Between(Answers):
    timeout = 60
    proxy: FaultProxy

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ConnectionError, http.client.HTTPException, TimeoutError):
            self.close_connection = True  # either side went away: so does the other

    def do_GET(self):
        proxy, length = self.proxy, int(self.headers.get("Content-Length") or 0)
        key = (self.command, _UUID.sub("", urllib.parse.urlsplit(self.path).path))
        with proxy.lock:
            seen = Seen(self.command, self.path, proxy.counts[key])
            proxy.counts[key] += 1
            proxy.seen.append(seen)
            fault = proxy.decide(seen)
            proxy.faults += [fault] * bool(fault)
        if fault in ("429", "429 after", "503"):
            self.answer(int(fault[:3]), headers={"Retry-After": "1"} if "after" in fault else {})
            return self.linger(length)
        if fault in ("reset", "cut"):
            part = self.take(length // 2)
            if fault == "cut":
                self.pass_part(part, length)
            return self.reset()
        body = self.take(length)
        if fault == "500 late":
            return self.answer(500)
        status, headers, content = self.pass_on(body)
        if fault == "lost":
            return self.reset()
        if fault == "flipped":
            content = content[:-1] + bytes([content[-1] ^ 1])
        return self.answer(status, content, headers, len(content) // 2 if fault == "short" else None)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def take(self, length):
        body = bytearray()
        while len(body) < length and (piece := self.rfile.read1(min(_PIECE, length - len(body)))):
            body += piece
            with self.proxy.lock:
                self.proxy.received += len(piece)
        if len(body) < length:
            raise ConnectionError("the client went away")
        return bytes(body)

    def pass_on(self, body):
        """The registry's answer to this request: (status, headers, content)."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
        with contextlib.closing(connection):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has answered before it read all
                connection.request(self.command, self.path, body=body or None, headers=headers)
            answer = connection.getresponse()
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in (*HOP, "date")}
            return answer.status, kept, answer.read()

    def pass_part(self, part, length):
        """Let the registry see a body break off."""
        host, _, port = self.proxy.upstream.partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            headers = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            connection.sendall(f"{self.command} {self.path} HTTP/1.1\r\n{headers}\r\n".encode() + part)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5)
            with contextlib.suppress(OSError):
                while connection.recv(_PIECE):
                    pass

    def linger(self, length):
        """Read on until the client has understood, as polite servers do."""
        self.close_connection = True
        with contextlib.suppress(ConnectionError, OSError):
            self.take(length)

    def reset(self):
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.rfile.close()  # it holds the socket, too
        self.connection.close()


class _Tunnel(Answers):
    target: str

    def do_CONNECT(self):
        host, _, port = self.target.partition(":")
        with socket.create_connection((host, int(port))) as server:
            self.send_response_only(200)
            self.end_headers()
            back = threading.Thread(target=carry, args=(server.recv, self.connection))
            back.start()
            carry(self.rfile.read1, server)
            back.join()
        self.close_connection = True


def carry(receive, sink):
    """Pass on what comes until either end closes."""
    with contextlib.suppress(OSError):
        while piece := receive(_PIECE):
            sink.sendall(piece)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def tunnel(target):
    """The address of an HTTP proxy that takes a CONNECT to any name to `target` (host:port)."""
    proxy = Loopback().start(_Tunnel, target=target)
    try:
        yield f"http://{proxy.address}"
    finally:
        proxy.__exit__()
