"""Manifests and blobs from registries, where an upload goes, and who sees a login. A whole push is in test_push."""

import base64
import contextlib
import json
import os
from types import SimpleNamespace

import msgspec
import pytest

from ocilayout import spec
from ocilayout.image import digest_of
from ociregistry import credentials, push, reference, referrers
from ociregistry.credentials import Credential
from ociregistry.errors import AbsentError, DamagedError, Fault, RefusedError
from ociregistry.repository import LARGEST_DOCUMENT, Repository
from ociregistry.upload import RequestSize, UploadBlob, UploadOutcome, upload
from patienthttp.client import Client
from patienthttp.errors import HttpError, NoAnswer
from patienthttp.retry import Retry
from tests.made import refused
from tests.unit import tars
from tests.unit.registry_server import LAYER, Answering, RegistryServer, registry

ALICE = Credential(user="alice", password="wonder:land")


def repository(server, credential=None):
    client = Client({}, sleep=lambda _: None)
    return Repository(client, reference.parse(f"{server.host}/team/base"), lambda: credential)


def layers(document):
    return msgspec.json.decode(document.data, type=spec.Manifest).layers


@pytest.mark.parametrize("docker", [False, True])
def test_manifest_is_read_by_tag_and_by_digest(docker):
    with registry(docker) as (server, pushed):
        client = Client({}, sleep=lambda _: None)
        unasked = Repository(client, reference.parse(f"{server.host}/team/base"), lambda: pytest.fail("a login"))
        by_tag = unasked.manifest("v1")
        assert by_tag == repository(server).manifest(pushed["digest"])
    assert by_tag.digest == pushed["digest"]
    assert by_tag.media_type == (spec.DOCKER_MANIFEST if docker else spec.MANIFEST)
    assert all(not asked.authorization for asked in server.asked)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_request_quotes_the_registrys_error(status):
    message = f"10.1 GiB exceed the quota of wonder:land\x1b, who sent {ALICE.basic}."
    fault = {"errors": [{"code": "DENIED", "message": message}]}
    client = Answering((status, {"WWW-Authenticate": "Basic"}, json.dumps(fault).encode()))
    client.answers *= 2
    with pytest.raises(RefusedError) as caught:
        Repository(client, reference.parse("registry.example/a"), lambda: ALICE).manifest("v1")
    assert caught.value.failure.what.endswith(f"(HTTP {status}: DENIED)")
    assert caught.value.failure.cause.startswith(
        "The registry says: 10.1 GiB exceed the quota of … , who sent Basic …. Else: "
    )
    assert "wonder" not in str(caught.value) + repr(ALICE)


def test_config_of_another_size_than_in_its_manifest_is_refused():
    with registry() as (server, _):
        source = repository(server)
        config = msgspec.json.decode(source.manifest("v1").data, type=spec.Manifest).config
        assert len(source.config(config)) == config.size
        with refused(DamagedError, config.digest, str(config.size + 1)):
            source.config(msgspec.structs.replace(config, size=config.size + 1))


@pytest.mark.parametrize(
    ("password", "credential", "method", "sent"),
    [
        ("", None, "GET", ""),
        ("wonder:land", ALICE, "GET", ALICE.basic),
        ("refresh me", Credential(identity_token="refresh me"), "POST", ""),
    ],
    ids=["anybody", "a password", "an identity token"],
)
def test_login_is_sent_to_the_token_server_only(password, credential, method, sent):
    user = {"user": "alice", "password": password} if password else {}
    with registry(login="bearer", **user) as (server, _):
        repo = repository(server, credential)
        assert repo.manifest("v1") == repo.manifest("v1")
    (token,) = server.seen("/token")
    assert (token.method, token.authorization) == (method, sent)
    assert method == "POST" or ("service=test%2C+%22registry%22&scope=repository%3Ateam%2Fbase%3Apull" in token.path)
    assert ALICE.basic not in [asked.authorization for asked in server.seen("/v2/")]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_identity_token_is_not_sent_on_a_redirect(status):
    login = Credential(identity_token="refresh me")
    with RegistryServer() as evil, registry(login="bearer", user="alice", password="refresh me") as (server, _):
        server.sends_on = (status, f"http://{evil.host}/token")
        with pytest.raises(RefusedError, match=f"refuses access .*HTTP {status}"):
            repository(server, login).manifest("v1")
    assert evil.asked == []


