"""Compressed bytes to plain ones, a piece at a time, as far as the limits of `model.limits` go."""

from collections.abc import Iterator
from typing import IO

from debroot import reading
from debroot.errors import BrokenFileError
from graphcrate.model.errors import IntegrityError
from graphcrate.model.limits import Gauge


def pieces(name: str, packing: str, packed: IO[bytes], gauge: Gauge) -> Iterator[bytes]:
    """Yield the decompressed bytes; `packing` is one of `reading.PACKINGS`. `name` is for errors.

    Raises IntegrityError where it is broken, and what `gauge` raises.
    """
    try:
        yield from reading.pieces(name, packing, packed, gauge.inflated)
    except BrokenFileError as error:
        raise IntegrityError(error.what, cause=error.cause) from error
