"""An entry of a shared cache: files under the key of their making, and the signed statement that they are that.

The statement is in-toto's, in a DSSE envelope, signed as images are (`dssesign`).
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from dssesign import keys, signing, statement
from dssesign.errors import UNREADABLE
from dssesign.statement import Resource, Statement
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.inputs.making import Making
from graphcrate.model import codec
from graphcrate.model.values import OURS, FileName, Sha256, Size
from graphcrate.model.words import printable

PREDICATE = f"{OURS}cache-entry:2"
MOST_BYTES = 256 << 10  #: of an envelope; one has a thousand, and a hundred more for each file
MOST_FILES = 256  #: of an entry; an image has its layers and a dozen documents
TAG = re.compile(r"(?P<kind>[a-z]+)-(?P<key>[0-9a-z.-]{16,100})")  #: the name of an entry in a place
UNTRUSTED = "no key that you trust has signed it"
#: Kinds of entries. The key of each is one that this machine's own cache has it under, so that no entry is found
#: for anything but what would be made here.
COMPILED = "compiled"  #: a wheel that was compiled (`inputs.extensions.key`)
IMAGE = "image"  #: an image, with what its tests said (`planning.build_key`)
BASE = "base"  #: a layer with a Debian base, and its record (`bases.debian.key`)
LAYER = "layer"  #: a layer of wheels, and its records (`embedded.layers.Workshop.key`)


class SharedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an entry: its name there, its size and SHA-256 (hex)."""

    name: FileName
    size: Size
    sha256: Sha256

    @classmethod
    def of(cls, path: Path, name: str = "") -> "SharedFile":
        """Describe a file that is here. Raises OSError."""
        return cls(name=name or path.name, size=path.stat().st_size, sha256=sha256_of(path))

    def is_at(self, path: Path) -> bool:
        """Tell whether a file has these bytes; it reads all of them."""
        return path.is_file() and path.stat().st_size == self.size and sha256_of(path) == self.sha256


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The signed facts of an entry: the kind and the key that its files were made for.

    `seconds`: what making them took. `maker`, `made` (UTC) and `title` are for people: which graphcrate wrote it, on
    which machine, and when; what it is.
    """

    kind: str
    key: str
    files: tuple[SharedFile, ...]
    seconds: float
    maker: str
    made: str
    title: str = ""

    @property
    def tag(self) -> str:
        """The name that places have it under, which a registry takes as a tag."""
        return tag(self.kind, self.key)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in self.files)

    @property
    def making(self) -> Making:
        """The record that a cache keeps beside what came of it."""
        return Making(maker=self.maker, made=self.made, seconds=self.seconds)

    @property
    def who(self) -> str:
        """Say who made it, and when."""
        return printable(f"{self.maker} on {self.made}")


class _Predicate(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    key: str
    files: Annotated[tuple[SharedFile, ...], msgspec.Meta(min_length=1, max_length=MOST_FILES)]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    maker: Annotated[str, msgspec.Meta(max_length=200)]
    made: Annotated[str, msgspec.Meta(max_length=40)]
    title: Annotated[str, msgspec.Meta(max_length=200)] = ""


def tag(kind: str, key: str) -> str:
    """Return the name of an entry in a place."""
    return f"{kind}-{key}"


def sealed(entry: CacheEntry, key: keys.PrivateKey) -> bytes:
    """Return the entry's statement in an envelope that this key has signed."""
    subject = tuple(Resource(name=file.name, digest={"sha256": file.sha256}) for file in entry.files)
    document = Statement(subject=subject, predicate_type=PREDICATE, predicate=msgspec.to_builtins(entry))
    return msgspec.json.encode(signing.seal(document, key))


def opened(data: bytes, kind: str, key: str, trusted: Iterable[keys.PublicKey]) -> CacheEntry | str:
    """Return the entry of an envelope, or the reason why it does not count.

    It has to be signed by one of these keys, and about this kind and key: an entry may have been moved or copied.
    """
    envelope = _read(data)
    if envelope is None:
        return "it is not a signed statement"
    if not signing.is_signed(envelope, trusted):
        return UNTRUSTED
    known = _stated(envelope)
    if isinstance(known, CacheEntry) and (known.kind, known.key) != (kind, key):
        return f"it is the entry of {printable(known.kind)} {printable(known.key[:12])}, under another name"
    return known


def claimed(data: bytes) -> CacheEntry | None:
    """Return what an envelope says, by any key or none; None where it says nothing that is an entry."""
    envelope = _read(data)
    known = _stated(envelope) if envelope else None
    return known if isinstance(known, CacheEntry) else None


def _read(data: bytes) -> signing.Envelope | None:
    try:
        return signing.read_envelope(data)
    except UNREADABLE:
        return None


def _stated(envelope: signing.Envelope) -> CacheEntry | str:
    """Return the entry of an envelope, or the reason why there is none in it."""
    try:
        document = statement.decode(envelope.payload)
        if (envelope.payload_type, document.predicate_type) != (statement.PAYLOAD, PREDICATE):
            return "its statement is about something else, or of another version of graphcrate"
        about = codec.convert(document.predicate, _Predicate)
    except UNREADABLE:
        return "its statement is of another version of graphcrate"
    if len({file.name for file in about.files}) < len(about.files):
        return "its statement has two files of one name"
    return CacheEntry(**msgspec.structs.asdict(about))
