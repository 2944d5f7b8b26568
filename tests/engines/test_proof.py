"""Signatures and attestations that cosign takes, and cosign's that we take, on a registry of our own.

Nothing here is in sigstore's public log: a test has no identity, and its network may have no way there.
"""

import base64
import hashlib
import json
import os
import subprocess
from dataclasses import dataclass, field

import msgspec
import pytest
import urllib3

from graphcrate.model.report import Asked
from graphcrate.oci import spec
from graphcrate.publish.attest import keys, provenance, sbom, signing, statement, verify
from graphcrate.publish.attest.statement import Subject
from tests.conftest import program
from tests.unit.proof_lock import LOCK

pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry", "cosign", "setpriv")]

PASSWORD = "a password with spaces"
UNLOGGED = "--insecure-ignore-tlog=true"
TYPES = {"cyclonedx": statement.BILL, "slsaprovenance1": statement.PROVENANCE, statement.SMOKE: statement.SMOKE}


@dataclass
class Repository:
    """A repository on a registry without TLS, by its HTTP interface, with an image that has no layers."""

    address: str
    name: str
    http: urllib3.PoolManager = field(default_factory=urllib3.PoolManager)

    def __post_init__(self):
        config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}})
        layer = {"mediaType": spec.CONFIG, "digest": self.blob(config.encode()), "size": len(config)}
        document = {"schemaVersion": 2, "mediaType": spec.MANIFEST, "config": layer, "layers": [], "annotations": {}}
        document["annotations"]["name"] = self.name
        manifest = json.dumps(document).encode()
        self.digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        self.put("v1", manifest)
        self.image = {"mediaType": spec.MANIFEST, "digest": self.digest, "size": len(manifest)}
        self.subject = Subject(name="pyg", tag="v1", digest=self.digest)

    @property
    def reference(self):
        return f"{self.address}/{self.name}"

    def ask(self, method, path, **more):
        url = path if "://" in path else f"http://{self.address}/v2/{self.name}/{path}"
        return self.http.request(method, url, **more)

    def blob(self, data):
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = self.ask("POST", "blobs/uploads/").headers["Location"]
        url = f"{place}{'&' if '?' in place else '?'}digest={digest}"
        answer = self.ask("PUT", url, body=data, headers={"Content-Type": "application/octet-stream"})
        assert answer.status == 201, answer.data
        return digest

    def put(self, name, manifest, media_type=spec.MANIFEST):
        answer = self.ask("PUT", f"manifests/{name}", body=manifest, headers={"Content-Type": media_type})
        assert answer.status == 201, answer.data

    def get(self, path):
        answer = self.ask("GET", path, headers={"Accept": f"{spec.MANIFEST}, {spec.INDEX}"})
        return answer.data if answer.status == 200 else None

    def push(self, tagged):
        for data in tagged.blobs.values():
            self.blob(data)
        self.put(tagged.tag, tagged.manifest)

    def layers(self, tag):
        layers = msgspec.json.decode(self.get(f"manifests/{tag}"), type=spec.Manifest).layers
        return [(layer, self.get(f"blobs/{layer.digest}")) for layer in layers]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A pair that signs and a stranger's, made by us."""
    folders = [tmp_path_factory.mktemp(name) for name in ("ours", "strangers")]
    return [keys.make_pair(folder, PASSWORD) for folder in folders]


@pytest.fixture(scope="module")
def key(pairs):
    return keys.read_private(pairs[0][0], {"COSIGN_PASSWORD": PASSWORD}, lambda prompt: None)


@pytest.fixture
def repository(registry, request):
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower()).strip("-")
    return Repository(registry, f"proof/{name}")


def publish(repository, key, before=None):
    """Push what `publish` pushes beside an image; the manifests by tag."""
    subject = repository.subject
    bill = sbom.sbom(LOCK, subject)
    built = provenance.provenance(LOCK, Asked(recipe="pyg", variant="11.8"), "embedded", "")
    about = [
        statement.make(subject, statement.BILL, bill),
        statement.make(subject, statement.PROVENANCE, built),
        statement.make(subject, statement.SMOKE, statement.smoke([])),
    ]
    made = list(signing.attached(about, subject.digest, repository.reference, key, before or {}))
    for tagged in made:
        repository.push(tagged)
    return {tagged.tag: tagged.manifest for tagged in made}


