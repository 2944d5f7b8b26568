"""verify against what others put beside an image, what went amiss there, and signatures of a key or an identity."""

import json

import msgspec
import pytest

from graphcrate import admitting, verifying
from graphcrate.attest import keyfile, provenance, sbom, signing, statement, storage
from graphcrate.errors import IntegrityError, UsageError
from graphcrate.host import keyless
from graphcrate.host.http import Client
from graphcrate.model.proof import Subject
from graphcrate.oci import push, reference, spec
from graphcrate.oci.referrers import Attachment, attach
from tests.unit import tars
from tests.unit.test_publishing import checks, folder, place, publish, registry

__all__ = ("folder", "place", "publish", "registry")  # fixtures
OTHER = f"sha256:{'0' * 64}"
GITHUB = {
    "buildDefinition": {
        "buildType": "https://actions.github.io/buildtypes/workflow/v1",
        "externalParameters": {"workflow": {}},
        "resolvedDependencies": [],
    }
}


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """The pair's private and public file, and the key that signs. One for all: its password is hashed for a second."""
    private, public = keyfile.make_pair(tmp_path_factory.mktemp("key"), "canary")
    return private, public, keyfile.read_private(private, {"COSIGN_PASSWORD": "canary"}, lambda _: None)


def repository(found):
    name = reference.parse(found.reference)
    return push.repository(name, client=Client({}), find_credential=lambda: None)


def subject(digest):
    return Subject(name="torch", tag="x", digest=digest)


def put(found, artifact_type, data, annotations=None):
    attach(
        repository(found), found.digest, artifact_type, [Attachment(media_type=artifact_type, data=data)], annotations
    )


def said(found, digest, kind, predicate, key=None):
    """Attach a statement about `digest` to the image, signed with a key or by nobody."""
    made = statement.make(subject(digest), kind, predicate)
    if key is None:
        put(found, statement.PAYLOAD, statement.encode(made), {storage.IN_TOTO: kind})
    else:
        put(found, signing.BUNDLE, signing.bundle(signing.seal(made, key), key.public.hint), {storage.PREDICATE: kind})


def artifacts(registry, part):
    """Where manifests lie that hold a blob with these bytes, signed or not."""

    def holds(data):
        with_payload = data
        if b"dsseEnvelope" in data:
            with_payload += msgspec.json.decode(data, type=signing.Bundle).dsse_envelope.payload
        return part in with_payload

    found = {path: json.loads(data) for path, (_, data) in registry.documents.items() if "subject" in json.loads(data)}
    return [
        path
        for path, manifest in found.items()
        if any(holds(registry.blobs[layer["digest"]]) for layer in manifest["layers"])
    ]


def forget(registry, part):
    for path in artifacts(registry, part):
        del registry.documents[path]


@pytest.mark.parametrize("api", [True, False])
def test_what_others_attach_is_their_business(place, registry, publish, api):
    """notation 1.0 and older clients name no artifactType; a scanner's report is nothing to be read here."""
    registry.referrers = api
    found = publish()
    target = repository(found)
    about = target.manifest(found.digest)
    config = {"mediaType": "application/vnd.cncf.notary.signature", "digest": tars.sha256(b"{}"), "size": 2}
    theirs = {
        "schemaVersion": 2, "mediaType": spec.MANIFEST, "config": config, "layers": [],
        "subject": {"mediaType": about.media_type, "digest": found.digest, "size": len(about.data)},
    }  # fmt: skip
    data = json.dumps(theirs).encode()
    push.put_manifest(target, tars.sha256(data), data, spec.MANIFEST)
    put(found, "application/sarif+json", b"canary report")
    asked = len(registry.asked)
    assert all(ok for ok, _ in checks(place, found.reference).values())
    assert not [one for one in registry.asked[asked:] if tars.sha256(b"canary report") in one.path]


def test_an_entry_of_the_list_that_leads_nowhere_is_told(place, registry, publish):
    registry.referrers = False
    found = publish()
    forget(registry, b"urn:graphcrate:audit:1")
    told = checks(place, found.reference)
    assert not told["audit"][0]
    assert "the registry lists sha256:" in told["audit"][1]
    assert [ok for ok, _ in told.values()] == [True] * 4 + [False]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: b"[]", "is no manifest"),
        (lambda document: b"[" * 100_000, "is no manifest"),
        (
            lambda document: json.dumps({**document, "subject": {**document["subject"], "digest": OTHER}}).encode(),
            OTHER,
        ),
    ],
)
def test_a_document_in_an_artifacts_place_is_told(place, registry, publish, change, words):
    registry.referrers = False
    found = publish()
    (path,) = artifacts(registry, b"urn:graphcrate:audit:1")
    kind, data = registry.documents.pop(path)
    other = change(json.loads(data))
    name = "team/torch/manifests/"
    registry.documents[name + tars.sha256(other)] = (kind, other)
    listed = name + found.digest.replace(":", "-")
    kind, index = registry.documents[listed]
    index = index.replace(path.rpartition("/")[2].encode(), tars.sha256(other).encode())
    registry.documents[listed] = (kind, index)
    told = checks(place, found.reference)
    assert not told["audit"][0]
    assert words in told["audit"][1]


