"""Signatures and statements under cosign's tags, and each way in which they can be wrong."""

import base64
import hashlib
import json

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.oci import spec
from graphcrate.publish.attest import keys, signing, statement, verify
from graphcrate.publish.attest.verify import Outcome
from tests.unit.proof_lock import DIGEST, SUBJECT

KEY = keys.PrivateKey(ec.derive_private_key(0xC0FFEE, ec.SECP256R1()))
STRANGER = keys.PrivateKey(ec.derive_private_key(0xBAD, ec.SECP256R1()))
REPOSITORY = "registry.example/team/pyg"
OTHER = "sha256:" + "0" * 64
SMOKE = "urn:graphcrate:smoke:1"
ABOUT = statement.make(SUBJECT, SMOKE, {"suites": []})


def signed(key=KEY, payload=None, before=b""):
    return signing.signatures(DIGEST, payload or signing.claim(REPOSITORY, DIGEST), key, before)


def outcome(stored, digest=DIGEST, key=KEY, **blobs):
    return verify.signature(digest, stored.manifest, {**stored.blobs, **blobs}, key.public).outcome


def changed(data, change):
    document = json.loads(data)
    change(document)
    return json.dumps(document).encode()


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
    verdict = verify.signature(DIGEST, stored.manifest, stored.blobs, KEY.public)
    assert (verdict.is_verified, verdict.message) == (True, f"signed with this key as {REPOSITORY}")


def test_signing_again_changes_nothing_and_another_key_adds_to_it():
    first = signed()
    assert signed(before=first.manifest).manifest == first.manifest
    both = signed(STRANGER, before=first.manifest)
    for key in (KEY, STRANGER):
        assert outcome(both, key=key, **first.blobs) is Outcome.VERIFIED
    assert len(json.loads(both.blobs[json.loads(both.manifest)["config"]["digest"]])["rootfs"]["diff_ids"]) == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda document: document["layers"][0]["annotations"].clear(), Outcome.ABSENT),
        (lambda document: document["layers"][0].update(mediaType=spec.LAYER_GZIP), Outcome.ABSENT),
        (lambda document: document["layers"].clear(), Outcome.ABSENT),
        (lambda document: document["layers"][0]["annotations"].update({signing.SIGNATURE: "%%%"}), Outcome.MALFORMED),
        (lambda document: document.pop("layers"), Outcome.MALFORMED),
    ],
)
def test_a_manifest_that_was_changed(change, expected):
    stored = signed()
    assert outcome(msgspec.structs.replace(stored, manifest=changed(stored.manifest, change))) is expected


def test_each_way_a_signature_can_be_wrong():
    stored = signed()
    (layer,) = json.loads(stored.manifest)["layers"]
    payload = stored.blobs[layer["digest"]]
    atomic = payload.replace(b"cosign container image signature", b"atomic container")
    assert outcome(stored) is Outcome.VERIFIED
    assert outcome(stored, key=STRANGER) is Outcome.WRONG_KEY
    assert outcome(stored, **{layer["digest"]: payload + b" "}) is Outcome.ALTERED
    assert outcome(signed(payload=payload.replace(DIGEST.encode(), OTHER.encode()))) is Outcome.OTHER_IMAGE
    assert outcome(stored, digest=OTHER) is Outcome.OTHER_IMAGE
    assert outcome(msgspec.structs.replace(stored, blobs={})) is Outcome.MALFORMED
    assert outcome(msgspec.structs.replace(stored, manifest=b"\xff")) is Outcome.MALFORMED
    assert outcome(signed(payload=atomic)) is Outcome.MALFORMED
    nothing = verify.signature(DIGEST, None, {}, KEY.public)
    assert (nothing.outcome, nothing.message) == (Outcome.ABSENT, f"{DIGEST} is not signed")
    moved = verify.signature(OTHER, stored.manifest, stored.blobs, KEY.public)
    assert f"about {DIGEST}, not about {OTHER}" in moved.message


# Statements


def sealed(about=ABOUT, key=KEY, payload_type=statement.PAYLOAD, payload=None):
    payload = payload or statement.encode(about)
    signature = signing.Signature(sig=key.sign(signing.authenticated(payload_type, payload)))
    return signing.Envelope(payload=payload, payload_type=payload_type, signatures=(signature,))


def test_envelopes_lie_where_cosign_looks():
    stored = signing.envelopes(DIGEST, [signing.seal(ABOUT, KEY)])
    (layer,) = json.loads(stored.manifest)["layers"]
    assert stored.tag == f"sha256-{DIGEST[7:]}.att"
    assert layer["mediaType"] == "application/vnd.dsse.envelope.v1+json"
    assert layer["annotations"] == {signing.SIGNATURE: "", "predicateType": SMOKE}
    assert json.loads(stored.blobs[layer["digest"]])["payloadType"] == "application/vnd.in-toto+json"


