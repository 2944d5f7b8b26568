"""Signatures over an image: cosign's simple signing, DSSE envelopes, sigstore bundles.

Shapes: SIGNATURE_SPEC.md, ATTESTATION_SPEC.md and BUNDLE_SPEC.md of github.com/sigstore/cosign;
github.com/secure-systems-lab/dsse (v1.0.2); the protobuf message sigstore.bundle.v1.Bundle in its JSON form.
"""

from typing import Any

import msgspec

from graphcrate.attest import statement
from graphcrate.attest.keys import PrivateKey
from graphcrate.model.proof import Statement

CLAIM = "cosign container image signature"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


class _Identity(msgspec.Struct, frozen=True, kw_only=True, rename={"reference": "docker-reference"}):
    reference: str


class _Image(msgspec.Struct, frozen=True, kw_only=True, rename={"digest": "docker-manifest-digest"}):
    digest: str


class _Critical(msgspec.Struct, frozen=True, kw_only=True):
    identity: _Identity
    image: _Image
    type: str = CLAIM


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Simple signing's payload: this digest is what that repository holds."""

    critical: _Critical
    optional: dict[str, Any] | None = None


class SimpleSignature(msgspec.Struct, frozen=True, kw_only=True):
    """A payload and the signature over its bytes."""

    payload: bytes
    signature: bytes


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """One signature in an envelope."""

    sig: bytes  #: base64 in JSON
    keyid: str = ""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A DSSE envelope."""

    payload: bytes  #: base64 in JSON
    payload_type: str
    signatures: tuple[Signature, ...]


class _KeyHint(msgspec.Struct, frozen=True, kw_only=True):
    hint: str = ""


class Material(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a bundle is to be checked with; a certificate instead of a key where nobody had one."""

    public_key: _KeyHint | None = None
    certificate: Any = None


class Bundle(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A sigstore bundle that holds an envelope."""

    media_type: str = BUNDLE
    verification_material: Material
    dsse_envelope: Envelope


def claim(repository: str, digest: str) -> bytes:
    """Simple signing's payload. `repository`: registry and repository, without tag, as cosign writes it."""
    critical = _Critical(identity=_Identity(reference=repository), image=_Image(digest=digest))
    return msgspec.json.encode(Claim(critical=critical))


def sign_simply(repository: str, digest: str, key: PrivateKey) -> SimpleSignature:
    """What cosign 1 and 2, podman and others look for."""
    payload = claim(repository, digest)
    return SimpleSignature(payload=payload, signature=key.sign(payload))


def seal(said: Statement, key: PrivateKey) -> Envelope:
    """A signed statement."""
    payload = statement.encode(said)
    signature = Signature(sig=key.sign(authenticated(statement.PAYLOAD, payload)))
    return Envelope(payload=payload, payload_type=statement.PAYLOAD, signatures=(signature,))


def bundle(envelope: Envelope, hint: str) -> bytes:
    """A bundle of an envelope that was signed with a key, which `hint` names."""
    material = {"publicKey": {"hint": hint}}
    return msgspec.json.encode({"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope})


def authenticated(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed says its type and lengths."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