@pytest.mark.parametrize("with_key", [True, False])
def test_another_builders_provenance_is_none_of_ours(place, registry, publish, key, with_key):
    private, public, signing_key = key
    found = publish(signer=admitting.Signer(key=private) if with_key else admitting.Signer())
    asked = {"key": public} if with_key else {}
    said(found, found.digest, provenance.PREDICATE, GITHUB, signing_key if with_key else None)
    assert all(ok for ok, _ in checks(place, found.reference, **asked).values())
    forget(registry, provenance.BUILD_TYPE.encode())
    told = checks(place, found.reference, rebuild=True, **asked)
    assert told["provenance"] == (False, "nothing of the kind is attached to this image")
    assert told["rebuild"] == (False, "no provenance holds that says what to build from")


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"externalParameters": {"recipe": "torch"}, "resolvedDependencies": [{"digest": {"sha256": "0"}}]},
        {"externalParameters": {"recipe": "torch", "variant": "cpu"}, "resolvedDependencies": []},
        {"externalParameters": {"recipe": "torch", "variant": "cpu"}, "resolvedDependencies": [{"name": "lock"}]},
    ],
)
def test_a_provenance_that_lacks_what_to_build_from(place, registry, publish, definition):
    found = publish()
    forget(registry, provenance.BUILD_TYPE.encode())
    ours = {"buildDefinition": {"buildType": provenance.BUILD_TYPE, **definition}}
    said(found, found.digest, provenance.PREDICATE, ours)
    told = checks(place, found.reference, rebuild=True)
    assert told["provenance"][0]
    assert not told["rebuild"][0]
    assert "does not say what to build from" in told["rebuild"][1]


@pytest.mark.parametrize("with_key", [True, False])
def test_what_is_said_of_another_image_says_nothing_of_this_one(place, registry, publish, key, with_key):
    found = publish()
    forget(registry, b"urn:graphcrate:audit:1")
    said(found, OTHER, "urn:graphcrate:audit:1", {}, key[2] if with_key else None)
    told = checks(place, found.reference)
    assert told["audit"] == (False, f"attached, but about {OTHER}, not about {found.digest}")


@pytest.mark.parametrize(
    ("document", "ok", "words"),
    [
        ({"metadata": {"component": {"hashes": [{"alg": "SHA-256", "content": "0" * 64}]}}}, False, f"about {OTHER}"),
        ({"metadata": {"component": {"name": "torch"}}}, True, "signed by nobody"),
        ([], False, "no bill of materials"),
    ],
)
def test_a_bill_of_another_image(place, registry, publish, document, ok, words):
    found = publish()
    forget(registry, b"CycloneDX")
    put(found, sbom.MEDIA_TYPE, json.dumps(document).encode(), {storage.IN_TOTO: sbom.PREDICATE})
    told = checks(place, found.reference)["bill of materials"]
    assert (told[0], words in told[1]) == (ok, True)


def test_a_signed_report_is_no_signature_of_the_image(place, registry, publish, key):
    private, public, signing_key = key
    found = publish(signer=admitting.Signer(key=private))
    forget(registry, statement.COSIGN.encode())
    assert checks(place, found.reference, key=public)["signature"][0]  # by the older tag
    del registry.documents[f"team/torch/manifests/{storage.signature_tag(found.digest)}"]
    told = checks(place, found.reference, key=public)
    assert told["signature"] == (False, f"{found.digest} is not signed")
    assert told["audit"][0]
    said(found, found.digest, statement.COSIGN, {}, signing_key)
    assert checks(place, found.reference, key=public)["signature"][0]


def test_without_a_key_it_is_said_that_no_signature_was_checked(place, publish, key):
    told = checks(place, publish(signer=admitting.Signer(key=key[0])).reference)
    assert set(told.values()) == {
        (True, "attached and signed, signature not checked: no key was given, and no identity")
    }


ME = {"identity": "me@example.com", "issuer": "https://issuer.example"}


@pytest.fixture
def vouched(monkeypatch):
    """Sigstore's services are not there: whoever signed with a key passes for me@example.com of issuer.example."""

    def check(checker, bundle):
        if vars(checker) != {"_identity": ME["identity"], "_issuer": ME["issuer"], "_offline": False}:
            raise IntegrityError("the bundle is not signed by them")
        sealed = msgspec.json.decode(bundle, type=signing.Bundle).dsse_envelope
        return sealed.payload_type, sealed.payload

    monkeypatch.setattr(keyless.Checker, "check", check)


def test_who_signed_without_a_key_is_checked(place, registry, publish, key, vouched):
    found = publish(signer=admitting.Signer(key=key[0]))
    told = checks(place, found.reference, **ME)
    assert len(told) == 6
    assert all(ok for ok, _ in told.values()), told
    told = checks(place, found.reference, **{**ME, "issuer": "https://elsewhere.example"})
    assert set(told.values()) == {(False, "the bundle is not signed by them")}
    forget(registry, statement.COSIGN.encode())
    assert not checks(place, found.reference, **ME)["signature"][0]


def test_an_identity_that_speaks_of_another_image(place, registry, publish, key, vouched):
    found = publish(signer=admitting.Signer(key=key[0]))
    forget(registry, b"urn:graphcrate:audit:1")
    said(found, OTHER, "urn:graphcrate:audit:1", {}, key[2])
    told = checks(place, found.reference, **ME)["audit"]
    assert told == (False, f"signed by me@example.com, but about {OTHER}, not about {found.digest}")


def test_nobody_signed_is_said_to_who_asks_for_an_identity(place, publish, vouched):
    told = checks(place, publish().reference, **ME)
    assert not any(ok for ok, _ in told.values())
    assert told["audit"][1] == "attached, and signed by nobody"


@pytest.mark.parametrize("fields", [{"identity": "me@example.com"}, {"issuer": "https://issuer.example"}, ME])
def test_half_an_identity_or_two_signers_are_refused(place, key, registry, fields):
    both = {"key": key[1]} if fields is ME else {}
    with pytest.raises(UsageError, match=r"is given, and --\w+ is not\n|of a key or of an identity"):
        verifying.run(verifying.Request(ref=f"{registry.host}/team/torch:1", **fields, **both), place)
    assert registry.asked == []
