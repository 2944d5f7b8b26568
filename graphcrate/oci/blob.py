"""Reading a layer's blob as a tar: one pass, bounded memory. What `validate` and the root file system share."""

import contextlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Protocol, cast

from isal import igzip, igzip_lib

from graphcrate.model.errors import LayoutError
from graphcrate.model.limits import LAYER, Gauge
from graphcrate.model.words import printable
from ocilayout import spec
from ocilayout.spec import LayerBlob

CHUNK = 1 << 20
#: Headers that hold long names and attributes are read whole; none is this long, save to fill our memory.
MAX_READ = 1 << 24
MAX_HEADERS = 1 << 25  #: bytes of all headers of one entry, which may be one behind another


NOBODYS = (1 << 32) - 1  #: no owner has this number: chown(2) takes it for "leave it as it is"
_LATEST = (1 << 63) / 1e9  #: Unix seconds that fit into nanoseconds as utimensat(2) is given them


InflateError = cast("type[Exception]", igzip_lib.error)  # its stub declares an instance


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
    """The uncompressed bytes of a layer, readable forward only; `tarfile` reads headers from it.

    `gauge` counts what is inflated and what is in it.
    """

    def __init__(
        self, source: IO[bytes], digest: Hash | None, broken: tuple[type[Exception], ...], gauge: Gauge
    ) -> None:
        self._source, self._digest, self._broken, self.gauge = source, digest, broken, gauge
        self._position = 0
        self.header_bytes: int | None = None  #: that may still be read of an entry's headers

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end. Raises LayoutError where the compressed data is broken."""
        if not 0 <= size <= MAX_READ:
            raise LayoutError(f"the tar has a header of {size} bytes")
        if self.header_bytes is not None:
            self.header_bytes -= size
            if self.header_bytes < 0:
                raise LayoutError(f"the tar has an entry with more than {MAX_HEADERS} bytes of headers")
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
            raise LayoutError(f"compressed data is broken: {error}") from error
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
        """The next `size` bytes in pieces. Raises LayoutError where the stream ends before."""
        while size:
            data = self.read(min(CHUNK, size))
            if not data:
                raise LayoutError("the tar ends in the middle of a file")
            size -= len(data)
            yield data

    def drain(self) -> None:
        """Read to the end, so that checksums and hashes cover everything."""
        while self.read(CHUNK):
            pass


@contextlib.contextmanager
def open_blob(
    blob: LayerBlob,
    *,
    advance: Callable[[int], None] | None = None,
    digest: Hash | None = None,
    diff_id: Hash | None = None,
) -> Iterator[TarStream]:
    """Open a layer, gzip (any number of members), zstd or plain. `advance` counts compressed bytes.

    `digest` and `diff_id` are hashes that get the compressed and the uncompressed bytes.
    """
    kind = spec.LAYER_TYPES.get(blob.media_type)
    if kind is None:
        raise LayoutError(
            f"a layer of type {blob.media_type} cannot be read",
            cause="Known are tar, tar+gzip and tar+zstd; layers that may not be distributed are not read.",
        )
    try:
        opened = blob.path.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise LayoutError(
            f"there is no {blob.path}", cause="The copy stopped in the middle, or a blob was removed."
        ) from error
    with opened as file:

        def pieces() -> Iterator[bytes]:
            while piece := file.read(CHUNK):
                if digest is not None:
                    digest.update(piece)
                if advance is not None:
                    advance(len(piece))
                yield piece

        size = os.fstat(file.fileno()).st_size
        yield inflated(kind, cast("IO[bytes]", io.BufferedReader(Chunks(pieces()), CHUNK)), size, diff_id)


def inflated(kind: str, compressed: IO[bytes], size: int | None, diff_id: Hash | None = None) -> TarStream:
    """The tar in these bytes; `kind` is one of `spec.LAYER_TAR`, `LAYER_GZIP`, `LAYER_ZSTD`.

    `size`: how many there are, compressed; None if unknown.
    """
    gauge = Gauge(LAYER, "", LayoutError, size)
    if kind == spec.LAYER_GZIP:
        # BadGzipFile (an OSError without a number) for headers and checksums, EOFError for a file that is cut off.
        inflating = cast("IO[bytes]", igzip.IGzipFile(fileobj=compressed, mode="rb"))  # type: ignore[no-untyped-call]
        return TarStream(inflating, diff_id, (InflateError, OSError, EOFError), gauge)
    if kind == spec.LAYER_ZSTD:
        import zstandard  # only base layers of others are zstd

        reader = zstandard.ZstdDecompressor().stream_reader(compressed, CHUNK, read_across_frames=True)
        return TarStream(cast("IO[bytes]", reader), diff_id, (zstandard.ZstdError,), gauge)
    return TarStream(compressed, diff_id, (), gauge)


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
            raise LayoutError(f"the tar has a member of negative size at byte {self.offset}")
        stream.seek(self.offset)
        if stream.tell() < self.offset:
            raise LayoutError("the tar ends in the middle of a file")
        stream.header_bytes = MAX_HEADERS
        try:
            return self.tarinfo.fromtarfile(self)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            self._ended = True
            return None
        except (tarfile.HeaderError, ValueError, IndexError, ArithmeticError) as error:
            raise LayoutError(f"the tar has a broken header at byte {self.offset}: {error}") from error
        except RecursionError as error:
            raise LayoutError(f"the tar has headers of headers without end at byte {self.offset}") from error
        finally:
            stream.header_bytes = None


def _check_numbers(member: tarfile.TarInfo) -> None:
    """Raises LayoutError for numbers that no file has: a PAX header may say any."""
    name = printable(member.name)
    if member.size < 0:
        raise LayoutError(f"{name} has a size of {member.size} bytes")
    if not (0 <= member.uid < NOBODYS and 0 <= member.gid < NOBODYS):
        raise LayoutError(f"{name} is owned by {member.uid}:{member.gid}; owners are numbers from 0 to {NOBODYS - 1}")
    if not -_LATEST < member.mtime < _LATEST:  # nor is it a number at all
        raise LayoutError(f"{name} has no valid time")


def members(stream: TarStream) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Headers in order; a member's content can be read from the stream until the next one is asked for.

    Raises LayoutError for anything but a whole tar. Sparse members need `extractfile` of the second value.
    """
    try:
        archive = _StrictTar(fileobj=cast("IO[bytes]", stream), mode="r", encoding="utf-8", errors="surrogateescape")
    except tarfile.ReadError as error:
        raise LayoutError(f"not a tar: {error}") from error
    while (member := archive.next()) is not None:
        attributes = sum(map(len, member.pax_headers.values()))
        stream.gauge.member(member.name, member.size, len(member.linkname) + attributes)
        _check_numbers(member)
        yield member, archive
    stream.drain()
