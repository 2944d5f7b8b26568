"""A wheel's libraries without the GPU code that some GPUs never load: zeros in its place, nothing else changed."""

import base64
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from graphcrate.artifacts.formats import elf, fatbin
from graphcrate.artifacts.wheel_archive import CHUNK, Archive, Member
from graphcrate.model.errors import IntegrityError
from graphcrate.model.plan import Slim
from graphcrate.model.report import CutFile


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


def cut(
    package: str, archive: Archive, member: Member, recorded: str, place: str, slim: Slim, folder: Path
) -> Cut | None:
    """Cut a member, in a new file of the folder; None where there is nothing to cut, or nothing that is understood.

    Raises IntegrityError for content that is not what RECORD says.
    """
    target = folder / str(sum(1 for _ in folder.iterdir()))
    with target.open("w+b", buffering=0) as stream:
        for chunk in archive.chunks(member, recorded):
            stream.write(chunk)
        code: list[elf.Extent] = []
        whole = 0
        for place_of_code in _fat_binaries(stream, member.name):
            # What is not understood stays as it is.
            with contextlib.suppress(IntegrityError):
                found = fatbin.unloaded(stream, place_of_code, member.name, slim.capabilities, keep_ptx=slim.ptx)
                code += found.code
                whole += found.whole
        if not code:
            target.unlink()
            return None
        for extent in code:
            stream.seek(extent.offset)
            for start in range(0, extent.size, CHUNK):
                stream.write(bytes(min(CHUNK, extent.size - start)))
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").digest()
    zeros = sum(extent.size for extent in code)
    about = CutFile(package=package, path=place, bytes=zeros, packed=0, before=member.packed, whole=whole)
    identity = "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return Cut(path=target, identity=identity, size=member.size, about=about)


def _fat_binaries(stream: BinaryIO, name: str) -> Iterator[elf.Extent]:
    """Where a library has GPU code: its sections for it, and what lies among its data."""
    try:
        library = elf.read_stream(stream, name)
    except IntegrityError:
        return
    yield from filter(None, (library.fat_binaries, library.linked_fat_binaries))
    for data in library.data:
        yield from [*fatbin.scattered(stream, data)]
