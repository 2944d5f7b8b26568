"""Taking in what `bundle` wrote: each byte is checked on its way, and nothing half-written has a name at the end.

The list in bundle.json says what follows; a member of another name, kind, size or hash ends it. Names are taken from a
closed set of forms, so that no bundle writes anywhere else. Files of the lock that arrived whole stay in the cache.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NoReturn, cast

import msgspec

from graphcrate.catalogue import read_report
from graphcrate.destinations import supplies
from graphcrate.destinations.bundle import CONTENTS, IMAGE, LOCK, PROOFS, RECIPE, REPORT
from graphcrate.destinations.supplies import BLOBS, COMPILED, FILES, REPLACED
from graphcrate.errors import DiskFullError, IntegrityError, LayoutError, UsageError
from graphcrate.host.replace import appearing, link
from graphcrate.host.workplace import Workplace
from graphcrate.memory import FOLDER as PASSES
from graphcrate.model.bundle import BUNDLE_FORMAT, Contents, Imported, Member
from graphcrate.model.lock import LockedFile, decode_lock, encode
from graphcrate.model.report import BuildReport
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.oci import spec
from graphcrate.oci.blob import TarStream, inflated, members
from graphcrate.oci.layout import is_whole, read_layout
from graphcrate.resolve.store import is_stored
from graphcrate.vetting import AUDIT

LARGEST_CONTENTS = 16 << 20  #: bytes of a bundle.json that is still read
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", re.ASCII)
_FILE = r"[A-Za-z0-9_][A-Za-z0-9._+~%:!-]*"
_MEMBER = re.compile(
    rf"{IMAGE}/(?:{re.escape(LOCK)}|{re.escape(REPORT)}|{re.escape(AUDIT)}|{re.escape(RECIPE)}"
    rf"|(?:{PASSES}|{PROOFS})/{_FILE}|oci/index\.json|oci/oci-layout|oci/blobs/sha256/(?P<layer>[0-9a-f]{{64}}))"
    rf"|{FILES}/(?P<file>[0-9a-f]{{64}})/{_FILE}|{BLOBS}/(?P<blob>[0-9a-f]{{64}})"
    rf"|{COMPILED}/[0-9a-f]{{64}}/{_FILE}\.whl|{REPLACED}/[0-9a-f]{{64}}\.json",
    re.ASCII,
)
_WANTED = (f"{IMAGE}/{LOCK}", f"{IMAGE}/{REPORT}", f"{IMAGE}/oci/index.json", f"{IMAGE}/oci/oci-layout")


def take_in(file: Path, output: Path, place: Workplace) -> Imported:
    """Put the bundle's image into `output`/<name>/<tag> and all to build it again into the cache.

    What is there already stays. Raises IntegrityError naming the member for a bundle that is altered, cut off or
    hostile, UsageError for another kind of file and where another image stands in the place, DiskFullError.
    """
    with _opened(file) as stream:
        tar = _Tar(file, stream)
        contents = tar.contents()
        target = output / contents.name / contents.tag
        missing = _missing(contents, place)
        there = _is_there(target, contents)
        if not there and target.exists():
            raise UsageError(
                f"{target} is there already, and it is not the image {contents.digest[:19]}… of {file.name}",
                next_step=f"rm -r {target}    or name another folder: --output FOLDER",
            )
        if there and not missing:
            return _imported(contents, target, 0, unchanged=True)
        _require(contents, missing, target, place, there=there)
        with (
            place.cache.guard(),
            place.cache.folder() as scratch,
            place.progress.task(f"taking in {file.name}", contents.size) as task,
            appearing(target, IMAGE) as staging,
        ):
            sinks = _Sinks(place, scratch, staging)
            for member in contents.members:
                tar.take(member, sinks.of(member), task.advance)
            tar.end(contents)
            lock = sinks.finish(file, contents, target)
            supplies.put_by(lock, sinks.kept, place)
    for alias in contents.aliases:
        _name(output / contents.name / alias, contents.tag)
    return _imported(contents, target, len(missing), unchanged=False)


def _imported(contents: Contents, target: Path, files: int, *, unchanged: bool) -> Imported:
    return Imported(
        name=contents.name,
        tag=contents.tag,
        digest=contents.digest,
        folder=str(target),
        files=files,
        notes=contents.notes,
        unchanged=unchanged,
    )


class _Tar:
    """A bundle that is being read, member by member."""

    def __init__(self, file: Path, stream: TarStream) -> None:
        self._file, self._stream = file, stream
        self._headers = members(stream)

    def contents(self) -> Contents:
        """What bundle.json says, if it can be trusted with names. Raises IntegrityError, UsageError."""
        header = self._next(CONTENTS)
        if header is None or header.name != CONTENTS or not header.isreg():
            raise _no_bundle(self._file)
        if header.size > LARGEST_CONTENTS:
            self._refuse(CONTENTS, f"it has {header.size} bytes")
        with self._named(CONTENTS):
            data = b"".join(self._stream.chunks(header.size))
        try:
            told = msgspec.json.decode(data, type=_Format).format
            if told != BUNDLE_FORMAT:
                raise UsageError(
                    f"{self._file} is of format {told}, and this graphcrate reads {BUNDLE_FORMAT}",
                    next_step="take it in with the graphcrate that wrote it, or a newer one",
                )
            contents = msgspec.json.decode(data, type=Contents)
        except UNREADABLE as error:
            self._refuse(CONTENTS, f"it is malformed: {error}")
        self._check(contents)
        return contents

    def _check(self, contents: Contents) -> None:
        words = (contents.name, contents.tag, *contents.aliases)
        if not all(map(_WORD.fullmatch, words)) or not spec.DIGEST.fullmatch(contents.digest):
            self._refuse(CONTENTS, "it names an image that cannot be")
        paths = [member.path for member in contents.members]
        for member in contents.members:
            match = _MEMBER.fullmatch(member.path)
            stated = match and (match["layer"] or match["file"] or match["blob"])
            if match is None or member.size < 0 or not spec.DIGEST.fullmatch(f"sha256:{member.sha256}"):
                self._refuse(member.path, "no bundle has a member of this name")
            if stated and stated != member.sha256:
                self._refuse(member.path, f"it is listed with the sha256 {member.sha256}")
        if len(set(paths)) != len(paths):
            self._refuse(CONTENTS, "it lists a member twice")
        for path in _WANTED:
            if path not in paths:
                self._refuse(path, "it is missing")

    def take(
        self,
        member: Member,
        target: Callable[[], contextlib.AbstractContextManager[IO[bytes]]] | None,
        advance: Callable[[int], None],
    ) -> None:
        """Read the next member, which has to be this one, into what `target` opens; None: it is only checked."""
        header = self._next(member.path)
        if header is None:
            self._refuse(member.path, "the file ends before it")
        if header.name != member.path or not header.isreg():
            self._refuse(header.name, f"a file {member.path} should be in its place")
        if header.size != member.size:
            self._refuse(member.path, f"it has {header.size} bytes instead of {member.size}")
        digest = hashlib.sha256()
        with self._named(member.path), target() if target else contextlib.nullcontext(None) as stream:
            for chunk in self._stream.chunks(member.size):
                digest.update(chunk)
                advance(len(chunk))
                if stream is not None:
                    stream.write(chunk)
            if digest.hexdigest() != member.sha256:
                self._refuse(member.path, f"it has sha256 {digest.hexdigest()} instead of {member.sha256}")

    def end(self, contents: Contents) -> None:
        """Raises IntegrityError for anything after the last member."""
        header = self._next(contents.members[-1].path)
        if header is not None:
            self._refuse(header.name, "bundle.json does not list it")

    def _next(self, path: str) -> tarfile.TarInfo | None:
        with self._named(path):
            found = next(self._headers, None)
        return found[0] if found else None

    @contextlib.contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Say at which member a tar is broken."""
        try:
            yield
        except LayoutError as error:
            self._refuse(path, error.what)

    def _refuse(self, path: str, why: str) -> NoReturn:
        raise IntegrityError(
            f"{self._file}: {path}: {why}",
            cause="The bundle was cut off or altered on its way, or was made by somebody else.",
            next_step=f"sha256sum {self._file}    and compare with what `publish --to bundle:…` printed; copy it again",
        )


