"""Signatures and statements under cosign's tags, and each way in which they can be wrong."""

import base64
import hashlib
import json

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from dssesign import bundles, keys, signing, statement, verify
from dssesign.errors import UNREADABLE
from dssesign.verify import SignatureStatus
from ocilayout import spec
from ocilayout.image import digest_of

KEY = ec.derive_private_key(0xC0FFEE, ec.SECP256R1())
STRANGER = ec.derive_private_key(0xBAD, ec.SECP256R1())
PUBLIC = KEY.public_key()
DIGEST = "sha256:" + hashlib.sha256(b"the image").hexdigest()
REPOSITORY = "registry.example/team/pyg"
OTHER = "sha256:" + "0" * 64
SMOKE = "urn:example:smoke:1"
NOTE = "example.published-as"  #: whose value is a name
ABOUT = statement.make("pyg", DIGEST, SMOKE, {"suites": []})
TEXT = statement.encode(ABOUT)
NAME = f"{REPOSITORY}:1.0"
CLAIM = signing.claim(NAME, DIGEST, {NOTE: NAME})
SIGNED = signing.signatures(DIGEST, [CLAIM], KEY)
MALFORMED = SignatureStatus.MALFORMED


def stored(tagged):
    return msgspec.json.decode(tagged.manifest, type=spec.Manifest).layers


def layers(tagged, **blobs):
    return [(layer, {**tagged.blobs, **blobs}[layer.digest]) for layer in stored(tagged)]


def judged(found, digest=DIGEST, key=PUBLIC):
    return verify.best(digest, verify.signatures(digest, found, key, NOTE))


def outcome(stored, digest=DIGEST, key=KEY, **blobs):
    return judged(layers(stored, **blobs), digest, key.public_key()).outcome


def edited(change, stored=SIGNED):
    """With another manifest."""
    document = json.loads(stored.manifest)
    change(document)
    return msgspec.structs.replace(stored, manifest=json.dumps(document).encode())


def test_signature_bytes_equal_those_of_cosign():
    """Payload, configuration and manifest as cosign 3.1.1 wrote them for this name, annotation and digest."""
    manifest = json.loads(SIGNED.manifest)
    (layer,), config = manifest["layers"], manifest["config"]
    payload = SIGNED.blobs[layer["digest"]]
    assert payload == (
        b'{"critical":{"identity":{"docker-reference":"registry.example/team/pyg:1.0"},'
        b'"image":{"docker-manifest-digest":"%b"},"type":"cosign container image signature"},'
        b'"optional":{"example.published-as":"registry.example/team/pyg:1.0"}}' % DIGEST.encode()
    )
    assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
    assert keys.fits(PUBLIC, base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"]), payload)
    assert SIGNED.tag == f"sha256-{DIGEST[7:]}.sig"
    assert json.loads(SIGNED.blobs[config["digest"]])["rootfs"]["diff_ids"] == [layer["digest"]]
    assert config["mediaType"] == "application/vnd.oci.image.config.v1+json"
    verdict = judged(layers(SIGNED))
    assert (verdict.is_verified, verdict.message, verdict.name) == (True, f"signed with this key as {NAME}", NAME)


def test_second_key_adds_a_signature():
    both = signing.signatures(DIGEST, [CLAIM], STRANGER, stored(SIGNED))
    for key in (KEY, STRANGER):
        assert outcome(both, key=key, **SIGNED.blobs) is SignatureStatus.VERIFIED
    assert len(json.loads(both.blobs[json.loads(both.manifest)["config"]["digest"]])["rootfs"]["diff_ids"]) == 2


(PAYLOAD,) = SIGNED.blobs.keys() & {layer["digest"] for layer in json.loads(SIGNED.manifest)["layers"]}


@pytest.mark.parametrize(
    ("expected", "stored"),
    [
        (SignatureStatus.ABSENT, edited(lambda document: document["layers"][0]["annotations"].clear())),
        (SignatureStatus.ABSENT, edited(lambda document: document["layers"][0].update(mediaType=spec.LAYER_GZIP))),
        (SignatureStatus.ABSENT, edited(lambda document: document["layers"].clear())),
        (MALFORMED, edited(lambda document: document["layers"][0]["annotations"].update({signing.SIGNATURE: "%"}))),
        (SignatureStatus.WRONG_KEY, msgspec.structs.replace(SIGNED, blobs={PAYLOAD: CLAIM + b" "})),
        (SignatureStatus.WRONG_KEY, signing.signatures(DIGEST, [CLAIM], STRANGER)),
        (SignatureStatus.OTHER_IMAGE, signing.signatures(DIGEST, [signing.claim(NAME, OTHER)], KEY)),
        (MALFORMED, signing.signatures(DIGEST, [CLAIM.replace(b"cosign", b"atomic")], KEY)),
    ],
)
def test_signature_with_wrong_key_image_or_form_gets_that_status(expected, stored):
    assert outcome(stored) == expected


def test_signature_of_another_image_names_both_digests():
    moved = judged(layers(SIGNED), OTHER)
    assert (moved.outcome, f"about {DIGEST}, not about {OTHER}" in moved.message) == (SignatureStatus.OTHER_IMAGE, True)


# Statements


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"_type":1}', b"\xff", b'{"_type":"x","subject":[]}'])
def test_invalid_statement_is_refused(data):
    with pytest.raises(UNREADABLE):
        statement.decode(data)


