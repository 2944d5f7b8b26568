"""A server that answers before it has read the body gets no more of it; the next request has its own connection."""

import contextlib
import ssl

import pytest

from patienthttp.client import Client
from patienthttp.errors import HttpError
from tests.loopback import Answers, Loopback
from tests.unit.authority import make_authority

SIZE = 64 << 20
PIECE = bytes(1 << 16)


class Hasty(Answers):
    """Answers 429 at the headers of a PUT and goes on reading, as polite servers do; 200 to a GET."""

    seen: list  #: (client's port, method)

    def do_GET(self):
        self.seen.append((self.client_address[1], self.command))
        self.answer(200 if self.command == "GET" else 429, b"word")

    def do_PUT(self):
        self.do_GET()
        with contextlib.suppress(OSError):
            while self.connection.recv(1 << 16):
                pass
        self.close_connection = True


@pytest.mark.parametrize("tls", [False, True])
def test_request_body_is_not_sent_after_an_early_refusal(tmp_path, tls):
    context, environment, start, seen, sent = None, {}, "http://127.0.0.1", [], []
    if tls:
        authority = make_authority(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.certificate, authority.key)
        environment, start = {"SSL_CERT_FILE": str(authority.bundle)}, "https://localhost"

    def body():
        for _ in range(SIZE // len(PIECE)):
            sent.append(len(PIECE))
            yield PIECE

    client = Client(environment)
    with Loopback().start(Hasty, context, seen=seen) as server:
        url = f"{start}:{server.address.partition(':')[2]}/"
        assert client.send("GET", url).body == b"word"
        with pytest.raises(HttpError) as caught:
            client.send("PUT", url, headers={"Content-Length": str(SIZE)}, body=body)
        assert client.send("GET", url).body == b"word"
        for pool in client._pools.values():
            pool.clear()
    assert caught.value.failure.status == 429
    assert sum(sent) < SIZE / 2
    assert [method for _, method in seen] == ["GET", "PUT", "GET"]
    assert len({port for port, _ in seen}) == 2
