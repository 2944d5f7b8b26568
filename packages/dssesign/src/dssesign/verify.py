"""Verify signatures and statements: bytes in, verdict out. Every outcome has words of its own."""

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import IntEnum

import msgspec

from dssesign import bundles, keys, signing, statement
from dssesign.errors import UNREADABLE
from dssesign.statement import Statement
from ocilayout import spec

_OLDER = "https://in-toto.io/Statement/v0.1"  #: the same fields; what `cosign attest` 3.1 still writes
#: of a manifest, with their bytes, whose digests the caller has checked
Layers = Iterable[tuple[spec.Descriptor, bytes]]
_NOBODY = "attached, and not signed"
_UNCHECKED = "attached and signed, signature not checked: no key was given"
_OTHER_KEY = "signed with another key than the one given, or altered by somebody who has no key"


class SignatureStatus(IntEnum):
    """Result of a check, best first: of several signatures the first one counts."""

    VERIFIED = 0
    OTHER_IMAGE = 1  #: signed with this key, about another digest
    WRONG_KEY = 2  #: made with another key, or over other bytes
    MALFORMED = 3  #: not in a form that can be checked
    ABSENT = 4  #: nothing is signed


class SignatureVerdict(msgspec.Struct, frozen=True):
    """An outcome in words. Of what is verified: `statement`, what was signed; `name`, as what it was published.

    A name is registry, repository and tag; of what cosign signed it has no tag, or is empty.
    """

    outcome: SignatureStatus
    message: str
    statement: Statement | None = None
    name: str = ""

    @property
    def is_verified(self) -> bool:
        return self.outcome is SignatureStatus.VERIFIED


def signatures(
    digest: str, layers: Layers, key: keys.PublicKey | None, name_note: str = ""
) -> Iterator[SignatureVerdict]:
    """Verify each signature of the image, under `signature_tag` and in bundles.

    Without a key none is looked at: such a verdict only says what is written there. `name_note`: of the notes that
    were signed, the one with the name that the image is published as.
    """
    for layer, data in layers:
        if layer.media_type == signing.SIMPLE_SIGNING:
            yield _simple(digest, layer, data, key, name_note)
        elif layer.media_type.startswith(bundles.FAMILY):
            for kind, verdict in attestations(digest, [(layer, data)], key):
                if kind == bundles.SIGNATURE:
                    yield _named(digest, verdict, name_note)


def attestations(digest: str, layers: Layers, key: keys.PublicKey | None) -> Iterator[tuple[str, SignatureVerdict]]:
    """Verify statements under `attestation_tag` and in bundles: (predicate type, verdict) of each, as `envelope`."""
    for layer, data in layers:
        kind = layer.annotations.get(signing.PREDICATE) or layer.annotations.get(signing.UNSIGNED_PREDICATE, "")
        is_bundle = layer.media_type.startswith(bundles.FAMILY)
        if layer.media_type == statement.PAYLOAD:
            sealed = signing.Envelope(payload=data, payload_type=statement.PAYLOAD, signatures=())
        elif is_bundle or layer.media_type == signing.ENVELOPE:
            try:
                sealed = bundles.envelope(data) if is_bundle else signing.read_envelope(data)
            except UNREADABLE:
                yield kind, SignatureVerdict(SignatureStatus.MALFORMED, "attached, but no signed statement")
                continue
        else:
            continue
        with suppress(*UNREADABLE):  # what a statement says itself counts more than its annotation
            kind = statement.decode(sealed.payload).predicate_type
        yield kind, envelope(digest, sealed, key)


