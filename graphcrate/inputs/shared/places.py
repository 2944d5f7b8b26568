"""Places of a shared cache: a repository of a registry, a folder, a web server: entries by tag, files by hash.

A place is asked and never trusted: what it gives counts by its signature, and a file by its hash.
"""

import contextlib
import errno
import functools
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

import msgspec

from dssesign.signing import ENVELOPE
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file, writing
from graphcrate.host.disk.os_errors import explaining
from graphcrate.host.net import Client
from graphcrate.host.sandbox import beneath
from graphcrate.inputs.shared import entry
from graphcrate.inputs.shared.entry import CacheEntry, SharedFile
from graphcrate.inputs.shared.leases import LeaseFolder, LeaseStore
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, IntegrityError, NetworkError, ResolutionError, UsageError
from graphcrate.oci import access, credentials, reference
from graphcrate.oci.registry import Repository
from ocilayout import spec
from ocilayout.image import descriptor_of
from ociregistry import push
from ociregistry.reference import on_registry
from ociregistry.upload import UploadBlob
from patienthttp.errors import ABSENT, redacted

_FILE = "application/octet-stream"
#: the config of a manifest that is no image's
_EMPTY = UploadBlob(descriptor=descriptor_of(spec.EMPTY, spec.EMPTY_BLOB), data=spec.EMPTY_BLOB)
_LEASE = "lease."  #: begins the tag of a lease, which no entry's does
_LEASE_KEY = "graphcrate.lease"
_PIECE = 1 << 20
_WRITING = 86400.0  #: seconds that writing an entry takes at most, and clocks differ
_ENTRIES, _BLOBS, _LEASES = "entries", "blobs/sha256", "leases"  #: folders of a folder
_MODE = 0o644  #: of its files: who may enter the folder may read them
#: names there that may go when no entry names them
_LEFT = {
    _ENTRIES: re.compile(rf"\.{entry.TAG.pattern}\.json\.part-.*"),
    _BLOBS: re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.part-.*"),
    _LEASES: re.compile(rf"\.?{entry.TAG.pattern}\.[0-9]+\.json(\.part-.*)?"),
}
_LONGEST_PAUSE = 0.25  #: seconds between two tries: compiling is the other way


class CachePlace(ABC):
    """One of the places with entries. Methods raise NetworkError, IntegrityError and OSError where the place fails."""

    name: str  #: as the user wrote it, without a password
    is_writable = True

    @abstractmethod
    def read(self, tag: str) -> bytes | None:
        """Return the envelope of an entry; None where there is none."""

    @abstractmethod
    def fetch(self, known: SharedFile, target: Path, advance: Callable[[int], None]) -> None:
        """Write a file of an entry to `target`. Its hash is for the caller to check."""

    @abstractmethod
    def write(self, made: CacheEntry, envelope: bytes, sources: Sequence[Path]) -> None:
        """Put an entry's files there, then the entry: who reads meanwhile finds all or none.

        `sources`: where the files are here, in their order.
        """

    @abstractmethod
    def tags(self) -> list[str]:
        """List the names of its entries."""

    @abstractmethod
    def remove(self, tag: str) -> None:
        """Remove an entry, where it is there. Its files may stay."""

    @property
    def leases(self) -> LeaseStore | None:
        """The leases of builders who make something for it; None for a place without any."""
        return None


