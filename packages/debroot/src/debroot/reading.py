"""Packed files and tars read with the standard library: what this library does where nothing else is handed in."""

import bz2
import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from debroot.errors import BrokenFileError, NotAPackageError

#: gives the plain bytes of (name for errors, end of its name such as ".xz", packed bytes, how many those are)
Inflate = Callable[[str, str, IO[bytes], int], Iterator[bytes]]
PACKINGS: Mapping[str, Any] = {
    ".xz": lzma.open,
    ".lzma": lzma.open,
    ".gz": gzip.open,
    ".bz2": bz2.open,
    "": contextlib.nullcontext,
}
_CHUNK = 1 << 20
_FREE, _RATIO = 1 << 30, 200  #: inflated bytes of any file, and for each packed byte; Debian's packages have 11
_BROKEN = (lzma.LZMAError, zlib.error, EOFError, ValueError)


def pieces(name: str, packing: str, packed: IO[bytes], count: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the plain bytes; `count` hears how many, and may raise. `packing` is one of `PACKINGS`.

    Raises BrokenFileError.
    """
    try:
        with PACKINGS[packing](packed) as stream:
            while piece := stream.read(_CHUNK):
                count(len(piece))
                yield piece
    except _BROKEN as error:
        raise _broken(name, error) from error
    except OSError as error:
        if error.errno is not None:
            raise  # the disk's fault, not the data's
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> BrokenFileError:
    return BrokenFileError(f"{name} cannot be inflated: {error}", cause="It was damaged or cut off.")


def inflated(name: str, packing: str, packed: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the plain bytes of `size` packed ones. Raises BrokenFileError, also for more than honest files have."""
    left = max(_FREE, _RATIO * size)

    def count(amount: int) -> None:
        nonlocal left
        left -= amount
        if left < 0:
            raise BrokenFileError(f"{name} inflates to more than {_RATIO} times its size")

    return pieces(name, packing, packed, count)


def tar_members(path: Path, begin: int) -> Iterator[tuple[tarfile.TarInfo, Iterable[bytes]]]:
    """Yield the entries of a tar with their contents, which are read before the next one. Raises NotAPackageError."""
    with path.open("rb") as file:
        file.seek(begin)
        try:
            with tarfile.open(fileobj=file, mode="r|", errors="surrogateescape") as tar:
                for member in tar:
                    yield member, _content(tar, member)
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise NotAPackageError(f"{path.name} has files that cannot be read: {error}") from error


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    stream, left = tar.extractfile(member) if member.isreg() else None, member.size
    while stream is not None and left:
        if not (piece := stream.read(min(_CHUNK, left))):
            raise NotAPackageError(f"{member.name} ends in the middle")
        left -= len(piece)
        yield piece
