"""The base of every stand-in server: HTTP on loopback, answered by threads."""

import dataclasses
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # 32 builders at once: the usual 5 are gone while this machine is busy


class Loopback:
    """Use as a context manager, that `start` gives or whose own `__enter__` calls it."""

    kind = _Server

    def start(self, answers, context=None, **known):
        """Serve with this handler class, to which `known` attributes are added; with an SSL context by TLS."""
        self.server = self.kind(("127.0.0.1", 0), type("Bound", (answers,), known))
        self.server.daemon_threads = True
        if context is not None:
            plain = self.server.socket
            self.server.socket = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.server_address[1]}"


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request as it came in; the names of its headers in small letters."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def authorization(self):
        return self.headers.get("authorization", "")


class Answers(BaseHTTPRequestHandler):
    """The state that the handlers of such servers share."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def asked(self, path):
        return Asked(self.command, path, {name.lower(): value for name, value in self.headers.items()})

    def answer(self, status, body=b"", headers=None, most=None):
        """`most`: hang up after so many bytes of the body."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:most])
            self.close_connection |= most is not None
