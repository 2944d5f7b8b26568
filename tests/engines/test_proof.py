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

from graphcrate.attest import (
    keyfile,
    provenance,
    reports,
    sbom,
    signing,
    statement,
    storage,
    verify,
)
from graphcrate.host.http import Client
from graphcrate.model.proof import Asked, Outcome, Subject
from graphcrate.oci import spec
from graphcrate.oci.reference import parse
from graphcrate.oci.referrers import Attachment, attach
from graphcrate.oci.registry import Repository as Pushing
from tests.conftest import program
from tests.unit.proof_lock import CREATED, LOCK

pytestmark = [pytest.mark.slow, pytest.mark.engine("docker-registry", "cosign", "setpriv")]

PASSWORD = "a password with spaces"
UNLOGGED = "--insecure-ignore-tlog=true"
TYPES = {"cyclonedx": sbom.PREDICATE, "slsaprovenance1": provenance.PREDICATE, reports.SMOKE: reports.SMOKE}


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

    def attach(self, referrers):
        """As the specification has it for a registry without a list of referrers."""
        entries = []
        for one in referrers:
            kind, notes = one.artifact_type, dict(one.annotations)
            layer = {"mediaType": kind, "digest": self.blob(one.data), "size": len(one.data)}
            empty = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": self.blob(b"{}"), "size": 2}
            document = {"schemaVersion": 2, "mediaType": spec.MANIFEST, "artifactType": kind, "config": empty}
            document |= {"layers": [layer], "subject": self.image, "annotations": notes}
            manifest = json.dumps(document).encode()
            digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
            self.put(digest, manifest)
            entry = {"mediaType": spec.MANIFEST, "digest": digest, "size": len(manifest)}
            entries.append(entry | {"artifactType": kind, "annotations": notes})
        index = {"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": entries}
        self.put(self.digest.replace(":", "-"), json.dumps(index).encode(), spec.INDEX)

    def blobs_of(self, manifest):
        named = json.loads(manifest)["layers"]
        return {layer["digest"]: self.get(f"blobs/{layer['digest']}") for layer in named}

    def bundles(self):
        """Sigstore bundles by the index of referrers, as a client of this registry finds them."""
        index = self.get(f"manifests/{self.digest.replace(':', '-')}")
        for entry in json.loads(index)["manifests"]:
            yield from self.blobs_of(self.get(f"manifests/{entry['digest']}")).values()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A pair that signs and a stranger's, made by us."""
    folders = [tmp_path_factory.mktemp(name) for name in ("ours", "strangers")]
    return [keyfile.make_pair(folder, PASSWORD) for folder in folders]


@pytest.fixture(scope="module")
def key(pairs):
    return keyfile.read_private(pairs[0][0], {"COSIGN_PASSWORD": PASSWORD}, lambda prompt: None)


@pytest.fixture
def repository(registry, request):
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower()).strip("-")
    return Repository(registry, f"proof/{name}")


def attached(repository, key):
    subject = repository.subject
    bill = json.loads(sbom.sbom(LOCK, subject, created=CREATED))
    built = provenance.provenance(LOCK, Asked(recipe="pyg", variant="11.8"), engine="embedded", created=CREATED)
    about = [
        statement.make(subject, sbom.PREDICATE, bill),
        statement.make(subject, provenance.PREDICATE, built),
        statement.make(subject, reports.SMOKE, reports.smoke([])),
    ]
    return storage.signed(about, subject, repository.reference, key, CREATED, {})


def publish_for_older_cosigns(repository, key):
    """Under the tags of cosign 1 and 2 alone."""
    for tagged in attached(repository, key).tagged:
        repository.push(tagged)


def publish_bundles(repository, key):
    """As referrers alone, for cosign 3."""
    repository.attach(attached(repository, key).referrers)


def publish(repository, key):
    """As it is done: both."""
    publish_for_older_cosigns(repository, key)
    publish_bundles(repository, key)


FORMS = {"older": publish_for_older_cosigns, "bundles": publish_bundles, "both": publish}