class _Format(msgspec.Struct):
    format: int = 0


class _Sinks:
    """Where members go: what belongs to the image to a folder that appears at the end, the rest to the cache."""

    def __init__(self, place: Workplace, scratch: Path, staging: Path | None) -> None:
        """`staging`: None where the image is there already."""
        self._place, self._scratch, self._staging = place, scratch, staging
        self.kept: dict[str, Path] = {}

    def of(self, member: Member) -> Callable[[], contextlib.AbstractContextManager[IO[bytes]]] | None:
        """What opens the member's file; None where it is not wanted."""
        kind, _, rest = member.path.partition("/")
        cache = self._place.cache
        if kind in (FILES, BLOBS):
            target = _stored(member, self._place)
            return None if target is None else lambda: cache.writing(target)
        if kind == IMAGE and self._staging is not None:
            return lambda: _new(cast("Path", self._staging) / member.path, read_only="/blobs/" in member.path)
        if kind == IMAGE and rest != LOCK:
            return None
        path = self._scratch / member.path
        self.kept[member.path] = path
        return lambda: _new(path)

    def finish(self, file: Path, contents: Contents, target: Path) -> bytes:
        """Check that the image is the one that bundle.json names; the lock's bytes. Raises IntegrityError."""
        image = (self._staging or self._scratch) / IMAGE
        data = (image / LOCK).read_bytes()
        try:
            decode_lock(data)
            if self._staging is None:
                return data
            report = msgspec.json.decode((image / REPORT).read_bytes(), type=BuildReport)
        except UNREADABLE as error:
            raise IntegrityError(f"{file}: lock or report is malformed: {error}") from error
        found = read_layout(image / "oci")
        if not is_whole(image / "oci", contents.digest) or report.digest != contents.digest:
            raise IntegrityError(f"{file}: its layout holds {found.digest}, and bundle.json says {contents.digest}")
        where = str(target / "oci")
        here = msgspec.structs.replace(report.artifact, reference=where)
        (image / REPORT).write_bytes(encode(msgspec.structs.replace(report, layout=where, artifact=here)))
        return data