@pytest.mark.parametrize(
    ("host", "scheme"),
    [("localhost:5000", "http"), ("127.0.0.1", "http"), ("[::1]:5000", "http"), ("127.evil.example", "https")],
)
def test_loopback_registry_alone_uses_http(host, scheme):
    found = Repository(Client({}), reference.parse(f"{host}/team/base"))
    assert found.address == f"{scheme}://{host}"


def test_loopback_registry_bypasses_the_proxy():
    with RegistryServer() as proxy, registry(login="basic", user="alice", password="wonder:land") as (server, pushed):
        client = Client({"http_proxy": f"http://{proxy.host}"}, sleep=lambda _: None)
        found = Repository(client, reference.parse(f"{server.host}/team/base"), lambda: ALICE).manifest("v1")
    assert found.digest == pushed["digest"]
    assert proxy.asked == []


def test_login_to_an_http_token_server_is_refused():
    client = Answering((401, {"WWW-Authenticate": 'Bearer realm="http://evil.example/token"'}, b""))
    repo = Repository(client, reference.parse("registry.example/a"), lambda: ALICE)
    with pytest.raises(RefusedError, match=r"login at evil\.example without encryption"):
        repo.manifest("v1")
    assert len(client.asked) == 1


@pytest.mark.parametrize("body", [b"{}", b'{"token":""}', b'{"token":"a\\r\\nX: y"}', b"<html>", b'{"token":1}'])
def test_token_server_with_an_invalid_answer_is_refused(body):
    challenge = {"WWW-Authenticate": 'Bearer realm="https://auth.example/token",service=plain'}
    client = Answering((401, challenge, b""), (200, {}, body))
    with pytest.raises(RefusedError, match=r"auth\.example gave no token"):
        Repository(client, reference.parse("registry.example/a")).manifest("v1")
    assert client.asked[1][1] == "https://auth.example/token?service=plain&scope=repository%3Aa%3Apull"


PAGE = b"\n<!DOCTYPE html>\n<html><head><title>Log in &amp;\n accept \x1b\xff</title></head><body>Welcome"
BLOB = spec.Descriptor(media_type=spec.LAYER_TAR, digest=digest_of(b"layer"), size=5)


@pytest.mark.parametrize("status", [200, 201, 203, 405, 500])
@pytest.mark.parametrize(
    "work",
    [
        lambda repo: repo.manifest("v1"),
        lambda repo: repo.config(BLOB),
        lambda repo: repo.tags(),
        lambda repo: repo.remove("v1"),
        lambda repo: list(referrers.listed(repo, BLOB.digest)),
        lambda repo: push.put_manifest(repo, "v1", b"{}", spec.MANIFEST),
        lambda repo: push.put_manifest(repo, digest_of(b"{}"), b"{}", spec.MANIFEST),
        lambda repo: upload(repo, UploadBlob(descriptor=BLOB, data=b"layer"), lambda _: None, RequestSize(5)),
    ],
)
def test_web_page_in_place_of_an_answer_is_named_with_its_title(status, work):
    client = Answering(*[(status, {"Content-Type": "text/html", "Docker-Content-Digest": ""}, PAGE)] * 9)
    with pytest.raises(RefusedError, match=r"\.example answers .* with a web page, 'Log in & accept .'") as caught:
        work(Repository(client, reference.parse("registry.example/a"), writes=True))
    assert caught.value.failure.kind is Fault.PAGE
    assert caught.value.failure.what.endswith(f"(HTTP {status})")


def test_web_page_for_a_statement_is_named():
    client = Answering(*[(status, {}, PAGE) for status in (201, 405)])
    repo = Repository(client, reference.parse("registry.example/a"), writes=True)
    with pytest.raises(RefusedError, match="with a web page, 'Log in"):
        referrers.put(repo, b"{}")
    assert referrers.put(repo, b"{}").endswith("(HTTP 405: a web page, 'Log in & accept \N{REPLACEMENT CHARACTER}')")


@pytest.mark.parametrize("body", [b"", b"ready", b"[]", b"<svg/>"])
def test_success_without_a_registrys_answer_says_so(body):
    client = Answering((404, {}, b""), *[(200, {"Content-Type": "text/plain"}, body)] * 2)
    with pytest.raises(RefusedError, match=r"an upload to .* with something else than a registry does \(HTTP 200\)"):
        upload(
            Repository(client, reference.parse("registry.example/a"), writes=True),
            UploadBlob(descriptor=BLOB, data=b"layer"),
            lambda _: None,
            RequestSize(5),
        )