def envelope(digest: str, sealed: signing.Envelope, key: keys.PublicKey | None) -> SignatureVerdict:
    """Verify a DSSE envelope: signed with this key, a statement, about this digest.

    Without a key its signatures are not looked at, and the message says so.
    """
    if key is None:
        verdict = _statement(digest, sealed, "attached")
        message = _UNCHECKED if sealed.signatures else _NOBODY
        return msgspec.structs.replace(verdict, message=message) if verdict.is_verified else verdict
    if not sealed.signatures:
        return SignatureVerdict(SignatureStatus.ABSENT, _NOBODY)
    if not signing.is_signed(sealed, [key]):
        return SignatureVerdict(SignatureStatus.WRONG_KEY, _OTHER_KEY)
    return _statement(digest, sealed, "signed with this key")


def _statement(digest: str, sealed: signing.Envelope, how: str) -> SignatureVerdict:
    """Judge a payload whose signature is good: a statement, about this digest. `how` it was attached, for people."""
    if sealed.payload_type != statement.PAYLOAD:
        return SignatureVerdict(
            SignatureStatus.MALFORMED, f"the envelope holds {sealed.payload_type}, no in-toto statement"
        )
    try:
        about = statement.decode(sealed.payload)
    except UNREADABLE:
        return SignatureVerdict(SignatureStatus.MALFORMED, "attached, but no in-toto statement")
    if about.type not in (statement.TYPE, _OLDER):
        return SignatureVerdict(
            SignatureStatus.MALFORMED, f"the statement is of type {about.type}, not {statement.TYPE}"
        )
    subjects = [f"sha256:{subject.digest.get('sha256', '')}" for subject in about.subject]
    if digest not in subjects:
        return _other_image(digest, subjects, how)
    return SignatureVerdict(SignatureStatus.VERIFIED, f"{about.predicate_type} is signed", about)


def best(digest: str, verdicts: Iterable[SignatureVerdict]) -> SignatureVerdict:
    """Of several signatures: one that fits is enough."""
    absent = SignatureVerdict(SignatureStatus.ABSENT, f"{digest} is not signed")
    return min(verdicts, key=lambda verdict: verdict.outcome, default=absent)


def _named(digest: str, verdict: SignatureVerdict, note: str) -> SignatureVerdict:
    """A verdict on the statement that signs an image, with the name that it is signed under."""
    subjects = verdict.statement.subject if verdict.statement else ()
    mine = [subject for subject in subjects if f"sha256:{subject.digest.get('sha256', '')}" == digest]
    name = next((resource.annotations[note] for resource in mine if note in resource.annotations), "")
    signed = f"signed with this key{name and f' as {name}'}"
    message = signed if verdict.message.endswith(" is signed") else verdict.message
    return msgspec.structs.replace(verdict, name=name, message=message)


def _simple(
    digest: str, layer: spec.Descriptor, payload: bytes, key: keys.PublicKey | None, note: str
) -> SignatureVerdict:
    try:
        signature = base64.b64decode(layer.annotations.get(signing.SIGNATURE, ""), validate=True)
        whole = signing.read_claim(payload)
    except UNREADABLE:
        return SignatureVerdict(SignatureStatus.MALFORMED, "the signature or its payload is not in cosign's form")
    claim = whole.critical
    if not signature:
        return best(digest, ())
    if key is not None and not keys.fits(key, signature, payload):
        return SignatureVerdict(SignatureStatus.WRONG_KEY, _OTHER_KEY)
    if claim.type != signing.CLAIM:
        return SignatureVerdict(SignatureStatus.MALFORMED, f"the payload is a {claim.type!r}, no signature of an image")
    if claim.image.digest != digest:
        return _other_image(digest, [claim.image.digest], "signed with this key")
    noted = (whole.optional or {}).get(note)
    name = noted if isinstance(noted, str) else claim.identity.reference
    return SignatureVerdict(
        SignatureStatus.VERIFIED, f"signed with this key as {name}" if key else _UNCHECKED, name=name
    )


def _other_image(digest: str, subjects: Iterable[str], how: str) -> SignatureVerdict:
    about = ", ".join(subjects) or "nothing"
    return SignatureVerdict(SignatureStatus.OTHER_IMAGE, f"{how}, but about {about}, not about {digest}")