@pytest.mark.parametrize(
    ("envelope", "expected"),
    [
        (signing.seal(ABOUT, KEY), "verified"),
        (sealed(payload=statement.encode(ABOUT).replace(b"Statement/v1", b"Statement/v0.1")), "verified"),
        (sealed(key=STRANGER), "wrong key"),
        (msgspec.structs.replace(sealed(), payload=statement.encode(ABOUT).replace(b"[]", b"[1]")), "wrong key"),
        (msgspec.structs.replace(sealed(), payload_type="text/plain"), "wrong key"),
        (sealed(statement.make(msgspec.structs.replace(SUBJECT, digest=OTHER), SMOKE, {})), "other image"),
        (msgspec.structs.replace(sealed(), signatures=()), "absent"),
        (sealed(payload_type="text/plain"), "malformed"),
        (sealed(payload=b"no statement"), "malformed"),
        (sealed(payload=statement.encode(ABOUT).replace(b"Statement/v1", b"Statement/v9")), "malformed"),
    ],
)
def test_each_way_an_envelope_can_be_wrong(envelope, expected):
    verdict = verify.envelope(DIGEST, envelope, KEY.public)
    assert verdict.outcome == expected
    assert (verdict.statement is not None) == (expected == "verified")


def test_of_several_signatures_one_that_fits_is_enough():
    verdicts = [verify.envelope(DIGEST, sealed(key=key), KEY.public) for key in (STRANGER, KEY)]
    assert verify.best(DIGEST, verdicts).is_verified
    assert verify.best(DIGEST, verdicts[:1]).outcome is Outcome.WRONG_KEY
    assert verify.best(DIGEST, []).outcome is Outcome.ABSENT


@given(st.binary(max_size=200))
def test_whatever_lies_there_gets_a_verdict(data):
    assert not verify.signature(DIGEST, data, {}, KEY.public).is_verified
    kinds = (signing.ENVELOPE, statement.PAYLOAD)
    layers = [{"mediaType": kind, "digest": f"sha256:{'1' * 64}", "size": len(data)} for kind in kinds]
    manifest = changed(signed().manifest, lambda document: document.update(layers=layers))
    for key in (KEY.public, None):
        assert list(verify.attestations(DIGEST, data, {}, key)) == []
        verdicts = list(verify.attestations(DIGEST, manifest, {f"sha256:{'1' * 64}": data}, key))
        assert len(verdicts) == 2
        assert not any(verdict.is_verified for _, verdict in verdicts)


@given(st.data())
def test_no_change_of_a_byte_stays_verified(data):
    good = bytearray(statement.encode(ABOUT))
    position = data.draw(st.integers(0, len(good) - 1))
    good[position] ^= data.draw(st.integers(1, 255))
    assert not verify.envelope(DIGEST, msgspec.structs.replace(sealed(), payload=bytes(good)), KEY.public).is_verified


def test_what_is_signed_says_its_type_and_lengths():
    """The example of the DSSE protocol's own text."""
    signed = signing.authenticated("http://example.com/HelloWorld", b"hello world")
    assert signed == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


# What is pushed


def attached(key=KEY, before=None):
    about = [ABOUT, statement.make(SUBJECT, "urn:x:y", {})]
    return {one.tag[-3:]: one for one in signing.attached(about, DIGEST, REPOSITORY, key, before or {})}


def verdicts(stored, key, **blobs):
    found = verify.attestations(DIGEST, stored.manifest, {**stored.blobs, **blobs}, key.public if key else None)
    return [(kind, verdict.outcome.value, verdict.message) for kind, verdict in found]


def test_with_a_key_the_image_and_each_statement_are_signed():
    made = attached()
    assert list(made) == ["sig", "att"]
    assert outcome(made["sig"]) is Outcome.VERIFIED
    assert verdicts(made["att"], KEY) == [(kind, "verified", f"{kind} is signed") for kind in (SMOKE, "urn:x:y")]
    unchecked = "attached and signed, signature not checked: no key was given"
    assert verdicts(made["att"], None) == [(kind, "verified", unchecked) for kind in (SMOKE, "urn:x:y")]


def test_without_a_key_statements_are_attached_as_they_are():
    made = attached(None)
    assert list(made) == ["att"]
    layers = json.loads(made["att"].manifest)["layers"]
    assert {layer["mediaType"] for layer in layers} == {"application/vnd.in-toto+json"}
    assert layers[0]["annotations"] == {"in-toto.io/predicate-type": SMOKE}
    assert statement.decode(made["att"].blobs[layers[0]["digest"]]) == ABOUT
    nobody = "attached, and not signed"
    assert verdicts(made["att"], None) == [(kind, "verified", nobody) for kind in (SMOKE, "urn:x:y")]
    assert verdicts(made["att"], KEY) == [(kind, "absent", nobody) for kind in (SMOKE, "urn:x:y")]


def test_publishing_again_sends_the_same_and_takes_no_signature_away():
    first = attached()
    there = {tagged.tag: tagged.manifest for tagged in first.values()}
    assert attached(before=there) == attached() == first
    assert [len(json.loads(one.manifest)["layers"]) for one in attached(STRANGER, there).values()] == [2, 4]
    unsigned = attached(None, there)["att"]
    assert ("urn:x:y", "verified", "urn:x:y is signed") in verdicts(unsigned, KEY, **first["att"].blobs)
    # signed ones take the place of those that nobody signed
    assert attached(before={unsigned.tag: unsigned.manifest})["att"] == first["att"]


def test_every_blob_that_a_manifest_names_is_there():
    for stored in (*attached().values(), *attached(None).values()):
        manifest = json.loads(stored.manifest)
        named = {entry["digest"]: entry["size"] for entry in (manifest["config"], *manifest["layers"])}
        assert named == {digest: len(data) for digest, data in stored.blobs.items()}
        assert all(digest == "sha256:" + hashlib.sha256(data).hexdigest() for digest, data in stored.blobs.items())