@dataclass(frozen=True)
class CacheFolder(CachePlace):
    """A folder that several users have: `entries/<tag>.json` and `blobs/sha256/<hex>`."""

    name: str
    path: Path

    def read(self, tag: str) -> bytes | None:
        """Read it, if it is a plain file of that name."""
        try:
            with self._opened(self._entry(tag)) as stream:
                return stream.read(entry.MOST_BYTES)
        except FileNotFoundError:
            return None

    def fetch(self, known: SharedFile, target: Path, advance: Callable[[int], None]) -> None:
        """Copy it; no more than it should have."""
        with self._opened(self._blob(known)) as source, target.open("wb") as stream:
            left = known.size + 1
            while left > 0 and (piece := source.read(min(_PIECE, left))):
                stream.write(piece)
                left -= len(piece)
                advance(len(piece))

    def write(self, made: CacheEntry, envelope: bytes, sources: Sequence[Path]) -> None:
        """Write all under temporary names, and rename them; what another entry has brought is there already."""
        for name in (_ENTRIES, _BLOBS):
            self._make(name)
        for file, path in zip(made.files, sources, strict=True):
            if not self._blob(file).is_symlink() and file.is_at(self._blob(file)):
                with contextlib.suppress(OSError):  # another user's
                    os.utime(self._blob(file))  # `unnamed` leaves it
                continue
            with path.open("rb") as source, writing(self._blob(file), mode=_MODE) as part, part.open("wb") as stream:
                while piece := source.read(_PIECE):
                    stream.write(piece)
        write_file(self._entry(made.tag), envelope, _MODE)

    def tags(self) -> list[str]:
        """List them; files with other names are left out."""
        names = [path.stem for path in self._paths(_ENTRIES) if path.suffix == ".json"]
        return sorted(name for name in names if entry.TAG.fullmatch(name))

    def remove(self, tag: str) -> None:
        """Unlink it; who has it open reads on."""
        self._refuse_links(_ENTRIES)
        self._entry(tag).unlink(missing_ok=True)

    @property
    def leases(self) -> LeaseFolder:
        """A folder beside the entries."""
        return LeaseFolder(self.path / _LEASES, functools.partial(self._make, _LEASES))

    def unnamed(self, named: Collection[str]) -> list[Path]:
        """List files whose hash is none of these, halves of entries, and leases, but for what is being written.

        Files with names that we do not write are not ours, and stay.
        """
        old = settings.now() - _WRITING
        paths = sorted(
            path
            for folder, ours in _LEFT.items()
            for path in self._paths(folder)
            if ours.fullmatch(path.name) and path.name not in named
        )
        states = {path: path.lstat() for path in paths}
        return [path for path, state in states.items() if state.st_mtime < old]

    def _entry(self, tag: str) -> Path:
        return self.path / _ENTRIES / f"{tag}.json"

    def _blob(self, file: SharedFile) -> Path:
        return self.path / _BLOBS / file.sha256

    def _make(self, name: str) -> None:
        """Make a folder of the cache as open to others as the cache itself, with any umask of the user."""
        self._refuse_links(name)
        with explaining(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            mode = stat.S_IMODE(self.path.stat().st_mode)
            for folder in self._folders(name):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
                    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # it may be a link by now
                    try:
                        os.fchmod(opened, mode)
                    finally:
                        os.close(opened)

    def _folders(self, name: str) -> list[Path]:
        return [self.path / above for above in reversed(Path(name, "x").parents) if above != Path()]

    def _paths(self, name: str) -> list[Path]:
        self._refuse_links(name)
        folder = self.path / name
        return list(folder.iterdir()) if folder.is_dir() else []

    def _refuse_links(self, name: str) -> None:
        """Others write to the cache: a folder of it that is a link would have files of elsewhere removed and written.

        Raises IntegrityError.
        """
        for folder in self._folders(name):
            if folder.is_symlink():
                raise _not_a_file(folder)

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[IO[bytes]]:
        """Open a plain file. Others write to the folder: a link would lead out of it, and a pipe never ends."""
        with contextlib.ExitStack() as stack:
            try:
                stream = stack.enter_context(beneath.opened(self.path, str(path.relative_to(self.path))))
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EINVAL):
                    raise _not_a_file(path) from error
                raise
            yield stream


def _not_a_file(path: Path) -> IntegrityError:
    return IntegrityError(
        f"{path} is neither a file nor a folder", cause="A shared cache has no links, and nothing else that leads out."
    )


@dataclass(frozen=True)
class WebServer(CachePlace):
    """A folder as a web server shows it. Nothing is written there."""

    name: str
    address: str
    client: Client
    is_writable = False

    def read(self, tag: str) -> bytes | None:
        """Ask once: a cache that is slow to answer is none."""
        url = f"{self.address}/entries/{tag}.json"
        answer = self.client.request("GET", url, accept=(200, *ABSENT), tries=1, limit=entry.MOST_BYTES)
        return answer.body if answer.status == 200 else None

    def fetch(self, known: SharedFile, target: Path, advance: Callable[[int], None]) -> None:
        """Download it."""
        url = f"{self.address}/blobs/sha256/{known.sha256}"
        self.client.download(url, target, size=known.size, sha256=known.sha256, advance=advance, tries=1)

    def write(self, made: CacheEntry, envelope: bytes, sources: Sequence[Path]) -> None:
        """Raise NetworkError: it is read-only."""
        raise self._refusal

    def tags(self) -> list[str]:
        """Raise NetworkError: it answers for names alone."""
        raise self._refusal

    def remove(self, tag: str) -> None:
        """Raise NetworkError: it is read-only."""
        raise self._refusal

    @property
    def _refusal(self) -> NetworkError:
        return NetworkError(
            f"{self.name} is a web server, of which entries are read by their names alone",
            next_step="name the folder that it shows, or a registry",
        )


