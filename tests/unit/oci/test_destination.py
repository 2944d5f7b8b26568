"""Logins go to whom they are for: the registry that is sent to, its own token server, and no one else."""

import json
import re

import msgspec
import pytest

from graphcrate.host.net import Client
from graphcrate.model.errors import NetworkError, UsageError
from graphcrate.oci import credentials, reference
from graphcrate.oci.registry import Repository
from ocilayout import spec
from ociregistry.credentials import Credential
from tests.made import refused
from tests.unit.registry_server import RegistryServer

WANTED = reference.parse("registry.example/team/image")
BOTH = {"REGISTRY_USER": "robot", "REGISTRY_TOKEN": "canary-token"}
LOGIN = Credential(user="robot", password="canary-token", given="REGISTRY_USER and REGISTRY_TOKEN")


def repository(server):
    """A server's answer to a client with this login."""
    return Repository(Client({}, sleep=lambda _: None), reference.parse(f"{server.host}/team/base"), lambda: LOGIN)


def test_registry_login_of_the_environment_precedes_docker_config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"registry.example": {"username": "a"}}}))
    files = {"DOCKER_CONFIG": str(tmp_path)}
    assert credentials.for_destination(WANTED, BOTH | files) == LOGIN
    assert credentials.for_destination(WANTED, files).user == "a"
    assert credentials.for_destination(WANTED, {}) is None
    assert credentials.find(WANTED, BOTH) is None  # bases are not pulled with it


@pytest.mark.parametrize("name", BOTH)
def test_registry_user_without_password_is_a_usage_error_without_secrets(name):
    with pytest.raises(UsageError, match=f"{name} is set") as caught:
        credentials.for_destination(WANTED, {name: BOTH[name]})
    assert "canary" not in str(caught.value)


def test_wrong_login_of_the_variables_is_corrected_there_since_podman_login_would_not_count():
    with RegistryServer(login="basic", user="robot", password="another") as server:
        with refused(NetworkError, "The login of REGISTRY_USER and REGISTRY_TOKEN is not enough.") as caught:
            repository(server).manifest("v1")
    assert f"correct REGISTRY_USER and REGISTRY_TOKEN; or unset both, and podman login {server.host}" in str(
        caught.value
    )


def test_credential_repr_hides_secrets():
    login = Credential(user="robot", password="canary-token", identity_token="canary-refresh")
    assert not re.search("canary|Y2FuYXJ5", f"{login!r} {login} {[login]}")


def test_foreign_realm_gets_no_login_without_registry_realms():
    with RegistryServer(login="bearer", realm="https://tokens.example.net/token") as server:
        with refused(NetworkError, "sent to tokens.example.net", "REGISTRY_REALMS=tokens.example.net") as caught:
            repository(server).manifest("v1")
    assert "canary" not in str(caught.value)
    told = credentials.trusted_realms({"REGISTRY_REALMS": "Tokens.example.net, b.example,"})
    assert told == ("tokens.example.net", "b.example")


def test_login_challenge_of_a_blob_storage_is_not_answered(tmp_path):
    """A registry redirects to a storage, which asks for a login: that is no business of ours."""
    with RegistryServer(login="bearer", user="robot", password="canary-token") as evil, RegistryServer() as server:
        evil.realm = f"http://{evil.host}/token"
        server.storage = f"http://{evil.host}/v2/team/base/blobs"
        server.image("team/base", [[]], "v1")
        about = msgspec.json.decode(repository(server).manifest("v1").data, type=spec.Manifest).layers[0]
        with pytest.raises(NetworkError):
            repository(server).config(about)
        with pytest.raises(NetworkError):
            repository(server).blob(about, tmp_path / "partial", lambda _: None)
    assert {asked.authorization for asked in evil.asked} == {""}
    assert evil.seen("/token") == []
