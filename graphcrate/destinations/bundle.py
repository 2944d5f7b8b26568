"""`--to bundle:FILE`: one tar for a site without a network. `unbundle` takes it in there.

bundle.json comes first and lists every other member with its hash, in the order in which they follow:
`image/` (layout, report, lock, audit, passes, proofs, the recipe), `files/<sha256>/<name>` (wheels, sdists, Debian's
packages), `compiled/` (wheels made of sdists), `blobs/` (of a base from a registry), `replaced/` (stand-ins of bases).
The same image with the same passes gives the same bytes.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec

from graphcrate.destinations import supplies, whole
from graphcrate.destinations.supplies import Supply
from graphcrate.errors import DiskFullError, IntegrityError, UsageError
from graphcrate.host.workplace import Workplace
from graphcrate.memory import FOLDER as PASSES
from graphcrate.model.bundle import Bundled, Contents, Member
from graphcrate.model.lock import Lock, decode_lock, encode
from graphcrate.model.report import BuildReport
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.oci import spec
from graphcrate.oci.layout import Layout, check_presence, read_layout
from graphcrate.oci.tar import BLOCK, END_OF_ARCHIVE, Kind, header, padding
from graphcrate.resolve.channels import Request as Sources
from graphcrate.vetting import AUDIT

CONTENTS, IMAGE = "bundle.json", "image"
REPORT, LOCK, PROOFS, RECIPE = "report.json", "lock.json", "proofs", "recipe.toml"
_CHUNK = 1 << 20


class _Part(msgspec.Struct, frozen=True):
    """A member and its bytes: a file, or these."""

    member: Member
    source: Path | None = None
    data: bytes = b""

    def chunks(self) -> Iterator[bytes]:
        if self.source is None:
            yield self.data
            return
        with self.source.open("rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk


def write(
    folder: Path,
    target: Path,
    place: Workplace,
    *,
    sources: Sources | None = None,
    proofs: Mapping[str, bytes] | None = None,
) -> Bundled:
    """Write the image in `folder` (dist/<name>/<tag>) and all that it was built from into one file.

    `sources`: where files are fetched from that the cache has not got. `proofs`: by file name. A file that is there
    already is replaced when the new one is whole. Raises UsageError for an image without a lock, IntegrityError for
    bytes that are not what the lock or the layout says, DiskFullError, HostError, and what fetching raises.
    """
    layout, report, lock = _opened(folder)
    gathered = list(supplies.gather(lock, sources or Sources(), place))
    parts = [*_image(folder, layout, lock, proofs or {}, place), *(_supplied(one) for one in gathered)]
    contents = _contents(folder, report, lock, parts)
    parts = [_of_bytes(CONTENTS, encode(contents)), *parts]
    size = sum(len(_header(part, 0)) + part.member.size + -part.member.size % BLOCK for part in parts)
    size += len(END_OF_ARCHIVE)
    with whole.explained(target.absolute().parent):
        _require(target, size)
        with (
            whole.parts() as temporary,
            place.progress.task(f"writing {target.name}", contents.size) as task,
        ):
            grown = temporary(target)
            with grown.open("xb", buffering=_CHUNK) as stream:
                sha256 = _write(stream, parts, lock.created, task.advance)
                stream.flush()
                os.fsync(stream.fileno())
            unchanged = target.is_file() and target.stat().st_size == size and whole.sha256(target) == sha256
            if not unchanged:
                grown.replace(target)
                whole.sync(target.absolute().parent)
    return Bundled(
        path=str(target),
        size=size,
        sha256=sha256,
        name=report.name,
        tag=report.tag,
        digest=report.digest,
        members=len(parts),
        files=len(gathered),
        notes=contents.notes,
        unchanged=unchanged,
    )


def _opened(folder: Path) -> tuple[Layout, BuildReport, Lock]:
    try:
        report = msgspec.json.decode((folder / REPORT).read_bytes(), type=BuildReport)
        lock = decode_lock((folder / LOCK).read_bytes())
        layout = read_layout(folder / "oci")
        check_presence(layout)
    except (FileNotFoundError, *UNREADABLE) as error:
        raise UsageError(
            f"{folder} has no image with its report and lock",
            cause=f"A bundle holds all that an image was built from, and {error} stands against it.",
            next_step="./build.py image NAME --cuda VERSION    builds it, without any other engine",
        ) from error
    if layout.digest != report.digest:
        raise IntegrityError(
            f"{folder}: the layout is {layout.digest}, and the report is of {report.digest}",
            next_step="build the image again; unchanged parts come from the cache",
        )
    return layout, report, lock


def _image(folder: Path, layout: Layout, lock: Lock, proofs: Mapping[str, bytes], place: Workplace) -> Iterator[_Part]:
    """What lies in the image's folder on the other side, the lock first."""
    yield _of_bytes(f"{IMAGE}/{LOCK}", (folder / LOCK).read_bytes())
    for name in (AUDIT, REPORT):
        if (folder / name).is_file():
            yield _of_bytes(f"{IMAGE}/{name}", (folder / name).read_bytes())
    for path in sorted((folder / PASSES).glob("*.json")):
        yield _of_bytes(f"{IMAGE}/{PASSES}/{path.name}", path.read_bytes())
    for name in sorted(proofs):
        yield _of_bytes(f"{IMAGE}/{PROOFS}/{name}", proofs[name])
    recipe = place.root / "recipes" / f"{lock.recipe}.toml"
    if recipe.is_file():
        yield _of_bytes(f"{IMAGE}/{RECIPE}", recipe.read_bytes())
    index = spec.Index(schema_version=2, media_type=spec.INDEX, manifests=(layout.descriptor,))
    yield _of_bytes(f"{IMAGE}/oci/index.json", msgspec.json.encode(index) + b"\n")
    version = msgspec.json.encode({"imageLayoutVersion": spec.LAYOUT_VERSION}) + b"\n"
    yield _of_bytes(f"{IMAGE}/oci/oci-layout", version)
    blobs = {one.digest: one for one in (layout.descriptor, layout.manifest.config, *layout.layers)}
    for one in blobs.values():
        sha256 = one.digest.removeprefix("sha256:")
        member = Member(path=f"{IMAGE}/oci/blobs/sha256/{sha256}", size=one.size, sha256=sha256)
        yield _Part(member, layout.blob(one.digest))


