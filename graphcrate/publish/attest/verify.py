"""Verify signatures and statements: bytes in, verdict out. Every outcome has words of its own."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum

import msgspec

from graphcrate.model.errors import UNREADABLE
from graphcrate.oci import spec
from graphcrate.oci.image import digest_of
from graphcrate.publish.attest import signing, statement
from graphcrate.publish.attest.keys import PublicKey
from graphcrate.publish.attest.statement import Statement

_OLDER = "https://in-toto.io/Statement/v0.1"  #: the same fields; what `cosign attest` 3.1 still writes
_UNREADABLE = (*UNREADABLE, binascii.Error)
_NOBODY = "attached, and not signed"
_UNCHECKED = "attached and signed, signature not checked: no key was given"


class Outcome(StrEnum):
    """Result of a check, best first: of several signatures the first one counts."""

    VERIFIED = "verified"
    OTHER_IMAGE = "other image"  #: signed with this key, about another digest
    ALTERED = "altered"  #: bytes are not those that were signed
    WRONG_KEY = "wrong key"  #: made with another key
    MALFORMED = "malformed"  #: not in a form that can be checked
    ABSENT = "absent"  #: nothing is signed


_RANK = tuple(Outcome)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome in words. `statement`: what was signed, of an attestation that is verified."""

    outcome: Outcome
    message: str
    statement: Statement | None = None

    @property
    def is_verified(self) -> bool:
        return self.outcome is Outcome.VERIFIED


def signature(digest: str, manifest: bytes | None, blobs: Mapping[str, bytes], key: PublicKey) -> Verdict:
    """Verify the image's signature: the manifest under `signature_tag` (None: there is none), blobs by digest."""
    if manifest is None:
        return _absent(digest)
    try:
        layers = msgspec.json.decode(manifest, type=spec.Manifest).layers
    except _UNREADABLE:
        return _malformed("what is under the signature's tag is not a manifest")
    return best(
        digest, (_simple(digest, layer, blobs, key) for layer in layers if layer.media_type == signing.SIMPLE_SIGNING)
    )


def attestations(
    digest: str, manifest: bytes | None, blobs: Mapping[str, bytes], key: PublicKey | None
) -> Iterator[tuple[str, Verdict]]:
    """Verify what lies under `attestation_tag`: (predicate type, verdict) of each statement, as `envelope`."""
    layers: tuple[spec.Descriptor, ...] = ()
    with suppress(*_UNREADABLE):
        layers = msgspec.json.decode(manifest or b"", type=spec.Manifest).layers
    for layer in layers:
        listed = layer.annotations.get(signing.PREDICATE) or layer.annotations.get(signing.UNSIGNED_PREDICATE, "")
        data = blobs.get(layer.digest, b"")
        if layer.media_type == statement.PAYLOAD:
            sealed = signing.Envelope(payload=data, payload_type=statement.PAYLOAD, signatures=())
        elif layer.media_type == signing.ENVELOPE:
            try:
                sealed = msgspec.json.decode(data, type=signing.Envelope)
            except _UNREADABLE:
                yield listed, _malformed("attached, but no signed statement")
                continue
        else:
            continue
        yield _kind(sealed.payload) or listed, envelope(digest, sealed, key)


def _kind(payload: bytes) -> str:
    """The predicate type that a statement says it has."""
    with suppress(*UNREADABLE):
        return statement.decode(payload).predicate_type
    return ""


def envelope(digest: str, sealed: signing.Envelope, key: PublicKey | None) -> Verdict:
    """Verify a DSSE envelope: signed with this key, a statement, about this digest.

    Without a key its signatures are not looked at, and the message says so.
    """
    if key is None:
        verdict = _statement(digest, sealed, "attached")
        message = _UNCHECKED if sealed.signatures else _NOBODY
        return msgspec.structs.replace(verdict, message=message) if verdict.is_verified else verdict
    if not sealed.signatures:
        return _verdict(Outcome.ABSENT, _NOBODY)
    signed = signing.authenticated(sealed.payload_type, sealed.payload)
    if not any(key.fits(signature.sig, signed) for signature in sealed.signatures):
        return _wrong_key()
    return _statement(digest, sealed, "signed with this key")


def _statement(digest: str, sealed: signing.Envelope, how: str) -> Verdict:
    """Judge a payload whose signature is good: a statement, about this digest. `how` it was attached, for people."""
    if sealed.payload_type != statement.PAYLOAD:
        return _malformed(f"the envelope holds {sealed.payload_type}, no in-toto statement")
    try:
        about = statement.decode(sealed.payload)
    except _UNREADABLE:
        return _malformed("attached, but no in-toto statement")
    if about.type not in (statement.TYPE, _OLDER):
        return _malformed(f"the statement is of type {about.type}, not {statement.TYPE}")
    subjects = [f"sha256:{subject.digest.get('sha256', '')}" for subject in about.subject]
    if digest not in subjects:
        return _other_image(digest, subjects, how)
    return Verdict(outcome=Outcome.VERIFIED, message=f"{about.predicate_type} is signed", statement=about)


def best(digest: str, verdicts: Iterable[Verdict]) -> Verdict:
    """Of several signatures: one that fits is enough."""
    return min(verdicts, key=lambda verdict: _RANK.index(verdict.outcome), default=_absent(digest))


def _simple(digest: str, layer: spec.Descriptor, blobs: Mapping[str, bytes], key: PublicKey) -> Verdict:
    payload = blobs.get(layer.digest)
    if payload is None:
        return _malformed(f"the signature's payload {layer.digest} is not there")
    if digest_of(payload) != layer.digest:
        return _verdict(Outcome.ALTERED, "the payload was altered: it has not the digest that it is stored under")
    try:
        signature = base64.b64decode(layer.annotations.get(signing.SIGNATURE, ""), validate=True)
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
    return _verdict(Outcome.VERIFIED, f"signed with this key as {claim.critical.identity.reference}")


def _absent(digest: str) -> Verdict:
    return _verdict(Outcome.ABSENT, f"{digest} is not signed")


def _wrong_key() -> Verdict:
    return _verdict(
        Outcome.WRONG_KEY, "signed with another key than the one given, or altered by somebody who has no key"
    )


def _other_image(digest: str, subjects: Iterable[str], how: str = "signed with this key") -> Verdict:
    return _verdict(Outcome.OTHER_IMAGE, f"{how}, but about {', '.join(subjects) or 'nothing'}, not about {digest}")


def _malformed(why: str) -> Verdict:
    return _verdict(Outcome.MALFORMED, why)


def _verdict(outcome: Outcome, message: str) -> Verdict:
    return Verdict(outcome=outcome, message=message)
