"""The HTTP client against a loopback server with faults, and what it downloads."""

import base64
import contextlib
import errno
import hashlib
import pickle
import socket
import ssl
import threading
from types import SimpleNamespace
from unittest import mock

import pytest
import urllib3

from patienthttp import patience
from patienthttp.client import CHUNK, Client
from patienthttp.connections import proxy_for
from patienthttp.errors import BundleError, DifferentFileError, HttpError, NoAnswer, redacted
from tests.made import refused
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
def test_redirect_keeps_credentials_on_the_same_origin_only(monkeypatch, client, target, kept):
    answers = urllib3.HTTPResponse(headers={"Location": target}, status=307), urllib3.HTTPResponse(b"", status=200)
    send = mock.Mock(side_effect=answers)
    monkeypatch.setattr(client, "_send", send)
    secrets = {"Authorization": "Bearer secret", "cookie": "session=secret"}
    client.request("GET", "https://registry.example/a", headers={**secrets, "Accept": "*/*"})
    (_, _, headers, _), _ = send.call_args
    assert headers == {"Accept": "*/*", **(secrets if kept else {})}


UNTRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")


@pytest.mark.parametrize(
    ("url", "broken", "reason", "tries"),
    [
        (
            "http://192.0.2.1/",
            ("getaddrinfo", socket.gaierror(socket.EAI_NONAME, "no such name")),
            NoAnswer.NAME,
            2,
        ),
        (
            "http://192.0.2.1/",
            ("getaddrinfo", socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")),
            NoAnswer.NAME_SERVER,
            2,
        ),
        (
            "http://192.0.2.1/",
            ("getaddrinfo", socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure in name resolution")),
            NoAnswer.NAME_SERVER,
            2,
        ),
        ("http://192.0.2.1/", ("socket.connect", OSError(errno.ENETUNREACH, "no")), NoAnswer.UNREACHABLE, 2),
        (
            "http://192.0.2.1/",
            ("socket.connect", ConnectionRefusedError(errno.ECONNREFUSED, "")),
            NoAnswer.REFUSED,
            2,
        ),
        ("http://192.0.2.1/", ("socket.connect", TimeoutError("timed out")), NoAnswer.NO_ANSWER, 2),
        ("https://127.0.0.1:{port}/", ("ssl.SSLContext.wrap_socket", UNTRUSTED), NoAnswer.CERTIFICATE, 1),
        ("https://through.a.dead.proxy/", None, NoAnswer.NO_PROXY, 2),
        ("http://127.0.0.1:{port}/loop", None, NoAnswer.REDIRECTS, 1),
        ("http://127.0.0.1:{port}/slow", None, NoAnswer.STALLED, 2),
        *((url, None, NoAnswer.ADDRESS, 1) for url in ("ftp//nowhere", "http://[::1", "gopher://host/x")),
    ],
)
def test_http_error_names_its_cause(server, pauses, monkeypatch, url, broken, reason, tries):
    server.redirects["/loop"] = "/loop"
    server.put("/slow", b"slow")
    server.faults["/slow"] = [Fault(seconds=0.5)] * 9
    if url.endswith("/slow"):
        monkeypatch.setattr(patience, "SILENT_SECONDS", 0.05)
    if broken:
        where = broken[0] if broken[0].startswith("ssl") else f"socket.{broken[0]}"
        monkeypatch.setattr(where, mock.Mock(side_effect=broken[1]))
    client = Client({"https_proxy": "http://127.0.0.1:1", "no_proxy": "192.0.2.1"}, sleep=pauses.append)
    with pytest.raises(HttpError) as caught:
        client.request("GET", url.format(port=server.port))
    assert (caught.value.failure.kind, len(pauses)) == (reason, tries - 1)
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("number", "what", "cause"),
    [
        (socket.EAI_NONAME, "name does not resolve", "misspelt"),
        (socket.EAI_AGAIN, "name server does not answer", "resolv.conf"),
    ],
)
def test_silent_name_server_and_unknown_host_have_different_causes(monkeypatch, pauses, number, what, cause):
    monkeypatch.setattr("socket.getaddrinfo", mock.Mock(side_effect=socket.gaierror(number, "no")))
    with refused(HttpError, what, cause, "next:  getent hosts mirror.example  "):
        Client({}, sleep=pauses.append).request("GET", "http://mirror.example/simple/")


def test_http_403_is_not_retried_pickles_and_hides_secrets(server, client, pauses):
    address = f"http://me:hunter2@127.0.0.1:{server.port}/file?token=abc#part"
    server.faults["/file"] = [Fault(status=403)]
    with pytest.raises(HttpError) as caught:
        client.request("GET", address)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.failure.status, copy.what) == (403, caught.value.what)
    assert (copy.brief, pauses) == ("HTTP 403 (127.0.0.1)", [])
    assert not [secret for secret in ("hunter2", "abc") if secret in str(caught.value)]
    assert redacted(address) == f"http://127.0.0.1:{server.port}/file"


