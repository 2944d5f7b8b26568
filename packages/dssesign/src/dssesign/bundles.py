"""Sigstore bundles with a key, each attached to its image as an OCI 1.1 referrer: where cosign 3 and later look.

A bundle is a DSSE envelope and the hint of the key that fits. Shapes: sigstore_bundle.proto (v0.3) of
github.com/sigstore/protobuf-specs; the manifest, its annotations and the statement of a signature as cosign 3.1.1
writes them, but for the time, which would make each run's bytes others.
"""

import base64
import hashlib
from collections.abc import Mapping

import msgspec
from cryptography.hazmat.primitives import serialization

from dssesign import keys, signing
from dssesign.statement import Resource, Statement
from ocilayout import spec
from ocilayout.image import descriptor_of

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
FAMILY = "application/vnd.dev.sigstore.bundle"  #: how the types of all versions begin
SIGNATURE = "https://sigstore.dev/cosign/sign/v1"  #: predicate type of the statement that signs an image
_CONTENT, _PREDICATE = "dev.sigstore.bundle.content", "dev.sigstore.bundle.predicateType"


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    hint: str


class _Material(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    public_key: _Key


class _Bundle(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    media_type: str = BUNDLE
    verification_material: _Material
    dsse_envelope: signing.Envelope


class _Sealed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    dsse_envelope: signing.Envelope


_READER = msgspec.json.Decoder(_Sealed)  # made here: the first use of a type by several threads at once crashes msgspec


class NewReferrer(msgspec.Struct, frozen=True, kw_only=True):
    """A referrer to push: its blobs, then its manifest. `descriptor`: for lists of referrers."""

    manifest: bytes
    blobs: tuple[bytes, ...]
    descriptor: spec.Descriptor


def sign(digest: str, notes: Mapping[str, str] | None = None) -> Statement:
    """Make the statement that signs an image. `notes`: signed with it, such as a name that it is published as."""
    about = Resource(digest={"sha256": digest.removeprefix("sha256:")}, annotations=notes or {})
    return Statement(subject=(about,), predicate_type=SIGNATURE, predicate={})


def attach(about: Statement, key: keys.PrivateKey, subject: spec.Descriptor) -> NewReferrer:
    """Sign a statement about an image and make a referrer of it. The same one gets the same bytes."""
    known = _Material(public_key=_Key(hint=hint(key.public_key())))
    data = msgspec.json.encode(_Bundle(verification_material=known, dsse_envelope=signing.seal(about, key)))
    notes = {_CONTENT: "dsse-envelope", _PREDICATE: about.predicate_type}
    artifact = spec.ArtifactManifest(
        artifact_type=BUNDLE,
        config=descriptor_of(spec.EMPTY, spec.EMPTY_BLOB),
        layers=(descriptor_of(BUNDLE, data),),
        subject=subject,
        annotations=notes,
    )
    manifest = msgspec.json.encode(artifact)
    listed = msgspec.structs.replace(descriptor_of(spec.MANIFEST, manifest), artifact_type=BUNDLE, annotations=notes)
    return NewReferrer(manifest=manifest, blobs=(spec.EMPTY_BLOB, data), descriptor=listed)


def hint(key: keys.PublicKey) -> str:
    """Return cosign's hint of a key: the hash of its DER form in base64."""
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return base64.b64encode(hashlib.sha256(key.public_bytes(*form)).digest()).decode()


def envelope(data: bytes) -> signing.Envelope:
    """Read the envelope in a bundle of any version. Raises one of `errors.UNREADABLE`, also for another content."""
    return _READER.decode(data).dsse_envelope