@contextlib.contextmanager
def _new(path: Path, *, read_only: bool = False) -> Iterator[IO[bytes]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    path.chmod(0o444 if read_only else 0o644)


def _stored(member: Member, place: Workplace) -> Path | None:
    """Where the cache wants this member; None where it has it."""
    kind, _, rest = member.path.partition("/")
    if kind == BLOBS:
        blob = place.cache.blob(rest)
        return None if blob.is_file() and blob.stat().st_size == member.size else blob
    name = rest.partition("/")[2]
    file = LockedFile(name=name, size=member.size, sha256=member.sha256)
    return None if is_stored(file, place.cache) else place.cache.file(member.sha256, name)


def _missing(contents: Contents, place: Workplace) -> list[Member]:
    """Files that the cache lacks."""
    return [
        member
        for member in contents.members
        if member.path.startswith((f"{FILES}/", f"{BLOBS}/")) and _stored(member, place) is not None
    ]


def _is_there(target: Path, contents: Contents) -> bool:
    report = read_report(target / REPORT)
    return report is not None and report.digest == contents.digest and is_whole(target / "oci", contents.digest)


def _require(contents: Contents, missing: list[Member], target: Path, place: Workplace, *, there: bool) -> None:
    cached = sum(member.size for member in missing)
    place.cache.require(cached, "what the bundle holds for other builds")
    if there:
        return
    image = sum(member.size for member in contents.members if member.path.startswith(f"{IMAGE}/"))
    folder = target.absolute().parent
    while not folder.exists():
        folder = folder.parent
    together = folder.stat().st_dev == place.cache.root.stat().st_dev
    needed, free = image + (cached if together else 0), shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFullError(
            f"the bundle needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free under {folder}",
            next_step="free some room, or name a folder on another disk: --output FOLDER",
        )


def _name(alias: Path, tag: str) -> None:
    """A further tag as a link, unless something else has that name."""
    if not alias.is_symlink() and not alias.exists():
        link(alias, Path(tag))


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[TarStream]:
    try:
        source = file.open("rb")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UsageError(f"there is no file {file}", next_step="./build.py import FILE") from error
    with source:
        head = source.read(1024)
        if head[257:262] != b"ustar":
            raise _no_bundle(file)
        source.seek(0)
        yield inflated(spec.LAYER_TAR, source)


def _no_bundle(file: Path) -> UsageError:
    return UsageError(
        f"{file} is no bundle",
        cause="A bundle is a tar whose first member is bundle.json.",
        next_step="./build.py publish NAME:TAG --to bundle:FILE    writes one, on a machine that has the image",
    )