def test_page_says_more_where_an_image_or_a_right_is_missing():
    for status, kind in ((404, AbsentError), (403, RefusedError)):
        client = Answering((status, {}, PAGE.replace(b"Welcome", b"")))
        with pytest.raises(kind) as caught:
            Repository(client, reference.parse("registry.example/a")).manifest("v1")
        assert caught.value.failure.cause.startswith("The answer is a web page, 'Log in & accept ")


def test_portal_has_no_blob_whose_length_it_leaves_open():
    client = Answering((200, {"Content-Type": "text/html; charset=utf-8"}, b""))
    assert not Repository(client, reference.parse("registry.example/a")).has(BLOB)


def test_docker_hub_reference_uses_registry_1_and_library():
    client = Answering((200, {"Content-Type": spec.MANIFEST}, b"{}"))
    Repository(client, reference.parse("python:3.11-slim")).manifest("3.11-slim")
    assert client.asked[0][1] == "https://registry-1.docker.io/v2/library/python/manifests/3.11-slim"


@pytest.fixture
def blob(tmp_path):
    """Gets the only layer of the server's image; returns its descriptor, its bytes and how many were counted."""

    def get(server):
        repo, counted = repository(server), []
        (layer,) = layers(repo.manifest("v1"))
        repo.blob(layer, tmp_path / "partial", counted.append)
        return layer, (tmp_path / "partial").read_bytes(), sum(counted)

    return get


def test_truncated_blob_is_resumed_and_checked(blob):
    with registry(faults={"/blobs/": ["truncate", "truncate"]}) as (server, _):
        layer, content, counted = blob(server)
    assert (tars.sha256(content), counted) == (layer.digest, layer.size)
    assert len(server.seen("/blobs/")) == 3


def test_config_with_another_digest_is_refused():
    """A man in the middle could have another program run than was published."""
    with registry() as (server, _):
        repo = repository(server)
        config = msgspec.json.decode(repo.manifest("v1").data, type=spec.Manifest).config
        assert tars.sha256(repo.config(config)) == config.digest
        server.faults["/blobs/"] = ["wrong"]
        with refused(DamagedError, config.digest, "served another blob"):
            repo.config(config)


def test_token_is_not_sent_to_the_blob_storage(blob):
    with RegistryServer() as storage, registry(login="bearer", storage=f"http://{storage.host}") as (server, _):
        storage.blobs = server.blobs
        layer, content, _ = blob(server)
        storage.faults["storage"] = [403]
        with pytest.raises(RefusedError) as caught:  # of a signed address
            repository(server).config(layer)
    assert tars.sha256(content) == layer.digest
    assert {asked.authorization for asked in storage.asked} == {""}
    assert server.seen("/blobs/")[0].authorization.startswith("Bearer ")
    assert "secret" not in str(caught.value)


def test_expired_token_is_renewed(tmp_path):
    with RegistryServer(login="bearer", uses=2) as server:
        server.image("team/base", [LAYER, [tars.file("b")], [tars.file("c")]], "v1")
        repo = repository(server)
        for number, layer in enumerate(layers(repo.manifest("v1"))):
            repo.blob(layer, tmp_path / str(number), lambda _: None)
            assert tars.sha256((tmp_path / str(number)).read_bytes()) == layer.digest
    assert len(server.seen("/token")) > 1


def test_blob_that_is_refused_after_a_new_login_is_an_error(blob):
    """Asked twice and no more: a registry that refuses every token must not keep us for ever, or leave half a file."""
    with registry() as (server, _):
        server.faults["/blobs/"] = [401, 200] * 20  # 200: the question that would renew a login
        with pytest.raises(RefusedError, match=r"refuses access|HTTP 401"):
            blob(server)
        assert [asked.method for asked in server.seen("/blobs/")].count("GET") == 2


