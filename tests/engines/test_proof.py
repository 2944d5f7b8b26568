"""Signatures and attestations that cosign takes, and cosign's that we take, on a registry of our own.

Nothing here is in sigstore's public log: a test has no identity, and its network may have no way there.
"""

import base64
import functools
import hashlib
import json
import os
import secrets
import subprocess

import pytest

from dssesign import bundles, keys
from graphcrate.host.context import Context
from graphcrate.host.disk import key_files
from graphcrate.publish import policy, predicates, publication
from tests.conftest import ROOT, program
from tests.unit.publish.test_publishing import checks, folder

__all__ = ("folder",)  # a fixture: an image of two small layers, as a build leaves it
pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry", "cosign", "cosign2", "oras", "setpriv")]

PASSWORD = "a password with spaces"
UNLOGGED = "--insecure-ignore-tlog=true"
OFFLINE = ("--use-signing-config=false", "--tlog-upload=false", "--yes")
TYPES = {"cyclonedx": predicates.BILL, "slsaprovenance1": predicates.PROVENANCE, predicates.SMOKE: predicates.SMOKE}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A pair that signs and a stranger's, made by us."""
    return [key_files.make_pair(tmp_path_factory.mktemp(name), PASSWORD) for name in ("ours", "strangers")]


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

    def run(key=None, tags=()):
        found = publication.publish(policy.PublishRequest(ref=str(folder / "oci"), key=key, tags=tags), ctx, to)
        return found.reference, f"{found.reference.rpartition(':')[0]}@{found.digest}"

    return run


@pytest.fixture
def tool(tmp_path):
    """Runs a client in a home of its own; what it says. `well`: whether it has to end so."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COSIGN_PASSWORD": PASSWORD}

    def run(name, *words, well=True):
        command = [program(name), *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=300)
        assert (done.returncode == 0) == well, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def cosign(tool):
    """cosign 3, which is the one that looks for bundles by itself."""
    assert "--use-signing-config" in tool("cosign", "sign", "--help"), "cosign here is older than 3"
    return functools.partial(tool, "cosign")


@pytest.fixture(params=["cosign", "cosign2"])
def either(request, tool):
    """cosign 3 and 2, one after the other."""
    return functools.partial(tool, request.param)


@pytest.mark.parametrize("before", ["nothing", "unsigned", "another key"])
def test_cosign_verifies_signature_and_attestations(publish, pairs, either, before):
    """Also where unsigned statements, or another signer's, were there before."""
    (private, public), (theirs, their_public) = pairs
    if before != "nothing":
        publish(theirs if before == "another key" else None)
    tagged, image = publish(private)
    said = either("verify", "--key", public, UNLOGGED, image)
    assert "The signatures were verified against the specified public key" in said
    assert image.partition("@")[2] in said
    for kind, predicate in TYPES.items():
        said = either("verify-attestation", "--type", kind, "--key", public, UNLOGGED, image)
        line = next(line for line in said.splitlines() if line.startswith("{"))
        assert json.loads(base64.b64decode(json.loads(line)["payload"]))["predicateType"] == predicate
    either("verify", "--key", their_public, UNLOGGED, image, well=before == "another key")
    publish()  # again, without a key
    for words in (("verify",), ("verify-attestation", "--type", "cyclonedx")):
        either(*words, "--key", public, UNLOGGED, tagged)


def test_cosign_compares_the_names_that_were_signed(publish, pairs, either):
    private, public = pairs[0]
    tagged, image = publish(private, tags=("cu117",))
    short = f"{tagged.rpartition(':')[0]}:cu117"
    for name in (tagged, short):
        either("verify", "--key", public, UNLOGGED, "-a", f"graphcrate.published-as={name}", image)
    either("verify", "--key", public, UNLOGGED, "-a", f"graphcrate.published-as={short}-new", image, well=False)


def test_cosign_verifies_the_signature_beside_a_file(pairs, either, tmp_path):
    private, public = pairs[0]
    path, sha256 = tmp_path / "pyg.sif", hashlib.sha256(b"image").hexdigest()
    path.write_bytes(b"image")
    beside = path.with_name(f"{path.name}{keys.SIGNATURE}")
    beside.write_bytes(
        keys.sign_file(key_files.read_private(private, {key_files.PASSWORD: PASSWORD}, lambda _: None), sha256)
    )
    words = ("verify-blob", "--key", public, "--signature", beside, UNLOGGED, path)
    assert "Verified OK" in either(*words)
    path.write_bytes(b"other")
    either(*words, well=False)


def test_the_log_is_the_one_thing_that_cosign_has_to_be_told(publish, pairs, cosign, tmp_path):
    """docs/decisions/proof.md: without an entry in it, one option is needed, and no trusted root."""
    private, public = pairs[0]
    _, image = publish(private)
    root = tmp_path / "root.json"
    root.write_text('{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}')
    said = cosign("verify", "--key", public, "--trusted-root", root, image, well=False)
    assert "not enough verified log entries" in said
    cosign("verify", "--key", public, UNLOGGED, image)


