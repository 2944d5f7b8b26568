"""Compressed bytes to plain ones, a piece at a time, as far as the limits of `model.limits` go."""

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

from graphcrate.model.errors import IntegrityError
from graphcrate.model.limits import Gauge

_CHUNK = 1 << 20
#: by the end of a file's name
PACKINGS: Mapping[str, Any] = {
    ".xz": lzma.open,
    ".lzma": lzma.open,
    ".gz": gzip.open,
    ".bz2": bz2.open,
    "": contextlib.nullcontext,
}
_BROKEN = (lzma.LZMAError, zlib.error, EOFError, ValueError)


def pieces(name: str, packing: str, packed: IO[bytes], gauge: Gauge) -> Iterator[bytes]:
    """Yield the decompressed bytes; `packing` is one of `PACKINGS`. `name` is for errors.

    Raises IntegrityError where it is broken, and what `gauge` raises.
    """
    try:
        with PACKINGS[packing](packed) as stream:
            while piece := stream.read(_CHUNK):
                gauge.inflated(len(piece))
                yield piece
    except _BROKEN as error:
        raise _broken(name, error) from error
    except OSError as error:
        if error.errno is not None:
            raise  # the disk's fault, not the data's
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> IntegrityError:
    return IntegrityError(f"{name} cannot be inflated: {error}", cause="It was damaged or cut off.")