def _of_bytes(path: str, data: bytes) -> _Part:
    return _Part(Member(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest()), data=data)


def _supplied(one: Supply) -> _Part:
    return _Part(one.member, one.source)


def _contents(folder: Path, report: BuildReport, lock: Lock, parts: list[_Part]) -> Contents:
    links = [path for path in folder.absolute().parent.iterdir() if path.is_symlink()]
    return Contents(
        name=report.name,
        tag=report.tag,
        digest=report.digest,
        recipe=lock.recipe,
        cuda=lock.cuda,
        candidate=lock.candidate,
        request_sha256=lock.request_sha256,
        aliases=tuple(sorted(path.name for path in links if str(path.readlink()) == folder.name)),
        members=tuple(part.member for part in parts),
    )


def _header(part: _Part, created: int) -> bytes:
    return header(part.member.path, Kind.FILE, mode=0o644, mtime=created, size=part.member.size)


def _write(stream: IO[bytes], parts: list[_Part], created: int, advance: Callable[[int], None]) -> str:
    """The whole tar; its sha256. Raises IntegrityError for a file that is not what it should be."""
    total = hashlib.sha256()

    def put(data: bytes) -> None:
        total.update(data)
        stream.write(data)

    for part in parts:
        put(_header(part, created))
        found, size = hashlib.sha256(), 0
        for chunk in part.chunks():
            found.update(chunk)
            size += len(chunk)
            put(chunk)
            advance(len(chunk))
        if (size, found.hexdigest()) != (part.member.size, part.member.sha256):
            raise IntegrityError(
                f"{part.source} has {size} bytes with sha256 {found.hexdigest()}, and "
                f"{part.member.size} with {part.member.sha256} are wanted",
                cause="The file was changed after it was fetched or built, or the disk is faulty.",
                next_step=f"rm {part.source}    and build the image again",
            )
        put(padding(size))
    put(END_OF_ARCHIVE)
    return total.hexdigest()


def _require(target: Path, size: int) -> None:
    folder = target.absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise UsageError(f"{target} is a folder, and a bundle is a file", next_step=f"--to bundle:{target}/NAME.tar")
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DiskFullError(
            f"{target} needs {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free there",
            next_step="free some room, or name a place on another disk: --to bundle:FILE",
        )
