"""A wheel's libraries without the GPU code that some GPUs never load: zeros in its place, nothing else changed."""

import base64
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from graphcrate.inputs.wheels.install import Placed
from graphcrate.model.plan import Slim
from graphcrate.model.report import CutFile
from treeaudit import elf, fatbin
from treeaudit.errors import FileError
from wheelread.archive import CHUNK, WheelArchive


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A library that was cut: a file of the same size. `identity`: as RECORD writes it; `about` lacks `packed`."""

    path: Path
    identity: str
    size: int
    about: CutFile

    def chunks(self) -> Iterator[bytes]:
        """The content in pieces."""
        with self.path.open("rb", buffering=0) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk


def cut(package: str, archive: WheelArchive, placed: Placed, slim: Slim, folder: Path) -> Cut | None:
    """Cut a file, in a new one of the folder; None where there is nothing to cut, or nothing that is understood.

    Raises IntegrityError for content that is not what RECORD says.
    """
    if (member := placed.member) is None:
        return None
    target = folder / str(sum(1 for _ in folder.iterdir()))
    with target.open("w+b", buffering=0) as stream:
        for chunk in archive.chunks(member, placed.identity):
            stream.write(chunk)
        zeros, whole = cut_file(stream, member.name, slim)
        if not zeros:
            target.unlink()
            return None
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").digest()
    about = CutFile(package=package, path=placed.path, bytes=zeros, packed=0, before=member.packed, whole=whole)
    identity = "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return Cut(path=target, identity=identity, size=member.size, about=about)


def cut_file(stream: BinaryIO, name: str, slim: Slim) -> tuple[int, int]:
    """Cut a library in place; unknown parts stay whole. Return (zeros, fat binaries that stay whole)."""
    code: list[elf.Extent] = []
    whole = 0
    for part in _fat_binaries(stream, name):
        with contextlib.suppress(FileError):
            cut_part = fatbin.unloaded(stream, part, name, slim.capabilities, keep_ptx=slim.ptx)
            code += cut_part.code
            whole += cut_part.whole
    for extent in code:
        stream.seek(extent.offset)
        for start in range(0, extent.size, CHUNK):
            stream.write(bytes(min(CHUNK, extent.size - start)))
    return sum(extent.size for extent in code), whole


def _fat_binaries(stream: BinaryIO, name: str) -> Iterator[elf.Extent]:
    """The places of a library's GPU code: its sections for it, and fat binaries among its data."""
    try:
        library = elf.read_stream(stream, name)
    except FileError:
        return
    yield from filter(None, (library.fat_binaries, library.linked_fat_binaries))
    for data in library.data:
        yield from [*fatbin.scattered(stream, data)]