@pytest.mark.parametrize("status", [401, 403])
def test_refused_question_for_a_blob_is_an_error_and_not_absence(status):
    """A blob taken for absent is sent, or said not to be in an image."""
    with registry() as (server, _):
        repo = repository(server)
        (layer,) = layers(repo.manifest("v1"))
        assert repo.has(layer)
        assert not repo.has(msgspec.structs.replace(layer, digest=f"sha256:{'0' * 64}"))
        server.faults["/blobs/"] = [status] * 20
        with pytest.raises(RefusedError, match=f"HTTP {status}"):
            repo.has(layer)


def test_blob_digest_with_a_path_is_refused(tmp_path):
    evil = spec.Descriptor(media_type=spec.LAYER_GZIP, digest="sha256:../../x", size=1)
    client = Answering()
    with pytest.raises(DamagedError, match="not a sha256 digest"):
        Repository(client, reference.parse("registry.example/a")).blob(evil, tmp_path / "partial", lambda _: None)
    assert client.asked == []


@pytest.mark.parametrize(
    ("location", "place", "known"),
    [
        ("/v2/up/1", "https://registry.example/v2/up/1?", True),
        ("https://registry.example/v2/up/1?state=a%2Fb", "https://registry.example/v2/up/1?state=a%2Fb&", True),
        ("http://registry.example/v2/up/1", "https://registry.example/v2/up/1?", True),
        ("https://registry.example:443/v2/up/1", "https://registry.example:443/v2/up/1?", True),
        ("https://registry.example:8443/v2/up/1", "https://registry.example:8443/v2/up/1?", False),
        ("https://storage.example/1", "https://storage.example/1?", False),
        ("https://registry.example.evil.net/1", "https://registry.example.evil.net/1?", False),
        ("https://registry.example@evil.net/1", "https://registry.example@evil.net/1?", False),
        ("http://storage.example/1", "sent to storage.example without encryption", None),
    ],
)
def test_upload_follows_location_and_sends_login_to_the_registry_only(location, place, known):
    data = b"a layer"
    blob = UploadBlob(descriptor=spec.Descriptor(media_type="x", digest=digest_of(data), size=len(data)), data=data)
    wants_login = (401, {"WWW-Authenticate": 'Basic realm="x"'}, b"")
    client = Answering(wants_login, (404, {}, b""), (202, {"Location": location}, b""), (201, {}, b""))
    target = Repository(client, reference.parse("registry.example/team/image"), lambda: ALICE, writes=True)
    with contextlib.nullcontext() if known is not None else refused(RefusedError, place):
        assert upload(target, blob, lambda _: None, RequestSize(0))[0] is UploadOutcome.SENT
        method, url, headers = client.asked[-1]
        assert (method, url) == ("PUT", f"{place}digest=sha256%3A{blob.descriptor.digest[7:]}")
        assert headers.get("Authorization") == (ALICE.basic if known else None)


def auth(user, password):
    return base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("auths", "name", "user"),
    [
        ({"registry.example": {"auth": auth("a", "b")}}, "registry.example/x", "a"),
        ({"https://registry.example/v2/": {"auth": auth("a", "b")}}, "registry.example/x", "a"),
        ({"registry.example": {"username": "a", "password": "b"}}, "registry.example/x", "a"),
        ({"https://index.docker.io/v1/": {"auth": auth("a", "b")}}, "python", "a"),
        ({"docker.io": {"auth": auth("a", "b")}}, "python", "a"),
        ({"q.example": {"auth": auth("a", "b")}, "q.example/team": {"auth": auth("c", "d")}}, "q.example/team/x", "c"),
        ({"q.example/team": {"auth": auth("a", "b")}}, "q.example/teams", None),
        ({"q.example": {"auth": auth("a", "b")}}, "q.example:5000/x", None),
        ({"registry.example": {"auth": "???"}}, "registry.example/x", None),
        ({"registry.example": {}}, "registry.example/x", None),
        ({"r.example": {"auth": auth("0000", ""), "identitytoken": "refresh"}}, "r.example/x", ""),
    ],
)
def test_login_is_found_in_docker_config_by_registry(tmp_path, auths, name, user):
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    found = credentials.find(reference.parse(name), {"DOCKER_CONFIG": str(tmp_path)})
    assert (found and found.user) == user