def test_canonical_json_is_unique_and_round_trips():
    names = (
        {"b": {"d": 1, "c": [{"f": "ü", "e": None}]}, "a": 2.5},
        {"a": 2.5, "b": {"c": [{"e": None, "f": "ü"}], "d": 1}},
    )
    one, other = (statement.make("pyg", DIGEST, "urn:x:y", predicate) for predicate in names)
    assert statement.encode(one) == statement.encode(other)
    assert statement.decode(statement.encode(one)) == one
    assert json.loads(statement.encode(one))["_type"] == "https://in-toto.io/Statement/v1"


def sealed(key=KEY, payload_type=statement.PAYLOAD, payload=TEXT):
    signature = signing.Signature(sig=keys.sign(key, signing.authenticated(payload_type, payload)))
    return signing.Envelope(payload=payload, payload_type=payload_type, signatures=(signature,))


def altered(**fields):
    """After it was signed."""
    return msgspec.structs.replace(sealed(), **fields)


@pytest.mark.parametrize(
    ("expected", "envelopes"),
    [
        (SignatureStatus.VERIFIED, [signing.seal(ABOUT, KEY), sealed(payload=TEXT.replace(b"ment/v1", b"ment/v0.1"))]),
        (SignatureStatus.WRONG_KEY, [sealed(STRANGER), altered(payload=TEXT.replace(b"[]", b"[1]"))]),
        (SignatureStatus.WRONG_KEY, [altered(payload_type="text/plain")]),
        (SignatureStatus.OTHER_IMAGE, [sealed(payload=TEXT.replace(DIGEST[7:].encode(), OTHER[7:].encode()))]),
        (SignatureStatus.WRONG_KEY, [altered(signatures=(signing.Signature(sig=b""),))]),
        (SignatureStatus.ABSENT, [altered(signatures=())]),
        (MALFORMED, [sealed(payload_type="text/plain"), sealed(payload=b"no statement")]),
        (MALFORMED, [sealed(payload=TEXT.replace(b"ment/v1", b"ment/v9"))]),
    ],
)
def test_envelope_with_wrong_key_image_or_form_gets_that_status(expected, envelopes):
    for envelope in envelopes:
        verdict = verify.envelope(DIGEST, envelope, PUBLIC)
        assert (verdict.outcome, verdict.statement is not None) == (expected, verdict.is_verified)


@pytest.mark.parametrize("signers", [(KEY, STRANGER), (STRANGER, KEY), (STRANGER, STRANGER, KEY)])
def test_envelope_that_several_signed_is_verified_by_each_of_their_keys(signers):
    both = altered(signatures=tuple(signature for key in signers for signature in sealed(key).signatures))
    for key in {*signers}:
        assert verify.envelope(DIGEST, both, key.public_key()).is_verified
    third = ec.derive_private_key(0x3, ec.SECP256R1()).public_key()
    assert verify.envelope(DIGEST, both, third).outcome is SignatureStatus.WRONG_KEY


def test_one_valid_signature_of_several_verifies():
    verdicts = [verify.envelope(DIGEST, sealed(key), PUBLIC) for key in (STRANGER, KEY)]
    found = [verify.best(DIGEST, some).outcome for some in (verdicts, verdicts[:1], [])]
    assert found == [SignatureStatus.VERIFIED, SignatureStatus.WRONG_KEY, SignatureStatus.ABSENT]