def test_other_tools_list_what_is_attached_and_what_they_listed_stays(publish, pairs, tool, ctx, tmp_path):
    private, _ = pairs[0]
    _, image = publish()
    (tmp_path / "note.txt").write_text("a note")
    attach = ("attach", "--plain-http", "--disable-path-validation", "--artifact-type", "text/note", image)
    tool("oras", *attach, tmp_path / "note.txt")
    before = [one["digest"] for one in discovered(tool, image)]
    publish(private)
    after = discovered(tool, image)
    ours = [one for one in after if one["artifactType"] == bundles.BUNDLE]
    kinds = {one["annotations"]["dev.sigstore.bundle.predicateType"] for one in ours}
    assert kinds == {*predicates.KINDS, bundles.SIGNATURE}
    assert (len(before), {one["digest"] for one in after} - {one["digest"] for one in ours}) == (1, set(before))
    publish(private)
    assert len(discovered(tool, image)) == len(after)


def discovered(tool, image):
    found = json.loads(tool("oras", "discover", "--plain-http", "--format", "json", image))
    return found.get("referrers") or found["manifests"]


@pytest.mark.parametrize(("copier", "blind"), [("oras", "cosign2"), ("cosign", "")])
def test_a_copy_has_tags_or_referrers_and_either_is_enough(publish, pairs, tool, ctx, registry, copier, blind):
    """`oras cp -r` copies no tags, `cosign copy` no referrers; and a copy is told from what was published."""
    private, public = pairs[0]
    tagged, _ = publish(private)
    copy = f"{registry}/mirror-{secrets.token_hex(4)}/torch:1.0"
    plain = ("--from-plain-http", "--to-plain-http")
    tool(copier, *(("cp", "-r", *plain) if copier == "oras" else ("copy",)), tagged, copy)
    for name in ("cosign", "cosign2"):
        tool(name, "verify", "--key", public, UNLOGGED, copy, well=name != blind)
    found = checks(ctx, copy, key=public)
    assert [name for name, (ok, _) in found.items() if not ok] == ["name"], found
    assert all(ok for ok, _ in checks(ctx, copy, key=public, published_as=tagged).values())


def test_cosign_reads_the_pair_that_we_make_and_we_read_cosigns(pairs, cosign, tmp_path):
    private, public = pairs[0]
    assert public.read_text().strip() in cosign("public-key", "--key", private)
    cosign("generate-key-pair", "--output-key-prefix", tmp_path / "theirs")
    theirs = key_files.read_private(tmp_path / "theirs.key", {"COSIGN_PASSWORD": PASSWORD}, lambda prompt: None)
    assert theirs.public_key() == key_files.read_public(tmp_path / "theirs.pub")


@pytest.mark.parametrize("form", ["--new-bundle-format=false", "--new-bundle-format=true"])
def test_we_verify_what_cosign_signs(publish, ctx, pairs, cosign, tmp_path, form):
    private, public = pairs[0]
    (tmp_path / "predicate.json").write_text('{"suites": []}')
    tagged, image = publish()
    assert not any(ok for name, (ok, _) in checks(ctx, tagged, key=public).items() if name != "name")
    cosign("sign", "--key", private, *OFFLINE, form, image)
    words = ("--type", predicates.SMOKE, "--predicate", tmp_path / "predicate.json", form)
    cosign("attest", "--key", private, *words, *OFFLINE, image)
    well = {name for name, (ok, _) in checks(ctx, tagged, key=public).items() if ok}
    assert well == {"signature", "name", "smoke suites"}
    # ours is added to cosign's
    publish(private)
    assert all(ok for ok, _ in checks(ctx, tagged, key=public).values())
    assert cosign("verify", "--key", public, UNLOGGED, image).count("docker-manifest-digest") >= 1


@pytest.mark.parametrize("signer", ["cosign", "cosign2"])
def test_who_signs_after_us_hides_nothing(publish, ctx, pairs, tool, signer):
    """As docs/signing.md says it for an identity, here with a key: cosign's own default form, of 3 and of 2."""
    (private, public), (theirs, their_public) = pairs
    tagged, image = publish(private)
    tool(signer, "sign", "--key", theirs, *(OFFLINE if signer == "cosign" else OFFLINE[1:]), image)
    for name in ("cosign", "cosign2"):
        tool(name, "verify", "--key", public, UNLOGGED, image)
        tool(name, "verify-attestation", "--type", "cyclonedx", "--key", public, UNLOGGED, image)
    tool(signer, "verify", "--key", their_public, UNLOGGED, image)
    if signer == "cosign2":  # cosign 3 looks at bundles alone where there are any
        tool("cosign", "verify", "--key", their_public, UNLOGGED, image, well=False)
        tool("cosign", "verify", "--new-bundle-format=false", "--key", their_public, UNLOGGED, image)
    assert all(ok for ok, _ in checks(ctx, tagged, key=public).values())


def test_cosign_3_signs_for_those_who_have_cosign_2(publish, pairs, tool):
    """The options of docs/signing.md; one of them alone is an error, which stood there before."""
    (private, _), (theirs, their_public) = pairs
    _, image = publish(private)
    old = "--new-bundle-format=false"
    assert "must provide" in tool("cosign", "sign", old, "--key", theirs, "--yes", image, well=False)
    tool("cosign", "sign", old, "--use-signing-config=false", "--tlog-upload=false", "--yes", "--key", theirs, image)
    tool("cosign2", "verify", "--key", their_public, UNLOGGED, image)
