"""Signing without a key where sigstore's services cannot be reached, and where nobody is there to sign."""

import base64
import json
import socket
import time

import pytest

from graphcrate.attest import statement
from graphcrate.errors import IntegrityError, NetworkError, UsageError
from graphcrate.host import keyless, person
from tests.unit.proof_lock import SUBJECT
from tests.unit.test_attest_verify import bundled

STATEMENTS = (statement.encode(statement.signed(SUBJECT)),)
CI = ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "GITHUB_ACTIONS", "GITLAB_CI", "CIRCLECI", "BUILDKITE", "SIGSTORE_ID_TOKEN")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """No CI job, no home, and a proxy that is not there."""
    for name in CI:
        monkeypatch.delenv(name, raising=False)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, nobody)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))


def token():
    """An identity token as a CI job's, of nobody."""
    now = int(time.time())
    claims = {
        "iss": "https://issuer.example",
        "sub": "job",
        "aud": "sigstore",
        "iat": now,
        "nbf": now,
        "exp": now + 600,
    }
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "canary-signature"])


def test_without_an_identity_a_key_file_is_advised():
    with pytest.raises(UsageError, match="no identity to sign with") as caught:
        keyless.sign(STATEMENTS, browser=False)
    assert "id-token: write" in caught.value.next_step


@pytest.mark.parametrize("browser", [False, True])
def test_in_a_ci_job_without_a_way_out_a_person_is_told_so(monkeypatch, browser):
    monkeypatch.setattr("sigstore.oidc.detect_credential", lambda: None if browser else token())
    with pytest.raises(NetworkError, match="sigstore's public services cannot be reached") as caught:
        keyless.sign(STATEMENTS, browser=browser)
    assert "--key cosign.key" in caught.value.next_step
    assert "canary" not in str(caught.value)


def test_a_job_that_may_not_ask_for_a_token_is_told_so(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with pytest.raises(UsageError, match="identity to sign with is refused") as caught:
        keyless.sign(STATEMENTS, browser=False)
    assert "id-token: write" in caught.value.cause


def test_a_bundle_that_was_signed_with_a_key_is_nobodys():
    for data in (bundled(), b"{}", b"no JSON"):
        with pytest.raises(IntegrityError, match="not signed by me@example"):
            keyless.Checker("me@example", "https://issuer.example", offline=True).check(data)


def test_nobody_is_asked_where_there_is_no_terminal():
    assert person.ask_password("password: ") is None
