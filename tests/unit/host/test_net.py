"""Failures of the HTTP library as errors of ours: their exit codes, and the settings that their next steps name."""

import hashlib
import pickle
import socket
from unittest import mock

import pytest

from graphcrate.host.disk.os_errors import MachineError
from graphcrate.host.net import Client, HttpError
from graphcrate.model.errors import IntegrityError, NetworkError
from patienthttp.client import Client as Plain
from patienthttp.errors import NoAnswer
from tests.made import refused
from tests.unit.wheel_server import Fault

ADDRESS = "https://mirror.example/simple/"


@pytest.fixture
def client():
    return Client({}, sleep=lambda _: None)


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        (NoAnswer.NAME, "getent hosts mirror.example    asks the name servers of this machine; or name a mirror: "),
        (NoAnswer.STATUS, "check the network of this machine, or name a mirror: "),
        (NoAnswer.FOREIGN, "open the address in a browser and log in there, or name a mirror: "),
    ],
)
def test_failure_of_a_server_names_a_mirror(reason, step):
    assert HttpError.of(reason, ADDRESS).next_step.startswith(step)
    assert "mirror" in HttpError.of(reason, ADDRESS).next_step.removeprefix(step).lower()


@pytest.mark.parametrize("reason", [NoAnswer.NAME_SERVER, NoAnswer.CERTIFICATE, NoAnswer.PROXY])
def test_failure_of_this_machine_names_no_mirror(reason):
    step = HttpError.of(reason, ADDRESS).next_step
    assert step
    assert "name a mirror" not in step


def test_failed_requests_are_network_errors_with_all_that_is_known(server, client):
    server.faults["/file"] = [Fault(status=403)] * 2
    for ask in (client.request, client.send):
        with pytest.raises(NetworkError, match="403") as caught:
            ask("GET", server.url("/file"))
        assert type(caught.value) is HttpError
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert (error.failure.status, error.failure.host) == (403, "127.0.0.1")
            assert (error.brief, error.why) == ("HTTP 403 (127.0.0.1)", "HTTP 403")
            assert error.exit_code == NetworkError.exit_code
            assert "name a mirror" in error.next_step


def test_failed_download_and_size_are_network_errors(server, client, tmp_path):
    with pytest.raises(NetworkError, match="404"):
        client.download(server.url("/no"), tmp_path / "no", size=1, sha256="0" * 64, advance=lambda _: None)
    with pytest.raises(NetworkError, match="404"):
        client.size(server.url("/no"))


def test_retries_end_as_a_network_error(client, monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", mock.Mock(side_effect=socket.gaierror(socket.EAI_AGAIN, "no")))
    with refused(NetworkError, "name server does not answer", "getent hosts mirror.example") as caught:
        client.request("GET", ADDRESS)
    assert caught.value.is_final


def test_another_file_is_an_integrity_error_that_names_other_sources(server, client, tmp_path):
    server.put("/torch.whl", b"other")
    with refused(IntegrityError, "torch.whl from 127.0.0.1 has sha256 ", "sjtu", "pypi"):
        client.download(
            server.url("/torch.whl"),
            tmp_path / "part",
            size=5,
            sha256=hashlib.sha256(b"torch").hexdigest(),
            advance=lambda _: None,
        )


def test_unreadable_certificates_are_an_error_of_the_machine(tmp_path):
    with refused(MachineError, "SSL_CERT_FILE=", "PEM"):
        Client({"SSL_CERT_FILE": str(tmp_path / "none.pem")}).send("GET", "https://127.0.0.1:1/")


@pytest.mark.parametrize(("kind", "name"), [(Client, "graphcrate"), (Plain, "patienthttp")])
def test_client_says_who_it_is(monkeypatch, kind, name):
    client, pool = kind({}), mock.Mock()
    monkeypatch.setattr(client, "_pool", lambda _: pool)
    pool.request.return_value = mock.Mock(status=200, headers={}, read=lambda _: b"")
    client.send("GET", ADDRESS)
    assert pool.request.call_args.kwargs["headers"]["User-Agent"] == name
