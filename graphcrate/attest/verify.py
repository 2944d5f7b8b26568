"""Whether signatures are what they should be: bytes in, verdict out. Every outcome has words of its own."""

import base64
import binascii
from collections.abc import Iterable, Mapping

import msgspec

from graphcrate.attest import signing, statement, storage
from graphcrate.attest.keys import PublicKey
from graphcrate.model.proof import STATEMENT, Outcome, Verdict
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.oci import spec
from graphcrate.oci.image import digest_of

#: Best first: of several signatures one that fits is enough, and otherwise the one that came closest is told of.
_RANK = (
    *(Outcome.VERIFIED, Outcome.OTHER_IMAGE, Outcome.ALTERED),
    *(Outcome.WRONG_KEY, Outcome.MALFORMED, Outcome.ABSENT),
)
_OLDER = "https://in-toto.io/Statement/v0.1"  #: the same fields; what `cosign attest` 3.1 still writes
_UNREADABLE = (*UNREADABLE, binascii.Error)


def simple_signature(digest: str, manifest: bytes | None, blobs: Mapping[str, bytes], key: PublicKey) -> Verdict:
    """Of the manifest under `storage.signature_tag` (None: there is none) with its blobs by digest."""
    if manifest is None:
        return _absent(digest)
    try:
        layers = msgspec.json.decode(manifest, type=spec.Manifest).layers
    except _UNREADABLE:
        return _malformed("what lies under the signature's tag is no manifest")
    return best(
        digest, (_simple(digest, layer, blobs, key) for layer in layers if layer.media_type == storage.SIMPLE_SIGNING)
    )


def bundle(digest: str, data: bytes, key: PublicKey, predicate_type: str = "") -> Verdict:
    """Of a sigstore bundle that was made with a key. `predicate_type`: the only one that is wanted."""
    try:
        found = msgspec.json.decode(data, type=signing.Bundle)
    except _UNREADABLE:
        return _malformed("the bundle is no sigstore bundle with an envelope")
    named = found.verification_material.public_key
    if named is None:
        return _malformed("the bundle was signed without a key: it holds a certificate")
    verdict = envelope(digest, found.dsse_envelope, key, predicate_type)
    if verdict.outcome is Outcome.WRONG_KEY and named.hint == key.hint:
        return _altered("the statement was altered after it was signed: the bundle names this key, which does not fit")
    return verdict


def envelope(digest: str, sealed: signing.Envelope, key: PublicKey, predicate_type: str = "") -> Verdict:
    """Of a DSSE envelope: signed with this key, a statement, about this digest."""
    signed = signing.authenticated(sealed.payload_type, sealed.payload)
    if not any(key.fits(signature.sig, signed) for signature in sealed.signatures):
        return _wrong_key() if sealed.signatures else _absent(digest)
    return signed_payload(digest, sealed.payload_type, sealed.payload, predicate_type)


def signed_payload(
    digest: str, payload_type: str, payload: bytes, predicate_type: str = "", *, how: str = "signed with this key"
) -> Verdict:
    """Of a payload whose signature is good, whoever has checked that: a statement, about this digest.

    `how` it came to be taken for that, for people.
    """
    if payload_type != statement.PAYLOAD:
        return _malformed(f"the envelope holds {payload_type}, no in-toto statement")
    try:
        said = statement.decode(payload)
    except _UNREADABLE:
        return _malformed("the envelope holds no in-toto statement")
    if said.type not in (STATEMENT, _OLDER):
        return _malformed(f"the statement is of type {said.type}, not {STATEMENT}")
    subjects = [f"sha256:{subject.digest.get('sha256', '')}" for subject in said.subject]
    if digest not in subjects:
        return _other_image(digest, subjects, how)
    if predicate_type and said.predicate_type != predicate_type:
        return _malformed(f"the statement is a {said.predicate_type}, not a {predicate_type}")
    return Verdict(outcome=Outcome.VERIFIED, said=f"{said.predicate_type} is signed", statement=said)


def best(digest: str, verdicts: Iterable[Verdict]) -> Verdict:
    """Of several signatures: one that fits is enough."""
    return min(verdicts, key=lambda verdict: _RANK.index(verdict.outcome), default=_absent(digest))


def _simple(digest: str, layer: spec.Descriptor, blobs: Mapping[str, bytes], key: PublicKey) -> Verdict:
    payload = blobs.get(layer.digest)
    if payload is None:
        return _malformed(f"the signature's payload {layer.digest} is not there")
    if digest_of(payload) != layer.digest:
        return _altered("the payload was altered: it has not the digest that it is stored under")
    try:
        signature = base64.b64decode(layer.annotations.get(storage.SIGNATURE, ""), validate=True)
        claim = msgspec.json.decode(payload, type=signing.Claim)
    except _UNREADABLE:
        return _malformed("the signature or its payload is not in cosign's form")
    if not signature:
        return _absent(digest)
    if not key.fits(signature, payload):
        return _wrong_key()
    if claim.critical.type != signing.CLAIM:
        return _malformed(f"the payload is a {claim.critical.type!r}, no signature of an image")
    if claim.critical.image.digest != digest:
        return _other_image(digest, [claim.critical.image.digest])
    return Verdict(outcome=Outcome.VERIFIED, said=f"signed with this key as {claim.critical.identity.reference}")


def _absent(digest: str) -> Verdict:
    return Verdict(outcome=Outcome.ABSENT, said=f"{digest} is not signed")


def _wrong_key() -> Verdict:
    return Verdict(
        outcome=Outcome.WRONG_KEY,
        said="signed with another key than the one given, or altered by somebody who has no key",
    )


def _altered(why: str) -> Verdict:
    return Verdict(outcome=Outcome.ALTERED, said=why)


def _other_image(digest: str, subjects: Iterable[str], how: str = "signed with this key") -> Verdict:
    return Verdict(
        outcome=Outcome.OTHER_IMAGE,
        said=f"{how}, but about {', '.join(subjects) or 'nothing'}, not about {digest}",
    )


def _malformed(why: str) -> Verdict:
    return Verdict(outcome=Outcome.MALFORMED, said=why)
