"""Signatures over an image as cosign makes and stores them: simple signing and DSSE envelopes, under two tags.

Manifests under tags made of the image's digest are the form that cosign 1, 2 and 3 find, on registries of any age;
`bundles` has the form that stays. Shapes: SIGNATURE_SPEC.md and ATTESTATION_SPEC.md of
github.com/sigstore/cosign; github.com/secure-systems-lab/dsse (v1.0.2).
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dssesign import keys, statement
from dssesign.statement import Statement
from ocilayout import spec
from ocilayout.image import descriptor_of, digest_of

CLAIM = "cosign container image signature"
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
MEDIA_TYPES = (SIMPLE_SIGNING, ENVELOPE, statement.PAYLOAD)  #: artifacts under the two tags
SIGNATURE = "dev.cosignproject.cosign/signature"  #: annotation with the signature in base64
#: annotations with the predicate's type: cosign's of an envelope, BuildKit's of an unsigned statement
PREDICATE, UNSIGNED_PREDICATE = "predicateType", "in-toto.io/predicate-type"
_EPOCH = "0001-01-01T00:00:00Z"  #: in cosign's configurations: no time


class _Identity(msgspec.Struct, frozen=True, kw_only=True, rename={"reference": "docker-reference"}):
    reference: str


class _Image(msgspec.Struct, frozen=True, kw_only=True, rename={"digest": "docker-manifest-digest"}):
    digest: str


class _Critical(msgspec.Struct, frozen=True, kw_only=True):
    identity: _Identity
    image: _Image
    type: str = CLAIM


class SimpleSigning(msgspec.Struct, frozen=True, kw_only=True):
    """Simple signing's payload: this digest is what that repository holds, under that tag if one is named."""

    critical: _Critical
    optional: dict[str, Any] | None = None


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """One signature in an envelope."""

    sig: bytes  #: base64 in JSON
    keyid: str = ""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A DSSE envelope."""

    payload: bytes  #: base64 in JSON
    payload_type: str
    signatures: tuple[Signature, ...]


# made here: the first use of a type by several threads at once crashes msgspec
_CLAIMS, _ENVELOPES = msgspec.json.Decoder(SimpleSigning), msgspec.json.Decoder(Envelope)


class Tagged(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest to push under a tag after its blobs, by digest; its configuration is one of them."""

    tag: str
    manifest: bytes
    blobs: Mapping[str, bytes]


def signature_tag(digest: str) -> str:
    """The tag under which cosign looks for signatures of an image."""
    return f"{digest.replace(':', '-')}.sig"


def attestation_tag(digest: str) -> str:
    """The tag under which cosign looks for statements about an image."""
    return f"{digest.replace(':', '-')}.att"


def claim(name: str, digest: str, notes: Mapping[str, str] | None = None) -> bytes:
    """Make simple signing's payload. `name`: what the image is published as, registry to tag.

    `notes` are signed with it; `cosign verify -a` compares them.
    """
    critical = _Critical(identity=_Identity(reference=name), image=_Image(digest=digest))
    return msgspec.json.encode(SimpleSigning(critical=critical, optional=dict(notes) if notes else None))


def read_envelope(data: bytes) -> Envelope:
    """Read an envelope. Raises one of `errors.UNREADABLE`."""
    return _ENVELOPES.decode(data)


def read_claim(data: bytes) -> SimpleSigning:
    """Read simple signing's payload. Raises one of `errors.UNREADABLE`."""
    return _CLAIMS.decode(data)


def seal(about: Statement, key: keys.PrivateKey) -> Envelope:
    """Sign a statement."""
    payload = statement.encode(about)
    signature = Signature(sig=keys.sign(key, authenticated(statement.PAYLOAD, payload)))
    return Envelope(payload=payload, payload_type=statement.PAYLOAD, signatures=(signature,))


def authenticated(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed says its type and lengths."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def is_signed(sealed: Envelope, trusted: Iterable[keys.PublicKey]) -> bool:
    """Tell whether one of these keys has signed the envelope."""
    payload = authenticated(sealed.payload_type, sealed.payload)
    return any(keys.fits(key, signature.sig, payload) for key in trusted for signature in sealed.signatures)


def signatures(
    digest: str, payloads: Sequence[bytes], key: keys.PrivateKey, before: Sequence[spec.Descriptor] = ()
) -> Tagged:
    """The manifest of all simple signatures. `before`: what it has already, which stays."""
    made = [
        (SIMPLE_SIGNING, payload, {SIGNATURE: base64.b64encode(keys.sign(key, payload)).decode()})
        for payload in payloads
    ]
    return _tagged(signature_tag(digest), made, before)


def attestations(
    digest: str,
    about: Sequence[Statement],
    key: keys.PrivateKey | None,
    before: Sequence[spec.Descriptor] = (),
) -> Tagged:
    """The manifest of all statements: in envelopes if there is a key, else unsigned, in BuildKit's form.

    What is in `before` stays; but unsigned statements give way to signed ones.
    """
    if key is None:
        plain = [
            (statement.PAYLOAD, statement.encode(document), {UNSIGNED_PREDICATE: document.predicate_type})
            for document in about
        ]
        return _tagged(attestation_tag(digest), plain, before)
    sealed = [
        (ENVELOPE, msgspec.json.encode(seal(document, key)), {SIGNATURE: "", PREDICATE: document.predicate_type})
        for document in about
    ]
    stay = [layer for layer in before if layer.media_type != statement.PAYLOAD]
    return _tagged(attestation_tag(digest), sealed, stay)


def _tagged(tag: str, blobs: Sequence[tuple[str, bytes, dict[str, str]]], stay: Sequence[spec.Descriptor]) -> Tagged:
    """An image whose layers are payloads (media type, bytes, annotations): what registries from before OCI 1.1 take."""
    layers = [descriptor_of(*blob) for blob in blobs]
    every = [*stay, *(layer for layer in layers if layer not in stay)]
    config = {
        "architecture": "",
        "created": _EPOCH,
        "history": [{"created": _EPOCH} for _ in every],
        "os": "",
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in every]},
        "config": {},
    }
    encoded = msgspec.json.encode(config)
    manifest = spec.Manifest(
        schema_version=2,
        media_type=spec.MANIFEST,
        config=descriptor_of(spec.CONFIG, encoded),
        layers=tuple(every),
    )
    content = {digest_of(data): data for _, data, _ in blobs}
    return Tagged(tag=tag, manifest=msgspec.json.encode(manifest), blobs={**content, digest_of(encoded): encoded})