@given(st.binary(max_size=200))
def test_random_signature_bytes_are_not_verified(data):
    kinds = (signing.SIMPLE_SIGNING, signing.ENVELOPE, statement.PAYLOAD, bundles.BUNDLE)
    found = [(spec.Descriptor(media_type=kind, digest=OTHER, size=len(data)), data) for kind in kinds]
    for key in (PUBLIC, None):
        assert not judged(found, key=key).is_verified
        verdicts = list(verify.attestations(DIGEST, found, key))
        assert [verdict.is_verified for _, verdict in verdicts] == [False] * 3


def test_dsse_pre_authentication_encoding_has_type_and_lengths():
    """The example of the DSSE protocol's own text."""
    signed = signing.authenticated("http://example.com/HelloWorld", b"hello world")
    assert signed == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


# What is pushed


def attached(key=KEY, before=()):
    return signing.attestations(DIGEST, [ABOUT, statement.make("pyg", DIGEST, "urn:x:y", {})], key, before)


def verdicts(stored, key, **blobs):
    found = verify.attestations(DIGEST, layers(stored, **blobs), key)
    return [(kind, verdict.outcome, verdict.message) for kind, verdict in found]


@pytest.mark.parametrize(
    ("signer", "key", "expected", "message"),
    [
        (KEY, PUBLIC, SignatureStatus.VERIFIED, "{} is signed"),
        (KEY, None, SignatureStatus.VERIFIED, "attached and signed, signature not checked: no key was given"),
        (None, None, SignatureStatus.VERIFIED, "attached, and not signed"),
        (None, PUBLIC, SignatureStatus.ABSENT, "attached, and not signed"),
    ],
)
def test_statements_are_signed_with_the_key(signer, key, expected, message):
    made = attached(signer)
    assert verdicts(made, key) == [(kind, expected, message.format(kind)) for kind in (SMOKE, "urn:x:y")]
    manifest = json.loads(made.manifest)
    named = {entry["digest"]: entry["size"] for entry in (manifest["config"], *manifest["layers"])}
    assert named == {digest_of(data): len(data) for data in made.blobs.values()}
    assert named.keys() == made.blobs.keys()


def test_attached_statements_have_tag_types_and_annotations_of_cosign():
    signed, unsigned = attached(), attached(None)
    said = json.loads(signed.manifest)["layers"][0], json.loads(unsigned.manifest)["layers"][0]
    assert signed.tag == unsigned.tag == f"sha256-{DIGEST[7:]}.att"
    types = [layer["mediaType"] for layer in said]
    assert types == ["application/vnd.dsse.envelope.v1+json", "application/vnd.in-toto+json"]
    assert said[0]["annotations"] == {signing.SIGNATURE: "", "predicateType": SMOKE}
    assert said[1]["annotations"] == {"in-toto.io/predicate-type": SMOKE}
    assert json.loads(signed.blobs[said[0]["digest"]])["payloadType"] == "application/vnd.in-toto+json"
    assert statement.decode(unsigned.blobs[said[1]["digest"]]) == ABOUT


def test_repeated_attachment_is_identical_and_keeps_signatures():
    first = attached()
    assert attached(before=stored(first)) == first
    assert signing.signatures(DIGEST, [CLAIM], KEY, stored(SIGNED)) == SIGNED
    assert len(stored(attached(STRANGER, stored(first)))) == 4
    unsigned = attached(None, stored(first))
    assert ("urn:x:y", SignatureStatus.VERIFIED, "urn:x:y is signed") in verdicts(unsigned, PUBLIC, **first.blobs)
    # signed ones take the place of those that nobody signed
    assert attached(before=stored(unsigned)) == first


# Bundles

SUBJECT_MANIFEST = spec.Descriptor(media_type=spec.DOCKER_MANIFEST, digest=DIGEST, size=438)


def bundled(about=None, key=KEY, **changes):
    """A bundle's layer and bytes, perhaps with other fields of its envelope."""
    made = bundles.attach(about or bundles.sign(DIGEST, {NOTE: NAME}), key, SUBJECT_MANIFEST)
    (layer,), data = stored(made), made.blobs[1]
    if changes:
        document = json.loads(data)
        document["dsseEnvelope"] |= changes
        data = json.dumps(document).encode()
    return [(layer, data)]