@pytest.fixture
def cosign(tmp_path):
    """Runs cosign in a home of its own; gives return code and output."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COSIGN_PASSWORD": PASSWORD}

    def run(*words):
        command = [program("cosign"), *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=300)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("form", FORMS)
def test_cosign_verifies_signature_and_attestations(repository, pairs, key, cosign, form):
    FORMS[form](repository, key)
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


@pytest.mark.parametrize("form", FORMS)
def test_cosign_finds_it_by_the_images_tag_too(repository, pairs, key, cosign, form):
    FORMS[form](repository, key)
    code, said = cosign("verify", "--key", pairs[0][1], UNLOGGED, f"{repository.reference}:v1")
    assert code == 0, said


@pytest.mark.parametrize("form", FORMS)
def test_cosign_refuses_another_key_and_what_is_in_no_log(repository, pairs, key, cosign, form):
    FORMS[form](repository, key)
    image = f"{repository.reference}@{repository.digest}"
    assert cosign("verify", "--key", pairs[1][1], UNLOGGED, image)[0] != 0
    assert cosign("verify-attestation", "--type", "cyclonedx", "--key", pairs[1][1], UNLOGGED, image)[0] != 0
    assert cosign("verify-attestation", "--type", "spdx", "--key", pairs[0][1], UNLOGGED, image)[0] != 0
    assert cosign("verify", "--key", pairs[0][1], image)[0] != 0


def test_cosign_refuses_what_is_about_another_image(registry, pairs, key, cosign):
    signed, bare = Repository(registry, "proof/signed"), Repository(registry, "proof/bare")
    simple = signing.sign_simply(bare.reference, signed.digest, key)
    stored = storage.signatures(signed.digest, [simple])
    for data in stored.blobs.values():
        bare.blob(data)
    bare.put(storage.signature_tag(bare.digest), stored.manifest)
    assert cosign("verify", "--key", pairs[0][1], UNLOGGED, f"{bare.reference}@{bare.digest}")[0] != 0
    ours = verify.simple_signature(bare.digest, stored.manifest, stored.blobs, key.public)
    assert ours.outcome is Outcome.OTHER_IMAGE


def test_cosign_refuses_what_was_altered(repository, pairs, key, cosign):
    made = attached(repository, key)

    def alter(data):
        document = json.loads(data)
        said = base64.b64decode(document["dsseEnvelope"]["payload"]).replace(b'"pyg"', b'"glt"')
        document["dsseEnvelope"]["payload"] = base64.b64encode(said).decode()
        return json.dumps(document).encode()

    altered = [msgspec.structs.replace(one, data=alter(one.data)) for one in made.referrers]
    assert all(one.data != other.data for one, other in zip(altered, made.referrers, strict=True))
    repository.attach(altered)
    image = f"{repository.reference}@{repository.digest}"
    assert cosign("verify", "--key", pairs[0][1], UNLOGGED, image)[0] != 0
    for kind in TYPES:
        assert cosign("verify-attestation", "--type", kind, "--key", pairs[0][1], UNLOGGED, image)[0] != 0
    public = keyfile.read_public(pairs[0][1])
    assert {verify.bundle(repository.digest, one.data, public).outcome for one in altered} == {Outcome.ALTERED}


def test_cosign_reads_the_pair_that_we_make_and_we_read_cosigns(pairs, cosign, tmp_path):
    code, said = cosign("public-key", "--key", pairs[0][0])
    assert code == 0, said
    assert pairs[0][1].read_text().strip() in said
    code, said = cosign("generate-key-pair", "--output-key-prefix", tmp_path / "theirs")
    assert code == 0, said
    theirs = keyfile.read_private(tmp_path / "theirs.key", {"COSIGN_PASSWORD": PASSWORD}, lambda prompt: None)
    assert theirs.public.pem == (tmp_path / "theirs.pub").read_bytes()


def test_what_our_own_client_attaches_is_found_by_cosign(repository, pairs, key, cosign):
    name = parse(f"{repository.reference}:v1")
    target = Pushing(Client(os.environ), name, actions="pull,push")
    for one in attached(repository, key).referrers:
        attach(target, repository.digest, one.artifact_type, [Attachment(media_type=one.artifact_type, data=one.data)])
    image = f"{repository.reference}@{repository.digest}"
    for words in (("verify",), *(("verify-attestation", "--type", kind) for kind in TYPES)):
        code, said = cosign(*words, "--key", pairs[0][1], UNLOGGED, image)
        assert code == 0, said


OFFLINE = ("--use-signing-config=false", "--tlog-upload=false", "--yes")


@pytest.mark.parametrize("form", ["older", "bundles"])
def test_we_verify_what_cosign_signs(repository, pairs, key, cosign, tmp_path, form):
    (tmp_path / "predicate.json").write_text('{"suites": []}')
    image = f"{repository.reference}@{repository.digest}"
    bundles = f"--new-bundle-format={'true' if form == 'bundles' else 'false'}"
    code, said = cosign("sign", "--key", pairs[0][0], *OFFLINE, bundles, image)
    assert code == 0, said
    words = ("--type", reports.SMOKE, "--predicate", tmp_path / "predicate.json")
    code, said = cosign("attest", "--key", pairs[0][0], *words, *OFFLINE, bundles, image)
    assert code == 0, said
    public = keyfile.read_public(pairs[0][1])
    if form == "bundles":
        verdicts = [verify.bundle(repository.digest, data, public) for data in repository.bundles()]
        assert all(verdict.is_verified for verdict in verdicts), [verdict.said for verdict in verdicts]
        assert {verdict.statement.predicate_type for verdict in verdicts} == {statement.COSIGN, reports.SMOKE}
        return
    manifest = repository.get(f"manifests/{storage.signature_tag(repository.digest)}")
    verdict = verify.simple_signature(repository.digest, manifest, repository.blobs_of(manifest), public)
    assert verdict.is_verified, verdict.said
    # signing the same again is the same signature but for cosign's chance; ours is added to it
    added = storage.signatures(
        repository.digest, [signing.sign_simply(repository.reference, repository.digest, key)], manifest
    )
    repository.push(added)
    assert len(json.loads(added.manifest)["layers"]) == 2
    assert cosign("verify", "--key", pairs[0][1], UNLOGGED, image)[0] == 0
