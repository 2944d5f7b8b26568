"""Signatures and attestations that cosign takes, and cosign's that we take, on a registry of our own.

Nothing here is in sigstore's public log: a test has no identity, and its network may have no way there.
"""

import base64
import json
import os
import secrets
import subprocess

import pytest

from graphcrate.host.context import Context
from graphcrate.publish import policy
from graphcrate.publish import registry as publishing
from graphcrate.publish.attest import keys, statement
from tests.conftest import ROOT, program
from tests.unit.test_publishing import checks, folder

__all__ = ("folder",)  # a fixture: an image of two small layers, as a build leaves it
pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry", "cosign", "setpriv")]

PASSWORD = "a password with spaces"
UNLOGGED = "--insecure-ignore-tlog=true"
OFFLINE = ("--use-signing-config=false", "--tlog-upload=false", "--yes")
TYPES = {"cyclonedx": statement.BILL, "slsaprovenance1": statement.PROVENANCE, statement.SMOKE: statement.SMOKE}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A pair that signs and a stranger's, made by us."""
    return [keys.make_pair(tmp_path_factory.mktemp(name), PASSWORD) for name in ("ours", "strangers")]


@pytest.fixture
def ctx(tmp_path):
    environment = {"GRAPHCRATE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "COSIGN_PASSWORD": PASSWORD}
    made = Context(root=ROOT, environment=environment)
    yield made
    made.cache.close()


@pytest.fixture
def publish(ctx, registry, folder):
    """Publishes the image to a repository of the test's own, signed with a key or not: by tag and by digest."""
    to = f"{registry}/proof-{secrets.token_hex(4)}"

    def run(key=None):
        found = publishing.publish(policy.Request(ref=str(folder / "oci"), key=key), ctx, to)
        return found.reference, f"{found.reference.rpartition(':')[0]}@{found.digest}"

    return run


@pytest.fixture
def cosign(tmp_path):
    """Runs cosign in a home of its own; what it says. `well`: whether it has to end so."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COSIGN_PASSWORD": PASSWORD}

    def run(*words, well=True):
        command = [program("cosign"), *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=300)
        assert (done.returncode == 0) == well, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize("before", ["nothing", "unsigned", "another key"])
def test_cosign_verifies_signature_and_attestations(publish, pairs, cosign, before):
    """Also where statements that nobody signed, or another signer's, lay there before."""
    (private, public), (theirs, their_public) = pairs
    if before != "nothing":
        publish(theirs if before == "another key" else None)
    tagged, image = publish(private)
    said = cosign("verify", "--key", public, UNLOGGED, image)
    assert "The signatures were verified against the specified public key" in said
    assert image.partition("@")[2] in said
    for kind, predicate in TYPES.items():
        said = cosign("verify-attestation", "--type", kind, "--key", public, UNLOGGED, image)
        line = next(line for line in said.splitlines() if line.startswith("{"))
        assert json.loads(base64.b64decode(json.loads(line)["payload"]))["predicateType"] == predicate
    cosign("verify", "--key", their_public, UNLOGGED, image, well=before == "another key")
    publish()  # again, without a key
    for words in (("verify",), ("verify-attestation", "--type", "cyclonedx")):
        cosign(*words, "--key", public, UNLOGGED, tagged)


def test_cosign_reads_the_pair_that_we_make_and_we_read_cosigns(pairs, cosign, tmp_path):
    private, public = pairs[0]
    assert public.read_text().strip() in cosign("public-key", "--key", private)
    cosign("generate-key-pair", "--output-key-prefix", tmp_path / "theirs")
    theirs = keys.read_private(tmp_path / "theirs.key", {"COSIGN_PASSWORD": PASSWORD}, lambda prompt: None)
    assert theirs.public_key() == keys.read_public(tmp_path / "theirs.pub")


def test_we_verify_what_cosign_signs_under_the_tags(publish, ctx, pairs, cosign, tmp_path):
    private, public = pairs[0]
    (tmp_path / "predicate.json").write_text('{"suites": []}')
    tagged, image = publish()
    assert not any(ok for ok, _ in checks(ctx, tagged, key=public).values())
    cosign("sign", "--key", private, *OFFLINE, "--new-bundle-format=false", image)
    words = ("--type", statement.SMOKE, "--predicate", tmp_path / "predicate.json", "--new-bundle-format=false")
    cosign("attest", "--key", private, *words, *OFFLINE, image)
    assert {name for name, (ok, _) in checks(ctx, tagged, key=public).items() if ok} == {"signature", "smoke suites"}
    # ours is added to cosign's
    publish(private)
    assert all(ok for ok, _ in checks(ctx, tagged, key=public).values())
    assert cosign("verify", "--key", public, UNLOGGED, image).count("docker-manifest-digest") == 2


def test_a_signature_that_cosign_adds_as_a_bundle_hides_ours_unless_asked(publish, pairs, cosign):
    """cosign 3 looks at tags only where it finds no bundle: docs/publish.md says what to type."""
    (private, public), (theirs, _) = pairs
    _, image = publish(private)
    cosign("sign", "--key", theirs, *OFFLINE, "--new-bundle-format=true", image)
    verify_ours = ("verify", "--key", public, UNLOGGED, image)
    cosign(*verify_ours, well=False)
    cosign(*verify_ours, "--new-bundle-format=false")