def test_missing_ca_bundle_is_a_host_error():
    with pytest.raises(BundleError, match="SSL_CERT_FILE=/no/such/bundle"):
        Client({"SSL_CERT_FILE": "/no/such/bundle"}).request("GET", "https://127.0.0.1:1/")


def test_certificates_are_those_of_the_first_variable_that_names_some():
    """As curl and OpenSSL have it: what is for this program alone comes before what pip and requests take."""
    names = ["SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_DIR"]
    environment = {name: f"/no/such/{name}" for name in reversed(names)}
    for name in names:
        with pytest.raises(BundleError, match=f"{name}=/no/such/{name}"):
            Client(environment).request("GET", "https://127.0.0.1:1/")
        environment[name] = ""


def test_answer_may_have_as_many_bytes_as_its_limit_and_no_more(server, client):
    server.put("/page", b"12345")
    assert client.request("GET", server.url("/page"), limit=5).body == b"12345"
    with pytest.raises(HttpError) as caught:
        client.request("GET", server.url("/page"), limit=4)
    assert (caught.value.failure.kind, len(server.asked)) == (NoAnswer.TOO_LARGE, 2)


def test_server_errors_are_retried_after_retry_after(server, client, pauses):
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


@pytest.mark.parametrize("password", [b"gr\xfcn", b"gr\xc3\xbcn", b"\x80\xff"])
def test_netrc_password_bytes_are_sent_unchanged(server, tmp_path, password):
    (tmp_path / ".netrc").write_bytes(b"machine 127.0.0.1 login me password " + password + b"\n")
    (tmp_path / ".netrc").chmod(0o600)
    server.put("/page", b"ok")
    assert Client({"HOME": str(tmp_path)}).request("GET", server.url("/page")).body == b"ok"
    sent = server.asked.pop().headers["authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"me:" + password


def test_requests_go_through_the_proxy(server, pauses):
    server.put("/whl/", b"by proxy")
    client = Client({"http_proxy": f"127.0.0.1:{server.port}"}, sleep=pauses.append)
    assert client.request("GET", "http://download.pytorch.org/whl/").body == b"by proxy"
    assert server.asked[0].headers["host"] == "download.pytorch.org"


@pytest.mark.parametrize("address", ["ftp://example.org/x", "file://example.org/etc/passwd", "gopher://example.org/"])
def test_other_schemes_are_refused_whatever_a_proxy_would_do(server, pauses, address):
    """A proxy takes any address; a redirect, a list or a lock may name one."""
    client = Client({"all_proxy": server.url(""), "http_proxy": server.url("")}, sleep=pauses.append)
    server.redirects["/moved"] = address
    for url, asked in ((address, []), ("http://example.org/moved", ["/moved"])):
        server.asked.clear()
        with pytest.raises(HttpError) as caught:
            client.request("GET", url)
        assert (caught.value.failure.kind, server.paths()) == (NoAnswer.ADDRESS, asked)


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
def test_proxy_for_obeys_no_proxy(url, exempt, direct):
    environment = {"https_proxy": "http://proxy:1", "http_proxy": "http://proxy:1", "no_proxy": exempt}
    assert proxy_for(url, environment) == ("" if direct else "http://proxy:1")


def test_proxy_of_small_letters_and_of_the_scheme_is_preferred():
    environment = {"ALL_PROXY": "http://last:1", "all_proxy": "third:1"}
    assert proxy_for("https://example.org/", environment) == "http://third:1"
    environment["HTTPS_PROXY"] = "http://second:1"
    assert proxy_for("https://example.org/", environment) == "http://second:1"
    environment["https_proxy"] = "http://first:1"
    assert proxy_for("https://example.org/", environment) == "http://first:1"
    assert proxy_for("http://example.org/", environment) == "http://third:1"


@pytest.mark.parametrize(
    ("proxy", "kind", "said"),
    [
        ("http://me:hunter2@127.0.0.1:1", NoAnswer.NO_PROXY, "the proxy does not answer (http://127.0.0.1:1)"),
        ("socks5h://127.0.0.1:1080", NoAnswer.PROXY_ADDRESS, "none of http or https (socks5h://127.0.0.1:1080)"),
        ("127.0.0.1:port", NoAnswer.PROXY_ADDRESS, "none of http or https (http://127.0.0.1:port)"),
        ("http://", NoAnswer.PROXY_ADDRESS, "none of http or https"),
    ],
)
def test_proxy_that_cannot_be_used_is_named_without_its_password(pauses, proxy, kind, said):
    with pytest.raises(HttpError) as caught:
        Client({"https_proxy": proxy}, sleep=pauses.append).request("GET", "https://index.example/simple/")
    assert caught.value.failure.kind is kind
    assert said in caught.value.brief
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "env | grep -i proxy" in caught.value.next_step


def test_reaches_connects_without_a_request(server, client, monkeypatch):
    assert client.reaches(server.url("/whl/cu118"), 2.0)
    assert not client.reaches("http://127.0.0.1:1/whl", 2.0)
    assert not client.reaches("nonsense", 2.0)
    assert Client({"https_proxy": server.url("")}).reaches("https://download.pytorch.org/whl", 2.0)
    assert server.asked == []
    released = threading.Event()  # a name server that is silent
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: released.wait(30) and SimpleNamespace(close=int))
    assert not client.reaches("https://download.pytorch.org/whl", 0.05)
    released.set()


