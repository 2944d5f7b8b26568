"""A tar that is read forward only, in one pass and bounded memory, and that ends nowhere in silence."""

import io
import tarfile
from collections.abc import Iterable, Iterator
from typing import IO, Any, Protocol, cast

from layertar.errors import ArchiveError, TarError
from layertar.limits import Gauge

CHUNK = 1 << 20
#: Headers that hold long names and attributes are read whole; none is this long, save to fill our memory.
MAX_READ = 1 << 24
MAX_HEADERS = 1 << 25  #: bytes of all headers of one entry, which may be one behind another
NOBODYS = (1 << 32) - 1  #: no owner has this number: chown(2) takes it for "leave it as it is"
_LATEST = (1 << 63) / 1e9  #: Unix seconds that fit into nanoseconds as utimensat(2) is given them


class Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Chunks(io.RawIOBase):
    """A file of pieces that come one after another, readable forward only."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (a buffer; typing has no name for it in 3.11)
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class TarStream:
    """The uncompressed bytes of a tar, readable forward only; `tarfile` reads headers from it.

    `digest` gets all of them; `broken` is what `source` raises for damaged data; `gauge` counts what is inflated and
    what is in it; `error` is what any reader of this tar raises.
    """

    def __init__(
        self,
        source: IO[bytes],
        gauge: Gauge,
        *,
        digest: Hash | None = None,
        broken: tuple[type[Exception], ...] = (),
        error: type[ArchiveError] = TarError,
    ) -> None:
        self._source, self._digest, self._broken, self.gauge, self.error = source, digest, broken, gauge, error
        self._position = 0
        self.header_bytes: int | None = None  #: that may still be read of an entry's headers

    def read(self, size: int) -> bytes:
        """Read `size` bytes, fewer only at the end. Raises `error` where the compressed data is broken."""
        if not 0 <= size <= MAX_READ:
            raise self.error(f"the tar has a header of {size} bytes")
        if self.header_bytes is not None:
            self.header_bytes -= size
            if self.header_bytes < 0:
                raise self.error(f"the tar has an entry with more than {MAX_HEADERS} bytes of headers")
        try:
            data = self._source.read(size)
            while len(data) < size:
                more = self._source.read(size - len(data))
                if not more:
                    break
                data += more
        except self._broken as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's fault, not the data's
            raise self.error(f"compressed data is broken: {error}") from error
        if self._digest is not None:
            self._digest.update(data)
        self._position += len(data)
        self.gauge.inflated(len(data))
        return data

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Skip forward. Going back is refused."""
        if whence != io.SEEK_SET or position < self._position:
            raise io.UnsupportedOperation("a layer is read forward")
        while self._position < position and self.read(min(CHUNK, position - self._position)):
            pass
        return self._position

    def chunks(self, size: int) -> Iterator[bytes]:
        """Give the next `size` bytes in pieces. Raises `error` where the stream ends before."""
        while size:
            data = self.read(min(CHUNK, size))
            if not data:
                raise self.error("the tar ends in the middle of a file")
            size -= len(data)
            yield data

    def drain(self) -> None:
        """Read to the end, so that checksums and hashes cover everything."""
        while self.read(CHUNK):
            pass


class _StrictTar(tarfile.TarFile):
    """`tarfile` ends in silence at a broken header; this one says so, and keeps no list of what it has read."""

    _ended = False

    def next(self) -> tarfile.TarInfo | None:
        first: tarfile.TarInfo | None = self.firstmember  # type: ignore[has-type]
        if first is not None:  # read by the constructor
            self.firstmember = None
            return first
        if self._ended:
            return None
        stream = cast("TarStream", self.fileobj)
        if self.offset < stream.tell():
            raise stream.error(f"the tar has a member of negative size at byte {self.offset}")
        stream.seek(self.offset)
        if stream.tell() < self.offset:
            raise stream.error("the tar ends in the middle of a file")
        stream.header_bytes = MAX_HEADERS
        try:
            return self.tarinfo.fromtarfile(self)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            self._ended = True
            return None
        except (tarfile.HeaderError, ValueError, IndexError, ArithmeticError) as error:
            raise stream.error(f"the tar has a broken header at byte {self.offset}: {error}") from error
        except RecursionError as error:
            raise stream.error(f"the tar has headers of headers without end at byte {self.offset}") from error
        finally:
            stream.header_bytes = None


def _check_numbers(member: tarfile.TarInfo, error: type[ArchiveError]) -> None:
    """Raise this error for numbers that no file has: a PAX header may say any."""
    name = _printable(member.name)
    if member.size < 0:
        raise error(f"{name} has a size of {member.size} bytes")
    if not (0 <= member.uid < NOBODYS and 0 <= member.gid < NOBODYS):
        raise error(f"{name} is owned by {member.uid}:{member.gid}; owners are numbers from 0 to {NOBODYS - 1}")
    if not -_LATEST < member.mtime < _LATEST:  # nor is it a number at all
        raise error(f"{name} has no valid time")


def members(stream: TarStream) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Give headers in order; a member's content can be read from the stream until the next one is asked for.

    Raises the stream's error for anything but a whole tar. Sparse members need `extractfile` of the second value.
    """
    try:
        archive = _StrictTar(fileobj=cast("IO[bytes]", stream), mode="r", encoding="utf-8", errors="surrogateescape")
    except tarfile.ReadError as error:
        raise stream.error(f"not a tar: {error}") from error
    while (member := archive.next()) is not None:
        attributes = sum(map(len, member.pax_headers.values()))
        stream.gauge.member(member.name, member.size, len(member.linkname) + attributes)
        _check_numbers(member, stream.error)
        yield member, archive
    stream.drain()


def content_of(header: tarfile.TarInfo, stream: TarStream) -> Iterator[bytes]:
    """Give the content of the file whose header was read last, holes as zeros. Raises for a false map."""
    if not header.issparse():
        yield from stream.chunks(header.size)
        return
    position = 0
    for start, size in (*cast("Iterable[tuple[int, int]]", header.sparse), (header.size, 0)):
        if start < position or size < 0 or start + size > header.size:
            raise stream.error(f"{header.name} is a sparse file whose map does not fit")
        while position < start:
            yield bytes(min(CHUNK, start - position))
            position += min(CHUNK, start - position)
        yield from stream.chunks(size)
        position += size


def _printable(name: str) -> str:
    """Names are a stranger's to choose; none may speak to the terminal or break a line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)
