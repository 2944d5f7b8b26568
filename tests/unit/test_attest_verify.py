"""Signatures that are stored as cosign stores them, and each way in which they can be wrong."""

import base64
import hashlib
import json

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from sigstore.dsse import Envelope as TheirEnvelope

from graphcrate.attest import keys, sbom, signing, statement, storage, verify
from graphcrate.model.proof import Outcome
from graphcrate.oci import spec
from tests.unit.proof_lock import CREATED, DIGEST, LOCK, SUBJECT

KEY = keys.PrivateKey(ec.derive_private_key(0xC0FFEE, ec.SECP256R1()))
STRANGER = keys.PrivateKey(ec.derive_private_key(0xBAD, ec.SECP256R1()))
REPOSITORY = "registry.example/team/pyg"
OTHER = "sha256:" + "0" * 64


def signed(key=KEY, digest=DIGEST, before=b""):
    return storage.signatures(digest, [signing.sign_simply(REPOSITORY, digest, key)], before)


def simple(stored, digest=DIGEST, key=KEY, **blobs):
    return verify.simple_signature(digest, stored.manifest, {**stored.blobs, **blobs}, key.public)


def bundled(key=KEY, subject=SUBJECT, kind="urn:graphcrate:smoke:1"):
    return signing.bundle(signing.seal(statement.make(subject, kind, {"suites": []}), key), key.public.hint)


def changed(data, change):
    document = json.loads(data)
    change(document)
    return json.dumps(document).encode()


# Simple signing


def test_a_signature_has_cosigns_form_to_the_byte():
    """Payload, configuration and manifest as cosign 3.1.1 wrote them for this repository and digest."""
    stored = signed()
    manifest = json.loads(stored.manifest)
    (layer,) = manifest["layers"]
    payload = stored.blobs[layer["digest"]]
    assert payload == (
        b'{"critical":{"identity":{"docker-reference":"registry.example/team/pyg"},'
        b'"image":{"docker-manifest-digest":"%b"},"type":"cosign container image signature"},"optional":null}'
        % DIGEST.encode()
    )
    assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
    signature = base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"])
    assert KEY.public.fits(signature, payload)
    assert stored.tag == f"sha256-{DIGEST[7:]}.sig"
    assert json.loads(stored.blobs[manifest["config"]["digest"]])["rootfs"]["diff_ids"] == [layer["digest"]]
    assert manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"


def test_a_signature_is_verified():
    verdict = simple(signed())
    assert verdict.is_verified
    assert verdict.said == f"signed with this key as {REPOSITORY}"


def test_signing_again_changes_nothing_and_another_key_adds_to_it():
    first = signed()
    assert signed(before=first.manifest).manifest == first.manifest
    both = signed(STRANGER, before=first.manifest)
    everything = {**first.blobs, **both.blobs}
    for key in (KEY, STRANGER):
        assert verify.simple_signature(DIGEST, both.manifest, everything, key.public).is_verified
    assert len(json.loads(both.blobs[json.loads(both.manifest)["config"]["digest"]])["rootfs"]["diff_ids"]) == 2


def without_signature(document):
    document["layers"][0]["annotations"].clear()


def with_other_type(document):
    document["layers"][0]["mediaType"] = spec.LAYER_GZIP


def with_no_base64(document):
    document["layers"][0]["annotations"][storage.SIGNATURE] = "%%%"


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (without_signature, Outcome.ABSENT),
        (with_other_type, Outcome.ABSENT),
        (lambda document: document["layers"].clear(), Outcome.ABSENT),
        (with_no_base64, Outcome.MALFORMED),
        (lambda document: document.pop("layers"), Outcome.MALFORMED),
    ],
)
def test_a_manifest_that_was_changed(change, outcome):
    stored = signed()
    verdict = verify.simple_signature(DIGEST, changed(stored.manifest, change), stored.blobs, KEY.public)
    assert verdict.outcome is outcome


def test_each_way_to_be_wrong_has_an_outcome_and_words_of_its_own():
    stored = signed()
    (layer,) = json.loads(stored.manifest)["layers"]
    payload = stored.blobs[layer["digest"]]
    elsewhere = payload.replace(DIGEST.encode(), OTHER.encode())
    moved = storage.signatures(DIGEST, [signing.SimpleSignature(payload=elsewhere, signature=KEY.sign(payload))])
    seen = {
        "fine": simple(stored),
        "nothing there": verify.simple_signature(DIGEST, None, {}, KEY.public),
        "wrong key": simple(stored, key=STRANGER),
        "payload altered": simple(stored, **{layer["digest"]: payload + b" "}),
        "payload exchanged with its digest": simple(moved),
        "signature of another image": verify.simple_signature(OTHER, stored.manifest, stored.blobs, KEY.public),
        "payload gone": verify.simple_signature(DIGEST, stored.manifest, {}, KEY.public),
        "no manifest": verify.simple_signature(DIGEST, b"\xff", {}, KEY.public),
    }
    assert {name: verdict.outcome.value for name, verdict in seen.items()} == {
        "fine": "verified",
        "nothing there": "absent",
        "wrong key": "wrong key",
        "payload altered": "altered",
        "payload exchanged with its digest": "wrong key",
        "signature of another image": "other image",
        "payload gone": "malformed",
        "no manifest": "malformed",
    }
    assert f"about {DIGEST}, not about {OTHER}" in seen["signature of another image"].said
    assert seen["nothing there"].said == f"{DIGEST} is not signed"
    words = [verdict.said for verdict in seen.values()]
    assert len(set(words)) == len(words) - 1  # "wrong key" stands twice