# Downloads: resumed, checked, and what happens to their parts

CONTENT = bytes(range(256)) * 20_000  # 5 MB
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def download(server, client, tmp_path):
    """Downloads CONTENT over a part that is there; returns its hash, what is there then, and the bytes counted."""
    server.put("/torch.whl", CONTENT)

    def run(there=None, *, size=SIZE, sha256=SHA256, faults=(), **options):
        part, counted = tmp_path / "part", []
        if there is not None:
            part.write_bytes(there)
        server.faults["/torch.whl"] = list(faults)
        options |= {"size": size, "sha256": sha256, "advance": counted.append}
        found = client.download(server.url("/torch.whl"), part, **options)
        return found, part.read_bytes(), sum(counted)

    return run


@pytest.mark.parametrize(
    ("there", "size", "ranges", "asked"),
    [
        (None, SIZE, True, [None]),
        (None, None, True, [None]),
        (CONTENT[:1_234_567], SIZE, True, ["bytes=1234567-"]),
        (CONTENT, SIZE, True, []),
        (CONTENT[:1000], SIZE, False, ["bytes=1000-"]),
        (b"?" * 4096, SIZE, True, ["bytes=4096-", None]),
        (CONTENT + b"more", SIZE, True, [None]),
    ],
    ids=["new", "of unknown size", "resumed", "complete", "without ranges", "a spoilt part", "too long a part"],
)
def test_download_completes_any_partial_file(server, download, there, size, ranges, asked):
    server.ranges = ranges
    assert download(there, size=size) == (SHA256, CONTENT, SIZE)
    assert [one.headers.get("range") for one in server.asked] == asked
    assert {one.headers["accept-encoding"] for one in server.asked} <= {"identity"}, "or the hash is of other bytes"


