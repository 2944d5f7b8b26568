"""in-toto Statements about an image: their types, and their bytes.

Shape: the in-toto Attestation Framework, v1 (Statement, ResourceDescriptor).
"""

from typing import Any

import msgspec

from graphcrate.model.proof import Resource, Statement, Subject

PAYLOAD = "application/vnd.in-toto+json"  #: media type of a statement
#: Beginning of the project's own type names. It has no address on the web that it could promise to keep.
OURS = "urn:graphcrate:"
COSIGN = "https://sigstore.dev/cosign/sign/v1"  #: "this image is signed", as cosign 3 says it


def make(subject: Subject, predicate_type: str, predicate: Any) -> Statement:  # noqa: ANN401
    """A statement about one image. `predicate`: anything that msgspec turns into a JSON object."""
    about = Resource(name=subject.name, digest={"sha256": subject.sha256})
    return Statement(subject=(about,), predicate_type=predicate_type, predicate=predicate)


def signed(subject: Subject) -> Statement:
    """That the image is signed, nothing more."""
    return make(subject, COSIGN, {})


def encode(statement: Statement) -> bytes:
    """Canonical JSON: names sorted, no spaces."""
    return msgspec.json.encode(statement, order="sorted")


def decode(data: bytes) -> Statement:
    """Raises msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError."""
    return msgspec.json.decode(data, type=Statement)
