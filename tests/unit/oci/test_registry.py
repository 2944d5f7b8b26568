"""Failures of registries as errors of ours, with what to type; what `ociregistry` does is in its own tests."""

import json
import re

import pytest

from graphcrate.host.net import Client, HttpError
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError
from graphcrate.oci import credentials, reference
from graphcrate.oci.registry import Repository
from ocilayout import spec
from ociregistry.credentials import Credential
from ociregistry.repository import LARGEST_DOCUMENT
from patienthttp.errors import NoAnswer
from tests.made import refused
from tests.unit.registry_server import Answering, registry

ALICE = Credential(user="alice", password="wonder:land")


def repository(server, credential=None):
    client = Client({}, sleep=lambda _: None)
    return Repository(client, reference.parse(f"{server.host}/team/base"), lambda: credential)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_request_quotes_the_registrys_error(status):
    message = f"10.1 GiB exceed the quota of wonder:land\x1b, who sent {ALICE.basic}."
    fault = {"errors": [{"code": "DENIED", "message": message}]}
    client = Answering((status, {"WWW-Authenticate": "Basic"}, json.dumps(fault).encode()))
    client.answers *= 2
    with pytest.raises(NetworkError) as caught:
        Repository(client, reference.parse("registry.example/a"), lambda: ALICE).manifest("v1")
    assert caught.value.what.endswith(f"(HTTP {status}: DENIED)")
    assert caught.value.cause.startswith("The registry says: 10.1 GiB exceed the quota of … , who sent Basic …. Else: ")
    assert "wonder" not in str(caught.value) + repr(ALICE)
    assert caught.value.next_step.startswith("see what the registry says; else ")


@pytest.mark.parametrize(("writes", "advice"), [(False, "name, and"), (True, "name in --to, and")])
@pytest.mark.parametrize("reason", [NoAnswer.NAME, NoAnswer.REFUSED, NoAnswer.UNREACHABLE, NoAnswer.TLS])
def test_unreachable_registry_is_a_network_error_without_mirror_advice(reason, writes, advice):
    client = Answering()
    client.send = lambda *_, **__: (_ for _ in ()).throw(HttpError.of(reason, "https://registry.example/v2/"))
    with pytest.raises(NetworkError) as caught:
        Repository(client, reference.parse("registry.example/a"), writes=writes).manifest("v1")
    assert f"check the registry's {advice}" in caught.value.next_step
    assert "MIRROR" not in str(caught.value)


@pytest.mark.parametrize("reason", [NoAnswer.REFUSED, NoAnswer.UNREACHABLE, NoAnswer.NAME])
@pytest.mark.parametrize("writes", [False, True])
def test_registry_that_goes_down_after_an_answer_is_waited_for(reason, writes):
    client = Answering((404, {}, b""))
    repo = Repository(client, reference.parse("registry.example/a"), writes=writes)
    assert not repo.has(spec.Descriptor(media_type=spec.LAYER_TAR, digest=f"sha256:{'ab' * 32}", size=1))
    client.send = lambda *_, **__: (_ for _ in ()).throw(HttpError.of(reason, "https://registry.example/v2/"))
    with pytest.raises(NetworkError) as caught:
        repo.manifest("v1")
    assert caught.value.next_step.startswith("wait until it is back and run the same command again")


def test_silent_name_server_is_a_network_error_with_getent():
    client = Answering()
    error = HttpError.of(NoAnswer.NAME_SERVER, "https://registry.example/v2/")
    client.send = lambda *_, **__: (_ for _ in ()).throw(error)
    with pytest.raises(NetworkError) as caught:
        Repository(client, reference.parse("registry.example/a")).manifest("v1")
    assert caught.value.next_step.startswith("getent hosts registry.example ")


def test_oversized_manifest_is_refused_without_mirror_advice(monkeypatch):
    with registry() as (server, _):
        server.documents["team/base/manifests/v1"] = (spec.MANIFEST, bytes(LARGEST_DOCUMENT + 1))
        with pytest.raises(HttpError) as caught:
            repository(server).manifest("v1")
    assert caught.value.failure.kind is NoAnswer.TOO_LARGE
    assert "4 MiB" in caught.value.what
    assert "MIRROR" not in caught.value.next_step
    assert server.host in caught.value.next_step


@pytest.mark.parametrize(
    ("faults", "digest", "kind", "message"),
    [
        ([401] * 3, False, NetworkError, r"HTTP 401(.|\n)*podman login 127"),
        ([403] * 3, False, NetworkError, r"HTTP 403(.|\n)*podman login 127"),
        ([429] * 99, False, NetworkError, r"takes no more requests(.|\n)*podman login 127"),
        ([500] * 99, False, NetworkError, "500"),
        ([404], False, ResolutionError, r"team/base:v1 does not exist"),
        (["wrong"], True, IntegrityError, "another manifest"),
    ],
)
def test_persistent_registry_fault_is_explained(faults, digest, kind, message):
    with registry(faults={"manifests": faults}) as (server, pushed), pytest.raises(kind) as caught:
        repository(server).manifest(pushed["digest"] if digest else "v1")
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize("login", ["basic", "bearer"])
def test_wrong_login_is_a_network_error(login):
    with registry(login=login, user="alice", password="wonder:land") as (server, pushed):
        assert repository(server, ALICE).manifest("v1").digest == pushed["digest"]
        for wrong, cause in (
            (None, "There is no login for it here."),
            (Credential(user="alice", password="no"), "The login of this machine is not enough."),
        ):
            with refused(NetworkError, "refuses access", cause):
                repository(server, wrong).manifest("v1")


def test_credential_helper_is_called_if_configured(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {"r.example": "vault"}, "credsStore": "other"}))
    monkeypatch.setattr("graphcrate.host.process.find", lambda program: f"/bin/{program}")

    def output(argv, *, stdin, timeout):
        assert argv == ["/bin/docker-credential-vault", "get"]
        assert stdin == b"r.example"
        return json.dumps({"Username": "a", "Secret": "b"})

    monkeypatch.setattr("graphcrate.host.process.output", output)
    found = credentials.find(reference.parse("r.example/a"), {"DOCKER_CONFIG": str(tmp_path)})
    assert found == Credential(user="a", password="b")
