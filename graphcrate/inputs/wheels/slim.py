"""A wheel's libraries without the GPU code that some GPUs never load: zeros in its place, nothing else changed."""

import base64
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graphcrate.artifacts.formats import elf, fatbin
from graphcrate.artifacts.wheel_archive import CHUNK, Archive, Member
from graphcrate.model.errors import IntegrityError
from graphcrate.model.plan import Slim
from graphcrate.model.report import CutFile

#: Raise it whenever the same library would be cut otherwise. Part of the keys of layers that are cut.
SLIM_FORMAT = 1


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


def cut(archive: Archive, member: Member, recorded: str, place: str, slim: Slim, folder: Path) -> Cut | None:
    """Cut a member, in a new file of the folder; None where there is nothing to cut, or nothing that is understood.

    Raises IntegrityError for content that is not what RECORD says.
    """
    target = folder / str(sum(1 for _ in folder.iterdir()))
    with target.open("w+b", buffering=0) as stream:
        for chunk in archive.chunks(member, recorded):
            stream.write(chunk)
        found = fatbin.Unloaded((), 0)
        # What is not understood stays as it is.
        with contextlib.suppress(IntegrityError):
            for section in elf.read_stream(stream, member.name).all_fat_binaries:
                parts = fatbin.unloaded(stream, section, member.name, slim.capabilities, keep_ptx=slim.ptx)
                found = fatbin.Unloaded((*found.code, *parts.code), found.whole + parts.whole)
        if not found.code:
            target.unlink()
            return None
        for extent in found.code:
            stream.seek(extent.offset)
            for start in range(0, extent.size, CHUNK):
                stream.write(bytes(min(CHUNK, extent.size - start)))
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").digest()
    zeros = sum(extent.size for extent in found.code)
    about = CutFile(path=place, bytes=zeros, packed=0, before=member.packed, whole=found.whole)
    identity = "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return Cut(path=target, identity=identity, size=member.size, about=about)
