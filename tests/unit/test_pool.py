"""A server that answers before it has read the body gets no more of it; the next request has its own connection."""

import contextlib
import socket
import ssl
import threading

import pytest

from graphcrate.host.connections import HttpError
from graphcrate.host.http import Client
from tests.unit.authority import make_authority

SIZE = 64 << 20
PIECE = bytes(1 << 16)


class Hasty:
    """Answers 429 at the headers of a PUT and goes on reading, as polite servers do; 200 to all else."""

    def __init__(self, context=None):
        self.context, self.read, self.connections, self.requests = context, 0, 0, []
        self.current = None

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with contextlib.suppress(OSError):
            self.current.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                if self.context is not None:
                    connection = self.context.wrap_socket(connection, server_side=True)
                with connection:
                    self.current = connection
                    self.answer(connection)
            except OSError:
                continue

    def answer(self, connection):
        while True:
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := connection.recv(1 << 16)):
                    return
                head += piece
            head, _, body = head.partition(b"\r\n\r\n")
            self.requests.append(head.split(b" ")[0])
            status = b"429 Slow" if head.startswith(b"PUT") else b"200 OK"
            connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 4\r\n\r\nword")
            if head.startswith(b"PUT"):
                self.read = len(body)
                while self.read < SIZE and (piece := connection.recv(1 << 16)):
                    self.read += len(piece)


@pytest.mark.parametrize("tls", [False, True])
def test_what_is_refused_at_its_headers_is_not_sent(tmp_path, tls):
    context, environment, start = None, {}, "http://127.0.0.1"
    if tls:
        authority = make_authority(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.certificate, authority.key)
        environment, start = {"SSL_CERT_FILE": str(authority.bundle)}, "https://localhost"
    sent = []

    def body():
        for _ in range(SIZE // len(PIECE)):
            sent.append(len(PIECE))
            yield PIECE

    client = Client(environment)
    with Hasty(context) as server:
        url = f"{start}:{server.listener.getsockname()[1]}/"
        assert client.send("GET", url).body == b"word"
        with pytest.raises(HttpError) as caught:
            client.send("PUT", url, headers={"Content-Length": str(SIZE)}, body=body)
        assert client.send("GET", url).body == b"word"
    assert caught.value.status == 429
    assert sum(sent) < SIZE / 2
    assert server.requests == [b"GET", b"PUT", b"GET"]
    assert server.connections == 2