def test_a_statement_is_no_signature_of_an_image():
    payload = signing.claim(REPOSITORY, DIGEST).replace(b"cosign container image signature", b"atomic container")
    stored = storage.signatures(DIGEST, [signing.SimpleSignature(payload=payload, signature=KEY.sign(payload))])
    assert simple(stored).outcome is Outcome.MALFORMED


# Attestations


def test_a_bundle_is_verified_and_gives_the_statement():
    verdict = verify.bundle(DIGEST, bundled(), KEY.public)
    assert verdict.is_verified
    assert verdict.statement.predicate == {"suites": []}
    assert verify.bundle(DIGEST, bundled(), KEY.public, "urn:graphcrate:smoke:1").is_verified


def exchange_payload(document):
    payload = base64.b64decode(document["dsseEnvelope"]["payload"])
    document["dsseEnvelope"]["payload"] = base64.b64encode(payload.replace(b"[]", b"[1]")).decode()


def test_each_way_a_bundle_can_be_wrong():
    other = msgspec.structs.replace(SUBJECT, digest=OTHER)
    good = bundled()
    unsigned = changed(good, lambda document: document["dsseEnvelope"].update(signatures=[]))
    keyless = changed(good, lambda document: document.update(verificationMaterial={"certificate": {"rawBytes": ""}}))
    hintless = changed(good, lambda document: document["verificationMaterial"].update(publicKey={"hint": "AAAA"}))
    seen = {
        "fine": verify.bundle(DIGEST, good, KEY.public),
        "its hint is not what counts": verify.bundle(DIGEST, hintless, KEY.public),
        "wrong key": verify.bundle(DIGEST, good, STRANGER.public),
        "altered": verify.bundle(DIGEST, changed(good, exchange_payload), KEY.public),
        "about another image": verify.bundle(DIGEST, bundled(subject=other), KEY.public),
        "unsigned": verify.bundle(DIGEST, unsigned, KEY.public),
        "signed without a key": verify.bundle(DIGEST, keyless, KEY.public),
        "another statement": verify.bundle(DIGEST, good, KEY.public, "urn:graphcrate:audit:1"),
        "no bundle": verify.bundle(DIGEST, b"{}", KEY.public),
        "no JSON": verify.bundle(DIGEST, b"\xff\xfe", KEY.public),
    }
    assert {name: verdict.outcome.value for name, verdict in seen.items()} == {
        "fine": "verified",
        "its hint is not what counts": "verified",
        "wrong key": "wrong key",
        "altered": "altered",
        "about another image": "other image",
        "unsigned": "absent",
        "signed without a key": "malformed",
        "another statement": "malformed",
        "no bundle": "malformed",
        "no JSON": "malformed",
    }
    assert all(verdict.statement is None for verdict in seen.values() if not verdict.is_verified)


@pytest.mark.parametrize(
    ("payload_type", "payload"),
    [
        ("text/plain", statement.encode(statement.signed(SUBJECT))),
        (statement.PAYLOAD, b"no statement"),
        (statement.PAYLOAD, statement.encode(statement.signed(SUBJECT)).replace(b"Statement/v1", b"Statement/v9")),
    ],
)
def test_what_is_signed_must_be_a_statement(payload_type, payload):
    signature = signing.Signature(sig=KEY.sign(signing.authenticated(payload_type, payload)))
    sealed = signing.Envelope(payload=payload, payload_type=payload_type, signatures=(signature,))
    assert verify.envelope(DIGEST, sealed, KEY.public).outcome is Outcome.MALFORMED


def test_a_statement_of_the_older_version_counts():
    payload = statement.encode(statement.signed(SUBJECT)).replace(b"Statement/v1", b"Statement/v0.1")
    assert verify.signed_payload(DIGEST, statement.PAYLOAD, payload).is_verified


def test_of_several_bundles_one_that_fits_is_enough():
    verdicts = [verify.bundle(DIGEST, bundled(key), KEY.public) for key in (STRANGER, KEY)]
    assert verify.best(DIGEST, verdicts).is_verified
    assert verify.best(DIGEST, verdicts[:1]).outcome is Outcome.WRONG_KEY
    assert verify.best(DIGEST, []).outcome is Outcome.ABSENT