@dataclass(frozen=True)
class RegistryCache(CachePlace):
    """A repository of a registry: an artifact for each entry, with the envelope and the files as its blobs."""

    name: str
    reading: Repository
    writing: Repository

    def read(self, tag: str) -> bytes | None:
        """Read the artifact's first blob."""
        try:
            document = self.reading.manifest(tag)
        except ResolutionError:
            return None
        try:
            layers = codec.decode(document.data, spec.Manifest).layers
        except UNREADABLE as error:
            raise IntegrityError(f"{self.name}:{tag} is not an entry of a cache") from error
        if not layers or layers[0].media_type != ENVELOPE or layers[0].size > entry.MOST_BYTES:
            raise IntegrityError(f"{self.name}:{tag} is not an entry of a cache")
        return self.reading.config(layers[0])

    def fetch(self, known: SharedFile, target: Path, advance: Callable[[int], None]) -> None:
        """Pull the blob that the statement names, the manifest is not asked which."""
        self.reading.blob(_descriptor(known), target, advance)

    def write(self, made: CacheEntry, envelope: bytes, sources: Sequence[Path]) -> None:
        """Push the blobs, then the manifest under its tag: it names all of them, so that none is collected."""
        statement = descriptor_of(ENVELOPE, envelope)
        config = _EMPTY.descriptor
        files = [_descriptor(file) for file in made.files]
        manifest = spec.Manifest(schema_version=2, media_type=spec.MANIFEST, config=config, layers=(statement, *files))
        blobs = [UploadBlob(descriptor=blob, path=path) for blob, path in zip(files, sources, strict=True)]
        blobs += [UploadBlob(descriptor=statement, data=envelope), _EMPTY]
        push.push_blobs(self.writing, blobs, lambda _: None)
        push.put_manifest(self.writing, made.tag, msgspec.json.encode(manifest), spec.MANIFEST)

    def tags(self) -> list[str]:
        """List its tags; those of images are left out."""
        return sorted(tag for tag in self.reading.tags() if entry.TAG.fullmatch(tag))

    def remove(self, tag: str) -> None:
        """Remove the manifest; the registry collects the blobs that none has."""
        self.writing.remove(tag)

    @property
    def leases(self) -> "LeaseTags":
        """Tags beside those of the entries."""
        return LeaseTags(self.reading, self.writing)

    def left_leases(self) -> list[str]:
        """List the tags of leases without a beat for a day."""
        old = settings.now_utc(_WRITING)
        tags = [tag for tag in self.reading.tags() if tag.startswith(_LEASE)]
        return [tag for tag in tags if (known := _stated(self.reading, tag)) is None or known.when < old]


class _Stated(msgspec.Struct, frozen=True, kw_only=True):
    """The annotation of a lease's tag."""

    generation: Annotated[int, msgspec.Meta(ge=1)]
    text: str
    when: str  #: for `prune`, which removes what is old


@dataclass(frozen=True)
class LeaseTags:
    """Leases as tags of a repository. No registry creates a tag for one alone: the last one who wrote it has it."""

    reading: Repository
    writing: Repository
    delay: float = 6.0  #: two who saw the same before they wrote have both written by then

    def latest(self, name: str) -> tuple[int, bytes]:
        """Read the tag."""
        known = _stated(self.reading, f"{_LEASE}{name}")
        return (known.generation, known.text.encode()) if known is not None else (0, b"")

    def create(self, name: str, generation: int, text: bytes) -> bool:
        """Write the tag, with the one blob that a manifest has to have."""
        push.push_blobs(self.writing, [_EMPTY], lambda _: None)
        self.write(name, generation, text)
        return True

    def write(self, name: str, generation: int, text: bytes) -> None:
        """Replace the tag."""
        empty = _EMPTY.descriptor
        stated = _Stated(generation=generation, text=text.decode(), when=settings.now_utc())
        layer = msgspec.structs.replace(empty, annotations={_LEASE_KEY: msgspec.json.encode(stated).decode()})
        manifest = spec.Manifest(schema_version=2, media_type=spec.MANIFEST, config=empty, layers=(layer,))
        push.put_manifest(self.writing, f"{_LEASE}{name}", msgspec.json.encode(manifest), spec.MANIFEST)


def _stated(repository: Repository, tag: str) -> _Stated | None:
    """Return what the tag of a lease says; None where it says nothing."""
    try:
        (layer,) = codec.decode(repository.manifest(tag).data, spec.Manifest).layers
        return codec.decode(layer.annotations.get(_LEASE_KEY, "").encode(), _Stated)
    except (ResolutionError, ValueError, *UNREADABLE):
        return None


def _descriptor(file: SharedFile) -> spec.Descriptor:
    title = {"org.opencontainers.image.title": file.name}
    return spec.Descriptor(media_type=_FILE, digest=f"sha256:{file.sha256}", size=file.size, annotations=title)


def _pause(seconds: float) -> None:
    settings.wait(min(seconds, _LONGEST_PAUSE))


def parse(text: str, ctx: Context) -> CachePlace:
    """Return the place that a user names. Raises UsageError for what is none."""
    if text.startswith(("https://", "http://")):
        address = text.rstrip("/")
        return WebServer(redacted(address), address, Client(ctx.environment, note=ctx.progress.note, sleep=_pause))
    if named := on_registry(text):
        repository = reference.parse(named)
        return RegistryCache(
            repository.name,
            access.repository(repository, ctx, pause=_pause),
            access.repository(repository, ctx, find=credentials.for_destination, writes=True, pause=_pause),
        )
    path = Path(text).expanduser()
    if "/" not in text or not path.parent.is_dir():
        raise UsageError(
            f"{text!r} is not a place of a shared cache",
            cause="It is neither a repository of a registry, nor a folder that is there, nor an address.",
            next_step="one of registry.example/team/cache, /shared/cache, https://site.example/cache",
        )
    return CacheFolder(text, path.absolute())
