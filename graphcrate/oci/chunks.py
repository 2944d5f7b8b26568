"""How a blob is cut for an upload, and the headers that say where a piece lies. Pure.

Distribution specification 1.1, "Pushing a blob in chunks".
"""

import re

import msgspec

FIRST = 16 << 20  #: bytes of the first chunk
MOST = 128 << 20  #: of the largest: each chunk that arrives doubles the next
LEAST = 4 << 20  #: below this no break makes a chunk smaller; only a registry that refuses larger ones does
SMALLEST = 256 << 10  #: a registry that refuses even this takes no image
_RANGE = re.compile(r"(?:bytes[= ])?0-(\d+)")


class ChunkSize(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the sizes that a registry takes. `least`: all but the last chunk have so many bytes."""

    bytes: int = FIRST
    least: int = 0
    most: int = MOST
    whole: bool = False  #: this registry takes blobs in one piece only

    def of(self, remaining: int) -> int:
        """Bytes of the next chunk, at least 1 where any remain."""
        return remaining if self.whole else min(remaining, max(self.bytes, self.least))

    def demanded(self, least: int) -> "ChunkSize":
        """After an answer with OCI-Chunk-Min-Length."""
        return msgspec.structs.replace(self, least=max(least, 0))

    def arrived(self) -> "ChunkSize":
        """After a chunk that was taken."""
        return msgspec.structs.replace(self, bytes=min(self.bytes * 2, self.most))

    def broken(self) -> "ChunkSize":
        """After a chunk that was cut off: less is at stake the next time."""
        return msgspec.structs.replace(self, bytes=min(max(self.bytes // 2, LEAST), self.bytes))

    def refused(self, length: int) -> "ChunkSize | None":
        """After a chunk of this length was too large (HTTP 413): the next power of two, as limits are written.

        None when nothing smaller makes sense.
        """
        most = min(self.most, 1 << max(length - 1, 0).bit_length() - 1) if length > 1 else 0
        if most < max(self.least, SMALLEST):
            return None
        return msgspec.structs.replace(self, bytes=min(self.bytes, most), most=most, whole=False)


def content_range(begin: int, length: int) -> str:
    """The Content-Range of a chunk: both ends count, and there is no unit."""
    return f"{begin}-{begin + length - 1}"


def arrived_bytes(header: str | None) -> int | None:
    """How many bytes a `Range` says that the registry has; None for anything else than a range from 0.

    `0-0` stands for one byte, and for none too, since the header cannot say that: it is taken for none.
    """
    found = _RANGE.fullmatch((header or "").strip())
    if found is None:
        return None
    end = int(found[1])
    return end + 1 if end else 0
