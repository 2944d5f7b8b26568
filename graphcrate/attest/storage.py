"""How proof lies on a registry: what is attached to the image, and what is found by tags made of its digest.

Each statement is an artifact of its own with `subject` (OCI 1.1: referrers), as cosign 3 looks for it; signatures and
envelopes also under the tags that cosign 1 and 2 look for. docs/decisions/proof.md has the reasons.
"""

import base64
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.attest import sbom, signing, statement
from graphcrate.attest.keys import PrivateKey
from graphcrate.model.proof import Statement, Subject
from graphcrate.oci import spec
from graphcrate.oci.image import digest_of, rfc3339

SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"  #: annotation with the signature in base64
CREATED = "org.opencontainers.image.created"
_CONTENT = "dev.sigstore.bundle.content"
#: annotations with the predicate's type: of a bundle, of a document that nobody signed
PREDICATE, IN_TOTO = "dev.sigstore.bundle.predicateType", "in-toto.io/predicate-type"
_EPOCH = "0001-01-01T00:00:00Z"  #: in cosign's configurations: no time


class Tagged(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest to push under a tag after its blobs, by digest; its configuration is one of them."""

    tag: str
    manifest: bytes
    blobs: Mapping[str, bytes]


class Referrer(msgspec.Struct, frozen=True, kw_only=True):
    """A blob to attach to the image as an artifact of its own. Its type is the blob's, too."""

    artifact_type: str
    data: bytes
    annotations: Mapping[str, str] = {}


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """All that is put beside an image."""

    referrers: tuple[Referrer, ...]
    tagged: tuple[Tagged, ...] = ()


def signed(
    about: Sequence[Statement],
    subject: Subject,
    repository: str,
    key: PrivateKey,
    created: int,
    before: Mapping[str, bytes],
) -> Attached:
    """The image signed, and each statement: as bundles, and under the tags of older cosigns.

    `repository`: registry and repository where the image lies; `created` in Unix seconds: the image's own; `before`:
    manifests that are there, by tag. Raises msgspec.DecodeError or msgspec.ValidationError for one that is none.
    """
    digest = subject.digest
    sealed = [signing.seal(said, key) for said in about]
    by_bundle = [
        (statement.signed(subject), signing.seal(statement.signed(subject), key)),
        *zip(about, sealed, strict=True),
    ]
    simple = signing.sign_simply(repository, digest, key)
    return Attached(
        referrers=tuple(
            bundle(signing.bundle(envelope, key.public.hint), said.predicate_type, created)
            for said, envelope in by_bundle
        ),
        tagged=(
            signatures(digest, [simple], before.get(signature_tag(digest), b"")),
            envelopes(digest, sealed, before.get(attestation_tag(digest), b"")),
        ),
    )


def unsigned(about: Sequence[Statement], created: int) -> Attached:
    """Each statement as it is; of a bill of materials the document alone, which is what scanners look for."""
    return Attached(referrers=tuple(_document(said, created) for said in about))


def signature_tag(digest: str) -> str:
    """Where cosign 1 and 2 look for signatures."""
    return f"{digest.replace(':', '-')}.sig"


def attestation_tag(digest: str) -> str:
    """Where cosign 1 and 2 look for envelopes."""
    return f"{digest.replace(':', '-')}.att"


def signatures(digest: str, made: Sequence[signing.SimpleSignature], before: bytes = b"") -> Tagged:
    """The manifest of all simple signatures. `before`: the manifest that is there, whose other signatures stay.

    Raises msgspec.DecodeError or msgspec.ValidationError if that is no manifest.
    """
    layers = [
        _layer(SIMPLE_SIGNING, one.payload, {SIGNATURE: base64.b64encode(one.signature).decode()}) for one in made
    ]
    blobs = {digest_of(one.payload): one.payload for one in made}
    return _tagged(signature_tag(digest), layers, blobs, before)


def envelopes(digest: str, made: Sequence[signing.Envelope], before: bytes = b"") -> Tagged:
    """The manifest of all envelopes, else as `signatures`."""
    layers, blobs = [], {}
    for envelope in made:
        data = msgspec.json.encode(envelope)
        predicate = statement.decode(envelope.payload).predicate_type
        layers.append(_layer(ENVELOPE, data, {SIGNATURE: "", "predicateType": predicate}))
        blobs[digest_of(data)] = data
    return _tagged(attestation_tag(digest), layers, blobs, before)


def bundle(data: bytes, predicate_type: str, created: int) -> Referrer:
    """A sigstore bundle. `created` in Unix seconds: the image's own."""
    annotations = {_CONTENT: "dsse-envelope", PREDICATE: predicate_type, CREATED: rfc3339(created)}
    return Referrer(artifact_type=signing.BUNDLE, data=data, annotations=annotations)


def _document(said: Statement, created: int) -> Referrer:
    annotations = {CREATED: rfc3339(created), IN_TOTO: said.predicate_type}
    if said.predicate_type == sbom.PREDICATE:
        return Referrer(artifact_type=sbom.MEDIA_TYPE, data=sbom.canonical(said.predicate), annotations=annotations)
    return Referrer(artifact_type=statement.PAYLOAD, data=statement.encode(said), annotations=annotations)


def _layer(media_type: str, data: bytes, annotations: dict[str, str]) -> spec.Descriptor:
    return spec.Descriptor(media_type=media_type, digest=digest_of(data), size=len(data), annotations=annotations)


def _tagged(tag: str, layers: Sequence[spec.Descriptor], blobs: dict[str, bytes], before: bytes) -> Tagged:
    """An image whose layers are payloads: the form that registries from before OCI 1.1 take."""
    kept = msgspec.json.decode(before, type=spec.Manifest).layers if before else ()
    every = [*kept, *(layer for layer in layers if layer not in kept)]
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
        config=spec.Descriptor(media_type=spec.CONFIG, digest=digest_of(encoded), size=len(encoded)),
        layers=tuple(every),
    )
    return Tagged(tag=tag, manifest=msgspec.json.encode(manifest), blobs={**blobs, digest_of(encoded): encoded})
