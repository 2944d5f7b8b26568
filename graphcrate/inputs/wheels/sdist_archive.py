"""Archives of sources: their files read within limits, and an archive written from files."""

import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, cast

import msgspec
from packaging.requirements import InvalidRequirement

from graphcrate.host.disk.inflating import pieces
from graphcrate.host.sandbox.beneath import PlainFile
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import IntegrityError
from graphcrate.model.limits import SOURCES, Gauge
from layertar.errors import TarError
from layertar.stream import Chunks, TarStream, members

_CHUNK = 1 << 20
_MAGICS = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz"}
#: what readers of archives raise for damaged ones, and Python's for what is in them
_UNREADABLE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(ValueError, msgspec.ValidationError, InvalidRequirement),
    RuntimeError,  # a zip that is encrypted or compressed in another way; brackets within brackets without end
)


@contextlib.contextmanager
def reading_errors(name: str) -> Iterator[None]:
    """Raises IntegrityError for what cannot be read of an sdist."""
    try:
        yield
    except _UNREADABLE as error:
        raise broken(name, str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def check_sdist(path: Path, name: str) -> None:
    """Raises IntegrityError for an sdist that is damaged or a bomb: its unpackers have no limits."""
    read_files(path, name, lambda _: 0)


def read_files(path: Path, name: str, to_read: Callable[[str], int]) -> dict[str, bytes]:
    """Paths of an sdist's files below its folder, with what each begins with, `to_read` bytes of it.

    A .zip by its name, as pip goes by it, else a tar. Raises IntegrityError.
    """
    with reading_errors(name):
        return (_zipped if name.endswith(".zip") else _tarred)(path, name, to_read)


def _zipped(path: Path, name: str, to_read: Callable[[str], int]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    gauge = Gauge(SOURCES, name, packed=path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            gauge.member(info.filename, info.file_size)
        for info in archive.infolist():
            inside = info.filename.partition("/")[2]
            if info.filename.endswith("/"):
                continue
            with archive.open(info) as stream:
                files[inside] = stream.read(to_read(inside))
                gauge.inflated(len(files[inside]))
                while piece := stream.read(_CHUNK):  # headers may say less than comes out
                    gauge.inflated(len(piece))
    return files


def _tarred(path: Path, name: str, to_read: Callable[[str], int]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    gauge = Gauge(SOURCES, name, packed=path.stat().st_size)
    with path.open("rb") as file:
        head = file.read(6)
        file.seek(0)
        packing = next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), "")
        packed = cast("IO[bytes]", io.BufferedReader(Chunks(pieces(name, packing, file, gauge))))
        # What comes out is counted where it is inflated.
        stream = TarStream(packed, Gauge(SOURCES, name, packed=path.stat().st_size))
        try:
            for member, _ in members(stream):
                inside = member.name.partition("/")[2]
                if member.isfile():
                    size = 0 if member.issparse() else member.size
                    files[inside] = b"".join(stream.chunks(min(size, to_read(inside))))
        except TarError as error:
            raise broken(name, error.what) from error
    return files


def broken(name: str, detail: str) -> IntegrityError:
    """Return the error for an archive of sources that cannot be used."""
    return IntegrityError(
        f"{name} is not a usable source archive: {detail}",
        next_step=f"lock another version, or bring a wheel of it: {command('image', ETC, wheels='/path')}",
    )


def pack_sdist(archive: Path, stem: str, files: Mapping[str, PlainFile | bytes]) -> Path:
    """Write files (path below the folder `stem` → file or content) in this order, without times, owners and modes."""
    # Stored, since other versions of zlib pack to other bytes.
    with gzip.GzipFile(archive, "wb", compresslevel=0, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for inside, file in files.items():
                content = file if isinstance(file, bytes) else file.read()
                member = tarfile.TarInfo(f"{stem}/{inside}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return archive
