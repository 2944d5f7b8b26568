"""in-toto Statements about an image, and their bytes.

Shape: the in-toto Attestation Framework, v1 (Statement, ResourceDescriptor).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD = "application/vnd.in-toto+json"  #: media type of a statement


class Resource(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """in-toto's ResourceDescriptor: something that is named by digest, `{"sha256": hex}`."""

    name: str = ""
    uri: str = ""
    digest: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Statement(msgspec.Struct, frozen=True, kw_only=True, rename={"type": "_type", "predicate_type": "predicateType"}):
    """An in-toto Statement, v1."""

    type: str = TYPE
    subject: tuple[Resource, ...]
    predicate_type: str
    predicate: Any


_READER = msgspec.json.Decoder(Statement)  # made here: the first use of a type by several threads crashes msgspec


def make(name: str, digest: str, predicate_type: str, predicate: Any) -> Statement:  # noqa: ANN401
    """Make a statement about one image, by its manifest's digest.

    `name`: without a registry, so that the statement holds on any. `predicate`: anything that msgspec turns into a
    JSON object.
    """
    about = Resource(name=name, digest={"sha256": digest.removeprefix("sha256:")})
    return Statement(subject=(about,), predicate_type=predicate_type, predicate=predicate)


def encode(statement: Statement) -> bytes:
    """Encode as canonical JSON: names sorted, no spaces."""
    return msgspec.json.encode(statement, order="sorted")


def decode(data: bytes) -> Statement:
    """Read a statement. Raises one of `errors.UNREADABLE`."""
    return _READER.decode(data)