def test_bundle_bytes_equal_those_of_cosign():
    """Manifest, bundle and statement as cosign 3.1.1 writes them, but for the time of its own making."""
    made = bundles.attach(bundles.sign(DIGEST, {NOTE: NAME}), KEY, SUBJECT_MANIFEST)
    manifest, (config, data) = json.loads(made.manifest), made.blobs
    kind, notes = "application/vnd.dev.sigstore.bundle.v0.3+json", {"dev.sigstore.bundle.content": "dsse-envelope"}
    notes["dev.sigstore.bundle.predicateType"] = "https://sigstore.dev/cosign/sign/v1"
    assert manifest == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": kind,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest_of(b"{}"), "size": 2},
        "layers": [{"mediaType": kind, "digest": digest_of(data), "size": len(data)}],
        "subject": {"mediaType": spec.DOCKER_MANIFEST, "digest": DIGEST, "size": 438},
        "annotations": notes,
    }
    assert (config, made.descriptor.artifact_type, made.descriptor.annotations) == (b"{}", kind, notes)
    assert made.descriptor.digest == digest_of(made.manifest)
    bundle = json.loads(data)
    (signature,) = bundle["dsseEnvelope"].pop("signatures")
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    assert bundle == {
        "mediaType": kind,
        "verificationMaterial": {"publicKey": {"hint": bundles.hint(PUBLIC)}},
        "dsseEnvelope": {"payload": base64.b64encode(payload).decode(), "payloadType": "application/vnd.in-toto+json"},
    }
    signed = signing.authenticated("application/vnd.in-toto+json", payload)
    assert keys.fits(PUBLIC, base64.b64decode(signature["sig"]), signed)
    assert json.loads(payload) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": DIGEST[7:]}, "annotations": {"example.published-as": NAME}}],
        "predicateType": "https://sigstore.dev/cosign/sign/v1",
        "predicate": {},
    }


def test_key_hint_is_that_of_cosign():
    """A key and the hint that cosign 3.1.1 wrote for it."""
    pem = b"""-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEuJjKVsAQU+YrI2Mq+3N7fh0NOJsF
Er8WCiYl3FsCVfcf4XmtkdmwKfWu1PBGu9112o+JAlhxdkLss3ic7t3osg==
-----END PUBLIC KEY-----
"""
    assert bundles.hint(keys.parse_public(pem)) == "+1Pqa1QX3NBULLFvpFyZad8KwrAXefUqWkiVdpEpUac="


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (SignatureStatus.VERIFIED, bundled()),
        (SignatureStatus.WRONG_KEY, bundled(key=STRANGER)),
        (SignatureStatus.WRONG_KEY, bundled(signatures=[{"sig": ""}])),
        (SignatureStatus.WRONG_KEY, bundled(payloadType="text/plain")),
        (SignatureStatus.ABSENT, bundled(signatures=[])),
        (SignatureStatus.OTHER_IMAGE, bundled(bundles.sign(OTHER, {NOTE: NAME}))),
        (SignatureStatus.ABSENT, bundled(ABOUT)),  # a statement is no signature of an image
    ],
)
def test_bundle_with_wrong_key_image_or_form_gets_that_status(expected, found):
    verdict = judged(found)
    assert (verdict.outcome, bool(verdict.name)) == (expected, expected is SignatureStatus.VERIFIED)


def test_bundle_signature_has_the_signed_name():
    assert judged(bundled()).name == NAME
    assert judged(bundled()).message == f"signed with this key as {NAME}"
    theirs = statement.Statement(
        subject=(statement.Resource(digest={"sha256": DIGEST[7:]}),), predicate_type=bundles.SIGNATURE, predicate={}
    )
    assert (judged(bundled(theirs)).is_verified, judged(bundled(theirs)).name) == (True, "")
    of_two = statement.Statement(
        subject=(
            *bundles.sign(OTHER, {NOTE: "evil.example/pyg:1"}).subject,
            *bundles.sign(DIGEST, {NOTE: NAME}).subject,
        ),
        predicate_type=bundles.SIGNATURE,
        predicate={},
    )
    assert judged(bundled(of_two)).name == NAME


def test_signature_names_are_listed_without_a_key():
    assert [one.name for one in verify.signatures(DIGEST, [*layers(SIGNED), *bundled()], None, NOTE)] == [NAME, NAME]


def test_statements_in_bundles_are_verified():
    assert [(kind, one.outcome) for kind, one in verify.attestations(DIGEST, bundled(ABOUT), PUBLIC)] == [
        (SMOKE, SignatureStatus.VERIFIED)
    ]
    broken = [(layer, b'{"messageSignature": {}}') for layer, _ in bundled(ABOUT)]
    assert [one.outcome for _, one in verify.attestations(DIGEST, broken, PUBLIC)] == [MALFORMED]