@given(st.binary(max_size=200))
def test_whatever_is_found_gets_a_verdict(data):
    assert not verify.bundle(DIGEST, data, KEY.public).is_verified
    assert not verify.simple_signature(DIGEST, data, {}, KEY.public).is_verified


@given(st.data())
def test_no_change_of_a_byte_stays_verified(data):
    good = bytearray(signing.seal(statement.signed(SUBJECT), KEY).payload)
    place = data.draw(st.integers(0, len(good) - 1))
    good[place] ^= data.draw(st.integers(1, 255))
    sealed = signing.seal(statement.signed(SUBJECT), KEY)
    assert not verify.envelope(DIGEST, msgspec.structs.replace(sealed, payload=bytes(good)), KEY.public).is_verified


def test_what_is_signed_says_its_type_and_lengths():
    """The example of the DSSE protocol's own text."""
    signed = signing.authenticated("http://example.com/HelloWorld", b"hello world")
    assert signed == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_sigstores_library_reads_our_envelopes():
    sealed = signing.seal(statement.signed(SUBJECT), KEY)
    theirs = TheirEnvelope._from_json(msgspec.json.encode(sealed))
    assert theirs.pae() == signing.authenticated(sealed.payload_type, sealed.payload)
    assert KEY.public.fits(theirs.signature, theirs.pae())


# Storage


def said():
    bill = json.loads(sbom.sbom(LOCK, SUBJECT, created=CREATED))
    return [statement.make(SUBJECT, sbom.PREDICATE, bill), statement.make(SUBJECT, "urn:graphcrate:smoke:1", {})]


def attached(key=KEY, before=None):
    return storage.signed(said(), SUBJECT, REPOSITORY, key, CREATED, before or {})


def test_all_that_is_signed_is_there_in_both_forms():
    made = attached()
    kinds = [statement.COSIGN, sbom.PREDICATE, "urn:graphcrate:smoke:1"]
    for referrer, kind in zip(made.referrers, kinds, strict=True):
        assert referrer.artifact_type == "application/vnd.dev.sigstore.bundle.v0.3+json"
        assert referrer.annotations == {
            "dev.sigstore.bundle.content": "dsse-envelope",
            "dev.sigstore.bundle.predicateType": kind,
            "org.opencontainers.image.created": "2023-11-14T22:13:20Z",
        }
        assert verify.bundle(DIGEST, referrer.data, KEY.public, kind).is_verified
    signature, envelopes = made.tagged
    assert simple(signature).is_verified
    sealed = [json.loads(envelopes.blobs[layer["digest"]]) for layer in json.loads(envelopes.manifest)["layers"]]
    assert [json.loads(base64.b64decode(one["payload"]))["predicateType"] for one in sealed] == kinds[1:]


def test_publishing_again_sends_the_same_and_takes_nothing_away():
    first = attached()
    there = {tagged.tag: tagged.manifest for tagged in first.tagged}
    assert attached(before=there) == attached() == first
    both = attached(STRANGER, there)
    assert [len(json.loads(tagged.manifest)["layers"]) for tagged in both.tagged] == [2, 4]


def test_without_a_key_the_documents_are_attached_as_they_are():
    made = storage.unsigned(said(), CREATED)
    assert made.tagged == ()
    bill, smoke = made.referrers
    assert bill.artifact_type == "application/vnd.cyclonedx+json"
    assert bill.data == sbom.sbom(LOCK, SUBJECT, created=CREATED)
    assert smoke.artifact_type == "application/vnd.in-toto+json"
    assert statement.decode(smoke.data) == said()[1]
    assert smoke.annotations["in-toto.io/predicate-type"] == "urn:graphcrate:smoke:1"


def test_every_blob_that_a_manifest_names_is_there():
    for stored in attached().tagged:
        manifest = json.loads(stored.manifest)
        named = {entry["digest"]: entry["size"] for entry in (manifest["config"], *manifest["layers"])}
        assert named == {digest: len(data) for digest, data in stored.blobs.items()}
        assert all(digest == "sha256:" + hashlib.sha256(data).hexdigest() for digest, data in stored.blobs.items())


def test_envelopes_lie_where_older_cosigns_look():
    sealed = signing.seal(statement.signed(SUBJECT), KEY)
    stored = storage.envelopes(DIGEST, [sealed])
    (layer,) = json.loads(stored.manifest)["layers"]
    assert stored.tag == f"sha256-{DIGEST[7:]}.att"
    assert layer["mediaType"] == "application/vnd.dsse.envelope.v1+json"
    assert layer["annotations"] == {storage.SIGNATURE: "", "predicateType": statement.COSIGN}
    assert json.loads(stored.blobs[layer["digest"]])["payloadType"] == "application/vnd.in-toto+json"
    assert storage.envelopes(DIGEST, [sealed], stored.manifest).manifest == stored.manifest
