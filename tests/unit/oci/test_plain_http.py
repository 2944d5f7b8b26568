"""Registries without TLS that are not on this machine: never by themselves, on request, and without a login."""

import contextlib
import socket
import ssl
import threading

import pytest

from graphcrate.host.net import Client
from graphcrate.model.errors import NetworkError
from graphcrate.oci import credentials, reference
from graphcrate.oci.registry import Repository
from ociregistry import realms, session
from ociregistry.credentials import Credential
from tests.made import refused
from tests.unit import tars
from tests.unit.authority import make_authority
from tests.unit.registry_server import RegistryServer

ALICE = Credential(user="alice", password="wonder:land")
LAYER = [tars.file("a", b"a")]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """As if the stand-in registries on loopback were another machine's."""
    for module in (session, realms):
        monkeypatch.setattr(module, "is_loopback", lambda _: False)


def repository(server, *, plain=True, trusted=()):
    client, name = Client({}, sleep=lambda _: None), reference.parse(f"{server.host}/team/base")
    return Repository(client, name, lambda: ALICE, plain_http=plain, trusted_realms=trusted)


def test_registry_without_tls_is_refused_without_the_plain_http_option():
    with RegistryServer() as server:
        server.image("team/base", [LAYER], "v1")
        with refused(
            NetworkError, f"{server.host} answers without TLS", "plain http", "--plain-http", "Nothing was sent"
        ):
            repository(server, plain=False).manifest("v1")
        assert server.asked == []
        assert repository(server).manifest("v1").digest


@pytest.mark.parametrize("login", ["basic", "bearer"])
def test_login_over_plain_http_is_not_sent_without_registry_realms(login):
    with RegistryServer(login=login, user="alice", password="wonder:land") as server:
        server.image("team/base", [LAYER], "v1")
        with refused(NetworkError, "asks for a login", "None was sent", "REGISTRY_REALMS=127.0.0.1"):
            repository(server).manifest("v1")
        assert not [asked for asked in server.asked if asked.authorization.startswith("Basic")]
        assert repository(server, trusted=("127.0.0.1",)).manifest("v1").digest
        assert [asked for asked in server.asked if asked.authorization == ALICE.basic]


def test_anonymous_token_over_plain_http_is_taken():
    with RegistryServer(login="bearer") as server:
        server.image("team/base", [LAYER], "v1")
        assert repository(server).manifest("v1").digest
        assert not [asked for asked in server.asked if asked.authorization.startswith("Basic")]


@pytest.mark.parametrize(
    "words",
    [
        b"Client sent an HTTP request to an HTTPS server.\n",
        b"<center>The plain HTTP request was sent to HTTPS port</center>",
        b"You're speaking plain HTTP to an SSL-enabled server port.",
    ],
)
def test_plain_http_to_a_tls_registry_is_an_error(words):
    def answer(handler, *_):
        handler.answer(400, words)
        return True

    with RegistryServer(moods=[answer]) as server:
        with refused(NetworkError, "speaks TLS", "without --plain-http"):
            repository(server).manifest("v1")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("", False),
        ("*", True),
        ("10.0.0.5:5000", True),
        ("lab, 10.0.0.5 ", True),
        ("10.0.0.5:5001", False),
        ("10.0.0.50", False),
    ],
)
def test_registry_plain_http_lists_its_hosts(value, plain):
    assert credentials.is_plain("10.0.0.5:5000", {"REGISTRY_PLAIN_HTTP": value}) is plain


def test_plain_http_is_an_option_of_each_registry_command(typed, monkeypatch):
    with RegistryServer() as server:
        server.image("team/base", [LAYER], "v1")
        image = f"{server.host}/team/base:v1"
        for words in (["check", image], ["audit", image], ["diff", image, image], ["verify", image]):
            assert "answers without TLS" in typed(*words)[2], words
            assert "without TLS" not in typed(*words, "--plain-http")[2], words
        assert server.asked


@pytest.fixture
def self_signed(tmp_path):
    """The address of a server that speaks TLS with an untrusted certificate, and cuts all else."""
    files = make_authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secure:
                    asked.append(secure.recv(1 << 16))

    asked, thread = [], threading.Thread(target=serve)
    thread.start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()
    assert not any(asked), "nothing was sent to it"


@pytest.mark.parametrize(("is_here", "step"), [(True, "by this machine's host name"), (False, "without --plain-http")])
def test_tls_registry_that_cuts_what_is_plain_is_an_error_after_one_try(self_signed, monkeypatch, is_here, step):
    monkeypatch.setattr(session, "is_loopback", lambda _: is_here)
    pauses = []
    base = Repository(Client({}, sleep=pauses.append), reference.parse(f"{self_signed}/team/base"), plain_http=True)
    with refused(NetworkError, "speaks TLS, and was asked without; its certificate is not trusted", step):
        base.manifest("v1")
    assert pauses == []


def test_registry_with_an_untrusted_certificate_is_an_error_after_one_try(self_signed):
    pauses = []
    base = Repository(Client({}, sleep=pauses.append), reference.parse(f"{self_signed}/team/base"))
    with refused(NetworkError, "certificate is not trusted", "SSL_CERT_FILE="):
        base.manifest("v1")
    assert pauses == []
