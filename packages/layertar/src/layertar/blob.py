"""The file of a layer, compressed or not, opened as a tar."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from typing import IO, cast

from isal import igzip, igzip_lib

from layertar.errors import ArchiveError, TarError
from layertar.limits import LAYER, Gauge, Limits
from layertar.stream import CHUNK, Chunks, Hash, TarStream
from ocilayout import spec
from ocilayout.spec import LayerBlob

InflateError = cast("type[Exception]", igzip_lib.error)  # its stub declares an instance


@contextlib.contextmanager
def open_blob(
    blob: LayerBlob,
    *,
    limits: Limits = LAYER,
    error: type[ArchiveError] = TarError,
    advance: Callable[[int], None] | None = None,
    digest: Hash | None = None,
    diff_id: Hash | None = None,
) -> Iterator[TarStream]:
    """Open a layer, gzip (any number of members), zstd or plain. `advance` counts compressed bytes.

    `digest` and `diff_id` are hashes that get the compressed and the uncompressed bytes. Reading raises `error`, also
    beyond `limits`.
    """
    kind = spec.LAYER_TYPES.get(blob.media_type)
    if kind is None:
        raise error(
            f"a layer of type {blob.media_type} cannot be read",
            cause="Known are tar, tar+gzip and tar+zstd; layers that may not be distributed are not read.",
        )
    try:
        opened = blob.path.open("rb", buffering=0)
    except FileNotFoundError as absent:
        raise error(
            f"there is no {blob.path}", cause="The copy stopped in the middle, or a blob was removed."
        ) from absent
    with opened as file:

        def pieces() -> Iterator[bytes]:
            while piece := file.read(CHUNK):
                if digest is not None:
                    digest.update(piece)
                if advance is not None:
                    advance(len(piece))
                yield piece

        gauge = Gauge(limits, "", error, os.fstat(file.fileno()).st_size)
        yield inflated(kind, cast("IO[bytes]", io.BufferedReader(Chunks(pieces()), CHUNK)), gauge, error, diff_id)


def inflated(
    kind: str,
    compressed: IO[bytes],
    gauge: Gauge,
    error: type[ArchiveError] = TarError,
    diff_id: Hash | None = None,
) -> TarStream:
    """Open the tar in these bytes; `kind` is one of `spec.LAYER_TAR`, `LAYER_GZIP`, `LAYER_ZSTD`."""
    if kind == spec.LAYER_GZIP:
        # BadGzipFile (an OSError without a number) for headers and checksums, EOFError for a file that is cut off.
        inflating = cast("IO[bytes]", igzip.IGzipFile(fileobj=compressed, mode="rb"))  # type: ignore[no-untyped-call]
        broken = (InflateError, OSError, EOFError)
        return TarStream(inflating, gauge, digest=diff_id, broken=broken, error=error)
    if kind == spec.LAYER_ZSTD:
        import zstandard  # takes long to load, and few layers are zstd

        reader = zstandard.ZstdDecompressor().stream_reader(compressed, CHUNK, read_across_frames=True)
        return TarStream(cast("IO[bytes]", reader), gauge, digest=diff_id, broken=(zstandard.ZstdError,), error=error)
    return TarStream(compressed, gauge, digest=diff_id, error=error)