def test_login_files_of_podman_precede_those_of_docker(tmp_path, monkeypatch):
    """Without XDG_RUNTIME_DIR (root, containers, jobs), podman has a folder for each user in /run/containers."""
    monkeypatch.setattr(credentials, "_RUN", tmp_path / "root")
    home, uid = tmp_path / "home", os.getuid()
    places = {
        "podman": "run/containers/auth.json",
        "docker": "home/.docker/config.json",
        "root": f"root/{uid}/auth.json",
    }

    def user(**environment):
        found = credentials.find(reference.parse("r.example/a"), {key: str(one) for key, one in environment.items()})
        return found and found.user

    assert user(HOME=home) is None
    for name, place in places.items():
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(json.dumps({"auths": {"r.example": {"auth": auth(name, "x")}}}))
    assert user(HOME=home, XDG_RUNTIME_DIR=tmp_path / "run") == "podman"
    assert user(HOME=home, XDG_RUNTIME_DIR=tmp_path) == "docker"
    assert user(REGISTRY_AUTH_FILE=tmp_path, HOME=home, XDG_RUNTIME_DIR=tmp_path) == "docker"
    assert user(HOME=home) == user() == "root"


def test_token_of_another_thread_that_expired_is_renewed(monkeypatch):
    client = SimpleNamespace(retry=lambda tries: Retry(lambda _: None))
    repository = Repository(client, reference.parse("registry.example/team/image:1"), lambda: None)
    sent = []

    def send(method, url, *, headers, body, accept, limit):
        sent.append(headers.get("Authorization", ""))
        if len(sent) == 1:  # while this one was under way, another thread got a token that is used up by now
            repository._authorization = {"Authorization": "Bearer theirs"}
        status = 200 if sent[-1] == "Bearer ours" else 401
        return SimpleNamespace(status=status, headers={}, url=url)

    monkeypatch.setattr(repository, "client", SimpleNamespace(send=send))
    monkeypatch.setattr(repository, "_answer", lambda offered: {"Authorization": "Bearer ours"})
    assert repository.once("HEAD", "https://registry.example/v2/team/image/blobs/x").status == 200
    assert sent == ["", "Bearer theirs", "Bearer ours"]


@pytest.mark.parametrize(
    ("faults", "digest", "kind", "message"),
    [
        ([401] * 3, False, RefusedError, "HTTP 401"),
        ([403] * 3, False, RefusedError, "HTTP 403"),
        ([429] * 99, False, RefusedError, "takes no more requests"),
        ([500] * 99, False, HttpError, "500"),
        ([404], False, AbsentError, r"team/base:v1 does not exist"),
        (["wrong"], True, DamagedError, "another manifest"),
    ],
)
def test_persistent_fault_is_an_error_of_its_kind(faults, digest, kind, message):
    with registry(faults={"manifests": faults}) as (server, pushed), pytest.raises(kind, match=message):
        repository(server).manifest(pushed["digest"] if digest else "v1")


def test_oversized_manifest_is_refused():
    with registry() as (server, _):
        server.documents["team/base/manifests/v1"] = (spec.MANIFEST, bytes(LARGEST_DOCUMENT + 1))
        with pytest.raises(HttpError, match="4 MiB") as caught:
            repository(server).manifest("v1")
    assert caught.value.failure.kind is NoAnswer.TOO_LARGE


@pytest.mark.parametrize("login", ["basic", "bearer"])
def test_wrong_login_is_refused_and_said_to_be_there(login):
    with registry(login=login, user="alice", password="wonder:land") as (server, _):
        assert repository(server, ALICE).tags() == ["v1"]
        for wrong in (None, Credential(user="alice", password="no")):
            with pytest.raises(RefusedError) as caught:
                repository(server, wrong).manifest("v1")
            assert caught.value.failure.has_login is bool(wrong)


@pytest.mark.parametrize(
    ("answer", "user"),
    [('{"Username": "a", "Secret": "b"}', "a"), ('{"Username": "<token>", "Secret": "b"}', ""), ("no such", None)],
)
def test_credential_helper_is_asked_about_each_name_of_the_registry(tmp_path, answer, user):
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {"r.example": "vault"}, "credsStore": "other"}))
    asked = []

    def ask(helper, registry):
        asked.append((helper, registry))
        return answer if registry.startswith("https:") else None

    found = credentials.find(reference.parse("r.example/a"), {"DOCKER_CONFIG": str(tmp_path)}, ask)
    assert asked == [("vault", "r.example"), ("vault", "https://r.example")]
    assert (found and found.user) == user
