"""A .deb's files, read by `debroot` with our limits for what is package_pieces and for tars."""

import contextlib
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from debroot import deb as debs
from debroot.deb import FileOwner
from graphcrate.host.disk.inflating import pieces
from graphcrate.inputs.bases.debroot_errors import translated
from graphcrate.model.errors import IntegrityError
from graphcrate.model.limits import PACKAGE, Gauge
from layertar.errors import TarError
from layertar.stream import TarStream, content_of, members


def inflate_member(deb: Path, target: Path) -> int:
    """Write a package with its files package_pieces; return where they begin. Raises IntegrityError."""
    with translated():
        return debs.inflate_member(deb, target, package_pieces)


def extract(deb: Path, begin: int, root: Path, only: str = "") -> dict[str, FileOwner]:
    """Write the files of a package as far as they stay in the tree. Raises IntegrityError."""
    with translated():
        return debs.extract(deb, begin, root, only, tar_members)


def package_pieces(name: str, packing: str, packed: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the plain bytes of a package's member. Raises IntegrityError."""
    return pieces(name, packing, packed, Gauge(PACKAGE, name, packed=size))


def tar_members(deb: Path, begin: int) -> Iterator[tuple[tarfile.TarInfo, Iterable[bytes]]]:
    """Yield the entries of the tar that begins there, each with its content. Raises NotAPackageError."""
    with deb.open("rb") as file:
        file.seek(begin)
        stream = TarStream(file, Gauge(PACKAGE, deb.name, IntegrityError, deb.stat().st_size))
        with _readable(deb):
            for member, _ in members(stream):
                yield member, _content(deb, member, stream)


def _content(deb: Path, member: tarfile.TarInfo, stream: TarStream) -> Iterator[bytes]:
    with _readable(deb):
        yield from content_of(member, stream)


@contextlib.contextmanager
def _readable(deb: Path) -> Iterator[None]:
    try:
        yield
    except TarError as error:
        debs.fail(deb, f"has files that cannot be read: {error.what}")
