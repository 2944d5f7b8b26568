"""An entry of a shared cache: a file under the key of its making, and the signed statement that it is that.

The statement is in-toto's, in a DSSE envelope, signed as images are (`attest`).
"""

import binascii
from collections.abc import Iterable

import msgspec

from graphcrate.attest import keys, signing, statement
from graphcrate.attest.statement import Resource, Statement
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE
from graphcrate.model.values import is_file_name

PREDICATE = f"{statement.OURS}cache-entry:1"
MOST_BYTES = 64 << 10  #: of an envelope; one has a thousand
COMPILED = "compiled"  #: kind of a wheel that was compiled; its key is `inputs.extensions.key`


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The signed facts of a file: the kind and the key that it was made for, its name, size and SHA-256 (hex).

    `maker` and `made` (UTC) are for people: which graphcrate wrote it, on which machine, and when.
    """

    kind: str
    key: str
    name: str
    size: int
    sha256: str
    maker: str
    made: str

    @property
    def tag(self) -> str:
        """The name that places have it under, which a registry takes as a tag."""
        return tag(self.kind, self.key)


class _Predicate(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    key: str
    size: int
    maker: str
    made: str


def tag(kind: str, key: str) -> str:
    """Return the name of an entry in a place."""
    return f"{kind}-{key}"


def sealed(entry: CacheEntry, key: keys.PrivateKey) -> bytes:
    """Return the entry's statement in an envelope that this key has signed."""
    about = _Predicate(kind=entry.kind, key=entry.key, size=entry.size, maker=entry.maker, made=entry.made)
    subject = Resource(name=entry.name, digest={"sha256": entry.sha256})
    document = Statement(subject=(subject,), predicate_type=PREDICATE, predicate=msgspec.to_builtins(about))
    return msgspec.json.encode(signing.seal(document, key))


def opened(data: bytes, kind: str, key: str, trusted: Iterable[keys.PublicKey]) -> CacheEntry | str:
    """Return the entry of an envelope, or the reason why it does not count.

    It has to be signed by one of these keys, and about this kind and key: an entry may have been moved or copied.
    """
    try:
        envelope = codec.decode(data, signing.Envelope)
    except (*UNREADABLE, binascii.Error):
        return "it is not a signed statement"
    payload = signing.authenticated(envelope.payload_type, envelope.payload)
    if not any(keys.fits(signer, signature.sig, payload) for signer in trusted for signature in envelope.signatures):
        return "no key that you trust has signed it"
    try:
        document = statement.decode(envelope.payload)
        about = codec.convert(document.predicate, _Predicate)
    except UNREADABLE:
        return "its statement is of another version of graphcrate"
    if envelope.payload_type != statement.PAYLOAD or document.predicate_type != PREDICATE or len(document.subject) != 1:
        return "its statement is about something else"
    if (about.kind, about.key) != (kind, key):
        return f"it is the entry of {about.kind} {about.key[:12]}, under another name"
    (subject,) = document.subject
    sha256 = subject.digest.get("sha256", "")
    if not is_file_name(subject.name) or len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        return "its statement names no file"
    return CacheEntry(
        kind=kind, key=key, name=subject.name, size=about.size, sha256=sha256, maker=about.maker, made=about.made
    )
