"""The HTTP client against a loopback server with faults."""

import base64
import errno
import pickle
import socket
import ssl
import threading
from types import SimpleNamespace
from unittest import mock

import pytest
import urllib3

from graphcrate.host import pool
from graphcrate.host.connections import HttpError, Reason, proxy_for, redacted
from graphcrate.host.http import Client
from graphcrate.model.errors import HostError
from tests.unit.wheel_server import Fault


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def client(pauses):
    return Client({}, sleep=pauses.append)


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("https://registry.example/b", True),
        ("/b", True),
        ("http://registry.example/b", False),
        ("https://registry.example:8443/b", False),
        ("https://registry.example.evil.net/b", False),
        ("//evil.net/b", False),
    ],
)
def test_credentials_stay_with_scheme_host_and_port(monkeypatch, client, target, kept):
    asked = []

    def send(method, url, headers, body):
        asked.append(headers)
        where = {"Location": target} if len(asked) == 1 else {}
        return urllib3.HTTPResponse(b"", headers=where, status=307 if where else 200, preload_content=False)

    monkeypatch.setattr(client, "_send", send)
    client.request("GET", "https://registry.example/a", headers={"Authorization": "Bearer secret"})
    assert ("Authorization" in asked[1]) is kept


UNTRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")


@pytest.mark.parametrize(
    ("url", "broken", "reason", "tries"),
    [
        ("http://192.0.2.1/", ("getaddrinfo", socket.gaierror(socket.EAI_NONAME, "no such name")), Reason.NAME, 1),
        ("http://192.0.2.1/", ("getaddrinfo", socket.gaierror(socket.EAI_AGAIN, "no")), Reason.NAME_FOR_NOW, 2),
        ("http://192.0.2.1/", ("socket.connect", OSError(errno.ENETUNREACH, "no")), Reason.UNREACHABLE, 2),
        ("http://192.0.2.1/", ("socket.connect", ConnectionRefusedError(errno.ECONNREFUSED, "")), Reason.REFUSED, 2),
        ("http://192.0.2.1/", ("socket.connect", TimeoutError("timed out")), Reason.NO_ANSWER, 2),
        ("https://127.0.0.1:{port}/", ("ssl.SSLContext.wrap_socket", UNTRUSTED), Reason.CERTIFICATE, 1),
        ("https://through.a.dead.proxy/", None, Reason.PROXY, 2),
        ("http://127.0.0.1:{port}/loop", None, Reason.REDIRECTS, 1),
        ("http://127.0.0.1:{port}/slow", None, Reason.STALLED, 5),
        *((url, None, Reason.ADDRESS, 1) for url in ("ftp//nowhere", "http://[::1", "gopher://host/x")),
    ],
)
def test_what_went_wrong_is_named(server, pauses, monkeypatch, url, broken, reason, tries):
    server.redirects["/loop"] = "/loop"
    server.put("/slow", b"slow")
    server.faults["/slow"] = [Fault(seconds=0.5)] * 9
    if url.endswith("/slow"):
        monkeypatch.setattr(pool, "READ_SECONDS", 0.05)
    if broken:
        where = broken[0] if broken[0].startswith("ssl") else f"socket.{broken[0]}"
        monkeypatch.setattr(where, mock.Mock(side_effect=broken[1]))
    client = Client({"https_proxy": "http://127.0.0.1:1", "no_proxy": "192.0.2.1"}, sleep=pauses.append)
    with pytest.raises(HttpError) as caught:
        client.request("GET", url.format(port=server.port))
    assert (caught.value.reason, len(pauses)) == (reason, tries - 1)
    assert caught.value.next_step


@pytest.mark.parametrize("status", [403, 404])
def test_a_refusal_is_final_crosses_process_borders_and_holds_no_secrets(server, client, pauses, status):
    address = f"http://me:hunter2@127.0.0.1:{server.port}/file?token=abc#part"
    server.faults["/file"] = [Fault(status=status)]
    with pytest.raises(HttpError) as caught:
        client.request("GET", address)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.status, copy.what) == (status, caught.value.what)
    assert (copy.constraint, pauses) == (f"HTTP {status} (127.0.0.1)", [])
    assert not [secret for secret in ("hunter2", "abc") if secret in str(caught.value)]
    assert redacted(address) == f"http://127.0.0.1:{server.port}/file"


def test_a_missing_bundle_is_named():
    with pytest.raises(HostError, match="SSL_CERT_FILE=/no/such/bundle"):
        Client({"SSL_CERT_FILE": "/no/such/bundle"}).request("GET", "https://127.0.0.1:1/")


def test_server_faults_are_tried_again_as_long_as_the_server_asks_for(server, client, pauses):
    server.put("/page", b"at last")
    after = Fault(status=429, headers=(("Retry-After", "7"),))
    server.faults["/page"] = [Fault(status=500), after, Fault(cut_after=3)]
    assert client.request("GET", server.url("/page")).body == b"at last"
    assert (len(pauses), pauses[1]) == (3, 7.0)


def test_credentials_of_the_address_or_netrc_are_sent(server, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    server.put("/page", b"ok")
    for user, sent in (("me:pass%40word@", b"me:pass@word"), ("", b"me:secret")):
        Client({"HOME": str(tmp_path)}).request("GET", f"http://{user}127.0.0.1:{server.port}/page")
        assert base64.b64decode(server.asked.pop().headers["authorization"].removeprefix("Basic ")) == sent


def test_requests_go_through_the_proxy(server, pauses):
    server.put("/whl/", b"by proxy")
    client = Client({"http_proxy": f"127.0.0.1:{server.port}"}, sleep=pauses.append)
    assert client.request("GET", "http://download.pytorch.org/whl/").body == b"by proxy"
    assert server.asked[0].headers["host"] == "download.pytorch.org"


@pytest.mark.parametrize(
    ("url", "exempt", "direct"),
    [
        ("https://a.example.org/", "example.org", True),
        ("https://badexample.org/", "example.org", False),
        ("https://a.example.org/", "*", True),
        ("https://10.1.2.3/", "10.0.0.0/8", True),
        ("https://11.1.2.3/", "10.0.0.0/8", False),
        ("http://a.example.org:8080/", "a.example.org:8080", True),
        ("http://a.example.org:8081/", "a.example.org:8080", False),
        ("http://LOCALHOST/", "", True),
        ("https://127.1.2.3:5000/", "", True),
        ("http://[::1]:5000/", "", True),
        ("http://127.example.org/", "", False),
        ("https://a.example.org/", "", False),
    ],
)
def test_no_proxy(url, exempt, direct):
    environment = {"https_proxy": "http://proxy:1", "http_proxy": "http://proxy:1", "no_proxy": exempt}
    assert proxy_for(url, environment) == ("" if direct else "http://proxy:1")


def test_knocking_asks_for_nothing_and_ends_in_time(server, client, monkeypatch):
    assert client.reaches(server.url("/whl/cu118"), 2.0)
    assert not client.reaches("http://127.0.0.1:1/whl", 2.0)
    assert not client.reaches("nonsense", 2.0)
    assert Client({"https_proxy": server.url("")}).reaches("https://download.pytorch.org/whl", 2.0)
    assert server.asked == []
    released = threading.Event()  # a name server that is silent
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: released.wait(30) and SimpleNamespace(close=int))
    assert not client.reaches("https://download.pytorch.org/whl", 0.05)
    released.set()