@pytest.fixture
def cosign(tmp_path):
    """Runs cosign in a home of its own; gives return code and output."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COSIGN_PASSWORD": PASSWORD}

    def run(*words):
        command = [program("cosign"), *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=300)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("before", ["nothing", "unsigned", "another key"])
def test_cosign_verifies_signature_and_attestations(repository, pairs, key, cosign, before):
    """Also where statements that nobody signed, or another signer's, lay there before."""
    there = {}
    if before != "nothing":
        stranger = keys.read_private(pairs[1][0], {"COSIGN_PASSWORD": PASSWORD}, lambda prompt: None)
        there = publish(repository, stranger if before == "another key" else None)
    publish(repository, key, there)
    image = f"{repository.reference}@{repository.digest}"
    code, said = cosign("verify", "--key", pairs[0][1], UNLOGGED, image)
    assert code == 0, said
    assert "The signatures were verified against the specified public key" in said
    assert repository.digest in said
    for kind, predicate in TYPES.items():
        code, said = cosign("verify-attestation", "--type", kind, "--key", pairs[0][1], UNLOGGED, image)
        assert code == 0, said
        line = next(line for line in said.splitlines() if line.startswith("{"))
        assert json.loads(base64.b64decode(json.loads(line)["payload"]))["predicateType"] == predicate
    code, _ = cosign("verify", "--key", pairs[1][1], UNLOGGED, image)
    assert (code == 0) == (before == "another key")
    publish(repository, None, publish(repository, key))  # again, without a key
    for words in (("verify",), ("verify-attestation", "--type", "cyclonedx")):
        code, said = cosign(*words, "--key", pairs[0][1], UNLOGGED, f"{repository.reference}:v1")
        assert code == 0, said


def test_cosign_reads_the_pair_that_we_make_and_we_read_cosigns(pairs, cosign, tmp_path):
    code, said = cosign("public-key", "--key", pairs[0][0])
    assert code == 0, said
    assert pairs[0][1].read_text().strip() in said
    code, said = cosign("generate-key-pair", "--output-key-prefix", tmp_path / "theirs")
    assert code == 0, said
    theirs = keys.read_private(tmp_path / "theirs.key", {"COSIGN_PASSWORD": PASSWORD}, lambda prompt: None)
    assert theirs.public_key() == keys.read_public(tmp_path / "theirs.pub")


OFFLINE = ("--use-signing-config=false", "--tlog-upload=false", "--yes")


def test_we_verify_what_cosign_signs_under_the_tags(repository, pairs, key, cosign, tmp_path):
    (tmp_path / "predicate.json").write_text('{"suites": []}')
    image, digest = f"{repository.reference}@{repository.digest}", repository.digest
    tags = "--new-bundle-format=false"
    code, said = cosign("sign", "--key", pairs[0][0], *OFFLINE, tags, image)
    assert code == 0, said
    words = ("--type", statement.SMOKE, "--predicate", tmp_path / "predicate.json")
    code, said = cosign("attest", "--key", pairs[0][0], *words, *OFFLINE, tags, image)
    assert code == 0, said
    verdict = verify.signature(digest, repository.layers(signing.signature_tag(digest)), key.public_key())
    assert verdict.is_verified, verdict.message
    layers = repository.layers(signing.attestation_tag(digest))
    ((kind, verdict),) = verify.attestations(digest, layers, key.public_key())
    assert (kind, verdict.is_verified) == (statement.SMOKE, True), verdict.message
    # signing the same again is the same signature but for cosign's chance; ours is added to it
    there = repository.get(f"manifests/{signing.signature_tag(digest)}")
    added = signing.signatures(digest, signing.claim(repository.reference, digest), key, there)
    repository.push(added)
    assert len(json.loads(added.manifest)["layers"]) == 2
    assert cosign("verify", "--key", pairs[0][1], UNLOGGED, image)[0] == 0


def test_a_signature_that_cosign_adds_as_a_bundle_hides_ours_unless_asked(repository, pairs, key, cosign):
    """cosign 3 looks at tags only where it finds no bundle: docs/publish.md says what to type."""
    publish(repository, key)
    image = f"{repository.reference}@{repository.digest}"
    code, said = cosign("sign", "--key", pairs[1][0], *OFFLINE, "--new-bundle-format=true", image)
    assert code == 0, said
    verify_ours = ("verify", "--key", pairs[0][1], UNLOGGED, image)
    assert cosign(*verify_ours)[0] != 0
    code, said = cosign(*verify_ours, "--new-bundle-format=false")
    assert code == 0, said