def test_download_discards_a_wrong_range(server, download):
    """For a file without a promised hash, as on PyG's older pages, nothing else would tell."""
    server.shift = 500
    assert download(size=None, sha256=None, faults=[Fault(cut_after=2_000_000)])[0] == SHA256
    assert [bool(asked.headers.get("range")) for asked in server.asked] == [False, True, False]


def test_download_resumes_after_cut_connections(server, download):
    assert download(faults=[Fault(cut_after=2_000_000) for _ in range(2)]) == (SHA256, CONTENT, SIZE)
    first, second, third = (int(asked.headers.get("range", "bytes=0-")[6:-1]) for asked in server.asked)
    assert first == 0 < second <= 2_000_000 < third


def test_download_with_another_hash_or_size_is_refused_and_removed(download, tmp_path):
    for size, faults, message in (
        (SIZE, [Fault(wrong=True)], r"torch\.whl from 127\.0\.0\.1 has sha256"),
        (SIZE - 1, [], f"instead of {SIZE - 1}"),
        (SIZE + 1, [], f"instead of {SIZE + 1}"),
    ):
        with pytest.raises(DifferentFileError, match=message):
            download(size=size, faults=faults)
        assert not (tmp_path / "part").exists()


@pytest.mark.parametrize("hash_of_it", [SHA256, None])
def test_download_of_unknown_size_ends_where_no_honest_file_is_larger(download, tmp_path, hash_of_it):
    with pytest.raises(DifferentFileError, match=r"instead of at most 1000000"):
        download(size=None, sha256=hash_of_it, most=1_000_000)
    assert not (tmp_path / "part").exists()
    assert download(size=None, sha256=hash_of_it, most=SIZE)[0] == SHA256


def test_download_longer_than_promised_is_cut_off(server, client, tmp_path):
    """No more of it reaches the disk than shows that it is another file, however much a server sends."""
    server.put("/torch.whl", CONTENT)
    counted = []
    with pytest.raises(DifferentFileError):
        client.download(server.url("/torch.whl"), tmp_path / "part", size=1000, sha256=SHA256, advance=counted.append)
    assert sum(count for count in counted if count > 0) <= CHUNK < SIZE
    assert client.request("GET", server.url("/torch.whl")).body == CONTENT, "not the rest of the one before"


@pytest.mark.parametrize(
    ("pieces", "end"),
    [
        ([b"12345", b""], "release_conn"),
        ([b"123456", b""], "close"),
        ([b"12", ConnectionResetError()], "close"),
    ],
    ids=["whole", "too long", "cut"],
)
def test_connection_is_used_again_after_a_whole_body_alone(client, tmp_path, monkeypatch, pieces, end):
    """Bytes that a server sends later would be read as the next answer."""
    answer = mock.Mock(status=200, headers={}, **{"read.side_effect": pieces})
    monkeypatch.setattr(client, "_open", lambda *_: (answer, "https://example.org/a"))
    with contextlib.suppress(DifferentFileError, HttpError):
        client.download(
            "https://example.org/a", tmp_path / "part", size=5, sha256=None, advance=lambda _: None, tries=0
        )
    assert [name for name in ("release_conn", "close") if getattr(answer, name).called] == [end]


@pytest.mark.parametrize("no_head", [403, 405, 501])
def test_client_size_uses_head_or_a_range(server, client, no_head):
    server.put("/a.deb", b"12345")
    assert client.size(server.url("/a.deb")) == 5
    assert [asked.method for asked in server.asked] == ["HEAD"]
    server.faults["/a.deb"] = [Fault(status=no_head)]
    assert client.size(server.url("/a.deb")) == 5
    assert server.asked[-1].headers["range"] == "bytes=0-0"
    server.faults["/a.deb"] = [Fault(status=no_head)]
    server.ranges = False
    with pytest.raises(HttpError) as caught:
        client.size(server.url("/a.deb"))
    assert caught.value.failure.status == 200
