"""Proof: what is said about an image, who signed it, and what became of checking that."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

STATEMENT = "https://in-toto.io/Statement/v1"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The image that something is said about. `digest` is that of its manifest, `sha256:` before the hex.

    `name` and `tag` are the project's own, without a registry: what is said holds wherever the image lies.
    """

    name: str
    tag: str
    digest: str

    @property
    def sha256(self) -> str:
        """The digest's hex."""
        return self.digest.removeprefix("sha256:")


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person asked for: the external parameters of the build's provenance. Empty is "not said"."""

    recipe: str
    variant: str  #: its CUDA version
    candidate: str = ""
    target: str = ""
    gpus: tuple[str, ...] = ()
    driver: str = ""
    channel: str = ""
    extensions: str = ""
    toolkit: str = ""
    flavour: str = ""  #: "devel": with compiler and toolkit


class PackageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a package's own files say, for the bill of materials."""

    licences: tuple[str, ...] = ()  #: all that hold for parts of it, each an SPDX expression or a name in words
    requires: tuple[str, ...] = ()  #: normalised names of what it needs, whether the image has them or not


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Of the packages of an image, by name: Python's (normalised) and Debian's."""

    python: Mapping[str, PackageFacts] = {}
    debian: Mapping[str, PackageFacts] = {}


class Resource(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """in-toto's ResourceDescriptor: something that is named by digest, `{"sha256": hex}`."""

    name: str = ""
    uri: str = ""
    digest: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Statement(msgspec.Struct, frozen=True, kw_only=True, rename={"type": "_type", "predicate_type": "predicateType"}):
    """An in-toto Statement, v1."""

    type: str = STATEMENT
    subject: tuple[Resource, ...]
    predicate_type: str
    predicate: Any


class Outcome(StrEnum):
    """What a signature turned out to be."""

    VERIFIED = "verified"
    ABSENT = "absent"  #: nothing is signed
    WRONG_KEY = "wrong key"  #: made with another key
    ALTERED = "altered"  #: bytes are not those that were signed
    OTHER_IMAGE = "other image"  #: signed with this key, about another digest
    MALFORMED = "malformed"  #: not in a form that can be checked


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome in words. `statement`: what was signed, of an attestation that is verified."""

    outcome: Outcome
    said: str
    statement: Statement | None = None

    @property
    def is_verified(self) -> bool:
        return self.outcome is Outcome.VERIFIED
