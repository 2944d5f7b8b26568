"""One layer from wheels: their files where an installer would put them, plus the bytecode of the image's Python."""

import hashlib
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from graphcrate.errors import IntegrityError
from graphcrate.host.cache import Cache
from graphcrate.model.report import LayerRecord, Owner
from graphcrate.oci.layer import LayerWriter
from graphcrate.wheels.archive import CHUNK, Member
from graphcrate.wheels.claims import Claims
from graphcrate.wheels.install import Placed, Site, place
from graphcrate.wheels.wheel import Wheel, open_wheel

#: Deflated members of at least this many packed bytes are copied; smaller ones are packed anew with their neighbours.
#: Measured in `docs/decisions/layer-splice.md`.
SPLICE_FROM = 1 << 16

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class WheelFile:
    """A wheel in the cache. `origin` tells it from all others; `bytecode` are the archives that were made for it."""

    name: str
    version: str
    path: Path
    origin: str
    sha256: str = ""  #: what the lock says; empty for a wheel that was built here
    bytecode: tuple[Path, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"


def write_wheels_layer(
    title: str, wheels: Sequence[WheelFile], site: Site, cache: Cache, advance: Advance = lambda _: None
) -> LayerRecord:
    """Write the layer's blob into the cache. `advance` gets the wheels' bytes as they are done.

    Files that several wheels hold with the same content are written once. Raises IntegrityError for a wheel that is
    not what lock or RECORD say, BuildError for two wheels that own one path with different content.
    """
    claims = Claims()
    owners: list[Owner] = []
    with cache.folder() as folder:
        blob = folder / "layer"
        with blob.open("wb", buffering=CHUNK) as stream:
            writer = LayerWriter(stream, site.mtime)
            for wheel in wheels:
                if wheel.sha256:
                    check_file(wheel.path, wheel.sha256)
                owners += _write_wheel(writer, wheel, site, claims, advance)
            record = writer.finish(title, _summed(owners))
        cache.adopt(blob, cache.blob(record.digest))
    return record


def check_file(path: Path, sha256: str) -> None:
    """Raises IntegrityError unless the file has this hash."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != sha256:
        raise IntegrityError(
            f"{path.name} in the cache has sha256 {digest.hexdigest()} and the lock says {sha256}",
            cause="The file was changed or damaged after it was downloaded.",
            next_step=f"rm {path}    (the next run fetches it again)",
        )


def _write_wheel(
    writer: LayerWriter, source: WheelFile, site: Site, claims: Claims, advance: Advance
) -> tuple[Owner, Owner]:
    with ExitStack() as stack:
        wheel = stack.enter_context(open_wheel(source.path))
        installation = place(wheel, site)
        compiled = _compiled(source, stack)
        record = installation.record(compiled, site.packages)
        files = {placed.path: placed for placed in installation.files}
        files[installation.record_path] = Placed(installation.record_path, 0o644, None, record)
        written = bytecode = advanced = 0
        # Sorted, so that sources of one folder, and its bytecode, are neighbours in what is compressed together.
        for path in sorted(files.keys() | compiled.keys()):
            if path in compiled:
                archive, info = compiled[path]
                if claims.claim(source.label, path, f"{info.file_size} bytes, CRC-32 {info.CRC:08x}"):
                    writer.data(path, archive.read(info))
                    bytecode += info.file_size
                continue
            placed = files[path]
            if not claims.claim(source.label, path, placed.identity):
                continue
            _write_file(writer, wheel, placed)
            written += placed.size
            if placed.member is not None:
                advance(placed.member.packed)
                advanced += placed.member.packed
        advance(source.path.stat().st_size - advanced)
    return (
        Owner(name=source.name, version=source.version, bytes=written),
        Owner(name="bytecode", version=site.python, bytes=bytecode),
    )


def _compiled(source: WheelFile, stack: ExitStack) -> dict[str, tuple[zipfile.ZipFile, zipfile.ZipInfo]]:
    """The `.pyc` files by their path in the image."""
    archives = [stack.enter_context(zipfile.ZipFile(path)) for path in source.bytecode]
    return {
        f"/{info.filename}": (archive, info)
        for archive in archives
        for info in archive.infolist()
        if info.filename.endswith(".pyc")
    }


def _write_file(writer: LayerWriter, wheel: Wheel, placed: Placed) -> None:
    member = placed.member
    if member is None:
        writer.data(placed.path, placed.content, placed.mode)
    elif _is_spliced(member):
        check = wheel.checker(member)
        packed = wheel.archive.packed_chunks(member)
        writer.deflated(placed.path, member.size, member.crc32, packed, placed.mode, check.update)
        check.finish()
    else:
        writer.stream(placed.path, member.size, wheel.chunks(member), placed.mode)


def _is_spliced(member: Member) -> bool:
    return member.deflated and member.packed >= SPLICE_FROM


def _summed(owners: Sequence[Owner]) -> list[Owner]:
    """Owners in order of appearance, bytecode once and last."""
    compiled = [owner for owner in owners if owner.name == "bytecode"]
    total = sum(owner.bytes for owner in compiled)
    packages = [owner for owner in owners if owner.name != "bytecode"]
    return [*packages, Owner(name="bytecode", version=compiled[0].version, bytes=total)] if total else packages
